"""The difference between two policies: by structure, as Markdown and as lines to be coloured."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from policies.canonical import canonical_json
from policies.escape import markdown, visible
from policies.policy import SearchPolicy

Mark = Literal["+", "-", " "]
# Fields of a policy by section, in the order in which they are shown. Version and parent say
# which policies these are, not how they differ.
SECTIONS: dict[str, tuple[str, ...]] = {
    "objective": ("objective",),
    "axes": ("axes",),
    "replicates": ("replicates",),
    "standing recipe": ("standing_recipe",),
    "noise": ("noise",),
    "trust": ("evidence_ranking", "trust"),
    "dead ends": ("dead_ends",),
    "budget": ("budget",),
    "claims": ("claims",),
    "evidence window": ("window",),
    "rationale": ("rationale", "unchanged_because"),
}


@dataclass(frozen=True)
class Change:
    """One change: `path` within its section, and JSON values; what is not there is None."""

    section: str
    kind: Literal["added", "removed", "changed"]
    path: str
    before: Any
    after: Any


def diff_policies(old: SearchPolicy, new: SearchPolicy) -> list[Change]:
    """Every change from `old` to `new`, in the order of SECTIONS; [] for equal content.

    Axes, dead ends and claims are matched by id, knobs by file and constant, other list items by
    value; where common items changed places, their order is a change of its own.
    """
    before, after = old.data(), new.data()
    changes = []
    for section, fields in SECTIONS.items():
        for field in fields:
            for kind, path, was, is_now in _compare((field,), before[field], after[field]):
                # Where a section is one field, its name need not be said twice.
                inner = path[1:] if len(fields) == 1 else path
                spelled = " > ".join(inner or path)
                changes.append(Change(section, kind, spelled, was, is_now))
    return changes


def headline(changes: Sequence[Change]) -> list[str]:
    """The changes by name, a line for each section: `axes: retired rate; changed decay, rank`."""
    lines = []
    for section, group in groupby(changes, key=lambda change: change.section):
        names: dict[str, dict[str, None]] = {}
        for change in group:
            word, name = _word_and_name(change)
            names.setdefault(word, {})[name] = None
        said = [f"{word} {', '.join(which)}" for word, which in names.items()]
        lines.append(visible(f"{section}: {'; '.join(said)}"))
    return lines


def diff_lines(changes: Sequence[Change]) -> list[tuple[Mark, str]]:
    """The changes as lines: a section's name, then what went (-) and what came (+)."""
    lines: list[tuple[Mark, str]] = []
    for section, group in groupby(changes, key=lambda change: change.section):
        lines.append((" ", section))
        for change in group:
            lines += _change_lines(change)
    return lines


def diff_markdown(changes: Sequence[Change], old: SearchPolicy, new: SearchPolicy) -> str:
    """The changes as Markdown: digests, then a `diff` fence for each section."""
    text = [
        f"# Policy version {old.version} to {new.version}",
        "",
        "| | version | digest |",
        "| --- | --- | --- |",
        f"| before | {old.version} | `{old.digest()}` |",
        f"| after | {new.version} | `{new.digest()}` |",
        "",
    ]
    text += [f"- {markdown(line)}" for line in headline(changes)]
    text += [""] if changes else []
    for section, group in groupby(changes, key=lambda change: change.section):
        text += [f"## {section.capitalize()}", "", "```diff"]
        text += [f"{mark} {line}" for change in group for mark, line in _change_lines(change)]
        text += ["```", ""]
    if not changes:
        text += ["Nothing changed but the version.", ""]
    if new.unchanged_because:
        text += [f"Unchanged because: {markdown(new.unchanged_because, 500)}", ""]
    return "\n".join(text)


_Path = tuple[str, ...]
_Found = tuple[Literal["added", "removed", "changed"], _Path, Any, Any]
# Lists of things that have a name of their own.
_NAMES = {
    "axes": ("id",),
    "dead_ends": ("id",),
    "claims": ("id",),
    "knobs": ("file", "constant"),
}


def _compare(path: _Path, before: Any, after: Any) -> Iterator[_Found]:
    if canonical_json(before) == canonical_json(after):  # `==` takes 1, 1.0 and True for equal
        return
    is_constant = path[:2] == ("standing_recipe", "overrides")
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            yield from _match((*path, name), name, before, after)
    elif isinstance(before, list) and isinstance(after, list) and not is_constant:
        yield from _compare_lists(path, before, after)
    else:
        yield "changed", path, before, after


def _compare_lists(path: _Path, before: list[Any], after: list[Any]) -> Iterator[_Found]:
    fields = _NAMES.get(path[-1])
    old, new = _by_name(before, fields), _by_name(after, fields)
    for name in [*old, *(name for name in new if name not in old)]:
        yield from _match((*path, name) if fields else path, name, old, new)
    was = [name for name in old if name in new]
    is_now = [name for name in new if name in old]
    if was != is_now:
        if not fields:
            was, is_now = [old[name] for name in was], [new[name] for name in is_now]
        yield "changed", (*path, "order"), was, is_now


def _match(
    path: _Path, name: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[_Found]:
    if name not in after:
        yield "removed", path, before[name], None
    elif name not in before:
        yield "added", path, None, after[name]
    else:
        yield from _compare(path, before[name], after[name])


def _by_name(items: list[Any], fields: tuple[str, ...] | None) -> dict[str, Any]:
    """Items by their name, or by their value; numbered from the second of one name on."""
    named: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    for item in items:
        first = " ".join(item[field] for field in fields) if fields else canonical_json(item)
        name = first
        while name in named:
            seen[first] += 1
            name = f"{first} ({seen[first] + 1})"
        named[name] = item
    return named


def _word_and_name(change: Change) -> tuple[str, str]:
    """What happened, and to what: an axis, a dead end or a claim by its id, else a field."""
    first, *inner = change.path.split(" > ")
    if change.section == "axes" and inner == ["status"]:
        return ("retired" if change.after == "retired" else "reactivated"), first
    if change.section in ("axes", "dead ends", "claims"):
        return (change.kind if not inner else "changed"), first
    return change.kind, " ".join(inner) or first


def _change_lines(change: Change) -> list[tuple[Mark, str]]:
    gone = [] if change.kind == "added" else _value_lines(change.path, change.before)
    come = [] if change.kind == "removed" else _value_lines(change.path, change.after)
    marked: list[tuple[Mark, str]] = [("-", line) for line in gone]
    marked.extend(("+", line) for line in come)
    return marked


def _value_lines(name: str, value: Any, indent: str = "") -> list[str]:
    """A value as lines of one thing each. Nothing is cut: who approves a policy reads all of it."""
    label = f"{indent}{visible(name)}:"
    if short := _short(value):
        return [f"{label} {visible(short)}"]
    parts = value.items() if isinstance(value, dict) else [("item", item) for item in value]
    inner = [_value_lines(key, part, indent + "  ") for key, part in parts]
    return [label, *(line for lines in inner for line in lines)]


def _short(value: Any) -> str | None:
    """What fits on a line; None for what has parts of its own."""
    match value:
        case {"file": file, "constant": constant, "kind": "choice", "choices": choices}:
            return f"{file} {constant}, one of {_json(choices)}"
        case {"file": file, "constant": constant, "kind": kind, **how}:
            return f"{file} {constant}, {kind} from {how['low']} to {how['high']}, {how['scale']}"
        case {"overrides": dict(overrides), "patch": patch}:
            parts = [
                f"{file} {name}={_json(constant)}"
                for file, constants in sorted(overrides.items())
                for name, constant in sorted(constants.items())
            ]
            return ", ".join([*parts, f"patch {patch}"] if patch else parts) or "nothing"
        case {"axis": axis, "edit": edit, "origin": origin}:
            return f"{axis}: {_short(edit)}, first tried in {origin}"
        case dict() | [{}, *_] if value:
            return None
        case _:
            return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
