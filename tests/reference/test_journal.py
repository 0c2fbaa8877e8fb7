"""The journal: whichever way a run ends, the host finds a result that says so."""

import json
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from substrate.job import AdapterShape, Budget, MetricsRow, Result
from substrate.job import Job as HostJob
from training.journal import Job, Journal, read_job


@pytest.fixture(autouse=True)
def fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder is a fork with orders in it; SIGTERM means afterwards what it did."""
    (tmp_path / "out").mkdir()
    (tmp_path / "target.jsonl").write_text('{"id": "a"}\n\n{"id": "b"}\n')
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)


def order(**changes: Any) -> Job:
    """Leave orders as the host does, and read them as a recipe does."""
    orders: dict[str, Any] = {
        "recipe": "recipes/x.py",
        "seed": 3,
        "budget": Budget(rollouts=10),
        "seconds": 60.0,
        "threads": 1,
        "device": "cpu",
        "base": "base",
        "target": "target.jsonl",
        "adapter": AdapterShape(rank=4, alpha=8, target_modules=["q_proj"]),
    }
    Path("out/job.json").write_text(HostJob(**(orders | changes)).model_dump_json())
    return read_job()


def result() -> Result:
    return Result.model_validate_json(Path("out/result.json").read_text())


def rows() -> list[dict[str, Any]]:
    lines = Path("out/metrics.jsonl").read_text().splitlines()
    assert [MetricsRow.model_validate_json(line) for line in lines]
    return [json.loads(line) for line in lines]


def test_orders_arrive_whole() -> None:
    job = order(checkpoint="out/checkpoint-3", smoke=True)
    assert job == Job(
        recipe="recipes/x.py",
        seed=3,
        rollouts=10,
        tokens=None,
        seconds=60.0,
        threads=1,
        device="cpu",
        base=Path("base"),
        target=Path("target.jsonl"),
        rank=4,
        alpha=8.0,
        target_modules=("q_proj",),
        checkpoint=Path("out/checkpoint-3"),
        smoke=True,
    )


def test_a_run_ends_with_its_budget() -> None:
    with Journal(order()) as journal:
        assert journal.read_problems(Path("target.jsonl")) == [{"id": "a"}, {"id": "b"}]
        while not journal.should_stop():
            journal.count(rollouts=min(4, journal.rollouts_left), tokens=7)
            journal.step(loss=0.5, accuracy=1.0)
        journal.deliver()
    assert [(row["step"], row["rollouts"]) for row in rows()] == [(0, 4), (1, 8), (2, 10)]
    found = result()
    assert (found.state, found.rollouts, found.tokens) == ("finished", 10, 21)
    assert found.adapter == "out/adapter"
    assert found.data_sha256.keys() == {"target.jsonl"}
    assert not Path("out/result.json.unfinished").exists()


def test_no_step_is_begun_once_the_tokens_are_used_up() -> None:
    with Journal(order(budget=Budget(rollouts=100, tokens=10))) as journal:
        while not journal.should_stop():
            journal.count(rollouts=1, tokens=4)
            journal.step(loss=0.5)
    found = result()
    assert (found.state, found.rollouts, found.tokens) == ("finished", 3, 12)


def test_a_journal_goes_on_from_where_it_was_saved() -> None:
    checkpoint = Path("checkpoint")
    checkpoint.mkdir()
    with Journal(order()) as journal:
        journal.count(rollouts=4, tokens=7)
        journal.step(loss=0.5)
        journal.save(checkpoint)
        journal.checkpoint(checkpoint)
        journal.count(rollouts=4, tokens=7)
        journal.step(loss=0.25)
    assert result().checkpoints == ["checkpoint"]
    with Journal(order()) as journal:
        journal.restore(checkpoint)
        assert (journal.rollouts_left, journal.steps) == (6, 1)
        journal.count(rollouts=6, tokens=1)
        journal.step(loss=0.125)
    found = result()
    assert (found.rollouts, found.tokens, found.checkpoints) == (10, 8, [])
    assert [(row["step"], row["rollouts"], row["loss"]) for row in rows()] == [
        (0, 4, 0.5),
        (1, 10, 0.125),
    ]


def test_a_run_that_delivers_nothing_names_no_adapter() -> None:
    with Journal(order()):
        pass
    assert (result().state, result().adapter) == ("finished", None)


def test_sigterm_and_time_stop_a_run() -> None:
    with Journal(order()) as journal:
        assert not journal.should_stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert journal.should_stop()
        journal.deliver()
    assert (result().state, result().adapter) == ("stopped", "out/adapter")
    with Journal(order(seconds=1e-9)) as journal:
        assert journal.should_stop()
    assert result().state == "stopped"


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_ends_the_run_as_diverged(loss: float) -> None:
    with Journal(order()) as journal:
        journal.step(loss=1.0, norm=math.nan, norms=[1.0, {"worst": math.inf}])
        journal.deliver()
        journal.step(loss=loss)
        pytest.fail("the step must not return")
    assert [(row["loss"], row.get("norm", 0)) for row in rows()] == [(1.0, None), (None, 0)]
    assert rows()[0]["norms"] == [1.0, {"worst": None}]
    assert (result().state, result().adapter) == ("diverged", None)


def test_an_exception_passes_and_leaves_a_result() -> None:
    with pytest.raises(MemoryError), Journal(order()) as journal:
        journal.count(rollouts=3)
        raise MemoryError("no room" + "!" * 1000)
    found = result()
    assert (found.state, found.rollouts, found.adapter) == ("failed", 3, None)
    assert found.error is not None and found.error.startswith("MemoryError: no room!!")
    assert len(found.error) == 500


def test_orders_without_a_key_are_refused() -> None:
    order()
    orders = json.loads(Path("out/job.json").read_text())
    del orders["seed"]
    Path("out/job.json").write_text(json.dumps(orders))
    with pytest.raises(KeyError, match="seed"):
        read_job()
