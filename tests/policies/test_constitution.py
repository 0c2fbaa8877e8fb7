"""The constitution: every attack is rejected by its clause, and its lawful neighbour passes."""

import copy
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from policies.constitution import (
    CLAUSES,
    CampaignFacts,
    c2_writes_only_the_next_policy,
    constitution_sha256,
    constitution_text,
    review,
)
from policies.draft import MAX_BYTES, MAX_QUOTE
from policies.policy import SearchPolicy

STORED, UNKNOWN = "a" * 64, "b" * 64
Draft = dict[str, Any]
Attack = Callable[[Draft], object]


def knob(constant: str, **changes: Any) -> Draft:
    base = {"kind": "float", "file": "recipes/sft.py", "constant": constant, "low": 0.1, "high": 1}
    return base | changes


def axis(name: str, *knobs: Draft, **changes: Any) -> Draft:
    base = {"id": name, "title": name, "hypothesis": "It helps.", "knobs": list(knobs)}
    return base | changes


PARENT = SearchPolicy.model_validate(
    {
        "version": 3,
        "parent": "c" * 64,
        "objective": "Raise the external score.",
        "evidence_ranking": ["external", "dev"],
        "axes": [
            axis("rate", knob("LEARNING_RATE")),
            axis("decay", knob("WEIGHT_DECAY")),
            axis("rank", knob("RANK", kind="int", low=1, high=8), status="retired"),
        ],
        "replicates": [
            {
                "axis": "rate",
                "edit": {"overrides": {"recipes/sft.py": {"LEARNING_RATE": 0.5}}, "patch": STORED},
                "origin": "r2/s1",
            }
        ],
        "standing_recipe": {"overrides": {"recipes/sft.py": {"SCHEDULE": "cosine"}}},
        "dead_ends": [
            {
                "id": "huge-rate",
                "axis": "rate",
                "title": "A learning rate above 1",
                "effect": -0.25,
                "rows": ["r1/s2", "r2/s3"],
            }
        ],
    }
)
FACTS = CampaignFacts(
    substrate_sha256="1" * 64,
    judge_sha256="2" * 64,
    constitution_sha256="3" * 64,
    found_substrate_sha256="1" * 64,
    found_judge_sha256="2" * 64,
    found_constitution_sha256="3" * 64,
    width=8,
    looks_per_round=5,
    looks_left=20,
    known_patches=frozenset({STORED}),
    known_rows=frozenset(
        {"r1", "r2", "r3"} | {f"r{number}/s{slot}" for number in (1, 2, 3) for slot in range(8)}
    ),
    sealed=("training/confine.py", "recipes/frozen/**"),
)


def next_draft(parent: SearchPolicy = PARENT) -> Draft:
    """A lawful draft: the next version, with a noise model."""
    return copy.deepcopy(parent.data()) | {
        "version": parent.version + 1,
        "parent": parent.digest(),
        "noise": {"sigma": 0.01, "degrees": 4, "threshold": 0.03, "rows": ["r3/s0"]},
    }


def put(value: Any, *path: str | int) -> Attack:
    """An attack that sets one value of the draft."""

    def attack(draft: Draft) -> None:
        place: Any = draft
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return attack


def add(value: Any, *path: str | int) -> Attack:
    """An attack that appends one value to a list of the draft."""

    def attack(draft: Draft) -> None:
        place: Any = draft
        for part in path:
            place = place[part]
        place.append(value)

    return attack


def both(*attacks: Attack) -> Attack:
    return lambda draft: [attack(draft) for attack in attacks]


def override(file: str, constant: str = "LEARNING_RATE", value: Any = 0.3) -> Attack:
    return put({file: {constant: value}}, "standing_recipe", "overrides")


def replicate(**changes: Any) -> Draft:
    base = {"axis": "rate", "edit": {"overrides": {}, "patch": None}, "origin": "r3/s1"}
    return base | changes


def promotion(**edit: Any) -> Attack:
    merged = {"overrides": {}, "patch": None} | edit
    entry = {"axis": "rate", "edit": merged, "effect": 0.1, "rows": ["r3/s1"]}
    return add(entry, "standing_recipe", "provenance")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def end_like(**changes: Any) -> Attack:
    return put(PARENT.data()["dead_ends"][0] | changes, "dead_ends", 0)


def reopened(*rows: str, name: str = "reopen-huge-rate") -> Attack:
    claim = {"id": name, "text": "It works with warm-up.", "rows": list(rows)}
    return both(put([], "dead_ends"), add(claim, "claims"))


ATTACKS = {
    # C2: anything that is not the next policy.
    "edit the constitution": ("C2", put("Anything goes.", "constitution")),
    "rewrite a past round": ("C2", put({"r1/s2": {"dev": 1.0}}, "scores")),
    "drop a worker's failure": ("C2", put(["r1/s2"], "delete_rows")),
    "change the metric's direction": ("C2", put("minimise", "direction")),
    "jump a version": ("C2", put(5, "version")),
    "replay the version in force": ("C2", put(3, "version")),
    "name another parent": ("C2", put("d" * 64, "parent")),
    "name no parent": ("C2", put(None, "parent")),
    # C3: reaching into what measures.
    "override the evaluation": ("C3", override("evaluation/score.py")),
    "override the data": ("C3", override("data/target.py")),
    "override the base model": ("C3", override("base/config.json")),
    "override the manifest": ("C3", override("substrate.toml")),
    "override the judge": ("C3", override("judge/external.py")),
    "override run output": ("C3", override("out/result.json")),
    "override what the manifest seals": ("C3", override("training/confine.py")),
    "override below a sealed folder": ("C3", override("recipes/frozen/deep/er.py")),
    "climb out of the fork": ("C3", override("../snapshot/evaluation/score.py")),
    "climb into the evaluation": ("C3", override("recipes/../evaluation/score.py")),
    "say the evaluation with a dot": ("C3", override("./evaluation/score.py")),
    "say the evaluation with two slashes": ("C3", override("evaluation//score.py")),
    "say the evaluation with backslashes": ("C3", override("evaluation\\score.py")),
    "say the evaluation in capitals": ("C3", override("Evaluation/Score.py")),
    "say the evaluation in wide letters": ("C3", override("\uff45valuation/score.py")),
    "name an absolute file": ("C3", override("/etc/passwd")),
    "name a file of the home folder": ("C3", override("~/score.py")),
    "name no file": ("C3", override("")),
    "hide a line break in a file": ("C3", override("recipes/sft.py\n")),
    "aim a knob at the evaluation": (
        "C3",
        put("evaluation/a.py", "axes", 0, "knobs", 0, "file"),
    ),
    "aim a knob outside the fork": ("C3", put("../x.py", "axes", 1, "knobs", 0, "file")),
    "aim a replicate at the evaluation": (
        "C3",
        put({"evaluation/solve.py": {"N": 1}}, "replicates", 0, "edit", "overrides"),
    ),
    "aim a promotion at the data": ("C3", promotion(overrides={"data/x.py": {"N": 1}})),
    # C4: the shape of the round.
    "retire every axis but one": ("C4", put("retired", "axes", 1, "status")),
    "list one axis twice under two names": (
        "C4",
        both(
            put("retired", "axes", 1, "status"), add(axis("rate-2", knob("LEARNING_RATE")), "axes")
        ),
    ),
    "raise replicates until one axis is left": ("C4", put(6, "budget", "replicates")),
    "raise replicates past the round": ("C4", put(10**6, "budget", "replicates")),
    "replicate an axis that is not there": ("C4", add(replicate(axis="ghost"), "replicates")),
    "replicate a trial that never ran": ("C4", add(replicate(origin="r9/s1"), "replicates")),
    "replicate a whole round": ("C4", add(replicate(origin="r1"), "replicates")),
    # C5: promoting something that is no stored instruction.
    "promote an unknown patch": ("C5", add(UNKNOWN, "standing_recipe", "patches")),
    "replicate an unknown patch": ("C5", put(UNKNOWN, "replicates", 0, "edit", "patch")),
    "give provenance an unknown patch": ("C5", promotion(patch=UNKNOWN)),
    **{
        f"start from {value!r}": ("C5", override("recipes/sft.py", "START", value))
        for value in (
            "out/adapter",
            "OUT\\Adapter",
            "../r1-s2/out/adapter",
            "training/../../r1-s2",
            "/srv/seedbed/forks/r1/s2",
            "~/adapters/best",
            "$HOME/best",
            "C:\\best\\weights",
            "file:///srv/best",
            "s3://bucket/best",
            "hf://someone/best",
            "checkpoint-1200",
            "runs/checkpoint_3",
            "best.safetensors",
            "best.SafeTensors ",
            "\uff42est.safetensors",
            "trained.pt",
            f"sealed/{UNKNOWN}",
            UNKNOWN,
        )
    },
    "hide a checkpoint in a list": ("C5", override("recipes/sft.py", "START", [1, ["best.ckpt"]])),
    "offer a checkpoint as a choice": (
        "C5",
        add(
            {
                "kind": "choice",
                "file": "recipes/sft.py",
                "constant": "START",
                "choices": ["fresh", "out/adapter"],
            },
            "axes",
            0,
            "knobs",
        ),
    ),
    # C7: dead ends.
    "remove a dead end": ("C7", put([], "dead_ends")),
    "rename a dead end": ("C7", end_like(id="large-rate")),
    "reword a dead end": ("C7", end_like(title="A learning rate above 1000")),
    "move a dead end to another axis": ("C7", end_like(axis="decay")),
    "change the effect of a dead end": ("C7", end_like(effect=0.0)),
    "change an effect with a trial that never ran": (
        "C7",
        end_like(effect=0.0, rows=["r1/s2", "r2/s3", "r9/s1"]),
    ),
    "add a trial that never ran to a dead end": (
        "C7",
        end_like(rows=["r1/s2", "r2/s3", "r9/s1"]),
    ),
    "remove a trial from a dead end": ("C7", end_like(rows=["r1/s2"])),
    "reopen with the evidence that closed it": ("C7", reopened("r1/s2", "r2/s3")),
    "reopen with a trial that never ran": ("C7", reopened("r4/s1")),
    "reopen with a trial that was known": ("C7", reopened("r2/s5")),
    "reopen with a whole round": ("C7", reopened("r3")),
    "reopen with a claim about something else": ("C7", reopened("r3/s1", name="reopen-other")),
    # C8: budgets.
    "raise looks past the cap of a round": ("C8", put(6, "budget", "looks")),
    "raise looks without end": ("C8", put(10**9, "budget", "looks")),
    # C12: form, size, sameness.
    "write a number as text": ("C12", put("4", "budget", "looks")),
    "write a range as text": ("C12", put("0.1", "axes", 0, "knobs", 0, "low")),
    "write a flag for a number": ("C12", put(True, "budget", "looks")),
    "write a fraction for a count": ("C12", put(2.5, "budget", "looks")),
    "write a negative budget": ("C12", put(-1, "budget", "replicates")),
    "write NaN": ("C12", put(float("nan"), "noise", "sigma")),
    "write infinity into a range": ("C12", put(float("inf"), "axes", 0, "knobs", 0, "high")),
    "write NaN into a constant": ("C12", override("recipes/sft.py", "RATE", float("nan"))),
    "write an integer that no database keeps": ("C12", override("recipes/sft.py", "N", 2**63)),
    "write NUL": ("C12", put("a\x00b", "rationale")),
    "write half a character": ("C12", put("\ud800", "rationale")),
    "write a value that is not JSON": ("C12", put({1, 2}, "rationale")),
    "write a key that is not text": ("C12", put({1: 2}, "standing_recipe", "overrides")),
    "nest without end": ("C12", override("recipes/sft.py", "N", nested(10_000))),
    "nest a little too deep": ("C12", override("recipes/sft.py", "N", nested(40))),
    "write five megabytes": ("C12", put("x" * 5_000_000, "rationale")),
    "write a million items": ("C12", put(["r1"] * 1_000_000, "noise", "rows")),
    "write a little too much": ("C12", put(["x" * 1000] * 66, "evidence_ranking")),
    "write a key of its own below the top": ("C12", put(9, "budget", "gpus")),
    "write a constant that is an object": ("C12", override("recipes/sft.py", "N", {"a": 1})),
    "leave out the axes": ("C12", lambda draft: draft.pop("axes")),
    "leave axes empty": ("C12", put([], "axes")),
    "turn a range around": ("C12", put(7, "axes", 0, "knobs", 0, "low")),
    "use one name twice": ("C12", add(axis("rate", knob("WARMUP")), "axes")),
    "cite a row that is no row": ("C12", put(["r1; DROP TABLE trial"], "noise", "rows")),
    "name a schema to come": ("C12", put(2, "schema_version")),
    "change nothing": ("C12", put(PARENT.data()["noise"], "noise")),
    "change nothing for a blank reason": (
        "C12",
        both(put(PARENT.data()["noise"], "noise"), put(" \n", "unchanged_because")),
    ),
    "change words only": (
        "C12",
        both(put(PARENT.data()["noise"], "noise"), put("Much was learnt.", "rationale")),
    ),
    "call a changed policy unchanged": ("C12", put("Nothing was learnt.", "unchanged_because")),
}

LAWFUL = {
    "the next version": lambda draft: None,
    "an override of a recipe": override("recipes/populora.py"),
    "an override of a file whose name begins like a sealed one": override("evaluations/x.py"),
    "an override beside a sealed file": override("training/confined.py"),
    "a knob of an unsealed folder": put("training/loss.py", "axes", 0, "knobs", 0, "file"),
    "two axes on one constant with other ranges": both(
        put("retired", "axes", 1, "status"),
        add(axis("high-rate", knob("LEARNING_RATE", low=1, high=10)), "axes"),
    ),
    "replicates up to what leaves two axes": put(5, "budget", "replicates"),
    "a replicate of a known trial": add(replicate(), "replicates"),
    "a stored patch in the standing recipe": add(STORED, "standing_recipe", "patches"),
    "a promotion with a stored patch": promotion(patch=STORED),
    **{
        f"the constant {value!r}": override("recipes/sft.py", "MODE", value)
        for value in (
            "cosine",
            "q_proj",
            "Qwen/Qwen3-4B",
            "/no_think",
            "adapter",
            "and/or",
            "3.5",
            "",
            "Think step by step. Put the answer in \\boxed{}.",
            ["up", ["down"]],
            None,
            True,
        )
    },
    "a new dead end": add(
        {"id": "decay", "axis": "decay", "title": "Decay", "effect": None, "rows": ["r3/s2"]},
        "dead_ends",
    ),
    "one more trial of a dead end": end_like(effect=-0.3, rows=["r1/s2", "r2/s3", "r3/s4"]),
    "a dead end reopened by a later trial": reopened("r1/s2", "r3/s4"),
    "looks up to the cap": put(5, "budget", "looks"),
    "no looks": put(0, "budget", "looks"),
    "SQL in text": put("'); DROP TABLE policy; --", "rationale"),
    "markup in text": put("<script>alert(1)</script>", "objective"),
    "a whole number where a fraction stands": put(1, "axes", 0, "knobs", 0, "high"),
    "a long rationale": put("x" * 8000, "rationale"),
    "the same content for a reason": both(
        put(PARENT.data()["noise"], "noise"), put("Every trial crashed.", "unchanged_because")
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_rejected_by_its_clause_with_a_quote_of_the_draft(name: str) -> None:
    clause, attack = ATTACKS[name]
    draft = next_draft()
    attack(draft)
    violations = review(draft, PARENT, FACTS)
    assert {violation.clause for violation in violations} == {clause}, violations
    for violation in violations:
        assert violation.quote and violation.quote.isascii() and violation.quote.isprintable()
        assert len(violation.quote) <= MAX_QUOTE
        assert violation.reason


@pytest.mark.parametrize("name", LAWFUL)
def test_the_lawful_neighbour_of_an_attack_passes(name: str) -> None:
    draft = next_draft()
    LAWFUL[name](draft)
    assert review(draft, PARENT, FACTS) == []


def test_every_check_has_a_clause_in_the_text_an_attack_and_the_order_of_the_text() -> None:
    numbers = [int(re.match(r"c(\d+)_", check.__name__)[1]) for check in CLAUSES]  # type: ignore[index]
    assert numbers == [2, 3, 4, 5, 7, 8, 12]
    headings = re.findall(r"^## C(\d+)\. ", constitution_text(), re.MULTILINE)
    assert headings == [str(number) for number in range(1, 15)]
    assert {clause for clause, _ in ATTACKS.values()} == {f"C{number}" for number in numbers}


def test_the_text_gives_a_reason_for_each_clause_and_claims_no_check() -> None:
    clauses = constitution_text().split("\n## ")[1:]
    assert all("The reason:" in " ".join(clause.split()) for clause in clauses)
    assert not re.search(r"check(s|ed) by|code checks|\.py\b", constitution_text())


def test_the_hash_is_that_of_the_text_with_unix_line_endings() -> None:
    text = constitution_text()
    assert "\r" not in text
    assert constitution_sha256() == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("what", ["substrate", "judge", "constitution"])
def test_a_digest_that_moved_breaks_c3_whatever_the_draft_says(what: str) -> None:
    moved = dataclasses.replace(FACTS, **{f"found_{what}_sha256": "f" * 64})
    (violation,) = review(next_draft(), PARENT, moved)
    assert (violation.clause, violation.quote) == ("C3", "")
    assert what in violation.reason and "f" * 64 in violation.reason


def test_a_quote_names_the_place_and_the_value_of_the_draft() -> None:
    draft = next_draft()
    draft["axes"][1]["knobs"][0]["file"] = "evaluation/sc\u202eore.py"
    draft["budget"]["looks"] = 40
    quotes = [violation.quote for violation in review(draft, PARENT, FACTS)]
    assert quotes == [
        'axes[1].knobs[0].file: "evaluation/sc\\u202eore.py"',
        "budget.looks: 40",
    ]


def test_a_draft_that_breaks_several_clauses_hears_of_all_in_their_order() -> None:
    draft = next_draft()
    for name in ("remove a dead end", "raise looks without end", "jump a version"):
        ATTACKS[name][1](draft)
    clauses = [violation.clause for violation in review(draft, PARENT, FACTS)]
    assert clauses == ["C2", "C7", "C8"]


def test_a_draft_without_form_is_judged_by_c12_and_its_foreign_keys_alone() -> None:
    draft = next_draft() | {"note_to_self": "hello", "dead_ends": [], "version": "4"}
    found = [(violation.clause, violation.quote) for violation in review(draft, PARENT, FACTS)]
    assert found == [("C2", 'note_to_self: "hello"'), ("C12", 'version: "4"')]


@pytest.mark.parametrize("draft", [[], None, "policy", 7, [{"version": 4}]])
def test_what_is_no_object_breaks_c12(draft: Any) -> None:
    assert [violation.clause for violation in review(draft, PARENT, FACTS)] == ["C12"]


def test_an_empty_draft_is_told_each_part_that_it_lacks() -> None:
    violations = review({}, PARENT, FACTS)
    assert {violation.clause for violation in violations} == {"C12"}
    assert [violation.quote for violation in violations] == [
        f"{name}: absent" for name in ("version", "parent", "objective", "evidence_ranking", "axes")
    ]


def test_a_value_that_fits_no_constant_is_told_once() -> None:
    draft = next_draft()
    override("recipes/sft.py", "N", {"a": 1})(draft)
    (violation,) = review(draft, PARENT, FACTS)
    assert violation.quote == 'standing_recipe.overrides["recipes/sft.py"].N: {"a": 1}'


def test_the_size_counts_the_defaults_that_would_be_stored() -> None:
    draft = next_draft()
    lean = [{"id": f"a{i}", "title": "", "hypothesis": "", "knobs": [knob("K")]} for i in range(2)]
    lean[1]["knobs"] = [knob(f"K{i}") for i in range(740)]
    draft["axes"] = lean
    assert len(json.dumps(draft, separators=(",", ":"))) < MAX_BYTES
    violations = review(draft, PARENT, FACTS)
    assert [violation.clause for violation in violations] == ["C12"]
    assert "at most 65536 bytes" in violations[0].reason


def test_figures_over_a_cap_may_be_kept_and_lowered_but_not_raised() -> None:
    narrow = dataclasses.replace(FACTS, width=4, looks_per_round=2, looks_left=1)
    assert (PARENT.budget.replicates, PARENT.budget.looks) == (4, 4)
    for name, clause in (("replicates", "C4"), ("looks", "C8")):
        for value, wanted in ((5, [clause]), (4, []), (3, []), (0, [])):
            draft = next_draft()
            draft["budget"][name] = value
            found = [violation.clause for violation in review(draft, PARENT, narrow)]
            assert found == wanted, (name, value)


def test_looks_may_not_be_raised_past_what_is_left() -> None:
    thrifty = PARENT.model_copy(update={"budget": PARENT.budget.model_copy(update={"looks": 1})})
    facts = dataclasses.replace(FACTS, looks_left=3)
    for looks, wanted in ((3, []), (4, ["C8"])):
        draft = next_draft(thrifty)
        draft["budget"]["looks"] = looks
        assert [v.clause for v in review(draft, thrifty, facts)] == wanted


@pytest.mark.parametrize(("width", "active", "lawful"), [(1, 1, True), (2, 1, True), (3, 1, False)])
def test_a_round_of_two_slots_explores_one_axis(width: int, active: int, lawful: bool) -> None:
    draft = next_draft()
    for axis_data in draft["axes"][active:]:
        axis_data["status"] = "retired"
    violations = review(draft, PARENT, dataclasses.replace(FACTS, width=width))
    assert (violations == []) is lawful


def test_each_check_stands_alone() -> None:
    draft = next_draft()
    assert [check(draft, PARENT, FACTS) for check in CLAUSES] == [[]] * len(CLAUSES)
    (violation,) = c2_writes_only_the_next_policy(draft | {"scores": []}, PARENT, FACTS)
    assert violation.quote == "scores: []"


def test_a_review_leaves_the_draft_as_it_was() -> None:
    draft = next_draft()
    before = copy.deepcopy(draft)
    review(draft, PARENT, FACTS)
    assert draft == before
