"""The search policy: its form, its digest, what it plans for a round, what a worker is told."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from policies.policy import Edit, SearchPolicy

SHA = "a" * 64


def policy_data(axes: int = 3, replicates: int = 2, **changes: Any) -> dict[str, Any]:
    """A policy with `axes` active axes and `replicates` replicates of the first."""
    knob = {"kind": "float", "file": "recipes/sft.py", "constant": "RATE", "low": 0.1, "high": 1}
    return {
        "version": 2,
        "parent": SHA,
        "objective": "Raise the external score.",
        "evidence_ranking": ["external"],
        "axes": [
            {"id": f"a{i}", "title": f"Axis {i}", "hypothesis": "It helps.", "knobs": [knob]}
            for i in range(axes)
        ],
        "replicates": [
            {
                "axis": "a0",
                "edit": {"overrides": {"recipes/sft.py": {"RATE": 0.5 + i}}},
                "origin": f"r1/s{i + 1}",
            }
            for i in range(replicates)
        ],
        "standing_recipe": {"overrides": {"recipes/sft.py": {"DECAY": 0.1}}, "patches": [SHA]},
        "noise": {"sigma": 0.01, "degrees": 3, "threshold": 0.03, "rows": ["r1/s0"]},
        "trust": {"strings": "suspect"},
        "dead_ends": [
            {"id": "d", "axis": "a1", "title": "Too high", "effect": None, "rows": ["r1/s3"]}
        ],
        "claims": [{"id": "c", "text": "It fell.", "rows": ["r1/s3/dev/strings"]}],
        "rationale": "Because.",
    } | changes


def policy(axes: int = 3, replicates: int = 2, **changes: Any) -> SearchPolicy:
    return SearchPolicy.model_validate(policy_data(axes, replicates, **changes))


def kinds(policy: SearchPolicy, width: int) -> str:
    """The plan in short: A anchor, R replicate of an edit, E exploration, S standing recipe."""
    plan = policy.assignments(width)
    assert [item.slot for item in plan] == list(range(width))
    letters = {"anchor": "A", "explore": "E", "replicate": "R"}
    return "".join("S" if item.edit and not item.origin else letters[item.kind] for item in plan)


@pytest.mark.parametrize(
    ("axes", "replicates", "width", "plan"),
    [
        (3, 2, 8, "ARREEESS"),
        (7, 0, 8, "AEEEEEEE"),
        (9, 0, 8, "AEEEEEEE"),
        (9, 9, 8, "ARRRREEE"),  # at most four replicates, by the default budget
        (3, 9, 5, "ARREE"),  # two slots are kept for axes
        (1, 9, 3, "ARE"),
        (2, 9, 3, "AEE"),
        (2, 9, 2, "AE"),
        (2, 9, 1, "A"),
    ],
)
def test_a_round_has_one_anchor_then_replicates_then_axes(
    axes: int, replicates: int, width: int, plan: str
) -> None:
    assert kinds(policy(axes, replicates), width) == plan


def test_retired_axes_get_no_slot_but_their_replicates_do() -> None:
    data = policy_data(3, 1)
    data["axes"][0]["status"] = "retired"
    plan = SearchPolicy.model_validate(data).assignments(5)
    assert [item.axis.id if item.axis else None for item in plan] == [None, "a0", "a1", "a2", None]
    assert plan[1].edit == Edit(overrides={"recipes/sft.py": {"RATE": 0.5}})
    assert plan[1].origin is not None and plan[1].origin.origin == "r1/s1"
    assert plan[4].edit == Edit() and Edit().is_empty()


def test_a_worker_is_told_its_axis_and_dead_ends_and_nothing_of_evidence() -> None:
    found = policy()
    brief = found.brief(found.axis("a1"))
    assert (brief.axis, brief.hypothesis) == ("Axis 1", "It helps.")
    assert brief.knobs == tuple(found.axis("a1").knobs)
    assert brief.standing_overrides == {"recipes/sft.py": {"DECAY": 0.1}}
    assert brief.dead_ends == ("Too high",)
    assert set(vars(brief)) == {
        "axis",
        "hypothesis",
        "knobs",
        "standing_overrides",
        "dead_ends",
    }


def test_an_unknown_axis_is_named_with_those_there_are() -> None:
    with pytest.raises(KeyError, match=r"no axis 'x'.*a0"):
        policy().axis("x")


def test_the_stored_text_reads_back_to_an_equal_policy_of_equal_digest() -> None:
    found = policy()
    again = SearchPolicy.model_validate_json(found.text())
    assert again == found
    assert again.digest() == found.digest()
    assert json.loads(found.text()) == found.data()


def test_the_digest_knows_order_of_axes_and_not_order_of_keys() -> None:
    data = policy_data()
    assert SearchPolicy.model_validate(dict(reversed(data.items()))).digest() == policy().digest()
    data["axes"].reverse()
    assert SearchPolicy.model_validate(data).digest() != policy().digest()


def test_constants_keep_their_types() -> None:
    values = [1, 1.0, True, None, "1", [1, [2.5, False]]]
    overrides = {"recipes/sft.py": {f"C{i}": value for i, value in enumerate(values)}}
    edit = Edit.model_validate_json(Edit(overrides=overrides).model_dump_json())
    found = list(edit.overrides["recipes/sft.py"].values())
    assert [(type(value), value) for value in found] == [(type(value), value) for value in values]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("axes", policy_data(1)["axes"] * 2, "every axis needs an id of its own"),
        ("dead_ends", policy_data()["dead_ends"] * 2, "every dead end needs an id"),
        ("claims", policy_data()["claims"] * 2, "every claim needs an id"),
        ("claims", [{"id": "c", "text": "It fell.", "rows": []}], "at least 1 item"),
        ("claims", [{"id": "c", "text": "It fell.", "rows": ["round 3"]}], "pattern"),
        ("trust", {"strings": "blind"}, "'trusted', 'suspect' or 'inverted'"),
        ("budget", {"gpus": 9}, "Extra inputs"),
        ("motto", "Onwards", "Extra inputs"),
    ],
)
def test_a_policy_without_form_is_refused(place: str, value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SearchPolicy.model_validate(policy_data() | {place: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"low": 2}, "low must not exceed high: found 2.0 > 1.0"),
        ({"low": 0, "scale": "log"}, "a log scale needs low > 0: found 0.0"),
    ],
)
def test_a_range_that_cannot_be_drawn_from_is_refused(changes: Any, message: str) -> None:
    data = policy_data(1)
    data["axes"][0]["knobs"][0].update(changes)
    with pytest.raises(ValidationError, match=message):
        SearchPolicy.model_validate(data)
