"""The collector: which slots are looked at, and what its results say in numbers and words."""

import math

import pytest

from agents.collector import choose_looks
from policies.policy import DeadEnd
from tests.agents.rounds import Row, choice_axis, play, policy_of, rate_axis, setting

DEV = {0: 0.50, 1: 0.40, 2: 0.70, 3: None, 4: 0.60, 5: 0.45, 6: 0.30, 7: 0.55}
AXES = (rate_axis("rate"), choice_axis("kind", "a", "b"))


def test_looks_go_to_the_anchor_the_best_two_and_one_of_the_rest() -> None:
    chosen = choose_looks(DEV, looks=4, seed=1, direction="maximise")
    assert chosen[:3] == [0, 2, 4]
    assert chosen[3] in {1, 5, 6, 7}
    assert chosen == choose_looks(DEV, looks=4, seed=1, direction="maximise")


def test_the_last_look_is_drawn_from_all_the_rest() -> None:
    drawn = {choose_looks(DEV, looks=4, seed=s, direction="maximise")[3] for s in range(100)}
    assert drawn == {1, 5, 6, 7}


def test_the_best_are_the_lowest_where_less_is_better() -> None:
    assert choose_looks(DEV, looks=3, seed=1, direction="minimise") == [0, 6, 1]


@pytest.mark.parametrize(("looks", "wanted"), [(0, []), (-1, []), (1, [0]), (2, [0, 2])])
def test_fewer_looks_keep_the_first(looks: int, wanted: list[int]) -> None:
    assert choose_looks(DEV, looks=looks, seed=1, direction="maximise") == wanted


def test_more_looks_than_scores_are_not_spent() -> None:
    chosen = choose_looks(DEV, looks=100, seed=1, direction="maximise")
    assert sorted(chosen) == [0, 1, 2, 4, 5, 6, 7]


def test_a_slot_without_a_finite_score_is_never_looked_at() -> None:
    dev = {0: None, 1: math.nan, 2: math.inf, 3: 0.1}
    assert choose_looks(dev, looks=4, seed=1, direction="maximise") == [3]


def test_results_carry_what_the_round_ran_under_and_what_it_found() -> None:
    policy = policy_of(*AXES).model_copy(
        update={
            "dead_ends": [
                DeadEnd(id="d", axis="rate", title="RATE above 1", effect=None, rows=["r1/s1"])
            ]
        }
    )
    rows = {
        1: Row(effect=0.1, edit=setting("RATE", 0.1), external=0.6),
        2: Row(effect=-0.1, edit=setting("KIND", "b")),
    }
    results = play(policy, {0: Row(external=0.5), **rows}).report.results
    assert (results.policy_version, results.policy_sha256) == (1, policy.digest())
    assert (results.looks, results.dead_ends) == ([0, 1], ["RATE above 1"])
    assert [verdict.verdict for verdict in results.verdicts] == ["better", "worse"]
    assert (results.spread.n, results.noise.degrees) == (6, 5)


def test_the_narrative_has_the_numbers_of_the_rows() -> None:
    rows = {
        0: Row(external=0.5),
        1: Row(effect=0.1, edit=setting("RATE", 0.1), external=0.6),
        2: Row(effect=None, edit=setting("KIND", "b"), outcome="crashed", integrity=("odd",)),
    }
    said = play(policy_of(*AXES), rows).report.results.narrative
    assert "Round 1 ran 8 trials of recipe r under policy 1: 1 anchor, 2 explore" in said
    assert "Outcomes: 7 evaluated, 1 crashed." in said
    assert "The anchor scored 0.5000 on dev; 6 runs of the standing recipe" in said
    assert "slot 1 on rate by +0.1" in said
    assert "Unresolved: 1 of 2 trials" in said
    assert "slots 0, 1: slot 1 +0.1000 from the anchor" in said
    assert "Integrity events: slot 2 odd." in said


def test_the_narrative_of_a_wide_round_fits() -> None:
    axes = [rate_axis(f"rate-{i}") for i in range(998)]
    rows = {
        slot: Row(effect=0.3, edit=setting(f"RATE-{slot}", 0.1), integrity=("odd",) * 3)
        for slot in range(1, 999)
    }
    report = play(policy_of(*axes), rows, width=1000).report
    assert len(report.results.narrative) <= 8000
    assert "and 2982 more" in report.results.narrative


def test_a_round_in_which_all_is_lost_is_told_as_such() -> None:
    lost = {slot: Row(effect=None, outcome="infrastructure") for slot in range(8)}
    said = play(policy_of(*AXES), lost).report.results.narrative
    assert "Outcomes: 8 infrastructure." in said
    assert "no score, so that nothing can be compared" in said
    assert "No external score was obtained." in said
