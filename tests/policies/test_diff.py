"""The difference between two policies: every change is found, placed and shown whole."""

import copy
from typing import Any

import pytest

from policies.diff import SECTIONS, Change, diff_lines, diff_markdown, diff_policies, headline
from policies.policy import SearchPolicy

OLD_PATCH, NEW_PATCH = "a" * 64, "b" * 64


def number_knob(constant: str, **changes: Any) -> dict[str, Any]:
    base = {"kind": "float", "file": "recipes/sft.py", "constant": constant, "low": 0.1, "high": 1}
    return base | changes


def axis(name: str, *knobs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    base = {"id": name, "title": f"The {name}", "hypothesis": "It helps.", "knobs": list(knobs)}
    return base | changes


def replicate(rate: float, origin: str, patch: str | None = None) -> dict[str, Any]:
    edit = {"overrides": {"recipes/sft.py": {"RATE": rate}}, "patch": patch}
    return {"axis": "rate", "edit": edit, "origin": origin}


OLD: dict[str, Any] = {
    "version": 1,
    "parent": None,
    "objective": "Raise the external score.",
    "evidence_ranking": ["external", "dev"],
    "trust": {"digits": "trusted", "strings": "suspect"},
    "axes": [
        axis("rate", number_knob("RATE")),
        axis("decay", number_knob("DECAY"), evidence=["r1/s2"]),
        axis(
            "rank", {"kind": "choice", "file": "recipes/sft.py", "constant": "RANK", "choices": [1]}
        ),
    ],
    "replicates": [replicate(0.5, "r1/s1"), replicate(0.25, "r1/s2")],
    "standing_recipe": {"overrides": {"recipes/sft.py": {"STEPS": [1, 2]}}, "patches": [OLD_PATCH]},
    "noise": {"sigma": 0.01, "degrees": 3, "threshold": 0.03, "rows": ["r1/s0"]},
    "dead_ends": [
        {"id": "huge", "axis": "rate", "title": "Too high", "effect": -0.2, "rows": ["r1/s3"]}
    ],
    "claims": [{"id": "first", "text": "It fell.", "rows": ["r1/s3"]}],
    "rationale": "A start.",
}


def changed(*path: Any, to: Any) -> SearchPolicy:
    """OLD as the next version, with one value set."""
    data = copy.deepcopy(OLD) | {"version": 2, "parent": "c" * 64}
    place: Any = data
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = to
    return SearchPolicy.model_validate(data)


def changes(*path: Any, to: Any) -> list[Change]:
    return diff_policies(SearchPolicy.model_validate(OLD), changed(*path, to=to))


PROMOTION = {
    "axis": "rate",
    "edit": {"overrides": {}, "patch": OLD_PATCH},
    "effect": 0.1,
    "rows": ["r2/s1"],
}
ONE_CHANGE = [
    (("objective",), "Less.", "objective", "changed", "objective"),
    (("evidence_ranking",), ["dev", "external"], "trust", "changed", "evidence_ranking > order"),
    (("evidence_ranking",), ["external"], "trust", "removed", "evidence_ranking"),
    (("trust", "strings"), "inverted", "trust", "changed", "trust > strings"),
    (("trust", "lists"), "trusted", "trust", "added", "trust > lists"),
    (("axes", 0, "status"), "retired", "axes", "changed", "rate > status"),
    (("axes", 0, "title"), "Speed", "axes", "changed", "rate > title"),
    (("axes", 0, "evidence"), ["r2/s1"], "axes", "added", "rate > evidence"),
    (("axes", 1, "evidence"), [], "axes", "removed", "decay > evidence"),
    (
        ("axes", 0, "knobs", 0, "high"),
        2,
        "axes",
        "changed",
        "rate > knobs > recipes/sft.py RATE > high",
    ),
    (
        ("axes", 0, "knobs"),
        [number_knob("RATE"), number_knob("WARMUP")],
        "axes",
        "added",
        "rate > knobs > recipes/sft.py WARMUP",
    ),
    (
        ("axes", 2, "knobs", 0, "choices"),
        [1, True],
        "axes",
        "added",
        "rank > knobs > recipes/sft.py RANK > choices",
    ),
    (("axes",), OLD["axes"][:2], "axes", "removed", "rank"),
    (("axes",), [*OLD["axes"], axis("new", number_knob("N"))], "axes", "added", "new"),
    (("axes",), OLD["axes"][::-1], "axes", "changed", "order"),
    (("replicates",), OLD["replicates"][::-1], "replicates", "changed", "order"),
    (("replicates",), OLD["replicates"][:1], "replicates", "removed", "replicates"),
    (
        ("replicates",),
        [*OLD["replicates"], OLD["replicates"][0]],
        "replicates",
        "added",
        "replicates",
    ),
    (
        ("standing_recipe", "overrides", "recipes/sft.py", "STEPS"),
        [2, 1],
        "standing recipe",
        "changed",
        "overrides > recipes/sft.py > STEPS",
    ),
    (
        ("standing_recipe", "overrides", "recipes/sft.py", "RATE"),
        1,
        "standing recipe",
        "added",
        "overrides > recipes/sft.py > RATE",
    ),
    (("standing_recipe", "patches"), [], "standing recipe", "removed", "patches"),
    (("standing_recipe", "provenance"), [PROMOTION], "standing recipe", "added", "provenance"),
    (("noise", "threshold"), 0.01, "noise", "changed", "threshold"),
    (("noise", "sigma"), None, "noise", "changed", "sigma"),
    (("dead_ends",), [], "dead ends", "removed", "huge"),
    (("dead_ends", 0, "title"), "High", "dead ends", "changed", "huge > title"),
    (("budget",), {"looks": 5}, "budget", "changed", "looks"),
    (("claims", 0, "rows"), ["r1/s3", "r2/s1"], "claims", "added", "first > rows"),
    (("rationale",), "Learnt.", "rationale", "changed", "rationale"),
    (("unchanged_because",), "All failed.", "rationale", "changed", "unchanged_because"),
]


@pytest.mark.parametrize(("path", "to", "section", "kind", "place"), ONE_CHANGE)
def test_one_change_is_found_alone_with_its_kind_and_place(
    path: tuple[Any, ...], to: Any, section: str, kind: str, place: str
) -> None:
    (change,) = changes(*path, to=to)
    assert (change.section, change.kind, change.path) == (section, kind, place)
    sides = (change.before is not None, change.after is not None)
    assert kind == "changed" or sides == ((False, True) if kind == "added" else (True, False))


def test_every_field_of_a_policy_belongs_to_one_section() -> None:
    fields = [field for fields in SECTIONS.values() for field in fields]
    named = {"schema_version", "version", "parent"}
    assert sorted(fields) == sorted(SearchPolicy.model_fields.keys() - named)


def test_versions_of_equal_content_do_not_differ() -> None:
    assert changes("version", to=3) == []


def test_numbers_and_flags_that_python_takes_for_equal_are_told_apart() -> None:
    place = ("standing_recipe", "overrides", "recipes/sft.py", "STEPS")
    for before, after in ((1, True), (1, 1.0), (0, False), ([1], [True])):
        found = diff_policies(changed(*place, to=before), changed(*place, to=after))
        assert [(type(c.before), type(c.after)) for c in found] == [(type(before), type(after))]


def test_the_order_of_keys_does_not_change_the_difference() -> None:
    old = SearchPolicy.model_validate(OLD)
    one = changed("trust", to={"a": "trusted", "b": "suspect", "c": "inverted"})
    two = changed("trust", to={"c": "inverted", "b": "suspect", "a": "trusted"})
    assert diff_policies(old, one) == diff_policies(old, two)


def test_two_knobs_of_one_constant_are_both_compared() -> None:
    twice = [number_knob("RATE"), number_knob("RATE", high=9)]
    (change,) = changes("axes", 0, "knobs", to=twice)
    assert (change.kind, change.after["high"]) == ("added", 9)


def test_lines_name_the_section_then_what_went_and_what_came() -> None:
    data = copy.deepcopy(OLD) | {"version": 2, "parent": "c" * 64}
    data["axes"][0]["status"] = "retired"
    data["axes"].append(axis("warmup", number_knob("WARMUP", scale="log")))
    data["replicates"] = [replicate(0.5, "r1/s1"), replicate(0.75, "r2/s4", NEW_PATCH)]
    data["noise"]["rows"] = ["r1/s0", "r2/s0"]
    del data["claims"][0]
    new = SearchPolicy.model_validate(data)
    assert diff_lines(diff_policies(SearchPolicy.model_validate(OLD), new)) == [
        (" ", "axes"),
        ("-", 'rate > status: "active"'),
        ("+", 'rate > status: "retired"'),
        ("+", "warmup:"),
        ("+", '  id: "warmup"'),
        ("+", '  title: "The warmup"'),
        ("+", '  hypothesis: "It helps."'),
        ("+", "  knobs:"),
        ("+", "    item: recipes/sft.py WARMUP, float from 0.1 to 1.0, log"),
        ("+", '  status: "active"'),
        ("+", "  evidence: []"),
        (" ", "replicates"),
        ("-", "replicates: rate: recipes/sft.py RATE=0.25, first tried in r1/s2"),
        (
            "+",
            f"replicates: rate: recipes/sft.py RATE=0.75, patch {NEW_PATCH}, first tried in r2/s4",
        ),
        (" ", "noise"),
        ("+", 'rows: "r2/s0"'),
        (" ", "claims"),
        ("-", "first:"),
        ("-", '  id: "first"'),
        ("-", '  text: "It fell."'),
        ("-", '  rows: ["r1/s3"]'),
        ("-", "  findings: []"),
    ]


def test_a_headline_names_what_was_added_retired_and_changed() -> None:
    data = copy.deepcopy(OLD) | {"version": 2, "parent": "c" * 64}
    data["axes"][0]["status"] = "retired"
    data["axes"][1]["title"] = "Decay"
    data["axes"].append(axis("warmup", number_knob("WARMUP")))
    data["standing_recipe"]["overrides"]["recipes/sft.py"]["RATE"] = 0.5
    data["noise"]["threshold"] = 0.04
    data["trust"]["strings"] = "inverted"
    data["dead_ends"].append(data["dead_ends"][0] | {"id": "low"})
    data["claims"] = []
    new = SearchPolicy.model_validate(data)
    assert headline(diff_policies(SearchPolicy.model_validate(OLD), new)) == [
        "axes: retired rate; changed decay; added warmup",
        "standing recipe: added recipes/sft.py RATE",
        "noise: changed threshold",
        "trust: changed strings",
        "dead ends: added low",
        "claims: removed first",
    ]
    back = diff_policies(new, SearchPolicy.model_validate(OLD))
    assert headline(back)[0] == "axes: reactivated rate; changed decay; removed warmup"


def test_markdown_has_versions_digests_and_a_fence_for_each_section() -> None:
    old, new = SearchPolicy.model_validate(OLD), changed("noise", "threshold", to=0.04)
    assert diff_markdown(diff_policies(old, new), old, new) == (
        f"""# Policy version 1 to 2

| | version | digest |
| --- | --- | --- |
| before | 1 | `{old.digest()}` |
| after | 2 | `{new.digest()}` |

- noise: changed threshold

## Noise

```diff
- threshold: 0.03
+ threshold: 0.04
```
"""
    )


def test_markdown_of_an_unchanged_policy_says_so_and_why() -> None:
    old, new = (
        SearchPolicy.model_validate(OLD),
        changed("unchanged_because", to="<b>All</b>."),
    )
    text = diff_markdown([], old, new)
    assert "Nothing changed but the version." in text
    assert "Unchanged because: &lt;b&gt;All&lt;/b&gt;." in text


def test_text_of_a_draft_cannot_leave_its_line() -> None:
    evil = "x\n```\n![](http://evil)\x1b[31m\u202e"
    old = SearchPolicy.model_validate(OLD)
    for path, to in (
        (("objective",), evil),
        (("axes", 0, "title"), evil),
        (("standing_recipe", "overrides"), {evil: {evil: evil}}),
        (("trust", evil), "trusted"),
    ):
        found = changes(*path, to=to)
        for _, line in diff_lines(found):
            assert line.isprintable()
        fenced = diff_markdown(found, old, changed(*path, to=to)).split("```diff\n")[1]
        inside = fenced.split("\n```\n")[0].splitlines()
        assert inside and all(line.startswith(("+ ", "- ")) for line in inside)
