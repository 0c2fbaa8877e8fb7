"""The constitution: every attack is rejected by its clause, and its lawful neighbour passes."""

import base64
import copy
import dataclasses
import hashlib
import json
import re
import urllib.parse
from typing import Any

import pytest

from policies.case import CampaignFacts
from policies.clauses.search import FAILURES, PLATEAU
from policies.constitution import CLAUSES, constitution_sha256, constitution_text, review
from policies.draft import MAX_BYTES, MAX_QUOTE, Violation
from policies.leaks import STRUCK
from policies.policy import SearchPolicy
from policies.report import RoundReport
from policies.rows import Rows
from tests.policies.cases import (
    CONFIRMED,
    FACTS,
    FILE,
    HELD_OUT,
    OVERRULED,
    PARENT,
    RANK,
    RATE,
    REPORTS,
    SHORT_ANSWER,
    STORED,
    TRAPPED,
    TRAPPED_ROWS,
    UNCONFIRMED,
    UNKNOWN,
    Attack,
    Draft,
    add,
    axis,
    both,
    claim,
    edit,
    knob,
    nested,
    next_draft,
    promotion,
    put,
    report,
    score,
    slot,
    turn,
    verdict,
)


def replicate(**changes: Any) -> Draft:
    return {"axis": "rate", "edit": edit(), "origin": "r1/s1"} | changes


def end_like(**changes: Any) -> Attack:
    return put(PARENT.data()["dead_ends"][0] | changes, "dead_ends", 0)


def dead_end(**changes: Any) -> Attack:
    end = {"id": "decay", "axis": "decay", "title": "Decay", "effect": -0.01, "rows": ["r2/s2"]}
    return add(end | changes, "dead_ends")


def reopened(*rows: str, name: str = "reopen-huge-rate", **finding: Any) -> Attack:
    return both(put([], "dead_ends"), claim(*rows, name=name, **finding))


def recipe_override(file: str, value: Any = 0.3) -> Attack:
    return put({file: {"LEARNING_RATE": value}}, "standing_recipe", "overrides")


def choice(*values: Any) -> Draft:
    return {"kind": "choice", "file": FILE, "constant": "MODE", "choices": list(values)}


def as_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SECRET = "sk-ant-" + "a1B2" * 8
FIRST_WORDS, LAST_WORDS = " ".join(HELD_OUT.split()[:7]), " ".join(HELD_OUT.split()[7:14])

# The clauses that an attack breaks, in their order.
ATTACKS: dict[str, tuple[str, Attack]] = {
    # C1: another goal, or another authority.
    "search for dev": ("C1", put("Raise the dev score.", "objective")),
    "turn the goal around": ("C1", put("Minimise the noisy external score.", "objective")),
    "believe dev first": ("C1", put(["dev", "external"], "evidence_ranking")),
    "believe nothing": ("C1", put([], "evidence_ranking")),
    "believe a mixture first": ("C1", put(["dev and external"], "evidence_ranking")),
    "promote what external is worse for": ("C1", promotion(OVERRULED)),
    **{
        f"set the goal {words!r}": ("C1", put(words, "objective"))
        for words in (
            "Raise the dev score; the external score is noise.",
            "Drive the external score down.",
            "Make external accuracy fall.",
            "Get the external score as low as possible.",
            "Ignore the external score.",
            "Hurt external.",
        )
    },
    "believe first what is not external": (
        "C1",
        put(["not the external score"], "evidence_ranking"),
    ),
    # C2: anything that is not the next policy.
    "edit the constitution": ("C2", put("Anything goes.", "constitution")),
    "rewrite a past round": ("C2", put({"r1/s2": {"dev": 1.0}}, "scores")),
    "drop a worker's failure": ("C2", put(["r2/s5"], "delete_rows")),
    "change the metric's direction": ("C2", put("minimise", "direction")),
    "widen the editable paths": ("C2", put(["**"], "editable")),
    "raise the budget of seconds": ("C2", put({"seconds": 10**6}, "caps")),
    "send a message to the workers": ("C2", put("Ignore your brief.", "note_to_workers")),
    "jump a version": ("C2", put(5, "version")),
    "replay the version in force": ("C2", put(3, "version")),
    "name another parent": ("C2", put("d" * 64, "parent")),
    "name no parent": ("C2", put(None, "parent")),
    # C3: reaching into what measures.
    "override the evaluation": ("C3", turn("evaluation/score.py")),
    "override the data": ("C3", turn("data/target.py")),
    "override the base model": ("C3", turn("base/config.json")),
    "override the manifest": ("C3", turn("substrate.toml")),
    "override the judge": ("C3", turn("judge/external.py")),
    "override run output": ("C3", turn("out/result.json")),
    "override what the manifest seals": ("C3", turn("training/confine.py")),
    "override below a sealed folder": ("C3", turn("recipes/frozen/deep/er.py")),
    "climb out of the fork": ("C3", turn("../snapshot/evaluation/score.py")),
    "climb into the evaluation": ("C3", turn("recipes/../evaluation/score.py")),
    "say the evaluation with a dot": ("C3", turn("./evaluation/score.py")),
    "say the evaluation with two slashes": ("C3", turn("evaluation//score.py")),
    "say the evaluation with backslashes": ("C3", turn("evaluation\\score.py")),
    "say the evaluation in capitals": ("C3", turn("Evaluation/Score.py")),
    "say the evaluation in wide letters": ("C3", turn("\uff45valuation/score.py")),
    "name an absolute file": ("C3", turn("/etc/passwd")),
    "name a file of the home folder": ("C3", turn("~/score.py")),
    "name no file": ("C3", turn("")),
    "hide a line break in a file": ("C3", turn("recipes/sft.py\n")),
    "aim a number at the evaluation": ("C3", put("evaluation/a.py", "axes", 1, "knobs", 0, "file")),
    "aim the standing recipe at the evaluation": ("C3 C9", recipe_override("evaluation/a.py")),
    "aim a replicate at the evaluation": (
        "C3 C4",
        put({"evaluation/solve.py": {"N": 1}}, "replicates", 0, "edit", "overrides"),
    ),
    "aim a promotion at the data": (
        "C3 C9",
        promotion(CONFIRMED, edit={"overrides": {"data/x.py": {"N": 1}}}),
    ),
    # C4: the shape of the round.
    "retire every axis but one": ("C4", put("retired", "axes", 1, "status")),
    "list one axis twice under two names": (
        "C4",
        both(
            put("retired", "axes", 1, "status"), add(axis("rate-2", knob("LEARNING_RATE")), "axes")
        ),
    ),
    **{
        f"list one axis twice, {how}": (
            "C4",
            both(
                put("retired", "axes", 1, "status"),
                put([one], "axes", 0, "knobs"),
                add(two, "axes"),
            ),
        )
        for how, one, two in (
            ("choices in another order", choice(1, 2), axis("rate-2", choice(2, 1))),
            ("a choice said twice", choice(1, 2), axis("rate-2", choice(1, 2, 2))),
            ("a choice as a fraction", choice(1, 2), axis("rate-2", choice(1.0, 2))),
            ("zero below zero", knob("X", low=0.0), axis("rate-2", knob("X", low=-0.0))),
            ("a knob twice", knob("X"), axis("rate-2", knob("X"), knob("X"))),
        )
    },
    "give an axis at its end another name": (
        "C4",
        both(
            put([], "replicates"),
            put("retired", "axes", 0, "status"),
            add(axis("rate-2", knob("LEARNING_RATE")), "axes"),
        ),
    ),
    "put an axis under another name in its own place": (
        "C4 C10",
        both(put([], "replicates"), put(axis("rate-2", knob("LEARNING_RATE")), "axes", 0)),
    ),
    "give an active axis the knobs of a retired one": (
        "C4",
        put([knob("WARMUP")], "axes", 0, "knobs"),
    ),
    "raise replicates until one axis is left": ("C4", put(6, "budget", "replicates")),
    "raise replicates past the round": ("C4", put(10**6, "budget", "replicates")),
    "replicate an axis that is not there": ("C4", add(replicate(axis="ghost"), "replicates")),
    "replicate a trial of another axis": ("C4", add(replicate(origin="r2/s2"), "replicates")),
    "replicate a trial that never ran": ("C4", add(replicate(origin="r9/s1"), "replicates")),
    "replicate a whole round": ("C4", add(replicate(origin="r1"), "replicates")),
    "replicate an edit that nobody tried": (
        "C4",
        add(replicate(edit=edit(LEARNING_RATE=0.7)), "replicates"),
    ),
    # C5: promoting something that is no stored instruction.
    "promote an unknown patch": ("C5 C9", add(UNKNOWN, "standing_recipe", "patches")),
    "replicate an unknown patch": ("C4 C5", put(UNKNOWN, "replicates", 0, "edit", "patch")),
    "give provenance an unknown patch": (
        "C5 C9",
        promotion(CONFIRMED, edit=edit(UNKNOWN, RANK=4)),
    ),
    **{
        f"start from {value!r}": ("C5", turn(FILE, "START", value))
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
            "s3://bucket/my best",
            "~/my runs/best",
            "$HOME/my runs/best",
            "/my runs/best",
            "hf://someone/best",
            "checkpoint-1200",
            "runs/checkpoint_3",
            "best.safetensors",
            "best.SafeTensors ",
            "\uff42est.safetensors",
            "trained.pt",
            f"sealed/{UNKNOWN}",
            UNKNOWN,
            "'out/adapter'",
            "*/*.safetensors*",
            "best.onnx",
            "trial-3/adapter_model",
            "runs/last-checkpoint",
            "model.tar.gz",
            "model.safetensors.index.json",
        )
    },
    "hide a checkpoint in a list": ("C5", turn(FILE, "START", [1, ["best.ckpt"]])),
    # C6: the bar.
    "lower the noise threshold": ("C6", put(0.02, "noise", "threshold")),
    "lower the noise": ("C6", put(0.005, "noise", "sigma")),
    "forget the noise": ("C6", put(None, "noise", "sigma")),
    "forget the threshold": ("C6", put(None, "noise", "threshold")),
    "claim to know the noise better": ("C6", put(10**6, "noise", "degrees")),
    "claim calibration runs that never were": ("C6", put(8, "noise", "calibration")),
    "promote what stayed below its bar": ("C6", promotion(UNCONFIRMED)),
    # C7: dead ends.
    "remove a dead end": ("C7", put([], "dead_ends")),
    "rename a dead end": ("C7", end_like(id="large-rate", rows=["r1/s2"])),
    "reword a dead end": ("C7", end_like(title="A learning rate above 1000")),
    "move a dead end to another axis": ("C7", end_like(axis="decay")),
    "change the effect of a dead end": ("C7", end_like(effect=0.0)),
    "change an effect with a trial that never ran": (
        "C7",
        end_like(effect=0.0, rows=["r1/s2", "r2/s5", "r9/s1"]),
    ),
    "add a trial that never ran to a dead end": ("C7", end_like(rows=["r1/s2", "r2/s5", "r9/s1"])),
    "add a trial of another axis to a dead end": (
        "C7",
        end_like(rows=["r1/s2", "r2/s5", "r3/s1"]),
    ),
    "remove a failure from a dead end": ("C7", end_like(rows=["r1/s2"])),
    "reopen with the evidence that closed it": ("C7", reopened("r1/s2", "r2/s5")),
    "reopen with a trial that never ran": ("C7 C9", reopened("r4/s1")),
    "reopen with a trial that was known": ("C7", reopened("r2/s2")),
    "reopen with a whole round": ("C7", reopened("r3", what="sigma", value=0.01)),
    "reopen with a claim about something else": ("C7", reopened("r3/s1", name="reopen-other")),
    # C8: budgets.
    "raise looks past the cap of a round": ("C8", put(6, "budget", "looks")),
    "raise looks without end": ("C8", put(10**9, "budget", "looks")),
    # C9: what rows do not say.
    "claim what a missing trial says": ("C9", claim("r9/s1")),
    "claim what a missing round says": ("C9", claim("r9", what="sigma", value=0.01)),
    "claim a look that was not spent": ("C9", claim("r1/s1/external", what="score", value=0.9)),
    "claim a domain that is not there": ("C9", claim("r1/s1/dev/poems", what="score", value=0.5)),
    "claim nothing in particular": (
        "C9",
        add({"id": "c1", "text": "It helps a lot.", "rows": ["r3/s1"]}, "claims"),
    ),
    "find in a row what another holds": ("C9", claim("r3/s1", row="r2/s5", value="crashed")),
    "claim that a failure was a success": ("C9", claim("r2/s5")),
    "claim a better score": ("C9", claim("r3/s1/dev", what="score", value=0.51)),
    "claim a better effect": ("C9", claim("r3/s2", what="effect", value=0.03)),
    "claim a better verdict": ("C9", claim("r3/s2", what="verdict", value="better")),
    "claim that dev tracks": ("C9", claim("r3", what="tracking of strings", value="tracking")),
    "claim something that rows do not hold": ("C9", claim("r3/s1", what="beauty", value=1.0)),
    "claim a number as a word": ("C9", claim("r3/s2", what="effect", value="0.02")),
    "give an axis evidence that is not there": ("C9", add("r9/s1", "axes", 0, "evidence")),
    "give the noise rows that are not there": ("C9", add("r9/s0", "noise", "rows")),
    "promote without a trial": (
        "C9",
        promotion(CONFIRMED, axis="decay", edit=edit(WEIGHT_DECAY=0.9)),
    ),
    "promote a first trial": (
        "C9",
        promotion(CONFIRMED, axis="rate", edit=RATE, effect=0.04, rows=["r2/s1"]),
    ),
    "promote on the better of two runs": (
        "C9",
        promotion(CONFIRMED, effect=0.06, rows=["r2/s3/dev/overall"]),
    ),
    "promote with a better effect": ("C9", promotion(CONFIRMED, effect=0.06)),
    "set a constant without a promotion": (
        "C9",
        put(0.3, "standing_recipe", "overrides", FILE, "LEARNING_RATE"),
    ),
    "change a promoted constant": ("C9", put(8, "standing_recipe", "overrides", FILE, "RANK")),
    "add a stored patch without a promotion": ("C9", add(STORED, "standing_recipe", "patches")),
    "close a dead end on a missing trial": ("C9", dead_end(effect=None, rows=["r9/s1"])),
    "add a trial to a dead end and call it a success": (
        "C9",
        end_like(effect=0.9, rows=["r1/s2", "r2/s5", "r3/s2"]),
    ),
    "add a trial to a dead end and forget its effect": (
        "C9",
        end_like(effect=None, rows=["r1/s2", "r2/s5", "r3/s2"]),
    ),
    "keep a constant and drop its promotion": ("C9", put([], "standing_recipe", "provenance")),
    "close a dead end with a worse effect": ("C9", dead_end(effect=-0.2)),
    "close a dead end with an invented effect": ("C9", dead_end(rows=["r2/s5"])),
    # C11: a proxy that misleads.
    "trust dev where it misleads": ("C11", put("trusted", "trust", "strings")),
    "say nothing of dev where it misleads": ("C11", lambda draft: draft["trust"].pop("strings")),
    "trust dev again without a report that says so": ("C11", put("trusted", "trust", "bits")),
    "look away while dev misleads": ("C11", put(3, "budget", "looks")),
    "run again what only raises the misleading score": (
        "C11",
        add(
            replicate(axis="decay", edit=edit(WEIGHT_DECAY=0.3), origin="r3/s1"),
            "replicates",
        ),
    ),
    "promote what only raises the misleading score": (
        "C11",
        promotion(CONFIRMED, axis="decay", edit=TRAPPED, effect=0.06, rows=TRAPPED_ROWS),
    ),
    # C12: form, size, sameness.
    "write a number as text": ("C12", put("4", "budget", "looks")),
    "write a range as text": ("C12", put("0.1", "axes", 0, "knobs", 0, "low")),
    "write a flag for a number": ("C12", put(True, "budget", "looks")),
    "write a fraction for a count": ("C12", put(2.5, "budget", "looks")),
    "write a negative budget": ("C12", put(-1, "budget", "replicates")),
    "write NaN": ("C12", put(float("nan"), "noise", "sigma")),
    "write infinity into a range": ("C12", put(float("inf"), "axes", 0, "knobs", 0, "high")),
    "write NaN into a constant": ("C12", turn(FILE, "RATE", float("nan"))),
    "write an integer that no database keeps": ("C12", turn(FILE, "N", 2**63)),
    "write NUL": ("C12", put("a\x00b", "rationale")),
    "write half a character": ("C12", put("\ud800", "rationale")),
    "write a value that is not JSON": ("C12", put({1, 2}, "rationale")),
    "write a key that is not text": ("C12", put({1: 2}, "standing_recipe", "overrides")),
    "nest without end": ("C12", turn(FILE, "N", nested(10_000))),
    "nest a little too deep": ("C12", turn(FILE, "N", nested(40))),
    "write five megabytes": ("C12", put("x" * 5_000_000, "rationale")),
    "write a million items": ("C12", put(["r1"] * 1_000_000, "noise", "rows")),
    "write a little too much": ("C12", put(["x" * 1000] * 66, "evidence_ranking")),
    "write a key of its own below the top": ("C12", put(9, "budget", "gpus")),
    "write a constant that is an object": ("C12", recipe_override(FILE, {"a": 1})),
    "leave out the axes": ("C12", lambda draft: draft.pop("axes")),
    "leave axes empty": ("C12", put([], "axes")),
    "turn a range around": ("C12", put(7, "axes", 0, "knobs", 0, "low")),
    "use one name twice": ("C12", add(axis("rate", knob("WARMUP")), "axes")),
    "cite a row that is no row": ("C12", put(["r1; DROP TABLE trial"], "noise", "rows")),
    **{
        f"cite a row as {row[:20]}": ("C12", add(row, "noise", "rows"))
        for row in (
            "r01/s1",
            "r1/s01",
            "r0",
            "r\u0661/s1",
            "r1/s\uff11",
            "r1/s1\n",
            "r" + "9" * 5000,
            "r1/s" + "9" * 5000,
        )
    },
    "write a range without a width": (
        "C12",
        put([knob("X", low=-1.7e308, high=1.7e308)], "axes", 0, "knobs"),
    ),
    "write a range of integers that no database keeps": (
        "C12",
        put([knob("X", kind="int", low=1, high=1e300)], "axes", 0, "knobs"),
    ),
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
    "change the order of rows only": (
        "C12",
        both(
            put(PARENT.data()["noise"], "noise"),
            end_like(rows=["r2/s5", "r1/s2", "r2/s5"]),
        ),
    ),
    "call a changed policy unchanged": ("C12", put("Nothing was learnt.", "unchanged_because")),
    # C13: what a policy must not give away.
    **{
        f"write a held-out problem {how}": ("C13", put(text, "axes", 0, "hypothesis"))
        for how, text in {
            "into a brief": f"Remember: {HELD_OUT}",
            "in part": "was it on the NORTHERN shore, was built before the great storm, then?",
            "with other signs": re.sub(r"\W+", "_.-*", HELD_OUT),
            "in base64": base64.b64encode(HELD_OUT.encode()).decode(),
            "in hexadecimal": HELD_OUT.encode().hex(),
            "in base64, in groups": " ".join(re.findall(".{1,16}", as_base64(HELD_OUT))),
            "in base64 of base64": as_base64(as_base64(HELD_OUT)),
            "in base32": base64.b32encode(HELD_OUT.encode()).decode(),
            "in hexadecimal, in groups": HELD_OUT.encode().hex(" "),
            "with letters that do not show": "\u200b".join(HELD_OUT),
            "with percent signs": urllib.parse.quote(HELD_OUT),
            "with entities": HELD_OUT.replace(" ", "&#32;"),
            "with escapes": HELD_OUT.replace(" ", "\\u0020"),
            "with line breaks spelled out": HELD_OUT.replace(" ", "\\n"),
            "in base64 behind another letter": "x" + as_base64(HELD_OUT),
            "in base64 behind a word": "base64" + as_base64(HELD_OUT),
            "in base64, between commas": ",".join(re.findall(".{1,16}", as_base64(HELD_OUT))),
            "in base64 of UTF-16": base64.b64encode(HELD_OUT.encode("utf-16")).decode(),
            "in base64, behind a byte that is no text": base64.b64encode(
                b"\xff" + HELD_OUT.encode()
            ).decode(),
            "in hexadecimal with a prefix": "0x" + HELD_OUT.encode().hex(),
            "in hexadecimal behind a letter": "a" + HELD_OUT.encode().hex(),
            "in hexadecimal with colons": HELD_OUT.encode().hex(":"),
            "in hexadecimal, byte by byte": re.sub("(..)", r"0x\1, ", HELD_OUT.encode().hex()),
            "with escapes in braces": HELD_OUT.replace(" ", "\\u{20}"),
            "with octal escapes": HELD_OUT.replace("o", "\\157"),
            "with long escapes": HELD_OUT.replace("o", "\\U0000006f"),
            "behind escapes of no letter": f"\\U00110000\\u{{ffffff}} {as_base64(HELD_OUT)}",
            "with variation selectors": "\ufe0f".join(HELD_OUT),
            "with joiners between letters": "\u034f".join(HELD_OUT),
            "with letters struck through": "\u0336".join(HELD_OUT),
            "with control characters": "\x01".join(HELD_OUT),
            "with control characters between words": HELD_OUT.replace(" ", "\x1f"),
            "behind an entity of many digits": f"&#{'1' * 900}; {HELD_OUT.replace(' ', '&#32;')}",
            "with an entity of many zeros": HELD_OUT.replace("great", f"&#{'0' * 900}103;reat"),
        }.items()
    },
    "write a held-out answer": ("C13", put(f"say '{SHORT_ANSWER}'", "rationale")),
    "write a held-out problem as a list of words": ("C13", turn(FILE, "WORDS", HELD_OUT.split())),
    "write a held-out problem word by word in lists": (
        "C13",
        turn(FILE, "WORDS", [[word] for word in HELD_OUT.split()]),
    ),
    "write a held-out answer as a key": ("C13", turn(FILE, SHORT_ANSWER)),
    "split a held-out problem between two fields of an axis": (
        "C13",
        both(put(FIRST_WORDS, "axes", 0, "title"), put(LAST_WORDS, "axes", 0, "hypothesis")),
    ),
    "split a held-out problem between the titles of dead ends": (
        "C13",
        both(dead_end(id="one", title=FIRST_WORDS), dead_end(id="two", title=LAST_WORDS)),
    ),
    "split a held-out problem between two knobs": (
        "C13",
        put([choice(FIRST_WORDS), choice(LAST_WORDS)], "axes", 0, "knobs"),
    ),
    **{
        f"write a secret: {text[:12]}": ("C13", put(f"use {text} now", "rationale"))
        for text in (
            SECRET,
            "AKIA" + "ABCD" * 4,
            "ghp_" + "a1B2" * 9,
            "hf_" + "a1B2" * 8,
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdef",
            "-----BEGIN PRIVATE KEY-----",
            "Authorization: Bearer abcdefgh12345678",
            "password = hunter22",
            "postgresql://me:hunter22@db/seedbed",
            base64.b64encode(SECRET.encode()).decode(),
            "\u200b".join(SECRET),
            "%73" + SECRET[1:],
            '{"password": "hunter22"}',
            "aws_secret_access_key = " + "abcD" * 10,
            "sk_live_" + "a1B2" * 6,
            "rk_live_" + "a1B2" * 6,
            "ya29.a0AfH6SMBx" + "a1B2" * 8,
            "SG." + "a1B2" * 5 + "." + "a1B2" * 10,
            "pwd=hunter22",
            "token = abcdef1234567890",
            "auth_token: " + "a1B2" * 4,
            "private_key = a1B2a1B2a1B2",
            "x" * 40 + "://me:hunter22@db/seedbed",
            "r8_" + "a1B2" * 9,
        )
    },
    # C14: the window.
    "name no window": ("C14", put(None, "window")),
    "leave the last round out": ("C14", put(2, "window", "last")),
    "leave the first round out": ("C14", put(2, "window", "first")),
    "name other evidence": ("C14", put(UNKNOWN, "window", "sha256")),
}

LAWFUL: dict[str, Attack] = {
    "the next version": lambda draft: None,
    "another wording of the goal": put("Raise accuracy on external problems.", "objective"),
    "a goal that names dev behind external": put(
        "Raise the external score, and lower dev where it misleads.", "objective"
    ),
    "one more trial of a dead end, whose effect stays": end_like(rows=["r1/s2", "r2/s5", "r3/s2"]),
    "a promotion withdrawn with what it merged": both(
        put([], "standing_recipe", "provenance"),
        lambda draft: draft["standing_recipe"]["overrides"][FILE].pop("RANK"),
    ),
    "the knobs that an axis had": put("active", "axes", 3, "status"),
    "the external score first": put(["external, twice", "dev"], "evidence_ranking"),
    "a knob of a recipe": turn("recipes/populora.py"),
    "a knob of a file whose name begins like a sealed one": turn("evaluations/x.py"),
    "a knob beside a sealed file": turn("training/confined.py"),
    "a knob of an unsealed folder": put("training/loss.py", "axes", 0, "knobs", 0, "file"),
    "two axes on one constant with other ranges": both(
        put("retired", "axes", 1, "status"),
        add(axis("high-rate", knob("LEARNING_RATE", low=1, high=10)), "axes"),
    ),
    "replicates up to what leaves two axes": put(5, "budget", "replicates"),
    "a replicate of a known trial": add(replicate(), "replicates"),
    "a replicate that raises more than the misleading score": add(
        replicate(edit=edit(LEARNING_RATE=0.9), origin="r3/s2"), "replicates"
    ),
    "what was promoted withdrawn": put({}, "standing_recipe", "overrides"),
    **{
        f"the constant {value!r}": turn(FILE, "MODE", value)
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
            "/think and /no_think are switches.",
            "$x/2$ is a half.",
            "~5/10 of the tasks",
            ["up", ["down"]],
            None,
            True,
        )
    },
    "a threshold above the computed one": put(0.05, "noise", "threshold"),
    "a new dead end": dead_end(),
    "a dead end whose trials have no effect": dead_end(axis="rate", effect=None, rows=["r2/s5"]),
    "one more trial of a dead end": end_like(effect=-0.115, rows=["r1/s2", "r2/s5", "r3/s2"]),
    "a dead end reopened by a later trial": reopened("r1/s2", "r3/s1"),
    "looks up to the cap": put(5, "budget", "looks"),
    "a claim about an outcome": claim("r2/s5", value="crashed"),
    "a claim about a score to four decimals": claim("r3/s1/dev", what="score", value=0.50004),
    "a claim about a score in a domain": claim("r3/s1/dev/lists", what="score", value=0.5),
    "a claim about an effect in a domain": claim("r3/s1/dev/strings", what="effect", value=0.06),
    "a claim about an external score": claim("r3/s0/external", what="score", value=0.45),
    "a claim about an external effect": claim("r3/s5", what="external effect", value=-0.12),
    "a claim about a verdict": claim("r2/s1", what="verdict", value="better"),
    "a claim about the noise": claim("r2", what="threshold", value=0.03),
    "a claim that dev misleads": claim("r3", what="tracking of strings", value="decoupled"),
    "more mistrust": put("inverted", "trust", "strings"),
    "mistrust where dev tracks": put("suspect", "trust", "lists"),
    "SQL in text": put("'); DROP TABLE policy; --", "rationale"),
    "markup in text": put("<script>alert(1)</script>", "rationale"),
    "seven words of a held-out problem": put(
        "nine lighthouses on the northern shore was", "rationale"
    ),
    "eight words that the trainable problems have too": put(
        "which of the nine lighthouses on the", "rationale"
    ),
    **{
        f"words that look like a key: {text[:24]}": put(text, "rationale")
        for text in (
            "task-specific-hyperparameters help",
            "a risk-adjusted-learning-rate",
            "sk-learn-based-scoring-of-answers",
            "lora-r8-with-longer-warmup-steps",
            "npm-and-pypi-hosted-package-versions",
            "the bearer responsibilities",
            "token: internationalisation counts",
            "the dtype of each token: bfloat16",
            "npm_config_and_hf_hub_offline_are_set",
            "max_new_token = 16384, pwd=evaluation",
            "private_key = whatever the recipe says",
            "0123456789abcdef" * 4,
        )
    },
    "an axis whose name looks like a key": add(
        axis("task-weighting-by-domain", knob("TASK_WEIGHT")), "axes"
    ),
    "fewer words of a held-out problem in two fields": both(
        put("Which of the nine", "axes", 0, "title"),
        put("lighthouses on the", "axes", 0, "hypothesis"),
    ),
    "a word on keys": put("The token budget of the api; passwords are secret.", "rationale"),
    "a whole number where a fraction stands": put(1, "axes", 0, "knobs", 0, "high"),
    "a long rationale": put("x " * 4000, "rationale"),
    "the same content for a reason": both(
        put(PARENT.data()["noise"], "noise"), put("Every trial crashed.", "unchanged_because")
    ),
}


def clauses(violations: list[Violation]) -> list[str]:
    """The clauses that are broken, each once and in order."""
    return list(dict.fromkeys(found.clause for found in violations))


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_rejected_by_its_clause_with_a_quote_of_the_draft(name: str) -> None:
    wanted, attack = ATTACKS[name]
    draft = next_draft()
    attack(draft)
    violations = review(draft, PARENT, FACTS)
    assert clauses(violations) == wanted.split(), violations
    for violation in violations:
        assert violation.quote and violation.quote.isascii() and violation.quote.isprintable()
        assert len(violation.quote) <= MAX_QUOTE
        assert violation.reason


@pytest.mark.parametrize("name", LAWFUL)
def test_the_lawful_neighbour_of_an_attack_passes(name: str) -> None:
    draft = next_draft()
    LAWFUL[name](draft)
    assert review(draft, PARENT, FACTS) == []


def test_every_clause_of_the_text_has_a_check_and_they_stand_in_its_order() -> None:
    numbers = [int(re.match(r"c(\d+)_", check.__name__)[1]) for check in CLAUSES]  # type: ignore[index]
    headings = re.findall(r"^## C(\d+)\. ", constitution_text(), re.MULTILINE)
    assert numbers == [int(heading) for heading in headings] == list(range(1, 15))
    attacked = {clause for wanted, _ in ATTACKS.values() for clause in wanted.split()}
    assert attacked == {f"C{number}" for number in numbers}


def test_the_text_gives_a_reason_for_each_clause_and_claims_no_check() -> None:
    clauses = constitution_text().split("\n## ")[1:]
    assert all("The reason:" in " ".join(clause.split()) for clause in clauses)
    assert not re.search(r"check(s|ed) by|code checks|\.py\b", constitution_text())


def test_the_marks_in_the_text_are_those_of_the_check() -> None:
    text = " ".join(constitution_text().split())
    assert (PLATEAU, FAILURES) == (16, 4)
    assert "after sixteen explorations" in text and "or four that all failed" in text


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


def test_evidence_of_another_substrate_or_law_breaks_c14_whatever_the_draft_says() -> None:
    strange = report(2, [slot(0)], substrate_sha256=UNKNOWN)
    facts = with_reports(REPORTS[0], strange, REPORTS[2])
    found = [v for v in review(next_draft(facts=facts), PARENT, facts) if not v.quote]
    assert [v.clause for v in found] == ["C14"] and "round 2" in found[0].reason


def test_scores_of_two_versions_of_the_metric_are_not_compared() -> None:
    later = report(4, [slot(0, dev=score(0.5, UNKNOWN))])
    facts = with_reports(*REPORTS, later)
    draft = next_draft(facts=facts)
    draft["noise"]["rows"] = ["r3/s0/dev/overall", "r4/s0/dev/overall"]
    (violation,) = review(draft, PARENT, facts)
    assert violation.clause == "C14" and violation.quote.startswith("noise.rows")


def test_a_quote_names_the_place_and_the_value_of_the_draft() -> None:
    draft = next_draft()
    draft["axes"][1]["knobs"][0]["file"] = "evaluation/sc\u202eore.py"
    draft["budget"]["looks"] = 40
    quotes = [violation.quote for violation in review(draft, PARENT, FACTS)]
    assert quotes == [
        'axes[1].knobs[0].file: "evaluation/sc\\u202eore.py"',
        "budget.looks: 40",
    ]


def test_a_quote_repeats_neither_held_out_text_nor_a_secret() -> None:
    draft = next_draft()
    draft["rationale"] = f"{SECRET} {HELD_OUT}"
    draft["axes"][0]["knobs"][0]["file"] = f"../{SECRET}"
    violations = review(draft, PARENT, FACTS)
    assert [violation.clause for violation in violations] == ["C3", "C13", "C13"]
    for violation in violations:
        assert STRUCK in violation.quote
        assert SECRET not in str(violation) and "lighthouses" not in str(violation)


def test_a_draft_that_breaks_several_clauses_hears_of_all_in_their_order() -> None:
    draft = next_draft()
    for name in ("remove a dead end", "raise looks without end", "jump a version"):
        ATTACKS[name][1](draft)
    assert clauses(review(draft, PARENT, FACTS)) == ["C2", "C7", "C8"]


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
    put({FILE: {"N": {"a": 1}}}, "standing_recipe", "overrides")(draft)
    (violation,) = review(draft, PARENT, FACTS)
    assert violation.quote == 'standing_recipe.overrides["recipes/sft.py"].N: {"a": 1}'


def test_a_zero_with_another_sign_is_no_difference() -> None:
    zero = next_draft()
    zero["axes"][0]["knobs"][0]["low"] = 0.0
    parent = SearchPolicy.model_validate(zero)
    draft = next_draft(parent)
    draft["axes"][0]["knobs"][0]["low"] = -0.0
    assert clauses(review(draft, parent, FACTS)) == ["C12"]


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
    narrow = dataclasses.replace(FACTS, width=4, looks_per_round=2, looks_left=0)
    assert (PARENT.budget.replicates, PARENT.budget.looks) == (4, 4)
    for name, clause in (("replicates", "C4"), ("looks", "C8")):
        for value, wanted in ((5, [clause]), (4, []), (3, []), (0, [])):
            draft = next_draft()
            draft["budget"][name] = value
            assert clauses(review(draft, PARENT, narrow)) == wanted, (name, value)


def test_looks_may_not_be_raised_past_what_is_left() -> None:
    thrifty = PARENT.model_copy(update={"budget": PARENT.budget.model_copy(update={"looks": 1})})
    facts = dataclasses.replace(FACTS, looks_left=3)
    for looks, wanted in ((3, []), (4, ["C8"])):
        draft = next_draft(thrifty)
        draft["budget"]["looks"] = looks
        assert clauses(review(draft, thrifty, facts)) == wanted


@pytest.mark.parametrize(
    ("looks", "per_round", "left", "wanted"),
    [
        (2, 8, 100, []),
        (1, 8, 100, ["C1"]),
        (0, 8, 100, ["C1"]),
        (1, 1, 100, []),
        (0, 1, 100, ["C1"]),
        (0, 0, 100, []),
        (1, 8, 1, []),
        (0, 8, 1, ["C1"]),
        (0, 8, 0, []),
    ],
)
def test_external_is_asked_while_dev_is_honest_too(
    looks: int, per_round: int, left: int, wanted: list[str]
) -> None:
    facts = dataclasses.replace(explored(1), looks_per_round=per_round, looks_left=left)
    parent = PARENT.model_copy(update={"trust": {}})
    draft = next_draft(parent, facts)
    draft["budget"]["looks"] = looks
    draft["noise"] = NOISE_ONLY
    assert clauses(review(draft, parent, facts)) == wanted


@pytest.mark.parametrize(("width", "active", "lawful"), [(1, 1, True), (2, 1, True), (3, 1, False)])
def test_a_round_of_two_slots_explores_one_axis(width: int, active: int, lawful: bool) -> None:
    draft = next_draft()
    for axis_data in draft["axes"][active:]:
        axis_data["status"] = "retired"
    violations = review(draft, PARENT, dataclasses.replace(FACTS, width=width))
    assert (violations == []) is lawful


def test_what_is_promoted_may_be_promoted_again_after_it_was_withdrawn() -> None:
    recipe = PARENT.standing_recipe.model_copy(update={"overrides": {}, "provenance": []})
    parent = PARENT.model_copy(update={"standing_recipe": recipe})
    draft = next_draft(parent)
    promotion(CONFIRMED)(draft)
    assert draft["standing_recipe"]["overrides"] == RANK["overrides"]
    assert review(draft, parent, FACTS) == []


def test_the_threshold_stays_while_a_candidate_that_was_seen_under_it_is_not_settled() -> None:
    strict = PARENT.model_copy(
        update={"noise": PARENT.noise.model_copy(update={"threshold": 0.04})}
    )
    draft = next_draft(strict)
    (violation,) = review(draft, strict, FACTS)
    assert violation.clause == "C6" and "r2/s1" in violation.reason
    draft["replicates"] = []
    assert review(draft, strict, FACTS) == []


def test_dev_is_trusted_again_once_a_report_says_that_it_tracks() -> None:
    for said, wanted in (("tracking", []), ("insufficient", ["C11"])):
        entry = REPORTS[2].results.decoupling[0].model_dump() | {"verdict": said}
        facts = with_reports(
            *REPORTS[:2],
            RoundReport.model_validate(
                REPORTS[2].data()
                | {"results": REPORTS[2].data()["results"] | {"decoupling": [entry]}}
            ),
        )
        draft = next_draft(facts=facts)
        draft["trust"]["strings"] = "trusted"
        assert clauses(review(draft, PARENT, facts)) == wanted


# C10: three axes, of which the first is explored over and over.


def explored(rounds: int, **changes: Any) -> CampaignFacts:
    """`rounds` more rounds, each of which explores the axis `rate` once, to no effect."""
    said = verdict(1, "rate", **changes.pop("said", {}))
    more = [
        report(number, [slot(0), slot(1, "rate", **changes)], [said])
        for number in range(4, 4 + rounds)
    ]
    return with_reports(*REPORTS, *more)


def with_reports(*reports: RoundReport) -> CampaignFacts:
    return dataclasses.replace(FACTS, rows=Rows(reports))


def three_axes(facts: CampaignFacts) -> Draft:
    draft = next_draft(facts=facts)
    draft["axes"][3]["status"] = "active"
    draft["replicates"] = []
    draft["noise"] = NOISE_ONLY
    return draft


NOISE_ONLY = {"sigma": 0.01, "degrees": 4, "threshold": 0.03, "rows": []}


def test_an_axis_on_a_plateau_is_retired_as_long_as_two_are_left() -> None:
    facts = explored(16)
    draft = three_axes(facts)
    (violation,) = review(draft, PARENT, facts)
    assert (violation.clause, violation.quote) == ("C10", 'axes[0].status: "active"')
    assert "r4/s1" in violation.reason
    for i in (0, 1):
        retired = copy.deepcopy(draft)
        retired["axes"][i]["status"] = "retired"
        assert review(retired, PARENT, facts) == []


@pytest.mark.parametrize(
    "facts",
    [
        explored(13),  # with the three of rounds 1 to 3, of which one was better: 15 in a row
        explored(20, outcome="infrastructure", dev=None),
        explored(20, said={"verdict": "worse"}),
    ],
    ids=["too early", "lost to infrastructure", "they tell something"],
)
def test_an_axis_that_may_still_tell_something_stays(facts: CampaignFacts) -> None:
    assert review(three_axes(facts), PARENT, facts) == []


def test_an_axis_whose_edit_is_run_again_stays() -> None:
    facts = explored(16)
    draft = three_axes(facts)
    draft["replicates"] = PARENT.data()["replicates"]
    assert review(draft, PARENT, facts) == []


def test_an_axis_of_which_nothing_could_be_scored_is_retired() -> None:
    for failures, wanted in ((3, []), (4, ["C10"])):
        lost = [
            report(n, [slot(0), slot(1, "warmup", outcome="diverged", dev=None)])
            for n in range(4, 4 + failures)
        ]
        facts = with_reports(*REPORTS, *lost)
        assert clauses(review(three_axes(facts), PARENT, facts)) == wanted


def test_a_review_leaves_the_draft_as_it_was() -> None:
    draft = next_draft()
    before = copy.deepcopy(draft)
    review(draft, PARENT, FACTS)
    assert draft == before
