"""Measuring: what an adapter must be to be scored, and that scores come from sealed code alone."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from substrate.dropin import Overrides, read_dropin
from substrate.fork import Fork, make_fork
from substrate.job import Result
from substrate.measure import (
    Measured,
    SealedAdapter,
    discard_adapter,
    measure,
    seal_adapter,
)
from substrate.outcome import Outcome
from substrate.run import job_for, run_recipe
from substrate.store import Snapshot, Store
from tests.substrates.stub.adapters import A, B, factors, safetensors, write_adapter

STUB = Path(__file__).parents[1] / "substrates" / "stub"
RESULT = Result(state="finished", rollouts=1, tokens=1, adapter="out/adapter")
SealStub = Callable[..., Snapshot]


@pytest.fixture(scope="module")
def seal_stub(tmp_path_factory: pytest.TempPathFactory) -> SealStub:
    """Seals the stub with texts of its evaluation replaced."""
    store = Store(tmp_path_factory.mktemp("store"))

    def seal(old: str = "", new: str = "", file: str = "solve.py") -> Snapshot:
        folder = tmp_path_factory.mktemp("dropin") / "stub"
        shutil.copytree(STUB, folder)
        solve = folder / "overlay/evaluation" / file
        assert old in solve.read_text()
        solve.write_text(solve.read_text().replace(old, new))
        return store.seal(read_dropin(folder))

    return seal


@pytest.fixture(scope="module")
def snapshot(seal_stub: SealStub) -> Snapshot:
    return seal_stub()


@pytest.fixture
def fork(tmp_path: Path, snapshot: Snapshot) -> Fork:
    return make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])


def deliver(fork: Fork, tensors: dict[str, np.ndarray] | None = None, **changes: Any) -> Path:
    """Lay an adapter into the fork as a run would: by default one that solves everything."""
    return write_adapter(fork.root / "out/adapter", tensors, **changes)


def measured(fork: Fork, scored: str = "dev", snapshot: Snapshot | None = None) -> Measured:
    """Seal what lies in the fork and measure it."""
    adapter = seal_adapter(fork, RESULT, fork.root.parent / "adapters")
    if isinstance(adapter, Measured):
        return adapter
    return score(adapter, snapshot or fork.snapshot, scored)


def score(adapter: SealedAdapter, snapshot: Snapshot, scored: str = "dev") -> Measured:
    sets = snapshot.manifest.sets
    if scored == "dev":
        return asyncio.run(measure(snapshot, adapter, snapshot.root / sets.dev.path, sets.dev))
    external = STUB / "judge/external.jsonl"
    return asyncio.run(measure(snapshot, adapter, external, sets.external))


def test_a_score_is_the_share_of_problems_solved_in_all_and_by_domain(fork: Fork) -> None:
    # The base solves 0.36 of the integers; 2.0 on strings alone solves all of those.
    deliver(fork, factors(0.0, 2.0, 0.0))
    found = measured(fork)
    assert (found.outcome, found.reason) == (Outcome.EVALUATED, "")
    assert found.score is not None
    problems = [json.loads(line) for line in (STUB / "dev/problems.jsonl").read_text().splitlines()]
    easy = {"integers": 0.36, "strings": 2.0, "lists": 0.20}
    solved = {
        domain: sum(p["difficulty"] < skill for p in problems if p["domain"] == domain)
        for domain, skill in easy.items()
    }
    assert solved["strings"] == 180
    assert found.score["domains"] == {
        "integers": {"value": solved["integers"] / 300, "n": 300},
        "strings": {"value": 1.0, "n": 180},
        "lists": {"value": solved["lists"] / 120, "n": 120},
    }
    assert found.score["value"] == sum(solved.values()) / 600
    assert (found.score["n"], found.score["metric"]) == (600, "accuracy")
    assert found.score["engine"] == "stub 1"


def test_external_is_scored_on_its_own_problems(fork: Fork) -> None:
    deliver(fork)
    dev, external = measured(fork), measured(fork, "external")
    assert dev.score is not None and external.score is not None
    assert (dev.score["n"], external.score["n"]) == (600, 400)
    assert dev.score["metric_version"] != external.score["metric_version"]


def test_an_adapter_is_sealed_read_only_under_its_hash(fork: Fork, tmp_path: Path) -> None:
    deliver(fork)
    (fork.root / "out/adapter/README.md").write_text("left out")
    sealed = seal_adapter(fork, RESULT, tmp_path / "adapters")
    again = seal_adapter(fork, RESULT, tmp_path / "adapters")
    assert isinstance(sealed, SealedAdapter) and sealed == again
    assert sealed.path == tmp_path / "adapters" / sealed.sha256
    assert os.listdir(tmp_path / "adapters") == [sealed.sha256]
    assert sorted(os.listdir(sealed.path)) == ["adapter_config.json", "adapter_model.safetensors"]
    assert sealed.path.stat().st_mode & 0o777 == 0o555
    assert {file.stat().st_mode & 0o777 for file in sealed.path.iterdir()} == {0o444}


# What may lie in the folder


def add_file(folder: Path) -> None:
    (folder / "adapter_model.bin").write_bytes(b"\x80\x04N.")  # a pickle


def link_weights(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder.parent / "elsewhere")
    (folder / "adapter_model.safetensors").symlink_to(folder.parent / "elsewhere")


def link_folder(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")


def pipe_config(folder: Path) -> None:
    (folder / "adapter_config.json").unlink()
    os.mkfifo(folder / "adapter_config.json")


def drop_config(folder: Path) -> None:
    (folder / "adapter_config.json").unlink()


def swell_weights(folder: Path) -> None:
    os.truncate(folder / "adapter_model.safetensors", (16 << 20) + 1)  # file_mb = 16


def swell_config(folder: Path) -> None:
    os.truncate(folder / "adapter_config.json", (64 << 10) + 1)


@pytest.mark.parametrize(
    ("harm", "rule"),
    [
        (add_file, "adapter-files"),
        (link_weights, "adapter-files"),
        (link_folder, "adapter-folder"),
        (pipe_config, "adapter-files"),
        (drop_config, "adapter-files"),
        (swell_weights, "adapter-size"),
        (swell_config, "adapter-size"),
    ],
)
def test_a_folder_of_anything_else_is_not_sealed(
    harm: Callable[[Path], None], rule: str, fork: Fork, tmp_path: Path
) -> None:
    harm(deliver(fork))
    found = seal_adapter(fork, RESULT, tmp_path / "adapters")
    assert isinstance(found, Measured)
    assert found.outcome == Outcome.INVALID_ADAPTER
    assert found.reason.startswith(rule) and str(fork.root) not in found.reason
    assert os.listdir(tmp_path / "adapters") == []


@pytest.mark.parametrize("path", ["/etc", "../outside", "out/../../outside", "out/none", "", "."])
def test_an_adapter_lies_inside_the_fork(path: str, fork: Fork, tmp_path: Path) -> None:
    shutil.copytree(deliver(fork), tmp_path / "outside")
    result = RESULT.model_copy(update={"adapter": path})
    found = seal_adapter(fork, result, tmp_path / "adapters")
    assert isinstance(found, Measured) and found.outcome == Outcome.INVALID_ADAPTER


# What may be in the two files: tests/reference/test_adapter.py goes through every rule


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"weights": b"\x80\x04}q\x00."}, "safetensors-header"),  # a pickle
        ({"weights": safetensors(factors(2.0))[:-1]}, "safetensors-offsets"),
        ({"tensors": factors(float("nan"))}, "not-finite"),
        ({"tensors": {A: factors()[A]}}, "missing-factor"),
        ({"r": 8}, "rank"),
        # In shape by itself, but nothing of this base's: the engine sees that.
        ({"tensors": {A: np.ones((4, 9)), B: np.ones((4, 4))}}, "shape"),
        ({"tensors": {A: np.ones((4, 8)), B: np.ones((5, 4))}}, "shape"),
        ({"tensors": {key.replace("skill", "a.skill"): t for key, t in factors(1.0).items()}},
         "tensor-key"),
    ],
)  # fmt: skip
def test_an_adapter_that_breaks_a_rule_is_invalid_and_unscored(
    changes: dict[str, Any], rule: str, fork: Fork
) -> None:
    deliver(fork, **changes)
    found = measured(fork)
    assert (found.outcome, found.score) == (Outcome.INVALID_ADAPTER, None)
    assert found.reason.startswith(f"{rule}: wanted")


def test_an_update_of_zero_is_no_change(fork: Fork) -> None:
    deliver(fork, factors(2.0) | {B: np.zeros((4, 4))})
    found = measured(fork)
    assert (found.outcome, found.score) == (Outcome.NO_CHANGE, None)


def test_what_peft_writes_beside_the_shape_does_no_harm(fork: Fork) -> None:
    base_sha256 = fork.snapshot.manifest.base.sha256
    settings = {"use_dora": False, "modules_to_save": None, "rank_pattern": {}, "lora_alpha": 8}
    deliver(fork, base_sha256=base_sha256, lora_dropout=0.1, peft_version="0.21.2", **settings)
    assert measured(fork).outcome == Outcome.EVALUATED


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_scores_as_single_where_it_is_exact(dtype: str, fork: Fork) -> None:
    exact = factors(0.25, 0.125, 0.0625)  # powers of two: the same number in all three types
    deliver(fork, exact)
    single = measured(fork)
    deliver(fork, weights=safetensors(exact, dtype))
    assert single.outcome == Outcome.EVALUATED
    assert measured(fork) == single


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [("nan", Outcome.INVALID_ADAPTER), ("nothing", Outcome.NO_CHANGE)],
)
def test_the_stubs_faults_of_weights_become_outcomes(
    fault: str, outcome: Outcome, snapshot: Snapshot, tmp_path: Path
) -> None:
    overrides: Overrides = {"recipes/stub.py": {"FAULT": fault}}
    fork = make_fork(snapshot, tmp_path / "fork", overrides=overrides, patches=[])
    job = job_for(snapshot, recipe="stub", seed=1, rollouts=None)
    record = asyncio.run(run_recipe(fork, job))
    assert record.outcome is None
    assert measured(fork).outcome == outcome


# Whose code and whose environment


def test_a_fork_that_changed_its_evaluation_gains_nothing(fork: Fork) -> None:
    deliver(fork, factors(0.1))
    honest = measured(fork)
    for name in ("solve.py", "score.py", "adapter.py"):
        file = fork.root / "evaluation" / name
        file.chmod(0o644)
        file.write_text(
            "ENGINE = 'cheat'\ndef solve(base, adapter, problems):\n return [1.0] * 600"
        )
    assert measured(fork) == honest


def test_the_scorer_sees_nothing_of_the_hosts_environment(
    seal_stub: SealStub, fork: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = 'ENGINE = " ".join(sorted(os.environ))'
    snapshot = seal_stub('ENGINE = "stub 1"', f"import os\n{engine}")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    deliver(fork)
    found = measured(fork, snapshot=snapshot)
    assert found.score is not None
    assert found.score["engine"].split() == [
        "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "HOME", "LANG", "MALLOC_MMAP_THRESHOLD_",
        "MALLOC_TRIM_THRESHOLD_", "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "PWD",
        "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "RAYON_NUM_THREADS", "SEEDBED_JAIL", "TMPDIR",
        "TOKENIZERS_PARALLELISM",
    ]  # fmt: skip


def test_another_evaluation_is_another_metric(seal_stub: SealStub, fork: Fork) -> None:
    deliver(fork)
    one, other = measured(fork), measured(fork, snapshot=seal_stub("stub 1", "stub 1.1"))
    assert one.score is not None and other.score is not None
    assert one.score["metric_version"] != other.score["metric_version"]


def test_the_scorer_leaves_no_byte_code_in_the_snapshot(fork: Fork) -> None:
    deliver(fork)
    measured(fork)
    assert not [*fork.snapshot.root.rglob("__pycache__")]


SOLVED = "    return [json.dumps([margin, weight_O_I[-1, 0]]) for margin in margins_P.tolist()]"
GRADED = "    return [_is_solved(*pair) for pair in zip(problems, answers, strict=True)]"


@pytest.mark.parametrize(
    ("file", "failure", "reason"),
    [
        ("solve.py", "raise RuntimeError('broken')", "an exception: RuntimeError: broken"),
        ("solve.py", "raise SystemExit(0)", "no valid score.json"),
        ("solve.py", "return ['0'] * 599", "wanted one answer to each of 600 questions, found 599"),
        ("solve.py", "return [1.5] * 600", "no valid score.json"),
        ("solve.py", "import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("grade.py", "raise RuntimeError('broken')", "wanted the scorer's answer to 'grade'"),
        ("grade.py", "import os; os._exit(0)", "wanted the scorer's answer to 'grade'"),
        ("grade.py", "return [1.5] * 600", "all from 0.0 to 1.0"),
        ("grade.py", "return [math.nan] * 600", "all from 0.0 to 1.0"),
        ("grade.py", "return []", "found others or none"),
    ],
)
def test_an_evaluation_that_fails_is_infrastructure_and_never_a_score(
    file: str, failure: str, reason: str, seal_stub: SealStub, fork: Fork
) -> None:
    old = SOLVED if file == "solve.py" else GRADED
    snapshot = seal_stub(old, f"    {failure}", file)
    deliver(fork)
    found = measured(fork, snapshot=snapshot)
    assert (found.outcome, found.score) == (Outcome.INFRASTRUCTURE, None)
    assert reason in found.reason
    assert str(snapshot.root) not in found.reason


def test_where_the_adapter_is_no_label_is(seal_stub: SealStub, fork: Fork) -> None:
    spy = """
    Path("score.json").write_text(json.dumps({"outcome": "no_change", "reason": json.dumps(
        [sorted(questions[0]), json.loads(Path("questions.jsonl").read_text().splitlines()[0])]
    )}))
    raise SystemExit(0)"""
    deliver(fork)
    found = measured(fork, snapshot=seal_stub(SOLVED, spy.lstrip("\n")))
    keys, asked = json.loads(found.reason)
    assert keys == sorted(asked) == ["domain", "id", "room", "salt"]


def test_an_adapter_that_moves_no_answer_is_no_change(fork: Fork) -> None:
    deliver(fork, factors(1e-30))  # not zero, and lost when it is added to the base's weights
    found = measured(fork)
    assert (found.outcome, found.score) == (Outcome.NO_CHANGE, None)
    assert found.reason.startswith("unbound")


def test_broken_problems_are_infrastructure(fork: Fork, tmp_path: Path) -> None:
    deliver(fork)
    adapter = seal_adapter(fork, RESULT, tmp_path / "adapters")
    assert isinstance(adapter, SealedAdapter)
    problems = tmp_path / "problems.jsonl"
    for text in ('{"id": "a", "domain"', '{"id": "a", "domain": "integers"}', ""):
        problems.write_text(text)
        dev = fork.snapshot.manifest.sets.dev
        found = asyncio.run(measure(fork.snapshot, adapter, problems, dev))
        assert (found.outcome, found.score) == (Outcome.INFRASTRUCTURE, None)


def test_a_sealed_adapter_that_was_changed_is_not_scored(fork: Fork, tmp_path: Path) -> None:
    deliver(fork)
    adapter = seal_adapter(fork, RESULT, tmp_path / "adapters")
    assert isinstance(adapter, SealedAdapter)
    weights = adapter.path / "adapter_model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(safetensors(factors(2.0)))
    assert score(adapter, fork.snapshot).outcome == Outcome.INFRASTRUCTURE


def test_an_adapter_goes_unless_it_was_delivered_since(fork: Fork, tmp_path: Path) -> None:
    deliver(fork)
    into = tmp_path / "adapters"
    sealed = seal_adapter(fork, RESULT, into)
    assert isinstance(sealed, SealedAdapter)
    os.utime(sealed.path, (1000.0, 1000.0))
    assert not discard_adapter(sealed.path, 1000.0) and sealed.path.is_dir()
    assert seal_adapter(fork, RESULT, into) == sealed, "the same once more"
    assert not discard_adapter(sealed.path, 1001.0) and sealed.path.is_dir()
    assert discard_adapter(sealed.path, sealed.path.stat().st_mtime + 1)
    assert list(into.iterdir()) == []
