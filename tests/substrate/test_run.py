"""Runs: orders, endings and their outcomes, and what a recipe may leave behind."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.dropin import Constant, read_dropin
from substrate.fork import Fork, make_fork, sealed_changes
from substrate.isolation import why_not
from substrate.job import Job, MetricsRow
from substrate.outcome import Outcome
from substrate.run import RunRecord, job_for, quote, run_recipe
from substrate.store import Snapshot, Store

STUB = Path(__file__).parents[1] / "substrates" / "stub"
RECIPE = "recipes/stub.py"
MakeSnapshot = Callable[..., Snapshot]
DELIVER = """
import json, pathlib
def deliver(**changes):
    result = dict(schema_version=1, state="finished", rollouts=1, tokens=1, adapter="out/adapter")
    pathlib.Path("out/result.json").write_text(json.dumps(result | changes))
"""


@pytest.fixture(scope="module")
def snapshot_with(tmp_path_factory: pytest.TempPathFactory) -> MakeSnapshot:
    """Seals the stub with other limits."""
    store = Store(tmp_path_factory.mktemp("store"))

    def seal(**limits: float) -> Snapshot:
        folder = tmp_path_factory.mktemp("dropin") / "stub"
        shutil.copytree(STUB, folder)
        lines = (folder / "substrate.toml").read_text().splitlines()
        lines = [line for line in lines if line.partition(" = ")[0] not in limits]
        at = lines.index("[limits]") + 1
        lines[at:at] = [f"{key} = {value}" for key, value in limits.items()]
        (folder / "substrate.toml").write_text("\n".join(lines))
        return store.seal(read_dropin(folder))

    return seal


@pytest.fixture(scope="module")
def snapshot(snapshot_with: MakeSnapshot) -> Snapshot:
    return snapshot_with()


@pytest.fixture
def fork(tmp_path: Path, snapshot: Snapshot) -> Fork:
    return make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])


def run_stub(
    snapshot: Snapshot, folder: Path, seed: int = 1, rollouts: int | None = None, **job: object
) -> Callable[..., tuple[Fork, RunRecord]]:
    """Runs the stub's recipe with constants of it set."""

    def run(**constants: Constant) -> tuple[Fork, RunRecord]:
        fork = make_fork(snapshot, folder, overrides={RECIPE: dict(constants)}, patches=[])
        orders = job_for(snapshot, recipe="stub", seed=seed, rollouts=rollouts)
        return fork, asyncio.run(run_recipe(fork, orders.model_copy(update=job)))

    return run


def run_text(fork: Fork, recipe: str) -> RunRecord:
    """Runs the text of a recipe in a fork."""
    (fork.root / "recipes" / "odd.py").write_text(DELIVER + recipe)
    job = job_for(fork.snapshot, recipe="odd", seed=1, rollouts=None)
    return asyncio.run(run_recipe(fork, job))


def test_a_run_leaves_orders_metrics_result_adapter_and_log(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    fork, record = run_stub(snapshot, tmp_path / "fork")()

    assert (record.outcome, record.reason) == (None, "")
    assert record.ending.exit_code == 0
    assert record.result is not None
    assert (record.result.state, record.result.rollouts) == ("finished", 960)
    assert record.result.data_sha256.keys() == {"data/target.jsonl"}
    out = fork.root / "out"
    assert sorted(os.listdir(out)) == [
        "adapter", "job.json", "metrics.jsonl", "result.json", "run.log",
    ]  # fmt: skip
    job = Job.model_validate_json((out / "job.json").read_text())
    assert (job.recipe, job.seed, job.budget.rollouts, job.seconds) == (RECIPE, 1, 960, 9.0)
    lines = (out / "metrics.jsonl").read_text().splitlines()
    rows = [MetricsRow.model_validate_json(line) for line in lines]
    assert [row.rollouts for row in rows] == list(range(32, 961, 32))  # 8 prompts of 4 rollouts


def test_one_seed_gives_one_adapter_and_another_gives_another(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    files = []
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        fork, _ = run_stub(snapshot, tmp_path / name, seed=seed)()
        files.append((fork.root / "out/adapter/adapter_model.safetensors").read_bytes())
    assert files[0] == files[1] != files[2]


@pytest.mark.parametrize(
    ("fault", "outcome", "reason"),
    [
        ("crash", Outcome.CRASHED, "exit code 1: RuntimeError: a planted crash"),
        ("memory", Outcome.OUT_OF_MEMORY, "more than 256 MiB resident"),
        ("diverge", Outcome.DIVERGED, "wanted a finite loss, found nan in step 0"),
        ("nan", None, ""),
        ("nothing", None, ""),
    ],
)
def test_each_fault_becomes_its_outcome(
    fault: str, outcome: Outcome | None, reason: str, snapshot: Snapshot, tmp_path: Path
) -> None:
    _, record = run_stub(snapshot, tmp_path / "fork")(FAULT=fault)
    assert (record.outcome, record.reason) == (outcome, reason)


def test_a_hang_that_ignores_sigterm_is_timed_out(
    snapshot_with: MakeSnapshot, tmp_path: Path
) -> None:
    snapshot = snapshot_with(seconds=1.0, grace_seconds=0.5)
    _, record = run_stub(snapshot, tmp_path / "fork")(FAULT="hang")
    assert record.outcome == Outcome.TIMED_OUT
    assert record.reason == "no result with an adapter within 1 s and 0.5 s of grace"
    assert record.ending.terminated


def test_a_run_stopped_by_sigterm_delivers_what_it_has(
    snapshot_with: MakeSnapshot, tmp_path: Path
) -> None:
    snapshot = snapshot_with(seconds=1.5)
    # The job grants more time than the jail does, so that SIGTERM comes first.
    fork, record = run_stub(snapshot, tmp_path / "fork", seconds=60.0)(STEP_SECONDS=0.1)
    assert record.outcome is None
    assert record.ending.limit == "seconds"
    assert record.result is not None and record.result.state == "stopped"
    assert 0 < record.result.rollouts < 960
    assert (fork.root / "out/adapter/adapter_model.safetensors").is_file()


def test_a_run_wraps_up_by_itself_when_its_time_is_up(snapshot: Snapshot, tmp_path: Path) -> None:
    _, record = run_stub(snapshot, tmp_path / "fork", seconds=0.3)(STEP_SECONDS=0.1)
    assert (record.outcome, record.ending.limit) == (None, None)
    assert record.result is not None and record.result.state == "stopped"


def test_a_smoke_run_takes_two_steps(snapshot: Snapshot, tmp_path: Path) -> None:
    fork, record = run_stub(snapshot, tmp_path / "fork", smoke=True)()
    assert record.outcome is None
    assert len((fork.root / "out/metrics.jsonl").read_text().splitlines()) == 2


def test_the_budget_is_used_up_and_not_passed(snapshot: Snapshot, tmp_path: Path) -> None:
    _, record = run_stub(snapshot, tmp_path / "fork", rollouts=100)(GROUP_SIZE=7)
    assert record.result is not None and record.result.rollouts == 100


def test_more_rollouts_than_the_budget_are_over_budget(fork: Fork) -> None:
    record = run_text(fork, "deliver(rollouts=961)")
    assert (record.outcome, record.reason) == (Outcome.OVER_BUDGET, "961 rollouts of 960")


@pytest.mark.parametrize(
    ("metrics", "outcome"),
    [
        ('{"step": 0, "rollouts": 960}\n', None),
        ('{"step": 0, "rollouts": 960}\n{"step": 1, "rollouts": 961}\n', Outcome.OVER_BUDGET),
        (
            '{"step": 0, "rollouts": 1}\n' * 9000 + '{"step": 1, "rollouts": 961}',
            Outcome.OVER_BUDGET,
        ),
        ("\n\n", None),
        ("no JSON", None),
        ('{"step": 0, "rollouts": NaN}', None),
    ],
)
def test_the_last_row_of_metrics_counts_where_the_result_says_less(
    metrics: str, outcome: Outcome | None, fork: Fork
) -> None:
    text = f"pathlib.Path('out/metrics.jsonl').write_text({metrics!r})\ndeliver(rollouts=960)"
    record = run_text(fork, text)
    assert record.outcome is outcome
    said = "metrics.jsonl says 961 rollouts of 960, result.json 960"
    assert record.reason == (said if outcome else "")


@pytest.mark.skipif(why_not("bubblewrap") is not None, reason="wanted bubblewrap here")
@pytest.mark.parametrize(
    "write",
    [
        "pathlib.Path('evaluation/solve.py').write_text('')",
        "pathlib.Path('evaluation/new.py').write_text('')",
        "pathlib.Path('evaluation/solve.py').chmod(0o777)",
        "pathlib.Path('evaluation/solve.py').unlink()",
        "pathlib.Path('evaluation').rename('away')",
        "pathlib.Path('substrate.toml').write_text('')",
        "pathlib.Path('substrate.toml').unlink()",
    ],
)
def test_behind_bubblewrap_sealed_copies_cannot_be_written(write: str, fork: Fork) -> None:
    record = run_text(fork, write)
    assert record.outcome is Outcome.CRASHED
    assert "Read-only file system" in record.reason or "busy" in record.reason
    assert sealed_changes(fork) == []


def test_a_recipe_sees_nothing_of_the_hosts_environment(
    fork: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "17")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    run_text(fork, "import os; json.dump(dict(os.environ), open('out/environment.json', 'w'))")
    found = json.loads((fork.root / "out/environment.json").read_text())
    assert found.keys() == {
        "PWD", "PATH", "LANG", "HOME", "TMPDIR", "SEEDBED_JAIL",
        "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONUNBUFFERED",
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
        "RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES",
        "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_",
    }  # fmt: skip
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["HF_HUB_OFFLINE"] == "1"


def test_a_run_writes_no_byte_code_into_fork_or_snapshot(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    fork, _ = run_stub(snapshot, tmp_path / "fork")()
    assert not [*fork.root.rglob("*.pyc"), *snapshot.root.rglob("*.pyc")]


# What a recipe says of itself


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ("pass", "no out/result.json"),
        ("deliver(score=1.0)", "out/result.json is not valid: score"),
        ("deliver(rollouts=-1)", "out/result.json is not valid: rollouts"),
        ("deliver(rollouts=True, tokens='many')", "out/result.json is not valid"),
        ("pathlib.Path('out/result.json').write_text('[' * 100_000)", "is not valid"),
        ("pathlib.Path('out/result.json').write_text(' ' * 2**21)", "more than 1048576 bytes"),
        ("pathlib.Path('out/result.json').mkdir()", "no out/result.json"),
        ("deliver(adapter=None)", "names no adapter"),
        ("deliver(state='failed', error='too hard')", "failed: too hard"),
        ("import os; deliver(); os.kill(os.getpid(), 11)", "signal 11"),
        ("deliver(); raise SystemExit(3)", "exit code 3"),
    ],
)
def test_a_forged_or_missing_result_is_a_crash(recipe: str, reason: str, fork: Fork) -> None:
    record = run_text(fork, recipe)
    assert record.outcome == Outcome.CRASHED
    assert reason in record.reason


def test_a_result_behind_a_link_or_in_a_pipe_is_not_read(fork: Fork, tmp_path: Path) -> None:
    elsewhere = tmp_path / "result.json"
    elsewhere.write_text(
        '{"state": "finished", "rollouts": 1, "tokens": 1, "adapter": "out/adapter"}'
    )
    record = run_text(fork, f"import os; os.symlink({str(elsewhere)!r}, 'out/result.json')")
    assert record.outcome == Outcome.CRASHED and record.result is None
    record = run_text(fork, "import os; os.mkfifo('out/result.json')")
    assert record.outcome == Outcome.CRASHED and "regular file" in record.reason


def test_the_result_of_an_earlier_run_does_not_count(fork: Fork) -> None:
    assert run_text(fork, "deliver()").outcome is None
    assert run_text(fork, "pass").outcome == Outcome.CRASHED


@pytest.mark.parametrize(
    "recipe",
    [
        "raise MemoryError",
        "deliver(state='failed', adapter=None, error='CUDA out of memory. Tried to allocate')",
        "import os; os.kill(os.getpid(), 9)",
    ],
)
def test_a_recipe_that_runs_out_of_memory_says_so_in_several_ways(recipe: str, fork: Fork) -> None:
    assert run_text(fork, recipe).outcome == Outcome.OUT_OF_MEMORY


def test_too_many_processes_are_a_crash(snapshot_with: MakeSnapshot, tmp_path: Path) -> None:
    fork = make_fork(snapshot_with(processes=4), tmp_path / "fork", overrides={}, patches=[])
    recipe = "import subprocess\nfor _ in range(8): subprocess.Popen(['sleep', '9'])\n"
    record = run_text(fork, recipe + "import time; time.sleep(9)")
    assert record.outcome == Outcome.CRASHED
    assert record.reason == "more than 4 processes at one time"


def test_a_missing_interpreter_is_infrastructure(snapshot: Snapshot, tmp_path: Path) -> None:
    settings = snapshot.manifest.run.model_copy(update={"python": "/nowhere/bin/python"})
    manifest = snapshot.manifest.model_copy(update={"run": settings})
    nowhere = Snapshot(snapshot.digest, snapshot.root, manifest, snapshot.entries)
    _, record = run_stub(nowhere, tmp_path / "fork")()
    assert record.outcome == Outcome.INFRASTRUCTURE
    assert "/nowhere/bin/python" in record.reason
    assert record.ending.seconds == 0


def test_a_recipe_that_is_not_there_is_a_crash(fork: Fork) -> None:
    job = job_for(fork.snapshot, recipe="absent", seed=1, rollouts=None)
    record = asyncio.run(run_recipe(fork, job))
    assert record.outcome == Outcome.CRASHED
    assert "No module named recipes.absent" in record.reason


@pytest.mark.parametrize("name", ["../stub", "stub.py", "a/b", ""])
def test_a_recipe_has_the_name_of_a_module(name: str, snapshot: Snapshot) -> None:
    with pytest.raises(ValueError, match="name of a module"):
        job_for(snapshot, recipe=name, seed=1, rollouts=None)


# The log


def test_the_log_keeps_its_two_ends(fork: Fork) -> None:
    recipe = "for line in range(100_000): print('line', line)\n"
    record = run_text(fork, recipe + "raise RuntimeError('the end')")
    log = (fork.root / "out/run.log").read_text()
    assert len(log) < 65 * 1024  # log_kb = 64, and a line that says how much is missing
    assert log.startswith("line 0\n") and log.endswith("RuntimeError: the end\n")
    assert record.ending.log_dropped > 1_000_000
    assert record.reason == "exit code 1: RuntimeError: the end"


def test_a_log_does_not_follow_a_link_out_of_the_fork(fork: Fork, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "run.log").write_text("mine")
    swap = f"import os, shutil; shutil.rmtree('out'); os.symlink({str(elsewhere)!r}, 'out')"
    record = run_text(fork, f"{swap}; deliver(); print('ours')")
    assert (elsewhere / "run.log").read_text() == "mine"
    assert record.outcome == Outcome.CRASHED and record.result is None
    # The next run makes its own folder and leaves the other alone.
    assert run_text(fork, "deliver()").outcome is None
    assert [path.name for path in elsewhere.iterdir()] == ["run.log"]


def test_a_reason_is_one_short_line_that_names_no_folder_of_ours(fork: Fork) -> None:
    record = run_text(fork, "raise RuntimeError(__file__ + ' \\x1b[31m ' + 'a' * 1000)")
    assert record.reason.startswith("exit code 1: RuntimeError: <fork>/recipes/odd.py  [31m aaa")
    assert len(record.reason) == 500 and record.reason.isprintable()
    assert str(fork.root) not in record.reason


def test_a_quoted_line_names_a_folder_by_its_name_however_it_is_spelt(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    assert quote(f"{link}/a {real}/b", {link: "<fork>"}) == "<fork>/a <fork>/b"
