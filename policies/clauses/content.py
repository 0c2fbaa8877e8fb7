"""C12 and C13: a policy is small, well-formed and new, and gives nothing away."""

from collections.abc import Iterator
from typing import Any

from policies.canonical import canonical_json
from policies.case import Case
from policies.draft import Violation
from policies.leaks import find_leaks
from policies.policy import SearchPolicy


def c12_is_small_well_formed_and_new(case: Case) -> Iterator[Violation]:
    """C12: it differs from its parent, or says why not.

    What is malformed or too large is found before, by `policies.draft.malformed`.
    """
    why = case.policy.unchanged_because
    if _content(case.policy) != _content(case.parent):
        if why is not None:
            reason = "the draft differs from its parent: it must be null"
            yield case.breach("C12", ("unchanged_because",), reason)
    elif why is None or not why.strip():
        reason = "nothing but words differs from the parent: it must say why"
        yield case.breach("C12", ("unchanged_because",), reason)


def c13_gives_nothing_away(case: Case) -> Iterator[Violation]:
    """C13: no text of it holds words of a held-out problem, or what looks like a secret."""
    for path, what in find_leaks(case.policy.data(), case.facts.held_out):
        yield case.breach("C13", path, f"it holds {what}, which is struck out here")


def _content(policy: SearchPolicy) -> str:
    words = {"version", "parent", "window", "rationale", "unchanged_because"}
    return canonical_json(_in_order(policy.model_dump(mode="json", exclude=words)))


def _in_order(value: Any) -> Any:
    """Rows in one order and zero with one sign: another order or sign tells nothing else."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {
            name: sorted(set(item)) if name in ("rows", "evidence") else _in_order(item)
            for name, item in value.items()
        }
    return [_in_order(item) for item in value] if isinstance(value, list) else value
