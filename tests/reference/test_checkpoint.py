"""A checkpoint: whole or not there, whenever the process that writes it is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from training import checkpoint
from training.journal import Job, Journal

REFERENCE = Path(__file__).parents[2] / "substrate" / "reference"
# Saves one checkpoint after the other, whose tensor, state and journal have the step's number.
WRITER = """
import torch
from tests.reference.test_checkpoint import opened
from training import checkpoint
from training.journal import Journal

with Journal(opened()) as journal:
    while True:
        journal.count(rollouts=1)
        journal.step(loss=0.0)
        number = torch.full((300_000,), float(journal.steps))
        checkpoint.save(journal, {"number": number}, {"number": journal.steps})
"""


def opened() -> Job:
    return Job(
        recipe="recipes/x.py",
        seed=3,
        rollouts=10**6,
        tokens=None,
        seconds=100.0,
        threads=1,
        device="cpu",
        base=Path("base"),
        target=Path("target.jsonl"),
        rank=4,
        alpha=8.0,
        target_modules=("q_proj",),
        checkpoint=None,
        smoke=False,
    )


@pytest.fixture(autouse=True)
def fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)


def names() -> list[str]:
    return sorted(path.name for path in checkpoint.FOLDER.iterdir())


def test_what_is_saved_is_what_is_loaded(fork: Path) -> None:
    tensors = {"a/b": torch.arange(6.0).view(2, 3).T, "c": torch.tensor([1.5]).bfloat16()}
    with Journal(opened()) as journal:
        journal.count(rollouts=7, tokens=70)
        journal.step(loss=0.5, reward=1.0)
        checkpoint.save(journal, tensors, {"ratings": [[25.0, 8.25]]})
    folder = fork / "elsewhere"
    (checkpoint.FOLDER / "000001").rename(folder)
    with Journal(opened()) as journal:
        found, state = checkpoint.load(journal, folder)
        assert (journal.rollouts, journal.tokens, journal.steps) == (7, 70, 1)
        assert found.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype
            assert torch.equal(found[name], tensor)
        assert state == {"ratings": [[25.0, 8.25]]}
    (row,) = map(json.loads, (fork / "out" / "metrics.jsonl").read_text().splitlines())
    assert (row["step"], row["reward"]) == (0, 1.0)


def test_the_newest_one_is_kept_and_named_in_the_result(fork: Path) -> None:
    with Journal(opened()) as journal:
        for wanted in ("000001", "000002"):
            journal.step(loss=0.0)
            checkpoint.save(journal, {}, {})
            assert names() == [wanted]
    result = json.loads((fork / "out" / "result.json").read_text())
    assert result["checkpoints"] == ["out/checkpoints/000002"]


def test_what_a_killed_process_left_half_written_is_no_part_of_the_next_one(fork: Path) -> None:
    left = checkpoint.FOLDER / "unfinished"
    left.mkdir(parents=True)
    (left / "garbage").write_text("x")
    with Journal(opened()) as journal:
        journal.step(loss=0.0)
        checkpoint.save(journal, {}, {})
        checkpoint.save(journal, {}, {"again": 1})  # of the same step
        assert names() == ["000001"]
        assert "garbage" not in {path.name for path in (checkpoint.FOLDER / "000001").iterdir()}
        assert checkpoint.load(journal, checkpoint.FOLDER / "000001")[1] == {"again": 1}


def test_a_process_that_is_killed_while_it_writes_leaves_a_whole_checkpoint(fork: Path) -> None:
    root = REFERENCE.parents[1]
    environment = os.environ | {"PYTHONPATH": f"{REFERENCE}{os.pathsep}{root}"}
    for attempt in range(2):
        process = subprocess.Popen([sys.executable, "-c", WRITER], cwd=fork, env=environment)
        try:
            deadline = time.monotonic() + 100
            while not list(checkpoint.FOLDER.glob("0*")):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(0.005 * attempt)  # anywhere in the next ones
        finally:
            process.kill()
            process.wait()
        newest = max(checkpoint.FOLDER.glob("0*"))
        with Journal(opened()) as journal:
            tensors, state = checkpoint.load(journal, newest)
            assert journal.steps == journal.rollouts == state["number"] == int(newest.name)
            assert torch.equal(tensors["number"], torch.full((300_000,), float(state["number"])))
        for folder in checkpoint.FOLDER.glob("0*"):
            folder.rename(fork / f"{attempt} {folder.name}")
