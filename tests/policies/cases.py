"""A campaign of three rounds written by hand, the policy after it, and drafts of the next one.

Rate 0.5 was tried in r2/s1 and is run again; rank 4 was promoted from two fresh runs in round 2;
a huge rate is a dead end. Dev misleads in the domain `strings`.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from policies.case import CampaignFacts
from policies.leaks import held_out_grams
from policies.policy import SearchPolicy
from policies.report import RoundReport
from policies.rows import Rows

SUBSTRATE, JUDGE, LAW = "1" * 64, "2" * 64, "3" * 64
STORED, UNKNOWN, METRIC = "a" * 64, "b" * 64, "e" * 64
FILE = "recipes/sft.py"
HELD_OUT = "Which of the nine lighthouses on the northern shore was built before the great storm?"
SHORT_ANSWER = "Lighthouse Kjeungskjaer"

Draft = dict[str, Any]
Attack = Callable[[Draft], object]


def edit(patch: str | None = None, **constants: Any) -> Draft:
    return {"overrides": {FILE: constants} if constants else {}, "patch": patch}


RATE = edit(STORED, LEARNING_RATE=0.5)
RANK = edit(RANK=4)
LATE = edit(WARMUP=0.25)


def score(value: float, metric: str = METRIC) -> Draft:
    parts = {name: {"value": value, "n": 50} for name in ("lists", "strings")}
    version = {"metric": "accuracy", "metric_version": metric, "engine": "test"}
    return {"value": value, "n": 100, "domains": parts, **version}


def slot(number: int, axis: str | None = None, **changes: Any) -> Draft:
    """A trial that scored 0.5 on dev: the anchor in slot 0, an exploration elsewhere."""
    base = {
        "slot": number,
        "kind": "explore" if axis else "anchor" if number == 0 else "replicate",
        "axis": axis,
        "hypothesis": "",
        "edit": edit(),
        "diff_sha256": None,
        "seed": number,
        "outcome": "evaluated",
        "adapter_sha256": None,
        "dev": score(0.5),
        "external": None,
    }
    return base | changes


def verdict(number: int, axis: str, effect: float | None = 0.0, **changes: Any) -> Draft:
    base = {
        "slot": number,
        "axis": axis,
        "effect": effect,
        "low": None,
        "high": None,
        "verdict": "unresolved",
        "rows": ["r1/s1"],
    }
    return base | changes


def report(
    number: int, slots: Sequence[Draft], verdicts: Sequence[Draft] = (), **results: Any
) -> RoundReport:
    anchor = {"dev": 0.5, "external": None, "mean": 0.5, "low": 0.5, "high": 0.5, "n": 3}
    base = {
        "substrate_sha256": SUBSTRATE,
        "constitution_sha256": LAW,
        "policy_version": number,
        "policy_sha256": UNKNOWN,
        "recipe": "sft",
        "slots": list(slots),
        "looks": [],
        "spread": anchor,
        "noise": NOISE,
        "verdicts": list(verdicts),
        "dead_ends": [],
        "narrative": "",
    }
    account = {"started_at": "", "ended_at": "", "seconds": {}, "slots": []}
    return RoundReport.model_validate(
        {
            "campaign": "c",
            "round": number,
            "results": base | results,
            "account": account | {"worker": "sampler", "isolation": ""},
        }
    )


NOISE = {"sigma": 0.01, "degrees": 4, "threshold": 0.03, "rows": ["r1/s0"]}
CONFIRMED = {
    "axis": "rank",
    "edit": RANK,
    "runs": 2,
    "effect": 0.05,
    "bar": 0.02,
    "external_runs": 0,
    "external_effect": None,
    "external_bar": None,
    "level": 0.05,
    "is_confirmed": True,
    "rows": ["r2/s3/dev/overall", "r2/s4/dev/overall"],
}
UNCONFIRMED = CONFIRMED | {
    "axis": "warmup",
    "edit": LATE,
    "effect": 0.015,
    "bar": 0.021,
    "is_confirmed": False,
    "rows": ["r3/s3/dev/overall", "r3/s4/dev/overall"],
}
# Confirmed on dev, and 0.12 worse than the anchor on external, with a standard error of 0.02.
OVERRULED = CONFIRMED | {
    "axis": "decay",
    "edit": edit(WEIGHT_DECAY=0.7),
    "effect": 0.06,
    "rows": ["r3/s5/dev/overall", "r3/s6/dev/overall"],
}
# Confirmed by two runs that were better in the domain where dev misleads, and nowhere else.
TRAPPED = edit(WEIGHT_DECAY=0.8)
TRAPPED_ROWS = ["r3/s7/dev/overall", "r3/s8/dev/overall"]
DECOUPLED = {
    "domain": "strings",
    "verdict": "decoupled",
    "probability": 0.001,
    "level": 0.01,
    "axis": None,
    "dev_change": 0.09,
    "external_change": -0.01,
    "external_error": 0.02,
    "shortfall": 0.08,
    "error": 0.02,
    "pairs": 6,
    "rows": ["r3/s0"],
}


def domains(lists: float, strings: float) -> Draft:
    return {
        "lists": {"effect": lists, "n": 50},
        "strings": {"effect": strings, "n": 50},
    }


REPORTS = (
    report(
        1,
        [slot(0), slot(1, "rate"), slot(2, "rate", edit=edit(LEARNING_RATE=2.0)), slot(5, "decay")],
        [verdict(1, "rate"), verdict(2, "rate", -0.25), verdict(5, "decay")],
    ),
    report(
        2,
        [
            slot(0),
            slot(1, "rate", edit=RATE),
            slot(2, "decay"),
            *(slot(n, "rank", kind="replicate", edit=RANK) for n in (3, 4)),
            slot(5, "rate", outcome="crashed", dev=None),
        ],
        [
            verdict(1, "rate", 0.04, verdict="better"),
            verdict(2, "decay", -0.01),
            verdict(3, "rank", 0.06),
            verdict(4, "rank", 0.04),
            verdict(5, "rate", None),
        ],
        confirmations=[CONFIRMED],
    ),
    report(
        3,
        [
            slot(0, external=score(0.45)),
            slot(1, "decay", edit=edit(WEIGHT_DECAY=0.3)),
            slot(2, "rate", edit=edit(LEARNING_RATE=0.9)),
            *(slot(n, "warmup", kind="replicate", edit=LATE) for n in (3, 4)),
            *(slot(n, "decay", kind="replicate", edit=edit(WEIGHT_DECAY=0.7)) for n in (5, 6)),
            *(slot(n, "decay", kind="replicate", edit=TRAPPED) for n in (7, 8)),
        ],
        [
            verdict(1, "decay", 0.03, domains=domains(0.0, 0.06), verdict="better"),
            verdict(2, "rate", 0.02, domains=domains(0.03, 0.01)),
            verdict(3, "warmup", 0.02),
            verdict(4, "warmup", 0.01),
            verdict(5, "decay", 0.06, external_effect=-0.12, external_error=0.02),
            verdict(6, "decay", 0.06),
            *(verdict(n, "decay", 0.06, domains=domains(-0.01, 0.13)) for n in (7, 8)),
        ],
        confirmations=[
            UNCONFIRMED,
            OVERRULED,
            OVERRULED | {"edit": TRAPPED, "rows": TRAPPED_ROWS},
        ],
        decoupling=[DECOUPLED, DECOUPLED | {"domain": "lists", "verdict": "tracking"}],
        noise=NOISE | {"rows": ["r3/s0/dev/overall"]},
    ),
)


def knob(constant: str, **changes: Any) -> Draft:
    base = {"kind": "float", "file": FILE, "constant": constant, "low": 0.1, "high": 1}
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
        "trust": {"strings": "suspect", "bits": "suspect"},
        "axes": [
            axis("rate", knob("LEARNING_RATE")),
            axis("decay", knob("WEIGHT_DECAY"), evidence=["r2/s2/dev/overall"]),
            axis("rank", knob("RANK", kind="int", low=1, high=8), status="retired"),
            axis("warmup", knob("WARMUP"), status="retired"),
        ],
        "replicates": [{"axis": "rate", "edit": RATE, "origin": "r2/s1"}],
        "standing_recipe": {
            "overrides": {FILE: {"SCHEDULE": "cosine", "RANK": 4}},
            "provenance": [
                {"axis": "rank", "edit": RANK, "effect": 0.05, "rows": CONFIRMED["rows"]}
            ],
        },
        "noise": NOISE,
        "dead_ends": [
            {
                "id": "huge-rate",
                "axis": "rate",
                "title": "A learning rate above 1",
                "effect": -0.25,
                "rows": ["r1/s2", "r2/s5"],
            }
        ],
        "claims": [{"id": "old", "text": "It fell.", "rows": ["r1/s2"]}],
    }
)
FACTS = CampaignFacts(
    substrate_sha256=SUBSTRATE,
    judge_sha256=JUDGE,
    constitution_sha256=LAW,
    found_substrate_sha256=SUBSTRATE,
    found_judge_sha256=JUDGE,
    found_constitution_sha256=LAW,
    width=8,
    looks_per_round=5,
    looks_left=20,
    rows=Rows(REPORTS),
    sealed=("training/confine.py", "recipes/frozen/**"),
    direction="maximise",
    held_out=held_out_grams(
        [{"id": "external-1", "prompt": HELD_OUT, "answer": SHORT_ANSWER}],
        [{"id": "target-1", "prompt": "Which of the nine lighthouses on the southern shore fell?"}],
    ),
)


def next_draft(parent: SearchPolicy = PARENT, facts: CampaignFacts = FACTS) -> Draft:
    """A lawful draft: the next version, with the noise of the last round."""
    window = facts.rows.window()
    return copy.deepcopy(parent.data()) | {
        "version": parent.version + 1,
        "parent": parent.digest(),
        "noise": NOISE | {"rows": ["r3/s0/dev/overall"]},
        "window": window.model_dump() if window else None,
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


def turn(file: str, constant: str = "LEARNING_RATE", value: Any = 0.3) -> Attack:
    """An axis that turns one constant of a file."""
    choice = {"kind": "choice", "file": file, "constant": constant, "choices": [value]}
    return put([choice], "axes", 0, "knobs")


def promotion(confirmed: Mapping[str, Any], **changes: Any) -> Attack:
    """What a report says of fresh runs, as a promotion that is merged."""
    entry = {name: confirmed[name] for name in ("axis", "edit", "effect", "rows")} | changes

    def attack(draft: Draft) -> None:
        recipe = draft["standing_recipe"]
        recipe["provenance"].append(entry)
        for file, constants in entry["edit"]["overrides"].items():
            recipe["overrides"].setdefault(file, {}).update(constants)

    return attack


def claim(*rows: str, name: str = "c1", **finding: Any) -> Attack:
    """A claim with one finding in its first row: by default that it is a trial that was scored."""
    found = {"row": rows[0], "what": "outcome", "value": "evaluated"} | finding
    text = "It works with warm-up."
    return add({"id": name, "text": text, "rows": list(rows), "findings": [found]}, "claims")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value
