"""Seals: whatever a recipe leaves in its fork, the score comes from the snapshot's own code."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.dropin import read_dropin
from substrate.fork import Fork, make_fork, sealed_changes
from substrate.job import Result
from substrate.measure import Measured, measure, seal_adapter
from substrate.run import job_for, run_recipe
from substrate.store import Snapshot, Store
from tests.substrates.stub.adapters import factors, write_adapter

STUB = Path(__file__).parents[1] / "substrates" / "stub"
RESULT = Result(state="finished", rollouts=1, tokens=1, adapter="out/adapter")

# Where it is run at all, it forges a perfect score and ends.
FORGERY = """
import os
with open("score.json", "w") as file:
    file.write('{"outcome": "evaluated", "engine": "forged", "values": [' + "1.0, " * 599 + '1.0]}')
os._exit(0)
"""
PLANTS = (
    *("sitecustomize.py", "usercustomize.py", "conftest.py", "json.py", "torch.py", "numpy.py"),
    *("pathlib.py", "typing.py", "evaluation.py", "training.py", "score.py", "out/adapter.py"),
    *("evaluation/__init__.py", "evaluation/solve.py", "evaluation/json.py", "training/world.py"),
    *("training/__init__.py", "recipes/sitecustomize.py", "data.py"),
)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return Store(tmp_path_factory.mktemp("store")).seal(read_dropin(STUB))


@pytest.fixture
def fork(tmp_path: Path, snapshot: Snapshot) -> Iterator[Fork]:
    fork = make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])
    write_adapter(fork.root / "out/adapter", factors(0.1, 0.1, 0.1))
    yield fork


def scored(fork: Fork) -> Measured:
    adapter = seal_adapter(fork, RESULT, fork.root.parent / "adapters")
    assert not isinstance(adapter, Measured)
    dev = fork.snapshot.manifest.sets.dev
    return asyncio.run(measure(fork.snapshot, adapter, fork.snapshot.root / dev.path, dev))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, snapshot: Snapshot) -> dict[str, object]:
    """The score of the same adapter from a fork without a plant."""
    folder = tmp_path_factory.mktemp("honest")
    fork = make_fork(snapshot, folder / "fork", overrides={}, patches=[])
    write_adapter(fork.root / "out/adapter", factors(0.1, 0.1, 0.1))
    found = scored(fork).score
    assert found is not None and found["value"] < 0.9
    return found


def plant(fork: Fork, path: str, text: str = FORGERY) -> None:
    file = fork.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        file.chmod(0o644)
    file.write_text(text)


def test_the_forgery_forges_where_it_is_run(fork: Fork) -> None:
    plant(fork, "json.py")
    subprocess.run([sys.executable, "-c", "import json"], cwd=fork.root, check=True)
    forged = json.loads((fork.root / "score.json").read_text())
    assert len(forged["values"]) == 600


@pytest.mark.parametrize("path", PLANTS)
def test_a_module_left_in_the_fork_has_no_say(
    fork: Fork, honest: dict[str, object], path: str
) -> None:
    plant(fork, path)
    assert scored(fork).score == honest


def test_neither_have_path_files_shims_links_and_ready_made_scores(
    fork: Fork, honest: dict[str, object]
) -> None:
    plant(fork, "forged.pth", f"import sys; exec({FORGERY!r})\n")
    plant(fork, "pyvenv.cfg", f"home = {fork.root}\n")
    for name in ("python", "python3", "sh", "env", "bwrap"):
        plant(fork, f"bin/{name}", f"#!{sys.executable}\n{FORGERY}")
        (fork.root / "bin" / name).chmod(0o755)
    plant(fork, "score.json", '{"outcome": "evaluated", "engine": "forged", "values": [1.0]}')
    plant(fork, "out/score.json", "{}")
    (fork.root / "out/problems.jsonl").symlink_to(fork.root / "score.json")
    assert scored(fork).score == honest


def test_a_run_cannot_patch_installed_packages_the_snapshot_or_its_own_interpreter(
    fork: Fork, honest: dict[str, object], tmp_path: Path
) -> None:
    places = [Path(path) for path in sys.path if path.endswith("site-packages")]
    targets = [place / f"seedbed-plant-{os.getpid()}.pth" for place in places]
    targets += [fork.snapshot.root / "evaluation/solve.py", fork.snapshot.root / "sitecustomize.py"]
    recipe = f"""
import os
for target in {[str(target) for target in targets]!r}:
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.chmod(os.path.dirname(target), 0o777)
    except OSError:
        pass
    try:
        open(target, "w").write({FORGERY!r})
    except OSError:
        pass
"""
    before = [target.read_bytes() if target.exists() else None for target in targets]
    (fork.root / "recipes/odd.py").write_text(recipe)
    asyncio.run(run_recipe(fork, job_for(fork.snapshot, recipe="odd", seed=1, rollouts=None)))
    try:
        now = [target.read_bytes() if target.exists() else None for target in targets]
        assert now == before
    finally:
        for target, content in zip(targets, before, strict=True):
            if content is None:
                target.unlink(missing_ok=True)
    write_adapter(fork.root / "out/adapter", factors(0.1, 0.1, 0.1))
    assert scored(fork).score == honest


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o555, 0o4444])
def test_the_mode_of_a_sealed_copy_counts(fork: Fork, mode: int) -> None:
    assert sealed_changes(fork) == []
    (fork.root / "substrate.toml").chmod(mode)
    assert sealed_changes(fork) == ["substrate.toml"]


def test_pipes_and_links_in_sealed_places_are_changes(fork: Fork) -> None:
    os.mkfifo(fork.root / "evaluation/pipe")
    (fork.root / "evaluation/link").symlink_to("solve.py")
    (fork.root / "evaluation/folder").symlink_to(fork.root / "recipes")
    assert sealed_changes(fork) == ["evaluation/folder", "evaluation/link", "evaluation/pipe"]
