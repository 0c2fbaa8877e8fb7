"""The recipe for verifiable rewards, on a tiny random model: each run is a process."""

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evaluation.adapter import check
from substrate.dropin import Overrides, read_dropin
from substrate.fork import Fork, make_fork
from substrate.job import MetricsRow, Result
from substrate.outcome import Outcome
from substrate.run import RunRecord, environment, job_for, run_recipe
from substrate.store import Snapshot, Store
from tests.reference.tiny_dropin import SETS, write_base, write_dropin
from training.mixture import draw

# The rewards of this drop-in, laid over the reference as a file of its own.
WORLD = '''\
"""Letters: a completion is right when it begins with the answer, always the same."""


def reward(problem: dict, completion: str) -> float:
    return float(completion.startswith(problem["answer"]))
'''
OVERRIDES: Overrides = {
    "recipes/rlvr.py": {
        "LEARNING_RATE": 1e-2,
        "PROMPTS": 8,
        "GROUP": 8,
        "MAX_TOKENS": 6,
        "DEPTH_WEIGHTS": [1.0],
    }
}


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("dropin") / "letters"
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "head_dim": 16}
    # With a smaller initializer_range no adapter could make a token likely.
    write_base(folder / "base", "abcd=>", initializer_range=0.15, **shape)
    problems = {
        name: [
            {
                "id": f"{name}-{letter}",
                "domain": "letters",
                "prompt": f"{letter * number}=>",
                "answer": "a",
            }
            for letter in "abcd"
        ]
        for number, name in enumerate(SETS, start=1)
    }
    write_dropin(folder, problems, recipe="rlvr", rank=4, alpha=8.0, rollouts=1000)
    (folder / "overlay/training").mkdir(parents=True)
    (folder / "overlay/training/world.py").write_text(WORLD)
    return Store(tmp_path_factory.mktemp("store")).seal(read_dropin(folder))


def run(
    snapshot: Snapshot,
    folder: Path,
    *,
    seed: int = 1,
    rollouts: int | None = None,
    smoke: bool = False,
    overrides: dict[str, Any] | None = None,
) -> tuple[Fork, RunRecord]:
    constants = OVERRIDES["recipes/rlvr.py"] | (overrides or {})
    fork = make_fork(snapshot, folder, overrides={"recipes/rlvr.py": constants}, patches=[])
    job = job_for(snapshot, recipe="rlvr", seed=seed, rollouts=rollouts, smoke=smoke)
    return fork, asyncio.run(run_recipe(fork, job))


def rows_of(fork: Fork) -> list[MetricsRow]:
    lines = (fork.root / "out/metrics.jsonl").read_text().splitlines()
    return [MetricsRow.model_validate_json(line) for line in lines]


def norm_of(fork: Fork, snapshot: Snapshot) -> float:
    """The norm of the delivered adapter's update, after the scorer's checks."""
    shape = snapshot.manifest.adapter
    return check(
        fork.root / "out/adapter",
        rank=shape.rank,
        alpha=shape.alpha,
        target_modules=shape.target_modules,
        base_sha256=snapshot.manifest.base.sha256,
    )


@pytest.mark.slow
def test_two_smoke_steps_of_one_seed_deliver_the_same_bytes(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    forks = []
    for name in ("once", "again"):
        fork, record = run(snapshot, tmp_path / name, smoke=True)
        assert (record.outcome, record.reason) == (None, "")
        assert record.result is not None
        assert (record.result.state, record.result.rollouts) == ("finished", 128)
        assert 128 <= record.result.tokens <= 128 * 6
        assert record.result.data_sha256.keys() == {"data/target.jsonl"}
        forks.append(fork)
    rows = rows_of(forks[0])
    assert [(row.step, row.rollouts) for row in rows] == [(0, 64), (1, 128)]
    assert norm_of(forks[0], snapshot) > 0
    for file in ("adapter_model.safetensors", "adapter_config.json"):
        first, second = ((fork.root / "out/adapter" / file).read_bytes() for fork in forks)
        assert first == second, file


def test_sigterm_ends_a_run_with_a_usable_adapter(snapshot: Snapshot, tmp_path: Path) -> None:
    fork = make_fork(snapshot, tmp_path / "fork", overrides=OVERRIDES, patches=[])
    job = job_for(snapshot, recipe="rlvr", seed=1, rollouts=10**6)
    out = fork.root / "out"
    out.mkdir(exist_ok=True)
    (out / "job.json").write_text(job.model_dump_json())
    with (tmp_path / "log").open("wb") as log:
        recipe = subprocess.Popen(
            [sys.executable, "-P", "-m", "recipes.rlvr"],
            cwd=fork.root,
            env=os.environ | environment(snapshot.manifest) | {"PYTHONPATH": str(fork.root)},
            stdout=log,
            stderr=log,
        )
    try:
        while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").read_text():
            assert recipe.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.05)
        recipe.send_signal(signal.SIGTERM)
        assert recipe.wait(timeout=60) == 0
    finally:
        recipe.kill()
        recipe.wait()
    result = Result.model_validate_json((out / "result.json").read_text())
    assert (result.state, result.adapter) == ("stopped", "out/adapter")
    assert 64 <= result.rollouts == rows_of(fork)[-1].rollouts < 10**6
    assert norm_of(fork, snapshot) > 0


@pytest.mark.slow
def test_training_raises_the_reward(snapshot: Snapshot, tmp_path: Path) -> None:
    fork, record = run(snapshot, tmp_path / "fork", rollouts=2000)
    assert record.outcome is None, record.reason
    assert record.result is not None
    assert record.result.rollouts == 2000 - 2000 % 64  # whole steps
    rewards = [(row.model_extra or {})["reward"] for row in rows_of(fork)]
    assert rewards[0] < 0.3
    assert sum(rewards[-5:]) / 5 > 0.8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "rollouts", "outcome", "reason"),
    [
        ({"LEARNING_RATE": 1e39}, None, Outcome.DIVERGED, "wanted a finite loss, found nan"),
        (
            {"DEPTH_WEIGHTS": [0.0, 1.0]},
            None,
            Outcome.CRASHED,
            "set has depths [1]: raise a weight",
        ),
        ({"LOSS": "dapo"}, None, Outcome.CRASHED, "wanted a loss of ('dr_grpo', 'grpo')"),
        ({}, 7, Outcome.CRASHED, "wanted a budget of a group, 8 rollouts, found 7"),
    ],
)
def test_what_cannot_be_trained_is_an_outcome_with_its_reason(
    snapshot: Snapshot,
    tmp_path: Path,
    overrides: dict[str, Any],
    rollouts: int | None,
    outcome: Outcome,
    reason: str,
) -> None:
    _, record = run(snapshot, tmp_path / "fork", rollouts=rollouts, overrides=overrides)
    assert record.outcome == outcome
    assert reason in record.reason


@pytest.mark.slow
def test_a_budget_of_less_than_a_batch_makes_one_smaller_step(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    fork, record = run(snapshot, tmp_path / "fork", rollouts=30)
    assert record.outcome is None, record.reason
    assert [row.rollouts for row in rows_of(fork)] == [24]


PROBLEMS = [
    {"domain": domain, "format": form, "depth": depth, "prompt": f"{domain}{form}{depth}{number}"}
    for domain in ("int", "str")
    for form in ("deduce", "choose")
    for depth in (1, 2, 3, 6)
    for number in range(depth)  # more problems of a depth must not make it likelier
]


def counted(key: str, **weights: Any) -> dict[Any, float]:
    """The shares of a field's values in 20,000 draws."""
    drawn = itertools.islice(draw(PROBLEMS, random.Random(0), **weights), 20_000)
    return {value: n / 20_000 for value, n in Counter(p[key] for p in drawn).items()}


def test_problems_are_drawn_by_the_weight_of_their_depth() -> None:
    found = counted("depth", depth_weights=[1.0, 0.0, 3.0])
    assert found == pytest.approx({1: 0.25, 3: 0.75}, abs=0.02)


def test_domains_and_formats_have_weight_1_unless_another_is_given() -> None:
    weights = {
        "depth_weights": [1.0] * 16,
        "domain_weights": [["int", 3.0]],
        "format_weights": [["choose", 0.0], ["deduce", 2.0]],
    }
    assert counted("domain", **weights) == pytest.approx({"int": 0.75, "str": 0.25}, abs=0.02)
    assert counted("format", **weights) == {"deduce": 1.0}
    assert counted("depth", **weights) == pytest.approx(dict.fromkeys((1, 2, 3, 6), 0.25), abs=0.02)


def test_rehearsal_takes_its_share_from_the_shallow_depths() -> None:
    found = counted("depth", depth_weights=[0, 0, 0, 0, 0, 1], rehearsal=0.4, rehearsal_depth=2)
    assert found == pytest.approx({1: 0.2, 2: 0.2, 6: 0.6}, abs=0.02)


def test_a_problem_comes_again_only_after_the_others_of_its_kind() -> None:
    deepest = [problem for problem in PROBLEMS if problem["depth"] == 6][:6]
    drawn = draw(deepest, random.Random(0), depth_weights=[1.0] * 6)
    prompts = [next(drawn)["prompt"] for _ in range(12)]
    assert len(set(prompts[:6])) == len(set(prompts[6:])) == 6
    assert prompts[:6] != prompts[6:]


@pytest.mark.parametrize(
    "weights",
    [
        {"depth_weights": [1.0], "domain_weights": [["integers", 1.0]]},
        {"depth_weights": [1.0], "format_weights": [["choose", -1.0]]},
        {"depth_weights": [1.0, -0.5]},
    ],
)
def test_weights_below_0_or_of_nothing_that_is_there_are_refused(weights: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"wanted (depth )?weights of at least 0"):
        next(draw(PROBLEMS, random.Random(0), **weights))


@pytest.mark.parametrize(
    "weights",
    [
        {"depth_weights": [0.0, 0.0]},
        {"depth_weights": []},
        {"depth_weights": [1.0], "rehearsal": 0.5, "rehearsal_depth": 0},
        {"depth_weights": [1.0], "domain_weights": [["int", 0.0], ["str", 0.0]]},
    ],
)
def test_weights_that_leave_nothing_are_refused(weights: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"depths \[1, 2, 3, 6\]: raise a weight"):
        next(draw(PROBLEMS, random.Random(0), **weights))
