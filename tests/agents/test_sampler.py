"""The sampler, in real forks of the stub."""

import asyncio
import math
import random
from pathlib import Path

import pytest

from agents.sampler import draw
from agents.worker import HandIn, Workplace, find_worker
from policies.policy import Axis, ChoiceKnob, Constant, Knob, NumberKnob, SearchPolicy
from substrate.dropin import Overrides, read_dropin
from substrate.fork import BadEdit, Fork, make_fork, read_edit
from substrate.store import Snapshot, Store

STUB = Path(__file__).parents[1] / "substrates" / "stub"
RECIPE = "recipes/stub.py"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return Store(tmp_path_factory.mktemp("store")).seal(read_dropin(STUB))


def number(constant: str, low: float, high: float, **more: str) -> NumberKnob:
    return NumberKnob.model_validate(
        {"kind": "float", "file": RECIPE, "constant": constant, "low": low, "high": high, **more}
    )


def choice(constant: str, *choices: Constant) -> ChoiceKnob:
    return ChoiceKnob(kind="choice", file=RECIPE, constant=constant, choices=list(choices))


def work(fork: Fork, *knobs: Knob, seed: int = 1) -> HandIn:
    axis = Axis(id="axis", title="An axis", hypothesis="It helps.", knobs=list(knobs))
    policy = SearchPolicy(
        version=1, parent=None, objective="Raise it.", evidence_ranking=["dev"], axes=[axis]
    )

    async def hand_in() -> HandIn:
        return await find_worker("sampler")(Workplace(fork, policy.brief(axis), seed))

    return asyncio.run(hand_in())


def test_it_changes_one_constant_of_its_axis_and_says_from_what_to_what(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    knobs = [number("LEARNING_RATE", 1e-4, 1e-2, scale="log"), number("TEMPERATURE", 0.4, 1.6)]
    changed = set()
    for seed in range(12):
        fork = make_fork(snapshot, tmp_path / str(seed), overrides={}, patches=[])
        hand_in = work(fork, *knobs, seed=seed)
        edit = read_edit(fork)
        ((name, value),) = edit.overrides[RECIPE].items()
        old = {"LEARNING_RATE": 3e-4, "TEMPERATURE": 0.6}[name]
        assert edit.patch is None
        assert hand_in.hypothesis == f"{name} from {old!r} to {value!r} in {RECIPE}: It helps."
        changed.add(name)
    assert changed == {"LEARNING_RATE", "TEMPERATURE"}


def test_the_same_seed_draws_the_same_edit_and_another_seed_another(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    edits: list[Overrides] = []
    for i, seed in enumerate((5, 5, 6)):
        fork = make_fork(snapshot, tmp_path / str(i), overrides={}, patches=[])
        work(fork, number("TEMPERATURE", 0.4, 1.6), seed=seed)
        edits.append(read_edit(fork).overrides)
    assert edits[0] == edits[1] != edits[2]


def test_it_draws_against_the_value_that_the_standing_recipe_set(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    standing: Overrides = {RECIPE: {"BASELINE": "leave_one_out"}}
    fork = make_fork(snapshot, tmp_path / "fork", overrides=standing, patches=[])
    hand_in = work(fork, choice("BASELINE", "leave_one_out", "none"))
    assert read_edit(fork).overrides == {RECIPE: {"BASELINE": "none"}}
    assert "from 'leave_one_out' to 'none'" in hand_in.hypothesis


def test_it_changes_nothing_where_no_other_value_is_left(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    fork = make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])
    whole = NumberKnob(kind="int", file=RECIPE, constant="GROUP_SIZE", low=3.6, high=4.4)
    hand_in = work(fork, choice("BASELINE", "mean"), whole)
    assert read_edit(fork).diff == ""
    assert "no value left" in hand_in.hypothesis


def test_a_knob_of_a_constant_that_is_not_there_is_refused_by_name(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    fork = make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])
    with pytest.raises(BadEdit, match=r"`MOMENTUM`.*TEMPERATURE"):
        work(fork, number("MOMENTUM", 0, 1))
    missing = number("MOMENTUM", 0, 1).model_copy(update={"file": "recipes/none.py"})
    with pytest.raises(BadEdit, match=r"recipes/none\.py"):
        work(fork, missing)


def test_a_log_scale_spreads_values_evenly_over_decades() -> None:
    knob, dice = number("LEARNING_RATE", 1e-4, 1e-2, scale="log"), random.Random(0)
    values = [draw(knob, 3e-4, dice) for _ in range(1000)]
    assert all(isinstance(value, float) and 1e-4 <= value <= 1e-2 for value in values)
    # Half of them in the lower of two decades; five standard deviations are 79.
    below = sum(isinstance(value, float) and value < 1e-3 for value in values)
    assert abs(below - 500) < 80


def test_whole_numbers_stay_whole_in_range_and_off_the_present_value() -> None:
    knob = NumberKnob(kind="int", file=RECIPE, constant="GROUP_SIZE", low=2.5, high=6.5)
    values = [draw(knob, 4, random.Random(seed)) for seed in range(200)]
    assert all(type(value) is int for value in values)
    assert all(value in values for value in (3, 5, 6))
    assert all(value in (3, 5, 6) for value in values)


def test_a_float_never_leaves_a_range_that_is_narrower_than_its_digits() -> None:
    knob = number("TEMPERATURE", math.pi, math.pi + 1e-9)
    for seed in range(50):
        value = draw(knob, 1.0, random.Random(seed))
        assert isinstance(value, float) and knob.low <= value <= knob.high


def test_true_is_another_value_than_one() -> None:
    assert draw(choice("FLAG", True, 1), 1, random.Random(0)) is True
    assert draw(choice("FLAG", [1, 2]), [1, 2], random.Random(0)) == [1, 2]


def test_an_unknown_kind_of_worker_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"wanted .*found 'oracle'; choose .*sampler"):
        find_worker("oracle")
