"""The direct-training arm and the real engine, on a tiny random model: each run is a process."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from substrate.dropin import Overrides, read_dropin
from substrate.fork import Fork, make_fork
from substrate.job import MetricsRow
from substrate.measure import SealedAdapter, measure, seal_adapter
from substrate.outcome import Outcome
from substrate.run import RunRecord, job_for, run_recipe
from substrate.store import Snapshot, Store
from tests.reference.tiny_dropin import write_base, write_dropin
from tests.substrates.stub.adapters import write_adapter

# PEFT asks transformers for an attribute that transformers warns about.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

# Twelve problems that the recipe may train on; the other sets only have to be there.
WORDS = {
    "target": ["abc", "bcd", "cde", "dea", "eab", "acd", "bde", "cea", "dab", "ebc", "ade", "bea"],
    "dev": ["aabb", "bbcc"],
    "external": ["ccdd", "ddee"],
    "lockbox": ["eeaa", "aacc"],
}
# For a model of random weights, which has everything to learn.
OVERRIDES: Overrides = {
    "recipes/sft.py": {
        "LEARNING_RATE": 2e-2,
        "BATCH_SIZE": 12,
        "CLIP_NORM": 1.0,
        "LORA_DROPOUT": 0.0,
    }
}
Runs = dict[str, tuple[Fork, RunRecord]]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("dropin") / "mirror"
    shape = {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 12}
    write_base(folder / "base", "abcde=> ", **shape)
    problems = {
        name: [
            {"id": f"{name}-{word}", "domain": "words", "prompt": f"{word}=>", "answer": word[::-1]}
            for word in words
        ]
        for name, words in WORDS.items()
    }
    write_dropin(folder, problems, recipe="sft", rank=8, alpha=16.0, rollouts=804)
    return Store(tmp_path_factory.mktemp("store")).seal(read_dropin(folder))


@pytest.fixture(scope="module")
def runs(snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A whole run, twice with one seed, and a smoke run with another."""
    folder = tmp_path_factory.mktemp("runs")

    async def run(name: str, seed: int, smoke: bool) -> tuple[Fork, RunRecord]:
        fork = make_fork(snapshot, folder / name, overrides=OVERRIDES, patches=[])
        job = job_for(snapshot, recipe="sft", seed=seed, rollouts=None, smoke=smoke)
        return fork, await run_recipe(fork, job)

    async def all_of_them() -> Runs:
        whole, again, smoke = await asyncio.gather(
            run("whole", 1, False), run("again", 1, False), run("smoke", 2, True)
        )
        return {"whole": whole, "again": again, "smoke": smoke}

    return asyncio.run(all_of_them())


def test_training_raises_the_accuracy_on_what_was_trained_on(
    runs: Runs, snapshot: Snapshot, tmp_path: Path
) -> None:
    from evaluation.grade import grade
    from evaluation.solve import solve

    fork, record = runs["whole"]
    assert record.result is not None, record
    adapter = seal_adapter(fork, record.result, tmp_path / "adapters")
    assert isinstance(adapter, SealedAdapter), adapter
    sets = snapshot.manifest.sets
    target = snapshot.root / sets.target.path
    after = asyncio.run(measure(snapshot, adapter, target, sets.dev))
    assert after.outcome == Outcome.EVALUATED, after
    assert after.score is not None
    assert after.score["value"] >= 10 / 12
    assert after.score["n"] == 12
    assert after.score["engine"].startswith("transformers ")

    problems = [json.loads(line) for line in target.read_text().splitlines()]
    barely_trained = runs["smoke"][0].root / "out/adapter"
    questions = [{"room": 16, "prompt": problem["prompt"]} for problem in problems]
    answers = solve(snapshot.root / "base", barely_trained, questions)
    assert sum(grade(problems, answers)) <= 1


def test_the_budget_is_counted_in_examples_and_used_up(runs: Runs) -> None:
    fork, record = runs["whole"]
    assert (record.outcome, record.reason) == (None, "")
    assert record.result is not None
    assert record.result.state == "finished"
    assert record.result.rollouts == 804
    assert record.result.tokens == 804 * 4  # three letters and the end of the sequence
    assert record.result.data_sha256.keys() == {"data/target.jsonl"}
    lines = (fork.root / "out/metrics.jsonl").read_text().splitlines()
    rows = [MetricsRow.model_validate_json(line) for line in lines]
    assert len(rows) == 67
    assert rows[0].loss is not None and rows[-1].loss is not None
    assert rows[-1].loss < 0.7 * rows[0].loss


def test_a_smoke_run_takes_two_steps_and_delivers(runs: Runs) -> None:
    fork, record = runs["smoke"]
    assert record.outcome is None
    assert record.result is not None and record.result.rollouts == 24
    assert len((fork.root / "out/metrics.jsonl").read_text().splitlines()) == 2


def test_one_seed_gives_the_same_bytes(runs: Runs) -> None:
    for file in ("adapter/adapter_model.safetensors", "adapter/adapter_config.json"):
        first = (runs["whole"][0].root / "out" / file).read_bytes()
        assert first == (runs["again"][0].root / "out" / file).read_bytes(), file


def test_another_seed_gives_other_bytes(runs: Runs) -> None:
    file = "out/adapter/adapter_model.safetensors"
    smoke = (runs["smoke"][0].root / file).read_bytes()
    assert smoke != (runs["whole"][0].root / file).read_bytes()


@pytest.mark.parametrize(
    ("module", "width", "rule"),
    [
        ("layers.7.self_attn.q_proj", 48, "tensor-key: wanted modules of the base model"),
        ("layers.1.self_attn.q_proj", 47, "shape: wanted"),
    ],
)
def test_factors_that_do_not_fit_the_base_are_refused(
    module: str, width: int, rule: str, snapshot: Snapshot, tmp_path: Path
) -> None:
    from evaluation.adapter import BadAdapter
    from evaluation.solve import load

    name = f"base_model.model.model.{module}.lora_{{}}.weight"
    tensors = {name.format("A"): np.ones((8, width)), name.format("B"): np.ones((48, 8))}
    write_adapter(tmp_path, tensors, r=8, lora_alpha=16, target_modules=["q_proj"])
    with pytest.raises(BadAdapter, match=rule):
        load(snapshot.root / "base", tmp_path, "cpu")


@pytest.mark.parametrize(
    ("text", "worth"),
    [("a b", 1.0), (" a \n\t b\n", 1.0), ("ab", 0.0), ("a b c", 0.0), ("A b", 0.0)],
)
def test_a_completion_is_worth_something_when_it_is_the_answer_but_for_white_space(
    text: str, worth: float
) -> None:
    from training.world import reward

    assert reward({"answer": "a b"}, text) == worth
