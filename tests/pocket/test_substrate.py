"""The pocket drop-in as a campaign meets it: sealed, forked, trained, measured."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from evaluation.solve import most_tokens
from flows.plan import Plan
from flows.start import check_knobs, check_plan
from substrate.check import check_dropin
from substrate.dropin import Overrides, read_dropin
from substrate.fork import make_fork
from substrate.measure import SealedAdapter, measure, seal_adapter
from substrate.outcome import Outcome
from substrate.run import job_for, run_recipe
from substrate.scorer import Desk
from substrate.store import Snapshot, Store
from training.models import load_tokenizer

BASE_DEV = 0.424  # what the base itself scores
FRONTIER: Overrides = {
    "recipes/rlvr.py": {
        "DEPTH_WEIGHTS": [0.0, 0.0, 0.2, 0.4, 1.0, 1.0, 1.0, 0.4],
        "PROMPTS": 8,
        "GROUP": 4,
    }
}
POCKET = Path(__file__).parents[2] / "substrate" / "library" / "pocket"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return Store(tmp_path_factory.mktemp("store")).seal(read_dropin(POCKET))


def test_it_breaks_no_rule_of_drop_ins() -> None:
    assert check_dropin(POCKET) == []


@pytest.mark.parametrize("recipe", ["populora", "rlvr", "selfplay", "sft"])
def test_it_has_a_seed_policy_whose_knobs_are_the_recipe_s(snapshot: Snapshot, recipe: str) -> None:
    dropin, found, policy = check_plan(Plan(substrate="pocket", recipe=recipe))
    assert (dropin.path, found) == (POCKET, recipe)
    assert len(policy.axes) >= 4
    check_knobs(policy, snapshot, recipe)


@pytest.mark.parametrize("name", ["dev/problems", "judge/external", "judge/lockbox"])
def test_every_answer_fits_into_the_tokens_that_its_question_allows(name: str) -> None:
    lines = (POCKET / f"{name}.jsonl").read_text("utf-8").splitlines()
    problems = [json.loads(line) for line in lines]
    desk = Desk(problems, "", {"answer"}, None, 0)
    tokenizer = load_tokenizer(POCKET / "base")
    for problem in problems:
        needed = len(tokenizer(problem["answer"], add_special_tokens=False)["input_ids"])
        # A digit of a value is a token, a word of a prompt too: no ratio of one to the other.
        assert most_tokens([desk.question(problem)]) >= 1.25 * needed, problem["id"]


def test_neither_external_nor_lockbox_problems_are_in_a_fork(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])
    walk = os.walk(tmp_path / "fork", followlinks=True)
    names = {name for _, _, files in walk for name in files}
    assert "target.jsonl" in names
    assert not names & {"external.jsonl", "lockbox.jsonl", "pretrain.py", "make_data.py"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_practice_at_the_frontier_beats_the_base_with_the_same_bytes_for_the_same_seed(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    sealed: list[SealedAdapter] = []
    for name in ("once", "again"):
        fork = make_fork(snapshot, tmp_path / name, overrides=FRONTIER, patches=[])
        job = job_for(snapshot, recipe="rlvr", seed=1, rollouts=2560)
        record = asyncio.run(run_recipe(fork, job))
        assert record.outcome is None, record.reason
        assert record.result is not None and record.result.rollouts == 2560
        adapter = seal_adapter(fork, record.result, tmp_path / "adapters" / name)
        assert isinstance(adapter, SealedAdapter)
        sealed.append(adapter)
    assert sealed[0].sha256 == sealed[1].sha256
    scored = snapshot.manifest.sets.dev
    problems = snapshot.root / scored.path
    measured = asyncio.run(measure(snapshot, sealed[0], problems, scored))
    assert measured.outcome is Outcome.EVALUATED, measured.reason
    assert measured.score is not None
    assert measured.score["n"] == 500
    assert measured.score["value"] > BASE_DEV + 0.03
