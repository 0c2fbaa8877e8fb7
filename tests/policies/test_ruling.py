"""The door: whatever bytes come in, a ruling comes out, and what is kept of them can be stored."""

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.canonical import canonical_json
from policies.draft import MAX_REPLY
from policies.leaks import STRUCK
from policies.ledger import Ledger
from policies.policy import SearchPolicy
from policies.rejection import (
    read_rejections,
    rejection_note,
    rejection_of,
    rejections_markdown,
)
from policies.ruling import MOST_SAID, MOST_VIOLATIONS, Ruling, rule
from tests.policies.cases import FACTS, FILE, HELD_OUT, PARENT, next_draft, put

LAWFUL = SearchPolicy.model_validate(next_draft()).text().encode()
SECRET = "ghp_" + "a1B2" * 9
HALVES = " ".join(HELD_OUT.split()[:7]), " ".join(HELD_OUT.split()[7:14])


@pytest.fixture(scope="module")
def kept_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """One ledger for all rejections, each under a campaign of its own."""
    file = tmp_path_factory.mktemp("rejections") / "ledger.db"
    with closing(Ledger(f"sqlite:///{file}")) as ledger:
        yield ledger


def ruled(reply: bytes) -> Ruling:
    return rule(reply, PARENT, FACTS)


def with_text(**changes: Any) -> bytes:
    """A draft as Python would write it: ASCII, with escapes."""
    return json.dumps(next_draft() | changes).encode()


REPLIES: dict[str, tuple[str, bytes]] = {
    "nothing": ("C12", b""),
    "spaces": ("C12", b" \n\t "),
    "prose": ("C12", b"I would retire the axis `rate`."),
    "a fence around the draft": ("C12", b"```json\n" + LAWFUL + b"\n```"),
    "words before the draft": ("C12", b"Here it is:\n" + LAWFUL),
    "two drafts": ("C12", LAWFUL + b"\n" + LAWFUL),
    "half a draft": ("C12", LAWFUL[: len(LAWFUL) // 2]),
    "a Python literal": ("C12", repr(next_draft()).encode()),
    "a list with the draft": ("C12", b"[" + LAWFUL + b"]"),
    "null": ("C12", b"null"),
    "a number": ("C12", b"7"),
    "text": ("C12", b'"policy"'),
    "an empty object": ("C12", b"{}"),
    "bytes of no encoding": ("C12", bytes(range(256))),
    "UTF-16": ("C12", LAWFUL.decode().encode("utf-16")),
    "a byte order mark": ("C12", b"\xef\xbb\xbf" + LAWFUL),
    "NUL": ("C12", LAWFUL + b"\x00"),
    "NUL in a text": ("C12", with_text(rationale="a\x00b")),
    "half a character": ("C12", with_text(rationale="\ud800")),
    "NaN": ("C12", with_text(trust={"strings": float("nan")})),
    "a number too large to be finite": (
        "C12",
        LAWFUL.replace(b'"threshold":0.03', b'"threshold":1e999'),
    ),
    "a number of five thousand digits": (
        "C12",
        LAWFUL.replace(b'"threshold":0.03', b'"threshold":' + b"9" * 5000),
    ),
    "one key twice": ("C12", LAWFUL.replace(b'"version":4', b'"version":4,"version":4', 1)),
    "one key twice, below the top": ("C12", LAWFUL.replace(b'"looks":4', b'"looks":4,"looks":9')),
    "brackets without end": ("C12", b"[" * 100_000),
    "an object nested without end": ("C12", b'{"axes":' * 20_000 + b"1" + b"}" * 20_000),
    "five megabytes": ("C12", with_text(rationale="x" * 5_000_000)),
    "five megabytes of spaces": ("C12", LAWFUL + b" " * 5_000_000),
    "as many bytes as are read, of spaces and a brace": ("C12", b" " * (MAX_REPLY - 1) + b"{"),
    "the policy in force": ("C2 C12 C14", PARENT.text().encode()),
    "orders beside the draft": ("C2", with_text(shell="rm -rf /", sql="DROP TABLE trial")),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_that_is_no_lawful_draft_is_ruled_out_and_can_be_kept(
    name: str, kept_in: Ledger
) -> None:
    wanted, reply = REPLIES[name]
    ruling = ruled(reply)
    assert ruling.policy is None
    assert list(dict.fromkeys(found.clause for found in ruling.violations)) == wanted.split()
    assert all(found.reason and len(found.quote) <= 200 for found in ruling.violations)

    campaign = f"c{list(REPLIES).index(name)}"
    rejection = rejection_of(ruling, round=3, parent=3, author="someone")
    kept_in.append(rejection_note(campaign, rejection))
    assert read_rejections(kept_in.events(campaign)) == [rejection]
    assert len(canonical_json(rejection.data())) < 300_000
    assert "| 3 | `someone` |" in rejections_markdown([rejection])


def test_a_lawful_draft_comes_out_as_the_policy_that_it_says() -> None:
    for reply in (LAWFUL, with_text(), b"\n " + LAWFUL + b"\n"):
        ruling = ruled(reply)
        assert ruling.violations == ()
        assert ruling.policy is not None and ruling.policy.text().encode() == LAWFUL
        assert SearchPolicy.model_validate(ruling.kept) == ruling.policy


def test_equal_replies_have_equal_rulings() -> None:
    reply = with_text(version=9)
    assert ruled(reply) == ruled(reply)
    assert ruled(reply).reply_sha256 != ruled(LAWFUL).reply_sha256


def filled(value: Any) -> bytes:
    """A draft with a constant that is as large as a draft may be."""
    draft = next_draft()
    draft["axes"][0]["knobs"] = [
        {"kind": "choice", "file": FILE, "constant": "W", "choices": [value]}
    ]
    return json.dumps(draft).encode()


def in_lists(value: Any, depth: int) -> Any:
    return [in_lists(value, depth - 1)] if depth else value


# What a search that looks at each place anew would need minutes for, or stumble over.
LARGE = {
    "an entity of five thousand digits": with_text(rationale="&#" + "1" * 5000),
    "an entity of five thousand zeros": with_text(rationale="x&#" + "0" * 4400 + "65;"),
    "one letter": filled("a" * 60_000),
    "words of one letter": filled("a " * 30_000),
    "beginnings of a web token": filled("eyJ" * 20_000),
    "beginnings of a key": filled("sk-" * 20_000),
    "beginnings of an address": filled("://a:" * 12_000),
    "endings of a file": filled(".pt" * 20_000 + "!"),
    "entities": filled("&#0" * 20_000),
    "escapes": filled("\\u{0" * 12_000),
    "base64 of base64": filled(base64.b64encode(base64.b64encode(b"a " * 16_000)).decode()),
    "lists in lists": filled(in_lists(["a", "b"] * 6000, 24)),
    "lists in lists where none may be": json.dumps(
        next_draft() | {"evidence_ranking": in_lists(["a", "b"] * 6000, 30)}
    ).encode(),
    "foreign keys": json.dumps({f"k{i:05}": 0 for i in range(20_000)}).encode(),
    "one key over and over": b"{" + b",".join([b'"":0'] * 50_000) + b"}",
    "keys once and one twice": b"{"
    + b",".join(b'"k%05d":0' % (i % 20_000) for i in range(20_001))
    + b"}",
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", LARGE)
def test_a_large_reply_is_ruled_on_in_seconds(name: str) -> None:
    assert len(LARGE[name]) <= MAX_REPLY
    ruling = ruled(LARGE[name])
    assert (ruling.policy is None) == bool(ruling.violations)


def test_of_many_violations_the_first_are_kept_and_the_rest_counted() -> None:
    draft = next_draft() | {f"k{i:03}": 0 for i in range(60)} | {"budget": None, "noise": 7}
    ruling = ruled(json.dumps(draft).encode())
    assert len(ruling.violations) == MOST_VIOLATIONS + 1
    *first, last = ruling.violations
    assert [found.quote for found in first] == [f"k{i:03}: 0" for i in range(MOST_VIOLATIONS)]
    assert last.clause == "C2" and "12 more" in last.reason and "C2, C12" in last.reason


def test_a_reason_is_short_whatever_it_repeats() -> None:
    name = "x" * 20_000
    reply = f'{{"{name}": 0, "{name}": 0}}'.encode()
    (found,) = ruled(reply).violations
    assert found.reason.startswith("a reply is one JSON object") and len(found.reason) <= MOST_SAID


@pytest.mark.parametrize(
    "reply",
    [
        f"Take {SECRET}. {HELD_OUT}".encode(),
        with_text(rationale=f"{SECRET} {HELD_OUT}"),
        with_text(note=[SECRET, HELD_OUT]),
        with_text(**{SECRET: 1, "version": HELD_OUT}),
        with_text(evidence_ranking=[*HELD_OUT.split(), SECRET]),
        with_text(note=in_lists([*HELD_OUT.split(), SECRET], 3)),
        with_text(note=[{"a": SECRET}, *({"b": part} for part in HALVES)]),
        with_text(note={"a": SECRET, "b": HALVES[0], "c": HALVES[1]}),
    ],
    ids=[
        "as prose",
        "in a text",
        "in a foreign key",
        "as a key",
        "word by word",
        "word by word in lists",
        "in two objects",
        "in two fields",
    ],
)
def test_nothing_that_leaks_is_kept_or_said(reply: bytes) -> None:
    ruling = ruled(reply)
    said = repr(ruling)
    assert ruling.policy is None and STRUCK in said
    assert SECRET not in said
    assert "lighthouses" not in said


def test_a_rejection_is_shown_with_its_clause_its_quote_and_its_reason() -> None:
    rejection = rejection_of(ruled(with_text(version=9)), round=3, parent=3, author="model|x")
    shown = rejections_markdown([rejection])
    assert "| C2 | the next policy has version 4 | `version: 9` |" in shown
    assert "model|x" not in shown, "a cell of a table ends at a bar"
    assert rejections_markdown([]) == ""


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in JSON values."""
    yield path
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield from places(value[key], (*path, key))


PLACES = [path for path in places(next_draft()) if path]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    LEAVES | st.sampled_from(["r1/s1", "r2/s3/dev/overall", "r9", "rate", "strings", 1e308, -0.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(path=st.sampled_from(PLACES), value=VALUES)
def test_any_value_at_any_place_of_a_draft_gets_a_ruling_that_can_be_kept(
    path: tuple[str | int, ...], value: Any
) -> None:
    draft = next_draft()
    put(value, *path)(draft)
    ruling = ruled(json.dumps(draft).encode())
    assert (ruling.policy is None) == bool(ruling.violations)
    rejection_note("c", rejection_of(ruling, round=3, parent=3, author="someone"))
    assert canonical_json(ruling.kept).encode()


@settings(max_examples=60, deadline=None)
@given(start=st.integers(0, len(LAWFUL)), length=st.integers(0, 40), bytes_=st.binary(max_size=12))
def test_any_bytes_spliced_into_a_draft_get_a_ruling_that_can_be_kept(
    start: int, length: int, bytes_: bytes
) -> None:
    ruling = ruled(LAWFUL[:start] + bytes_ + LAWFUL[start + length :])
    assert (ruling.policy is None) == bool(ruling.violations)
    assert canonical_json(ruling.kept).encode()
