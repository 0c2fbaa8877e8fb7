"""A rollback: a new version with the decisions of an old one, and the evidence of today.

What was decided goes back: objective, ranking, axes, replicates, standing recipe, budget, claims.
What was found out since stays: dead ends, which only grow (C7), trust (C11), the noise (C6). An
axis that is at its end stays retired, and one that is newer than the old version is (C10). So a
rollback is a revision as any other, and has to keep the same constitution.
"""

from policies.clauses.search import ACTIVE, end_of
from policies.policy import Axis, NoiseModel, SearchPolicy
from policies.rows import Rows

ROLLED_BACK = "policy.rolled_back"  # the note that says to which version, and why
AUTHOR = "person"


class BadRollback(ValueError):
    """A rollback that cannot be: the message says what was wanted, found, and what to do."""


def rolled_back(
    target: SearchPolicy, current: SearchPolicy, rows: Rows, *, reason: str, most_looks: int
) -> SearchPolicy:
    """The version after `current` that decides as `target` did; `most_looks` caps its looks."""
    known = {end.id for end in current.dead_ends}
    looks = min(target.budget.looks, max(current.budget.looks, most_looks))
    draft = target.model_copy(
        update={
            "version": current.version + 1,
            "parent": current.digest(),
            "trust": current.trust,
            "noise": _noise(current, rows),
            "dead_ends": [
                *current.dead_ends,
                *(end for end in target.dead_ends if end.id not in known),
            ],
            "budget": target.budget.model_copy(update={"looks": looks}),
            "window": rows.window(),
            "rationale": f"Rolled back to version {target.version}: {reason}"[:8000],
            "unchanged_because": None,
        }
    )
    axes = list(draft.axes)
    for i, axis in enumerate(axes):
        is_active = sum(other.status == "active" for other in axes) > ACTIVE
        if is_active and end_of(axis, draft, rows) is not None:
            axes[i] = _retired(axis)
    old = {axis.id for axis in axes}
    axes += [_retired(axis) for axis in current.axes if axis.id not in old]
    return draft.model_copy(update={"axes": axes})


def _retired(axis: Axis) -> Axis:
    return axis.model_copy(update={"status": "retired"})


def _noise(current: SearchPolicy, rows: Rows) -> NoiseModel:
    """The newest noise, with no threshold lowered."""
    if rows.newest is None:
        return current.noise
    noise = rows.newest.results.noise
    known = [t for t in (noise.threshold, current.noise.threshold) if t is not None]
    return noise.model_copy(update={"threshold": max(known, default=None)})
