"""Drafts that stand on what later rounds said: each is held to the newest word and to all of it."""

import dataclasses
from typing import Any

import pytest

from policies.case import CampaignFacts
from policies.constitution import review
from policies.policy import SearchPolicy
from policies.report import RoundReport
from policies.rows import Rows
from tests.policies.cases import (
    CONFIRMED,
    DECOUPLED,
    FACTS,
    FILE,
    PARENT,
    RATE,
    REPORTS,
    STORED,
    Attack,
    Draft,
    add,
    axis,
    both,
    edit,
    knob,
    next_draft,
    promotion,
    put,
    report,
    slot,
    verdict,
)


def facts_with(*reports: RoundReport) -> CampaignFacts:
    return dataclasses.replace(FACTS, rows=Rows([*REPORTS, *reports]))


def broken(attack: Attack, facts: CampaignFacts, parent: SearchPolicy = PARENT) -> list[str]:
    """The clauses that a draft breaks, which is lawful but for the attack.

    Whether it is news (C12) is another matter.
    """
    draft = next_draft(parent, facts)
    assert facts.rows.newest is not None
    draft["noise"] = facts.rows.newest.results.noise.model_dump()
    assert clauses(draft, parent, facts) == []
    attack(draft)
    return clauses(draft, parent, facts)


def clauses(draft: Draft, parent: SearchPolicy, facts: CampaignFacts) -> list[str]:
    found = (violation.clause for violation in review(draft, parent, facts))
    return [clause for clause in found if clause != "C12"]


def fresh(number: int, tried: Draft, *effects: float) -> RoundReport:
    """A round of fresh runs of an edit of the axis `decay`."""
    runs = range(1, len(effects) + 1)
    return report(
        number,
        [slot(0), *(slot(n, "decay", kind="replicate", edit=tried) for n in runs)],
        [verdict(n, "decay", effect) for n, effect in zip(runs, effects, strict=True)],
    )


def confirmation(tried: Draft, *rows: str, **changes: Any) -> Draft:
    return CONFIRMED | {"axis": "decay", "edit": tried, "rows": list(rows)} | changes


def with_confirmations(round_report: RoundReport, *found: Draft) -> RoundReport:
    data = round_report.data()
    data["results"]["confirmations"] = list(found)
    return RoundReport.model_validate(data)


def confirmed(number: int, tried: Draft) -> tuple[RoundReport, Draft]:
    """A round that confirmed an edit by two fresh runs, and what it says of them."""
    found = confirmation(tried, f"r{number}/s1", f"r{number}/s2")
    return with_confirmations(fresh(number, tried, 0.06, 0.04), found), found


@pytest.mark.parametrize("other", [True, 1.0])
def test_a_constant_of_another_type_is_another_constant(other: Any) -> None:
    told, found = confirmed(4, edit(FLAG=1))
    tried = report(5, [slot(0), slot(1, "rate", edit=edit(FLAG=1))], [verdict(1, "rate", 0.04)])
    facts = facts_with(told, with_confirmations(tried, found))
    again = {"axis": "rate", "origin": "r5/s1"}
    assert broken(add(again | {"edit": edit(FLAG=1)}, "replicates"), facts) == []
    assert broken(add(again | {"edit": edit(FLAG=other)}, "replicates"), facts) == ["C4"]
    assert broken(promotion(found), facts) == []
    assert "C9" in broken(promotion(found, edit=edit(FLAG=other)), facts)


def test_a_promoted_constant_keeps_its_type() -> None:
    attack = both(
        put(4.0, "standing_recipe", "overrides", FILE, "RANK"),
        put(4.0, "standing_recipe", "provenance", 0, "edit", "overrides", FILE, "RANK"),
    )
    assert "C9" in broken(attack, facts_with(report(4, [slot(0)])))


def test_what_more_runs_refuted_is_not_promoted_on_the_first_of_them() -> None:
    tried = edit(WEIGHT_DECAY=0.5)
    told, found = confirmed(4, tried)
    assert broken(promotion(found), facts_with(told)) == []
    rows = ("r4/s1", "r4/s2", "r5/s1", "r5/s2")
    later = fresh(5, tried, -0.03, -0.05)
    refuted = confirmation(tried, *rows, runs=4, effect=0.005, is_confirmed=False)
    facts = facts_with(told, with_confirmations(later, refuted))
    assert broken(promotion(found), facts) == ["C9"]
    assert broken(promotion(refuted), facts) == ["C6"]


@pytest.mark.parametrize(
    ("merged", "patches", "wanted"),
    [
        ({"A": 1, "B": 2}, [STORED], []),
        ({"A": 1}, [STORED], ["C9"]),
        ({"A": 1, "B": 3}, [STORED], ["C9", "C9"]),  # B is new, and not what was promoted
        ({"A": 1, "B": 2}, [], ["C9"]),
        ({}, [], ["C9"]),
        ({"A": 1, "B": 2}, [STORED, STORED], ["C9"]),
    ],
)
def test_an_edit_is_merged_whole_and_once(
    merged: Draft, patches: list[str], wanted: list[str]
) -> None:
    told, found = confirmed(4, edit(STORED, A=1, B=2))

    def attack(draft: Draft) -> None:
        recipe = draft["standing_recipe"]
        recipe["provenance"].append({n: found[n] for n in ("axis", "edit", "effect", "rows")})
        recipe["overrides"][FILE].update(merged)
        recipe["patches"] = patches

    assert broken(attack, facts_with(told)) == wanted


def test_a_withdrawn_constant_comes_back_by_a_new_promotion_alone() -> None:
    data = PARENT.data()
    del data["standing_recipe"]["overrides"][FILE]["RANK"]
    parent = SearchPolicy.model_validate(data)
    facts = facts_with(report(4, [slot(0)]))
    back = put(4, "standing_recipe", "overrides", FILE, "RANK")
    assert broken(back, facts, parent) == ["C9"]


def test_a_constant_falls_back_to_the_promotion_that_is_left() -> None:
    told, found = confirmed(4, edit(RANK=6))
    data = next_draft(facts=facts_with(told))
    data["noise"] = told.results.noise.model_dump()
    promotion(found)(data)
    parent = SearchPolicy.model_validate(data)
    facts = facts_with(told, report(5, [slot(0)]))

    def withdrawn(value: int) -> Attack:
        def attack(draft: Draft) -> None:
            draft["standing_recipe"]["provenance"].pop()
            draft["standing_recipe"]["overrides"][FILE]["RANK"] = value

        return attack

    assert broken(withdrawn(4), facts, parent) == []
    assert broken(withdrawn(6), facts, parent) == ["C9"]
    assert broken(withdrawn(5), facts, parent) == ["C9"]
    stays = put(4, "standing_recipe", "overrides", FILE, "RANK")
    assert "C9" in broken(
        stays, facts, parent
    )  # the newer promotion stands, and its value does not


def test_a_domain_that_is_not_trusted_brings_no_candidate_whatever_the_newest_round_says() -> None:
    candidate = {"axis": "decay", "edit": edit(WEIGHT_DECAY=0.3), "origin": "r3/s1"}
    facts = facts_with(report(4, [slot(0)], decoupling=[DECOUPLED | {"verdict": "insufficient"}]))
    assert broken(add(candidate, "replicates"), facts) == ["C11"]
    assert broken(put(2, "budget", "looks"), facts) == ["C11"]
    trusted = PARENT.model_copy(update={"trust": {}})
    assert broken(add(candidate, "replicates"), facts, trusted) == []
    assert broken(put(2, "budget", "looks"), facts, trusted) == []


def test_where_dev_misleads_as_a_whole_its_effect_alone_brings_no_candidate() -> None:
    candidate = {"axis": "decay", "edit": edit(WEIGHT_DECAY=0.2), "origin": "r4/s1"}
    parent = PARENT.model_copy(update={"trust": {"overall": "suspect"}})
    for effect, wanted in ((0.06, ["C11"]), (-0.01, [])):
        tried = slot(1, "decay", edit=edit(WEIGHT_DECAY=0.2))
        facts = facts_with(report(4, [slot(0), tried], [verdict(1, "decay", effect)]))
        assert broken(add(candidate, "replicates"), facts, parent) == wanted


# C10


def at_its_end() -> CampaignFacts:
    """After sixteen more explorations of the axis `rate` that told nothing."""
    flat = [report(n, [slot(0), slot(1, "rate")], [verdict(1, "rate")]) for n in range(4, 20)]
    return facts_with(*flat)


AGAIN = {"axis": "rate", "edit": RATE, "origin": "r2/s1"}
OTHER = {"axis": "decay", "edit": edit(WEIGHT_DECAY=0.7), "origin": "r3/s5"}


@pytest.mark.parametrize(
    ("attack", "wanted"),
    [
        (put([AGAIN], "replicates"), []),
        (put([], "replicates"), ["C10"]),
        (put(0, "budget", "replicates"), ["C10"]),
        (put([OTHER] * 4 + [AGAIN], "replicates"), ["C10"]),
        (put([{"axis": "rate", "edit": edit(), "origin": "r1/s1"}], "replicates"), ["C10"]),
    ],
    ids=["it runs", "none", "no slot for it", "behind what has slots", "no edit"],
)
def test_only_an_edit_that_will_run_keeps_an_axis(attack: Attack, wanted: list[str]) -> None:
    parent = SearchPolicy.model_validate(
        PARENT.data() | {"axes": [*PARENT.data()["axes"], axis("third", knob("THIRD"))]}
    )
    assert broken(attack, at_its_end(), parent) == wanted


def test_an_axis_is_retired_and_not_taken_off_the_list() -> None:
    facts = facts_with(report(4, [slot(0)]))

    def attack(draft: Draft) -> None:
        draft["axes"].pop()

    assert broken(attack, facts) == ["C10"]
    assert broken(put("retired", "axes", 3, "status"), facts) == []


# C7 and C9: dead ends

END = {"id": "x", "axis": "rate", "title": "Rates", "effect": -0.25, "rows": ["r1/s2"]}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, []),
        ({"axis": "decay"}, ["C9"]),
        ({"axis": "ghost"}, ["C9"]),
        ({"rows": ["r1", "r1/s2"]}, ["C9"]),
        ({"rows": ["r1"], "effect": None}, ["C9"]),
    ],
    ids=["its own", "another axis", "no axis", "a round beside it", "a round"],
)
def test_a_dead_end_rests_on_trials_of_its_axis(changes: Draft, wanted: list[str]) -> None:
    facts = facts_with(report(4, [slot(0)]))
    assert broken(add(END | changes, "dead_ends"), facts) == wanted


@pytest.mark.parametrize("row", ["r3/s2/dev/poems", "r1/s1/external"])
def test_what_is_added_to_a_dead_end_is_there(row: str) -> None:
    known = PARENT.data()["dead_ends"][0]
    grown = known | {"rows": [*known["rows"], row]}
    assert broken(put(grown, "dead_ends", 0), facts_with(report(4, [slot(0)]))) == ["C7"]


def test_a_trial_under_another_name_changes_no_effect() -> None:
    known = PARENT.data()["dead_ends"][0] | {"rows": ["r1/s2", "r3/s2"]}
    parent = SearchPolicy.model_validate(PARENT.data() | {"dead_ends": [known]})
    grown = known | {"rows": ["r1/s2", "r3/s2", "r3/s2/dev"], "effect": -0.115}
    facts = facts_with(report(4, [slot(0)]))
    assert broken(put(grown, "dead_ends", 0), facts, parent) == ["C7"]


# C6


def test_noise_that_no_report_knows_is_not_claimed_to_be_none() -> None:
    unknown = {"sigma": None, "degrees": 0, "threshold": None, "rows": []}
    facts = facts_with(report(4, [slot(0)], noise=unknown))
    parent = PARENT.model_copy(
        update={
            "noise": PARENT.noise.model_copy(
                update={"sigma": None, "threshold": None, "degrees": 0}
            )
        }
    )
    assert broken(put(0.0, "noise", "sigma"), facts, parent) == ["C6"]
    assert broken(put(0.0, "noise", "threshold"), facts, parent) == ["C6"]
