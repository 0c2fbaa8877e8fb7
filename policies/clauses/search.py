"""C4, C7 and C10: what is tried next, what is not tried again, and what has been tried enough."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from policies.canonical import canonical_json
from policies.case import Case
from policies.draft import Violation
from policies.policy import Axis, DeadEnd, Replicate, SearchPolicy
from policies.rows import Rows, Trial, place_of, row_names

# The reviser retires earlier; past these marks the law does.
PLATEAU = 16  # explorations in a row, since an axis was last promoted from, that tell nothing
FAILURES = 4  # explorations of an axis of which none could be scored
ACTIVE = 2  # axes that stay active whatever is known of them (C4)
FAULTS = ("crashed", "timed_out", "out_of_memory", "diverged", "invalid_adapter")


def c4_one_anchor_and_two_axes(case: Case) -> Iterator[Violation]:
    """C4: the next round has one anchor, at least two distinct axes, and replicates of trials.

    The share of replicates may stay as the parent has it, since `assignments` keeps two slots for
    axes; it may not be raised past that.
    """
    policy, width = case.policy, case.facts.width
    named = [axis.id for axis in policy.axes]
    for i, replicate in enumerate(policy.replicates):
        if replicate.axis not in named:
            reason = f"a replicate comes from an axis of the policy: {named}"
            yield case.breach("C4", ("replicates", i, "axis"), reason)
        if (fault := _no_repetition(replicate, case.facts.rows)) is not None:
            yield case.breach("C4", ("replicates", i, fault[0]), fault[1])
    parents = {axis.id: _turned(axis) for axis in case.parent.axes}
    first_with: dict[str, str] = {}
    for i, axis in enumerate(policy.axes):
        if axis.status == "active":
            knobs = _turned(axis)
            first = first_with.setdefault(knobs, axis.id)
            if first == axis.id and knobs != parents.get(axis.id):  # or is it one with a new name?
                first = next((name for name, those in parents.items() if those == knobs), first)
            if first != axis.id:
                reason = f"it has the knobs of axis `{first}`: the two are one axis"
                yield case.breach("C4", ("axes", i, "knobs"), reason)
    wanted = max(0, min(ACTIVE, width - 1))
    if len(first_with) < wanted:
        reason = (
            f"a round of {width} slots explores at least {wanted} distinct active axes: "
            f"found {len(first_with)}"
        )
        yield case.breach("C4", ("axes",), reason)
    most = max(0, width - 1 - wanted, case.parent.budget.replicates)
    if policy.budget.replicates > most:
        reason = f"at most {most} replicates leave room for {wanted} axes in {width} slots"
        yield case.breach("C4", ("budget", "replicates"), reason)


def c7_dead_ends_only_grow(case: Case) -> Iterator[Violation]:
    """C7: a dead end of the parent stands as it was, or is reopened by later evidence.

    Known trials of its axis may be added to it, and with them its effect may change (C9 says to
    what). What reopens the dead end
    `x` is a claim `reopen-x` that cites a known trial of a later round than any that closed it.
    """
    policy, rows = case.policy, case.facts.rows
    places = {end.id: i for i, end in enumerate(policy.dead_ends)}
    cited = {claim.id: claim.rows for claim in policy.claims}
    for old in case.parent.dead_ends:
        if old.id in places:
            i = places[old.id]
            for name in _reworded(old, policy.dead_ends[i], rows):
                was = json.dumps(old.model_dump(mode="json")[name])
                reason = f"dead end `{old.id}` was closed with {name} {was}"
                yield case.breach("C7", ("dead_ends", i, name), reason)
            continue
        claim = f"reopen-{old.id}"[:63]  # the longest id that a claim may have
        closed = max(place_of(row).round for row in old.rows)
        news = [row for row in cited.get(claim, []) if rows.trial(row) and row in rows]
        if not any(place_of(row).round > closed for row in news):
            reason = (
                f"dead end `{old.id}` is gone, and no claim `{claim}` cites a trial of this "
                f"campaign after round {closed}"
            )
            yield case.breach("C7", ("dead_ends",), reason)


def c10_a_plateau_retires_its_axis(case: Case) -> Iterator[Violation]:
    """C10: of more than two active axes none is at its end, and what is retired stays listed."""
    listed = {axis.id for axis in case.policy.axes}
    for axis in case.parent.axes:
        if axis.id not in listed:
            reason = f"axis `{axis.id}` is not there: one that is given up is retired and stays"
            yield case.breach("C10", ("axes",), reason)
    if len(case.policy.active_axes()) <= ACTIVE:
        return
    for i, axis in enumerate(case.policy.axes):
        if (why := end_of(axis, case.policy, case.facts.rows)) is not None:
            reason = f"axis `{axis.id}` is to be retired: {why}"
            yield case.breach("C10", ("axes", i, "status"), reason)


def end_of(axis: Axis, policy: SearchPolicy, rows: Rows) -> str | None:
    """Why an active axis is at its end; None where it is not, or an edit of it is run again."""
    again = policy.replicates[: policy.budget.replicates]
    runs_again = axis.id in {item.axis for item in again if not item.edit.is_empty()}
    if axis.status == "retired" or runs_again:
        return None
    since = max(
        (
            place_of(row).round
            for promotion in policy.standing_recipe.provenance
            if promotion.axis == axis.id
            for row in promotion.rows
        ),
        default=0,
    )
    trials = [
        trial
        for trial in rows.trials(axis.id)
        if trial.slot.kind == "explore"
        and trial.round > since
        and trial.slot.outcome != "infrastructure"
    ]
    if len(trials) >= FAILURES and all(trial.slot.outcome in FAULTS for trial in trials):
        return f"its {len(trials)} trials failed, and none was scored"
    last = trials[-PLATEAU:]
    if len(last) == PLATEAU and not any(map(_tells, last)):
        return f"its last {PLATEAU} trials, from {last[0].row} on, told nothing beyond the noise"
    return None


def _turned(axis: Axis) -> str:
    """What an axis turns and how far: equal whatever the order, the spelling and repetitions."""
    knobs = [
        knob.model_dump() | ({"choices": _set_of(knob.choices)} if knob.kind == "choice" else {})
        for knob in axis.knobs
    ]
    return canonical_json(_set_of(knobs))


def _set_of(values: Sequence[Any]) -> list[str]:
    return sorted({canonical_json(_plain(value)) for value in values})


def _plain(value: Any) -> Any:
    """1.0 as 1, and -0.0 as 0: what a recipe cannot tell apart is one value."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _tells(trial: Trial) -> bool:
    return trial.verdict is not None and trial.verdict.verdict != "unresolved"


def _no_repetition(replicate: Replicate, rows: Rows) -> tuple[str, str] | None:
    """The field of a replicate that does not fit its origin, and how."""
    trial = rows.trial(replicate.origin)
    if trial is None or trial.row != replicate.origin:
        return "origin", "a replicate repeats a trial of this campaign"
    if trial.slot.axis != replicate.axis:
        return "axis", f"{trial.row} is a trial of axis `{trial.slot.axis}`"
    if trial.slot.edit != replicate.edit:
        tried = canonical_json(trial.slot.edit.model_dump(mode="json"))
        return "edit", f"a replicate repeats a trial as it was: {trial.row} tried {tried[:300]}"
    return None


def _reworded(old: DeadEnd, new: DeadEnd, rows: Rows) -> list[str]:
    """The fields of a dead end that may not read as they do."""
    added = set(new.rows) - set(old.rows)
    known = set(row_names(old.rows))
    fits = all(
        row in rows and (trial := rows.trial(row)) and trial.slot.axis == new.axis for row in added
    )
    changed = {
        "axis": new.axis != old.axis,
        "title": new.title != old.title,
        "effect": new.effect != old.effect and not set(row_names(list(added))) - known,
        "rows": not set(new.rows) >= set(old.rows) or not fits,
    }
    return [name for name, is_changed in changed.items() if is_changed]
