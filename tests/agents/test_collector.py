"""The collector: which slots are looked at, and what its results say in numbers and words."""

import math
from collections.abc import Mapping

import pytest

from agents.collector import choose_looks
from policies.evidence import Direction
from policies.policy import DeadEnd, Replicate, SearchPolicy
from policies.report import DomainScore
from tests.agents.rounds import Row, choice_axis, play, policy_of, rate_axis, score, setting

DEV = {0: 0.50, 1: 0.40, 2: 0.70, 3: None, 4: 0.60, 5: 0.45, 6: 0.30, 7: 0.55}
AXES = (rate_axis("rate"), choice_axis("kind", "a", "b"))
EIGHT = policy_of(*(rate_axis(f"rate-{i}") for i in range(7)))


def looks_at(
    dev: Mapping[int, float | None],
    *,
    looks: int,
    seed: int = 1,
    direction: Direction = "maximise",
    policy: SearchPolicy = EIGHT,
) -> list[int]:
    scores = {slot: None if value is None else score(value) for slot, value in dev.items()}
    return choose_looks(scores, policy=policy, looks=looks, seed=seed, direction=direction)


def test_looks_go_to_the_anchor_the_best_two_and_one_of_the_rest() -> None:
    chosen = looks_at(DEV, looks=4)
    assert chosen[:3] == [0, 2, 4]
    assert chosen[3] in {1, 5, 6, 7}
    assert chosen == looks_at(DEV, looks=4)


def test_the_last_look_is_drawn_from_all_the_rest() -> None:
    drawn = {looks_at(DEV, looks=4, seed=s)[3] for s in range(100)}
    assert drawn == {1, 5, 6, 7}


def test_the_best_are_the_lowest_where_less_is_better() -> None:
    assert looks_at(DEV, looks=3, direction="minimise") == [0, 6, 1]


@pytest.mark.parametrize(("looks", "wanted"), [(0, []), (-1, []), (1, [0]), (2, [0, 2])])
def test_fewer_looks_keep_the_first(looks: int, wanted: list[int]) -> None:
    assert looks_at(DEV, looks=looks) == wanted


def test_more_looks_than_scores_are_not_spent() -> None:
    chosen = looks_at(DEV, looks=100)
    assert sorted(chosen) == [0, 1, 2, 4, 5, 6, 7]


def test_a_slot_without_a_finite_score_is_never_looked_at() -> None:
    dev = {0: None, 1: math.nan, 2: math.inf, 3: 0.1}
    assert looks_at(dev, looks=4) == [3]


def test_runs_of_candidates_are_looked_at_before_exploration_one_of_each_first() -> None:
    one, two = (
        Replicate(axis=f"rate-{i}", edit=setting(f"RATE-{i}", 0.1), origin=f"r1/s{i + 1}")
        for i in (0, 1)
    )
    both = EIGHT.model_copy(update={"replicates": [one, one, two, two]})
    # Slots 1 and 2 run the first candidate, 3 (which has no score) and 4 the second.
    assert looks_at(DEV, looks=4, policy=both) == [0, 1, 4, 2]
    alone = EIGHT.model_copy(update={"replicates": [one, one]})
    assert looks_at(DEV, looks=4, policy=alone) == [0, 1, 2, 4]


def test_where_dev_misleads_looks_do_not_go_by_it() -> None:
    domains = {slot: {"good": slot / 10, "bad": 1 - slot / 10} for slot in range(8)}
    scores = {
        slot: score(0.5).model_copy(
            update={"domains": {name: DomainScore(value=v, n=200) for name, v in parts.items()}}
        )
        for slot, parts in domains.items()
    }
    suspect = EIGHT.model_copy(update={"trust": {"bad": "suspect"}})
    chosen = choose_looks(scores, policy=suspect, looks=3, seed=1, direction="maximise")
    assert chosen == [0, 7, 6]
    nothing = EIGHT.model_copy(update={"trust": {"overall": "inverted"}})
    drawn = {
        choose_looks(scores, policy=nothing, looks=2, seed=seed, direction="maximise")[1]
        for seed in range(100)
    }
    assert drawn == set(range(1, 8))


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
