"""The stub is what its README says: recipe, truth, seed policies and data agree."""

import asyncio
import importlib.util
import json
import math
import random
import statistics
from pathlib import Path

import pytest

from policies.policy import ChoiceKnob, NumberKnob, SearchPolicy
from substrate.check import check_dropin
from substrate.dropin import Constant, Overrides, read_dropin
from substrate.fork import make_fork, read_constants
from substrate.measure import SealedAdapter, measure, seal_adapter
from substrate.run import job_for, run_recipe
from substrate.store import Judge, Snapshot, Store
from tests.substrates.stub import make_data, truth

STUB = Path(__file__).parent


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def snapshot(store: Store) -> Snapshot:
    return store.seal(read_dropin(STUB))


@pytest.fixture(scope="module")
def judge(store: Store) -> Judge:
    return store.seal_judge(read_dropin(STUB))


def seed_policy(name: str) -> SearchPolicy:
    return SearchPolicy.model_validate_json((STUB / "policies" / f"{name}.json").read_text())


def drawn(knob: NumberKnob | ChoiceKnob, dice: random.Random) -> Constant:
    if isinstance(knob, ChoiceKnob):
        return dice.choice(knob.choices)
    if knob.scale == "linear":
        value = dice.uniform(knob.low, knob.high)
    else:
        value = math.exp(dice.uniform(math.log(knob.low), math.log(knob.high)))
    return round(value) if knob.kind == "int" else value


async def trial(
    snapshot: Snapshot, judge: Judge, folder: Path, overrides: Overrides, seed: int
) -> tuple[float, float]:
    """The dev and the external score of one trial."""
    fork = make_fork(snapshot, folder / f"fork-{seed}", overrides=overrides, patches=[])
    record = await run_recipe(fork, job_for(snapshot, recipe="stub", seed=seed, rollouts=None))
    assert record.outcome is None and record.result is not None, record.reason
    adapter = seal_adapter(fork, record.result, folder / "adapters")
    assert isinstance(adapter, SealedAdapter), adapter
    sets = snapshot.manifest.sets
    dev = await measure(snapshot, adapter, snapshot.root / sets.dev.path, sets.dev)
    external = await measure(snapshot, adapter, judge.external, sets.external, judge.canaries)
    assert dev.score is not None and external.score is not None, (dev, external)
    return dev.score["value"], external.score["value"]


def trials(
    snapshot: Snapshot, judge: Judge, folder: Path, overrides: Overrides, count: int
) -> dict[str, list[float]]:
    """Scores by set, of `count` trials that differ in their seeds."""

    async def in_pairs() -> list[tuple[float, float]]:
        room = asyncio.Semaphore(2)

        async def one(seed: int) -> tuple[float, float]:
            async with room:
                return await trial(snapshot, judge, folder, overrides, seed)

        return await asyncio.gather(*(one(seed) for seed in range(count)))

    dev, external = zip(*asyncio.run(in_pairs()), strict=True)
    return {"dev": list(dev), "external": list(external)}


def test_the_drop_in_passes_every_check() -> None:
    assert check_dropin(STUB) == []


def test_the_data_is_what_the_script_writes(tmp_path: Path) -> None:
    make_data.write_all(tmp_path)
    written = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 6
    for path in written:
        assert (tmp_path / path).read_bytes() == (STUB / path).read_bytes(), path


def test_the_truth_says_what_the_recipe_does(snapshot: Snapshot, tmp_path: Path) -> None:
    dice = random.Random(1)
    knobs = [axis.knobs[0] for axis in seed_policy("stub").axes]
    for number in range(40):
        chosen = [knob for knob in knobs if dice.random() < 0.7]
        constants = {knob.constant: drawn(knob, dice) for knob in chosen}
        constants["MEMORISE"] = dice.choice([0.0, 0.1])
        overrides: Overrides = {truth.RECIPE: constants}
        fork = make_fork(snapshot, tmp_path / str(number), overrides=overrides, patches=[])
        spec = importlib.util.spec_from_file_location("recipe", fork.root / truth.RECIPE)
        assert spec is not None and spec.loader is not None
        recipe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(recipe)
        learnt = recipe.learnt_when_trained()
        skills = [b + gain for b, gain in zip(truth.BASE_SKILLS, learnt, strict=False)]
        skills = [min(1.0, max(0.0, skill)) for skill in skills]
        assert truth.expected_skills(overrides) == pytest.approx(skills, abs=1e-5), constants
        assert learnt[3] == constants["MEMORISE"]


def test_the_recipe_as_it_stands_scores_what_the_readme_says() -> None:
    assert truth.expected_score("dev", {}) == pytest.approx(0.449, abs=5e-4)
    assert truth.expected_score("external", {}) == pytest.approx(0.3923, abs=5e-4)
    assert truth.gap("dev", {}) == pytest.approx(0.195, abs=5e-4)
    assert truth.gap("external", {}) == pytest.approx(0.2037, abs=5e-4)


@pytest.mark.parametrize(
    ("constant", "dev", "external"),
    [
        ("LEARNING_RATE", 0.045, 0.045),
        ("TEMPERATURE", 0.030, 0.030),
        ("GROUP_SIZE", 0.030, 0.030),
        ("FRONTIER_SHARE", 0.035, 0.0497),  # 0.2 * 0.6 + 0.3 * 1 + 0.5 * 2 = 1.42 times 0.035
        ("REHEARSAL", 0.025, 0.019),  # 0.2 * 1.4 + 0.8 * 0.6 = 0.76 times 0.025
        ("BASELINE", 0.030, 0.030),
    ],
)
def test_each_constant_alone_gains_what_the_readme_says(
    constant: str, dev: float, external: float
) -> None:
    alone = {truth.RECIPE: {constant: truth.OPTIMUM[constant]}}
    assert truth.gap("dev", {}) - truth.gap("dev", alone) == pytest.approx(dev, abs=1e-4)
    gain = truth.gap("external", {}) - truth.gap("external", alone)
    assert gain == pytest.approx(external, abs=1e-4)


def test_memorising_raises_dev_alone() -> None:
    by_heart = {truth.RECIPE: {"MEMORISE": 0.3}}
    # dev: every skill drops by 0.075, then 0.3 of the rest is recalled.
    assert truth.expected_score("dev", by_heart) == pytest.approx(0.374 + 0.3 * 0.626, abs=1e-3)
    assert truth.gap("external", by_heart) - truth.gap("external", {}) == pytest.approx(0.075)


def test_trials_scatter_about_the_truth_by_sigma(
    snapshot: Snapshot, judge: Judge, tmp_path: Path
) -> None:
    for scored, scores in trials(snapshot, judge, tmp_path, {}, 12).items():
        sigma = truth.SIGMA[scored]
        off = statistics.fmean(scores) - truth.expected_score(scored, {})
        assert abs(off) < 4 * sigma / math.sqrt(len(scores))
        assert 0.5 * sigma < statistics.stdev(scores) < 1.7 * sigma


def test_the_optimum_and_the_trap_score_as_the_truth_says(
    snapshot: Snapshot, judge: Judge, tmp_path: Path
) -> None:
    for number, constants in enumerate((truth.OPTIMUM, {"MEMORISE": 0.3})):
        overrides: Overrides = {truth.RECIPE: dict(constants)}
        found = trials(snapshot, judge, tmp_path / str(number), overrides, 6)
        for scored, scores in found.items():
            off = statistics.fmean(scores) - truth.expected_score(scored, overrides)
            assert abs(off) < 4 * truth.SIGMA[scored] / math.sqrt(len(scores)), scored


@pytest.mark.parametrize("name", ["stub", "faults"])
def test_a_seed_policy_fills_a_round_of_eight_with_constants_that_exist(name: str) -> None:
    policy = seed_policy(name)
    constants = read_constants((STUB / "overlay" / truth.RECIPE).read_text())
    assert len(policy.active_axes()) == 7
    assert {slot.kind for slot in policy.assignments(8)[1:]} == {"explore"}
    for axis in policy.axes:
        assert [knob.file for knob in axis.knobs] == [truth.RECIPE]
        assert axis.knobs[0].constant in constants


def test_the_seed_policys_ranges_have_the_optimum_inside_and_harm_too() -> None:
    for axis in seed_policy("stub").axes:
        (knob,) = axis.knobs
        if knob.constant == "WARMUP":
            continue
        best = truth.OPTIMUM[knob.constant]
        if isinstance(knob, ChoiceKnob):
            ends = knob.choices
            assert best in ends
        else:
            ends: list[Constant] = [knob.low, knob.high]
            assert isinstance(best, int | float) and knob.low < best < knob.high
        gaps = [truth.gap("dev", {truth.RECIPE: {knob.constant: end}}) for end in ends]
        assert max(gaps) > truth.gap("dev", {}), knob.constant


def test_the_four_sets_have_the_sizes_and_mixtures_of_the_readme() -> None:
    counts = {}
    for path in ("data/target.jsonl", "dev/problems.jsonl", "judge/external.jsonl",
                 "judge/lockbox.jsonl"):  # fmt: skip
        problems = [json.loads(line) for line in (STUB / path).read_text().splitlines()]
        counts[path] = tuple(sum(p["domain"] == d for p in problems) for d in truth.DOMAINS)
    assert counts["dev/problems.jsonl"] == (300, 180, 120)
    assert counts["judge/external.jsonl"] == (80, 120, 200)
    assert counts["judge/lockbox.jsonl"] == (160, 240, 400)
    assert counts["data/target.jsonl"] == (100, 60, 40)
