"""Axes after a round: ranges narrowed or cut, axes retired, and who gets the next slots."""

import math
from collections.abc import Iterable, Sequence
from typing import TypeGuard

from agents.candidates import is_overruled, touched
from agents.window import DEAD_ENDS, Notes, Trial, Window, last_change
from policies.canonical import canonical_json
from policies.noise import threshold
from policies.policy import (
    Axis,
    ChoiceKnob,
    Constant,
    DeadEnd,
    Knob,
    NumberKnob,
    Promotion,
    Replicate,
    StandingRecipe,
)

# Chosen by simulation (tests/simulation), for rounds of eight.
SHRINK = 0.7  # width of a range around a promoted value, as a share of the width before
STEER = 0.025  # chance that noise makes one value look lower than the best, and ends a range there
PLATEAU = 8  # explorations in a row that tell nothing, before an axis is retired
FAILURES = 2  # faults that close a value or an axis; overruled edits that close an axis
ACTIVE = 2  # axes that always stay active
ROWS = 8  # rows that an axis lists, newest kept

FAULTS = ("crashed", "timed_out", "out_of_memory", "diverged", "invalid_adapter")


def narrow(axis: Axis, promoted: Sequence[Promotion]) -> Axis:
    """The axis with its ranges narrowed around the values that were promoted from it."""
    knobs = list(axis.knobs)
    for promotion in promoted:
        for i, knob in enumerate(knobs):
            value = promotion.edit.overrides.get(knob.file, {}).get(knob.constant)
            if promotion.axis == axis.id and knob.kind != "choice" and _is_number(value):
                knobs[i] = _around(knob, value)
    return axis.model_copy(update={"knobs": knobs})


def cut(axis: Axis, window: Window, standing: StandingRecipe, notes: Notes) -> Axis:
    """The axis without values that were shown to do harm.

    A choice goes when a trial of it is worse beyond noise, or when it fails `FAILURES` times. A
    range ends at the nearest value, on either side of the best known one, that is lower than that
    by more than the noise of two trials, or that fails with as many faults from there outward: no
    better value is lost where scores fall off on both sides of one best value. What is worse beyond
    the noise of the round, or fails, is listed as a dead end.
    """
    if axis.status == "retired":
        return axis
    trials = window.explorations(axis.id, after=last_change(standing, axis.id))
    knobs: list[Knob] = []
    for knob in axis.knobs:
        if knob.kind == "choice":
            knobs.append(_without_choices(axis, knob, trials, window, notes))
        else:
            knobs.append(_without_sides(axis, knob, trials, window, standing, notes))
    return axis.model_copy(update={"knobs": knobs})


def retire(
    axes: Sequence[Axis],
    window: Window,
    standing: StandingRecipe,
    live: Sequence[Replicate],
    notes: Notes,
) -> list[Axis]:
    """The axes with those retired that mislead dev, that only fail, that external overrules,
    or that are done.

    The strongest reason first, until `ACTIVE` axes are left. An axis with a candidate stays.
    """
    busy = {candidate.axis for candidate in live}
    active = [axis for axis in axes if axis.status == "active"]
    reasons = [
        (rank, axis, *reason)
        for axis in active
        if axis.id not in busy
        for rank, reason in enumerate(_reasons(axis, window, standing))
        if reason is not None
    ]
    retired: set[str] = set()
    for _, axis, why, trials, dead in sorted(reasons, key=lambda each: each[0]):
        if axis.id in retired or len(active) - len(retired) <= ACTIVE:
            continue
        retired.add(axis.id)
        rows = [row for trial in trials for row in trial.verdict.rows]
        notes.claim(
            f"Axis {axis.id} is retired: {why}.", rows[-ROWS:] or [f"r{window.report.round}"]
        )
        if dead is not None:
            _close(axis, f"{axis.title}: {dead}", trials, window, notes)
    return [
        axis.model_copy(update={"status": "retired"}) if axis.id in retired else axis
        for axis in axes
    ]


def in_order(axes: Sequence[Axis], window: Window) -> list[Axis]:
    """Active axes first: the longest unexplored first, then the least explored."""

    def turn(axis: Axis) -> tuple[bool, int, int]:
        explored = window.explorations(axis.id)
        last = max((trial.round for trial in explored), default=0)
        return axis.status == "retired", last, len(explored)

    return sorted(axes, key=turn)


def with_evidence(axis: Axis, window: Window) -> Axis:
    """The axis with the rows of this round that speak to it."""
    new = [
        row
        for trial in window.trials
        if window.is_new(trial)
        and trial.slot.axis == axis.id
        and trial.slot.outcome != "infrastructure"
        for row in trial.verdict.rows
    ]
    return axis.model_copy(update={"evidence": [*axis.evidence, *new][-ROWS:]})


# Why, the trials that say so, and, of a dead end, what its title tells workers: not the evidence.
_Reason = tuple[str, list[Trial], str | None]


def _reasons(axis: Axis, window: Window, standing: StandingRecipe) -> list[_Reason | None]:
    """Reasons to retire an axis, strongest first, None where one does not hold."""
    trials = window.explorations(axis.id, after=last_change(standing, axis.id))
    faults = [trial for trial in trials if trial.slot.outcome in FAULTS]
    fails = len(faults) >= FAILURES and all(trial.verdict.effect is None for trial in trials)
    overruled = [
        trial
        for trial in trials
        if (trial.verdict.effect or 0) > 0 and is_overruled(window, axis.id, trial.slot.edit)
    ]
    last = trials[-PLATEAU:]
    is_flat = len(last) == PLATEAU and all(t.verdict.verdict == "unresolved" for t in last)
    is_done = all(_is_exhausted(knob, trials, standing) for knob in axis.knobs)
    misled = [
        trial for trial in window.trials if window.is_new(trial) and trial.slot.axis == axis.id
    ]
    return [
        ("external does not follow dev", misled, "it does not help")
        if axis.id in window.misleading_axes
        else None,
        (f"{len(faults)} trials failed and none was scored", faults, "it fails") if fails else None,
        ("external is worse where dev is better", overruled, "it does not help")
        if len(overruled) >= FAILURES
        else None,
        ("nothing is left to try", trials[-1:], None) if is_done else None,
        (f"its last {PLATEAU} explorations told nothing", last, None) if is_flat else None,
    ]


def _without_choices(
    axis: Axis, knob: ChoiceKnob, trials: Sequence[Trial], window: Window, notes: Notes
) -> ChoiceKnob:
    left = list(knob.choices)
    for choice in knob.choices:
        proof = _harm(choice, _tried(trials, knob))
        title = f"{knob.constant} = {canonical_json(choice)[:80]} in {knob.file}"
        if proof and _close(axis, title, proof, window, notes) and len(left) > 1:
            left.remove(choice)
    return knob.model_copy(update={"choices": left})


def _without_sides(
    axis: Axis,
    knob: NumberKnob,
    trials: Sequence[Trial],
    window: Window,
    standing: StandingRecipe,
    notes: Notes,
) -> NumberKnob:
    tried = [(trial, value) for trial, value in _tried(trials, knob) if _is_number(value)]
    best = _best_known(knob, tried, standing)
    noise = window.report.results.noise
    bar = threshold(noise, runs=1, standing=1, comparisons=1, level=STEER)
    if best is None or bar is None:
        return knob
    for side in (-1, 1):
        outward = sorted(
            ((t, v) for t, v in tried if side * (v - best[0]) > 0), key=lambda each: side * each[1]
        )
        for i, (trial, value) in enumerate(outward):
            effect = trial.verdict.effect
            faults = [t for t, _ in outward[i:] if t.slot.outcome in FAULTS]
            fails = trial.slot.outcome in FAULTS and len(faults) >= FAILURES
            if not fails and (effect is None or best[1] - effect <= bar):
                continue
            edge = value - side if knob.kind == "int" else value
            beyond = f"{knob.constant} {'above' if side > 0 else 'below'} {edge:g} in {knob.file}"
            is_harmful = fails or trial.verdict.verdict == "worse"
            if is_harmful:
                _close(axis, beyond, faults if fails else [trial], window, notes)
            end = knob.high if side > 0 else knob.low
            if knob.low <= edge <= knob.high and edge != end:  # an edit may go past the range
                knob = knob.model_copy(update={"high" if side > 0 else "low": float(edge)})
                if not is_harmful and effect is not None:
                    said = f"{value:g} scored {best[1] - effect:.4f} less than {best[0]:g}"
                    notes.claim(f"No more of {beyond}: {said}.", trial.verdict.rows)
            break
    return knob


def _close(axis: Axis, title: str, proof: Sequence[Trial], window: Window, notes: Notes) -> bool:
    """List a dead end, once for each trial that proves one; False where the list is full."""
    known = [*window.policy.dead_ends, *notes.dead_ends]
    name = proof[-1].row.replace("/", "-")
    if any(end.id == name for end in known):
        return True
    if len(known) >= DEAD_ENDS:
        return False
    effects = [trial.verdict.effect for trial in proof if trial.verdict.effect is not None]
    rows = [row for trial in proof for row in trial.verdict.rows]
    effect = math.fsum(effects) / len(effects) if effects else None
    notes.dead_ends.append(
        DeadEnd(id=name, axis=axis.id, title=title[:200], effect=effect, rows=rows[-ROWS:])
    )
    said = f"effect {effect:+.4f}" if effect is not None else "it fails"
    notes.claim(f"Dead end: {title[:400]} ({said}).", rows[-ROWS:])
    return True


def _tried(trials: Iterable[Trial], knob: Knob) -> list[tuple[Trial, Constant]]:
    """The trials that changed this constant and nothing else, with the value that they gave it."""
    return [
        (trial, trial.slot.edit.overrides[knob.file][knob.constant])
        for trial in trials
        if trial.slot.edit.patch is None
        and touched(trial.slot.edit) == {(knob.file, knob.constant)}
    ]


def _harm(choice: Constant, tried: Iterable[tuple[Trial, Constant]]) -> list[Trial]:
    """The trials that prove that a choice does harm; [] where nothing does."""
    trials = [trial for trial, value in tried if _is_same(value, choice)]
    worse = [trial for trial in trials if trial.verdict.verdict == "worse"]
    faults = [trial for trial in trials if trial.slot.outcome in FAULTS]
    return worse or (faults if len(faults) >= FAILURES else [])


def _is_exhausted(knob: Knob, trials: Sequence[Trial], standing: StandingRecipe) -> bool:
    """Whether a knob has no value left that would be news."""
    if knob.kind == "choice":
        present = standing.overrides.get(knob.file, {})
        tried = _tried(trials, knob)
        return all(
            (knob.constant in present and _is_same(choice, present[knob.constant]))
            or _harm(choice, tried)
            for choice in knob.choices
        )
    return knob.high <= knob.low or (knob.kind == "int" and knob.high - knob.low < 1)


def _best_known(
    knob: NumberKnob, tried: Iterable[tuple[Trial, float]], standing: StandingRecipe
) -> tuple[float, float] | None:
    """Value and effect: the standing recipe's own where it says one, else the best of trials.

    A constant that no promotion has set stands in the recipe's file, which the policy does not
    know.
    """
    present = standing.overrides.get(knob.file, {}).get(knob.constant)
    if _is_number(present):
        return float(present), 0.0
    scored = [(t.verdict.effect, v) for t, v in tried if t.verdict.effect is not None]
    if not scored:
        return None
    effect, value = max(scored)
    return value, effect


def _around(knob: NumberKnob, value: float) -> NumberKnob:
    """The range narrowed by `SHRINK` with `value` in its middle, cut off at the old ends."""
    if knob.scale == "log":
        half = (knob.high / knob.low) ** (SHRINK / 2)
        low, high = value / half, value * half
    else:
        half = SHRINK / 2 * (knob.high - knob.low)
        low, high = value - half, value + half
    if knob.kind == "int":
        low, high = math.floor(low), math.ceil(high)
    else:
        low, high = float(f"{low:.4g}"), float(f"{high:.4g}")
    # An edit may have gone past the range.
    low, high = min(value, max(knob.low, low)), max(value, min(knob.high, high))
    return knob.model_copy(update={"low": float(low), "high": float(high)})


def _is_number(value: Constant) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(one: Constant, other: Constant) -> bool:
    return canonical_json(one) == canonical_json(other)
