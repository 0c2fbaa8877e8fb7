"""A draft of the next policy as it arrives: data from outside that may be no policy at all."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from policies.canonical import canonical_json
from policies.policy import SearchPolicy

MAX_BYTES = 64 * 1024
MAX_REPLY = 4 * MAX_BYTES  # with the spaces and escapes that canonical JSON has not
MAX_DEPTH = 32
MAX_QUOTE = 200

Draft = Mapping[str, Any]
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Violation:
    """One breach of one clause.

    `quote` is a place in the draft and the value found there, as ASCII JSON of at most MAX_QUOTE
    characters; empty where the fault does not lie in the draft.
    """

    clause: str
    quote: str
    reason: str


def violation(clause: str, draft: Draft, path: Path, reason: str) -> Violation:
    """A breach that quotes what the draft has at `path`."""
    return Violation(clause, f"{_spell(path)}: {_snippet(draft, path)}"[:MAX_QUOTE], reason)


def read_draft(draft: Draft) -> SearchPolicy:
    """The draft as a policy. Raises pydantic's ValidationError where it is none.

    Strict: a number written as text is not a number.
    """
    return SearchPolicy.model_validate(draft, strict=True)


def parse_draft(reply: bytes) -> Draft | Violation:
    """The JSON object in a reply, or why it is none (C12): never an error, whatever the bytes.

    One object and nothing around it, each of its keys once: what two readers could read in two
    ways is not read at all.
    """
    if len(reply) > MAX_REPLY:
        return Violation("C12", "", f"a reply has at most {MAX_REPLY} bytes: found {len(reply)}")
    try:
        text = reply.decode("utf-8")
        draft = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        start = json.dumps(reply[:MAX_QUOTE].decode("utf-8", "replace"))[:MAX_QUOTE]
        what = "nested without end" if isinstance(error, RecursionError) else str(error)
        return Violation("C12", start if reply else "", f"a reply is one JSON object: {what}")
    if not isinstance(draft, dict):
        return violation("C12", {"$": draft}, ("$",), "a policy is a JSON object")
    return draft


def foreign_keys(draft: Draft) -> list[Violation]:
    """C2 for every key at the top that no policy has."""
    if not isinstance(draft, Mapping):
        return []
    reason = "a revision writes a policy and nothing else, and a policy has no such key"
    return [violation("C2", draft, (key,), reason) for key in draft if key not in _KEYS]


def malformed(draft: Draft) -> list[Violation]:
    """C12 for a draft that is not JSON, is too large, or has the wrong form.

    Keys at the top that no policy has are left to `foreign_keys`.
    """
    if not isinstance(draft, Mapping):
        return [violation("C12", draft, (), "a policy is a JSON object")]
    if faults := _unstorable(draft):
        return faults
    try:
        policy = read_draft({key: value for key, value in draft.items() if key in _KEYS})
    except ValidationError as error:
        return _schema_faults(draft, error)
    # With the defaults that the draft leaves out: as it would be stored.
    size = max(len(canonical_json(draft).encode()), len(policy.text().encode()))
    return [_too_large(draft, f"{size} bytes")] if size > MAX_BYTES else []


_KEYS = SearchPolicy.model_fields


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = sorted(name for name, count in counts.items() if count > 1)
        raise ValueError(f"each key stands once in its object: found twice {twice[:3]}")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"a number is finite, and what is not known is null: found {constant}")


def _too_large(draft: Draft, size: str) -> Violation:
    return violation("C12", draft, (), f"a policy takes at most {MAX_BYTES} bytes: found {size}")


def _unstorable(draft: Draft) -> list[Violation]:
    """Values that are not JSON or that no database keeps.

    Walks without recursion, and stops where the draft is known to be too large.
    """
    found: list[Violation] = []
    weight = 0
    stack: list[tuple[Path, Any]] = [((), draft)]
    while stack:
        path, value = stack.pop()
        names = [str(key) for key in value] if isinstance(value, Mapping) else []
        weight += 1 + sum(map(len, names)) + (len(value) if isinstance(value, str) else 0)
        if weight > MAX_BYTES:
            return [_too_large(draft, f"more than {MAX_BYTES} characters")]
        if len(path) > MAX_DEPTH:
            found.append(violation("C12", draft, path, f"nested deeper than {MAX_DEPTH}"))
        elif isinstance(value, Mapping):
            if not all(isinstance(key, str) and _is_storable(key) for key in value):
                found.append(violation("C12", draft, path, "a key is text without NUL"))
            else:
                stack += [((*path, key), value[key]) for key in reversed(list(value))]
        elif isinstance(value, list):
            stack += [((*path, i), value[i]) for i in reversed(range(len(value)))]
        elif reason := _unstorable_leaf(value):
            found.append(violation("C12", draft, path, reason))
    return found


def _unstorable_leaf(value: Any) -> str | None:
    match value:
        case str() if not _is_storable(value):
            return "text is Unicode without NUL and lone surrogates"
        case float() if not math.isfinite(value):
            return "a number is finite; what is not known is null"
        case int() if abs(value) >= 2**63:
            return "an integer fits in 64 bits"
        case str() | float() | int() | None:
            return None
        case _:
            return f"a JSON value was wanted: found {type(value).__name__}"


def _is_storable(text: str) -> bool:
    # PostgreSQL keeps no NUL; a lone surrogate has no encoding.
    return "\x00" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _schema_faults(draft: Draft, error: ValidationError) -> list[Violation]:
    """One violation a place: a value that fits no member of a union is told once."""
    found: dict[Path, Violation] = {}
    for detail in error.errors(include_url=False, include_context=False):
        path = _place(draft, detail["loc"])
        if detail["type"] == "missing":
            path = (*path, detail["loc"][-1])
        found.setdefault(path, violation("C12", draft, path, detail["msg"]))
    return list(found.values())


def _place(draft: Draft, loc: Path) -> Path:
    """The parts of `loc` that the draft has: pydantic adds the names of union members."""
    path: Path = ()
    for part in loc:
        if _at(draft, (*path, part)) is not _ABSENT:
            path = (*path, part)
    return path


_ABSENT = object()


def _at(draft: Draft, path: Path) -> Any:
    value: Any = draft
    for part in path:
        is_there = part in value if isinstance(value, Mapping) else _is_index(part, value)
        if not is_there:
            return _ABSENT
        value = value[part]
    return value


def _is_index(part: str | int, value: Any) -> bool:
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


def _snippet(draft: Draft, path: Path) -> str:
    value = _at(draft, path)
    if value is _ABSENT:
        return "absent"
    try:
        return json.dumps(value, default=repr)
    except (RecursionError, TypeError, ValueError):  # only what is not JSON comes here
        return f"({type(value).__name__})"


def _spell(path: Path) -> str:
    spelled = ""
    for part in path:
        if isinstance(part, int):
            spelled += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(part)):
            spelled += f".{part}" if spelled else str(part)
        else:
            spelled += f"[{json.dumps(str(part))}]"
    return spelled or "$"
