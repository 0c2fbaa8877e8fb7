"""Why a policy says what it says: the versions, claims, rows and rounds behind one part of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from policies.canonical import canonical_json
from policies.lineage import Version
from policies.policy import Claim, Constant, SearchPolicy
from policies.rows import Rows, place_of, row_names


class NothingSaid(LookupError):
    """No version of the policy ever said anything of this."""


@dataclass(frozen=True)
class Step:
    """A version that changed what is said of the subject, and the claims that it made of it."""

    version: int
    author: str
    round: int | None
    before: Any  # JSON values; None where nothing was said
    after: Any
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Answer:
    """What stands, how it came about, and the rows that it rests on with what they hold."""

    kind: str
    subject: str
    stands: Any
    steps: tuple[Step, ...]
    rows: dict[str, dict[str, float | str | None]]
    rounds: tuple[int, ...]

    def data(self) -> dict[str, Any]:
        """The answer as JSON values."""
        steps = [
            vars(step) | {"claims": [claim.model_dump(mode="json") for claim in step.claims]}
            for step in self.steps
        ]
        return vars(self) | {"steps": steps, "rounds": list(self.rounds)}


def explain(subject: str, lineage: Sequence[Version], rows: Rows) -> Answer:
    """The answer for an axis or a dead end by id, a constant by name, or trust in a domain.

    A constant may be named with its file, `recipes/sft.py:RANK`. Raises NothingSaid with what there
    is to ask for.
    """
    kind, view, behind = _kind_of(subject, lineage)
    views = [view(version.policy, subject) for version in lineage]
    steps, cited = [], []
    befores = [None, *views]
    for before, after, version in zip(befores, views, lineage, strict=False):
        if canonical_json(before) == canonical_json(after):
            continue
        own = list(behind(version.policy, subject, rows, version.round))
        trials = set(row_names(own))
        reopens = f"reopen-{subject}"[:63]
        claims = [
            claim
            for claim in version.policy.claims
            if claim.id == reopens or trials & set(row_names(claim.rows))
        ]
        seed = version.round is None
        cited += own + [row for claim in claims for row in claim.rows]
        steps.append(
            Step(
                version=version.version,
                author=version.author,
                round=version.round,
                before=before,
                after=after,
                claims=() if seed else tuple(claims),
            )
        )
    newest = lineage[-1]
    cited += behind(newest.policy, subject, rows, newest.round)
    found = [row for row in dict.fromkeys(cited) if row in rows]
    return Answer(
        kind=kind,
        subject=subject,
        stands=views[-1],
        steps=tuple(steps),
        rows={row: {one.what: one.value for one in rows.findings(row)} for row in found},
        rounds=tuple(sorted({place_of(row).round for row in found})),
    )


def _axis(policy: SearchPolicy, name: str) -> Any:
    found = [axis for axis in policy.axes if axis.id == name]
    return found[0].model_dump(mode="json", exclude={"evidence"}) if found else None


def _axis_rows(policy: SearchPolicy, name: str, rows: Rows, after: int | None) -> Iterator[str]:
    """The trials of an axis up to a round, with the rows that the policy lists for it."""
    yield from (row for axis in policy.axes if axis.id == name for row in axis.evidence)
    for trial in rows.trials(name):
        if after is not None and trial.round <= after:
            yield trial.row


def _dead_end(policy: SearchPolicy, name: str) -> Any:
    found = [end for end in policy.dead_ends if end.id == name]
    return found[0].model_dump(mode="json") if found else None


def _dead_end_rows(policy: SearchPolicy, name: str, rows: Rows, after: int | None) -> Iterator[str]:
    for end in policy.dead_ends:
        if end.id == name:
            yield from end.rows


def _constant(policy: SearchPolicy, name: str) -> Any:
    found: dict[str, Constant] = {
        file: constants[constant]
        for file, constants in policy.standing_recipe.overrides.items()
        for constant in constants
        if name in (constant, f"{file}:{constant}")
    }
    return found or None


def _constant_rows(policy: SearchPolicy, name: str, rows: Rows, after: int | None) -> Iterator[str]:
    """The fresh runs by which a constant was promoted."""
    for promotion in policy.standing_recipe.provenance:
        for file, constants in promotion.edit.overrides.items():
            if any(name in (constant, f"{file}:{constant}") for constant in constants):
                yield from promotion.rows


def _trust(policy: SearchPolicy, name: str) -> Any:
    return policy.trust.get(name)


def _trust_rows(policy: SearchPolicy, name: str, rows: Rows, after: int | None) -> Iterator[str]:
    """The runs behind the test of dev against external in a domain."""
    if after is not None and after in rows.reports:
        for entry in rows.reports[after].results.decoupling:
            if entry.domain == name:
                yield from (f"r{after}", *entry.rows)


_View = Callable[[SearchPolicy, str], Any]
_Behind = Callable[[SearchPolicy, str, Rows, int | None], Iterator[str]]
_KINDS: tuple[tuple[str, _View, _Behind], ...] = (
    ("axis", _axis, _axis_rows),
    ("dead end", _dead_end, _dead_end_rows),
    ("constant", _constant, _constant_rows),
    ("trust in dev", _trust, _trust_rows),
)


def _kind_of(subject: str, lineage: Sequence[Version]) -> tuple[str, _View, _Behind]:
    for kind, view, behind in _KINDS:
        if any(view(version.policy, subject) is not None for version in lineage):
            return kind, view, behind
    there = sorted({name for version in lineage for name in _names(version.policy)})
    raise NothingSaid(
        f"wanted an axis, a dead end, a constant or a domain, found none named {subject!r}; "
        f"there are {', '.join(there)}"
    )


def _names(policy: SearchPolicy) -> Iterator[str]:
    yield from (axis.id for axis in policy.axes)
    yield from (end.id for end in policy.dead_ends)
    yield from (name for names in policy.standing_recipe.overrides.values() for name in names)
    yield from policy.trust
