"""Lineage, why and rollback, on the rounds of `cases.py` and versions of its policy."""

import dataclasses
from typing import Any

import pytest

from policies.constitution import review
from policies.lineage import Version, read_lineage
from policies.policy import SearchPolicy
from policies.rollback import rolled_back
from policies.rows import Rows
from policies.tables import Policy
from policies.why import NothingSaid, explain
from tests.policies.cases import (
    CONFIRMED,
    FACTS,
    FILE,
    NOISE,
    PARENT,
    RATE,
    Attack,
    axis,
    claim,
    knob,
    next_draft,
    promotion,
    put,
    report,
    slot,
    verdict,
)

ROWS = FACTS.rows
SEED = SearchPolicy.model_validate(
    {
        "version": 1,
        "parent": None,
        "objective": "Raise the external score.",
        "evidence_ranking": ["external", "dev"],
        "axes": [
            axis("rate", knob("LEARNING_RATE")),
            axis("decay", knob("WEIGHT_DECAY")),
            axis("rank", knob("RANK", kind="int", low=1, high=8)),
        ],
    }
)


def after(parent: SearchPolicy, *changes: Attack) -> SearchPolicy:
    draft: dict[str, Any] = parent.data()
    draft |= {"version": parent.version + 1, "parent": parent.digest(), "claims": []}
    for change in changes:
        change(draft)
    return SearchPolicy.model_validate(draft)


SECOND = after(
    SEED,
    promotion(CONFIRMED),
    claim("r2/s3/dev/overall", what="score", value=0.5, name="promoted"),
    claim("r1/s5", name="aside"),
)
END = {
    "id": "huge-rate",
    "axis": "rate",
    "title": "A learning rate above 1",
    "effect": -0.25,
    "rows": ["r1/s2", "r2/s5"],
}
THIRD = after(
    SECOND,
    put("retired", "axes", 0, "status"),
    put({"strings": "suspect"}, "trust"),
    put([END], "dead_ends"),
    claim("r1/s2", name="retired"),
    claim("r3", what="tracking of strings", value="decoupled", name="apart"),
)


def rows_of(*policies: SearchPolicy) -> list[Policy]:
    rounds = (None, 2, 3, 3)
    return [
        Policy(
            campaign="c",
            version=policy.version,
            sha256=policy.digest(),
            parent=policy.parent,
            body=policy.text(),
            author="reviser" if number else "seed",
            round=rounds[number],
        )
        for number, policy in enumerate(policies)
    ]


def lineage() -> list[Version]:
    return read_lineage(rows_of(SEED, SECOND, THIRD))


def test_a_lineage_says_what_each_version_changed() -> None:
    first, second, third = lineage()
    assert [item.fault for item in (first, second, third)] == [None] * 3
    assert first.headline == ()
    assert second.headline == (
        "standing recipe: added recipes/sft.py, provenance",
        "claims: added promoted, aside",
    )
    assert third.headline[0] == "axes: retired rate"
    assert "dead ends: added huge-rate" in third.headline
    assert third.data()["round"] == 3


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"sha256": "f" * 64}, "digest of the policy"),
        ({"parent": "f" * 64}, "parent"),
        ({"body": THIRD.text().replace("learning rate", "Learning rate")}, "digest of the policy"),
        ({"body": after(SECOND, put(7, "version")).text()}, "version in the policy"),
    ],
)
def test_a_lineage_names_the_version_that_does_not_follow(
    change: dict[str, Any], fault: str
) -> None:
    rows = rows_of(SEED, SECOND, THIRD)
    rows[2] = Policy(**rows[2].model_dump() | change)
    found = read_lineage(rows)
    assert found[1].fault is None
    assert found[2].fault is not None and found[2].fault.startswith(fault)


def test_a_version_that_is_missing_is_named() -> None:
    found = read_lineage(rows_of(SEED, THIRD))
    assert found[1].fault == "version: wanted 2, found 3"


def test_why_an_axis_is_retired_names_the_claim_its_rows_and_its_rounds() -> None:
    answer = explain("rate", lineage(), ROWS)
    assert (answer.kind, answer.stands["status"]) == ("axis", "retired")
    start, retired = answer.steps
    assert (start.version, start.before, start.claims) == (1, None, ())
    assert (retired.version, retired.round) == (3, 3)
    assert (retired.before["status"], retired.after["status"]) == ("active", "retired")
    assert [claim.id for claim in retired.claims] == ["retired"]
    assert answer.rows["r1/s2"] == {
        "external effect": None,
        "effect": -0.25,
        "verdict": "unresolved",
        "outcome": "evaluated",
    }
    assert answer.rows["r2/s5"]["outcome"] == "crashed"
    assert answer.rounds == (1, 2, 3)


@pytest.mark.parametrize("name", ["RANK", f"{FILE}:RANK"])
def test_why_a_constant_stands_names_the_fresh_runs_that_confirmed_it(name: str) -> None:
    answer = explain(name, lineage(), ROWS)
    (step,) = answer.steps
    assert (answer.kind, answer.stands) == ("constant", {FILE: 4})
    assert (step.version, step.before, step.after) == (2, None, {FILE: 4})
    assert [claim.id for claim in step.claims] == ["promoted"]
    assert list(answer.rows) == CONFIRMED["rows"]
    assert answer.rows["r2/s3/dev/overall"] == {
        "verdict": "unresolved",
        "effect": 0.06,
        "score": 0.5,
    }
    assert answer.rounds == (2,)


def test_why_a_dead_end_is_closed_and_why_dev_is_mistrusted() -> None:
    end = explain("huge-rate", lineage(), ROWS)
    assert (end.kind, end.steps[0].version, list(end.rows)) == ("dead end", 3, END["rows"])
    trust = explain("strings", lineage(), ROWS)
    assert (trust.kind, trust.stands) == ("trust in dev", "suspect")
    assert [claim.id for claim in trust.steps[0].claims] == ["apart"]
    assert trust.rows["r3"]["tracking of strings"] == "decoupled"


def test_why_something_that_no_version_names_is_refused_with_what_there_is() -> None:
    with pytest.raises(NothingSaid, match="'luck'; there are RANK, decay, huge-rate, rank, rate"):
        explain("luck", lineage(), ROWS)


# Rollback. PARENT is version 3; an older version had other axes, another recipe, no dead end.

OLDER = PARENT.model_copy(
    update={
        "version": 1,
        "parent": None,
        "axes": SEED.axes,
        "trust": {},
        "dead_ends": [],
        "replicates": [],
        "standing_recipe": SEED.standing_recipe,
        "noise": SEED.noise,
        "claims": [],
    }
)


def test_a_rollback_takes_decisions_back_and_keeps_what_was_found_out() -> None:
    draft = rolled_back(OLDER, PARENT, ROWS, reason="It fell.", most_looks=5)
    assert (draft.version, draft.parent) == (4, PARENT.digest())
    assert draft.axes[:3] == OLDER.axes
    assert [(item.id, item.status) for item in draft.axes[3:]] == [("warmup", "retired")]
    assert draft.standing_recipe == OLDER.standing_recipe
    assert draft.dead_ends == PARENT.dead_ends
    assert draft.trust == PARENT.trust
    assert draft.noise.threshold == NOISE["threshold"]
    assert draft.rationale == "Rolled back to version 1: It fell."
    assert review(draft.data(), PARENT, FACTS) == []


def test_a_rollback_to_what_was_promoted_before_is_lawful() -> None:
    before = PARENT.model_copy(update={"version": 2})
    data = next_draft()
    data["standing_recipe"] = {"overrides": {FILE: {"SCHEDULE": "cosine"}}}
    current = SearchPolicy.model_validate(data)
    draft = rolled_back(before, current, ROWS, reason="It was better.", most_looks=5)
    assert draft.standing_recipe == PARENT.standing_recipe
    assert review(draft.data(), current, FACTS) == []


def test_a_rollback_asks_for_no_more_looks_than_are_left_and_lowers_no_threshold() -> None:
    poor = PARENT.model_copy(
        update={
            "budget": PARENT.budget.model_copy(update={"looks": 1}),
            "noise": PARENT.noise.model_copy(update={"threshold": 0.04}),
        }
    )
    draft = rolled_back(OLDER, poor, ROWS, reason="It fell.", most_looks=2)
    assert draft.budget.looks == 2
    assert draft.noise.threshold == 0.04
    facts = dataclasses.replace(FACTS, looks_left=2)
    assert review(draft.data(), poor, facts) == []


def test_a_rollback_does_not_bring_back_an_axis_that_is_at_its_end() -> None:
    flat = [report(n, [slot(0), slot(1, "rate")], [verdict(1, "rate")]) for n in range(4, 20)]
    rows = Rows([*ROWS.reports.values(), *flat])
    draft = rolled_back(OLDER, PARENT, rows, reason="It fell.", most_looks=5)
    assert [item.status for item in draft.axes] == ["retired", "active", "active", "retired"]
    assert review(draft.data(), PARENT, dataclasses.replace(FACTS, rows=rows)) == []


def test_a_rollback_to_the_same_decisions_breaks_c12() -> None:
    noise = PARENT.noise.model_copy(update={"rows": ["r3/s0/dev/overall"]})
    same = PARENT.model_copy(update={"version": 4, "noise": noise})
    draft = rolled_back(PARENT, same, ROWS, reason="None.", most_looks=5)
    assert [found.clause for found in review(draft.data(), same, FACTS)] == ["C12"]
    assert draft.replicates[0].edit.model_dump() == RATE
