"""Confirmation of replicated edits, against numbers worked out by hand."""

import math
from collections.abc import Sequence

import pytest

from policies.confirmation import candidates, changes_seeds_alone, confirmations
from policies.evidence import Calibration, Record, Round, noise_model
from policies.policy import Edit, Promotion, StandingRecipe
from policies.report import Confirmation
from policies.spending import BUDGET, level, look
from tests.policies.test_evidence import EDIT, OTHER_METRIC, score, trial

START = StandingRecipe()
OTHER = Edit(overrides={"recipes/r.py": {"STEPS": 7}})
SEEDS = Edit(overrides={"recipes/r.py": {"SEED": 7, "DATA_SEED": 1}})
FLAT = [Calibration(i, score(value)) for i, value in enumerate((0.49, 0.50, 0.51))]


def again(slot: int, value: float | None, edit: Edit = EDIT, external: float | None = None):
    return trial(slot, value, kind="replicate", edit=edit, external=external)


def played(*rounds: Sequence, standing: Sequence[StandingRecipe] = ()) -> list[Round]:
    """Rounds of an anchor at 0.5 and the given replicates, from round 1 on."""
    recipes = [*standing, *[START] * len(rounds)]
    return [
        Round(i + 1, recipes[i], (trial(0, 0.5, kind="anchor"), *slots))
        for i, slots in enumerate(rounds)
    ]


def confirmed(rounds: Sequence[Round], ignored: Sequence[str] = ()) -> list[Confirmation]:
    record = Record(tuple(rounds), "maximise", tuple(FLAT), frozenset(ignored))
    return confirmations(record, noise_model(record))


def test_shares_of_the_budget_add_up_to_all_of_it() -> None:
    # Telescoping: half / ((j + half - 1)(j + half)); half of it is gone after `half` tests.
    assert [level(j, half=1) for j in (1, 2, 3)] == [1 / 2, 1 / 6, 1 / 12]
    assert sum(level(j, half=4) for j in range(1, 5)) == pytest.approx(1 / 2)
    assert sum(level(j, half=4) for j in range(1, 100_000)) == pytest.approx(1, abs=1e-4)
    assert [look(k) for k in (1, 2, 3, 4)] == [1 / 4, 2 / 8, 3 / 16, 4 / 32]
    assert sum(look(k) for k in range(1, 60)) == pytest.approx(1)


def test_fresh_runs_above_the_bar_confirm_an_edit() -> None:
    (found,) = confirmed(played([again(1, 0.60), again(2, 0.62)]))
    # Calibration and anchor: 2 * 0.01^2 over mean 0.5; replicates: 2 * 0.01^2. Four degrees.
    sigma = math.sqrt((0.0002 + 0.0002) / 4)
    # First candidate: a third of 0.05; first look: a quarter of that: t(1 - 0.0041667; 4) = 4.851.
    assert found.level == pytest.approx(BUDGET / 3)
    assert found.bar == pytest.approx(4.851 * sigma * math.sqrt(1 / 2 + 1 / 4), abs=2e-5)
    assert (found.effect, found.runs) == (pytest.approx(0.11), 2)
    assert found.is_confirmed
    assert found.rows == ["r1/s1/dev/overall", "r1/s2/dev/overall"]


def test_one_fresh_run_confirms_nothing() -> None:
    (found,) = confirmed(played([again(1, 0.90)]))
    assert (found.runs, found.bar, found.is_confirmed) == (1, None, False)


def test_the_trial_that_was_selected_does_not_count() -> None:
    rounds = played([trial(1, 0.99)], [again(1, 0.50), again(2, 0.50)])
    (found,) = confirmed(rounds)
    assert (found.effect, found.runs, found.is_confirmed) == (pytest.approx(0.0), 2, False)


def test_runs_of_several_rounds_count_together_on_one_standing_recipe_alone() -> None:
    merged = StandingRecipe(overrides={"recipes/r.py": {"STEPS": 3}})
    rounds = played(
        [again(1, 0.52), again(2, 0.52)],
        [again(1, 0.52), again(2, 0.52)],
        [again(1, 0.52), again(2, 0.52)],
        standing=[merged],
    )
    (found,) = confirmed(rounds)
    assert found.runs == 4
    assert found.rows[0] == "r2/s1/dev/overall"
    # The same edit on another standing recipe was the first candidate; this is the second.
    assert found.level == pytest.approx(BUDGET / 6)
    bars = [confirmed(rounds[:n])[0].bar for n in (2, 3)]
    assert bars[0] is not None and bars[1] is not None and bars[1] < bars[0]


def test_what_a_promotion_was_given_is_inherited_by_the_next_candidate() -> None:
    rows = ["r1/s1/dev/overall", "r1/s2/dev/overall"]
    promotion = Promotion(axis="rate", edit=EDIT, effect=0.1, rows=rows)
    after = StandingRecipe(overrides=EDIT.overrides, provenance=[promotion])
    rounds = played(
        [again(1, 0.60), again(2, 0.62)], [again(1, 0.6, OTHER)], standing=[START, after]
    )
    levels = [item.level for item in candidates(Record(tuple(rounds), "maximise"))]
    assert levels == pytest.approx([BUDGET / 3, BUDGET / 6 + BUDGET / 3])
    kept = played([again(1, 0.60), again(2, 0.62)], [again(1, 0.6, OTHER)])
    levels = [item.level for item in candidates(Record(tuple(kept), "maximise"))]
    assert levels == pytest.approx([BUDGET / 3, BUDGET / 6])


def test_levels_never_add_up_to_more_than_the_budget_while_nothing_is_found() -> None:
    edits = [Edit(overrides={"recipes/r.py": {"STEPS": i}}) for i in range(40)]
    rounds = played(*[[again(1, 0.5, edit), again(2, 0.5, edit)] for edit in edits])
    assert sum(item.level for item in candidates(Record(tuple(rounds), "maximise"))) < BUDGET


def test_an_edit_of_nothing_but_seeds_is_never_confirmed() -> None:
    (found,) = confirmed(played([again(1, 0.60, SEEDS), again(2, 0.62, SEEDS)]))
    assert found.effect is not None and found.bar is not None and found.effect > found.bar
    assert not found.is_confirmed
    assert changes_seeds_alone(SEEDS)
    assert not changes_seeds_alone(EDIT)
    assert not changes_seeds_alone(Edit())
    assert not changes_seeds_alone(SEEDS.model_copy(update={"patch": "a" * 64}))
    assert not changes_seeds_alone(Edit(overrides={"recipes/r.py": {"SEEDLING_RATE": 1}}))


def test_lost_runs_and_scores_of_another_metric_do_not_count() -> None:
    odd = again(3, 0.9).model_copy(update={"dev": score(0.9, metric=OTHER_METRIC)})
    lost = again(2, None)
    (found,) = confirmed(played([again(1, 0.60), lost, odd, again(4, 0.9, external=math.nan)]))
    assert found.runs == 2
    assert found.rows == ["r1/s1/dev/overall", "r1/s4/dev/overall"]


def test_the_order_of_slots_changes_nothing() -> None:
    slots = [again(1, 0.60), again(2, 0.62), again(3, 0.55, OTHER), again(4, 0.56, OTHER)]
    turned = [again(1, 0.56, OTHER), again(2, 0.62), again(3, 0.55, OTHER), again(4, 0.60)]
    one, other = confirmed(played(slots)), confirmed(played(turned))
    told = [
        {c.edit.model_dump_json(): (c.effect, c.bar, c.level) for c in each}
        for each in (one, other)
    ]
    assert told[0] == told[1]
    # The first two candidates share a third and a sixth of the budget.
    assert one[0].level == pytest.approx(BUDGET / 4)


def test_where_dev_misleads_everywhere_external_alone_confirms() -> None:
    calibration = [
        Calibration(i, score(v), score(v + 0.1)) for i, v in enumerate((0.49, 0.50, 0.51))
    ]
    rounds = played([again(1, 0.1, external=0.80), again(2, 0.1, external=0.82)])
    record = Record(tuple(rounds), "maximise", tuple(calibration), frozenset({"overall"}))
    (found,) = confirmations(record, noise_model(record))
    assert (found.effect, found.bar) == (None, None)
    assert found.external_effect == pytest.approx(0.21)
    assert found.external_bar is not None and found.external_bar < 0.21
    assert found.is_confirmed
    trusting = Record(tuple(rounds), "maximise", tuple(calibration))
    (found,) = confirmations(trusting, noise_model(trusting))
    assert (found.external_bar, found.is_confirmed) == (None, False)
