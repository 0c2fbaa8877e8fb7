"""Candidates: edits whose first trial looked good, and what became of them.

The trial that made an edit a candidate was selected for its score, which therefore never counts as
confirmation: that takes replicates on fresh seeds, and evidence says what they confirm.
"""

import math
from dataclasses import dataclass
from statistics import fmean

from agents.window import Notes, Trial, Window, spell
from policies.canonical import canonical_json
from policies.confirmation import changes_seeds_alone
from policies.noise import quantile
from policies.policy import Edit, Promotion, Replicate
from policies.report import Confirmation

# Chosen by simulation (tests/simulation), for rounds of eight.
SCREEN = 1.0  # effect of a first trial, in standard errors, that makes its edit a candidate
REPLICATES = 2  # runs of a candidate in a round
RUNS = 8  # runs after which a candidate is settled
FUTILITY = 1.0  # standard errors that the mean of a candidate's runs must reach to get more
EXTERNAL = 0.05  # chance that noise on external overrules a candidate that does no harm there


@dataclass(frozen=True)
class Settled:
    """What became of the candidates of a round."""

    promoted: list[Promotion]
    waiting: list[Replicate]


def settle(window: Window, notes: Notes) -> Settled:
    """Promote, keep or refute each candidate by what evidence says of its fresh runs.

    Most promising first. A candidate that had no slot, or whose runs were lost, waits.
    """
    said = {_key(item.axis, item.edit): item for item in window.report.results.confirmations}
    waiting: list[Replicate] = []
    tried: list[tuple[float, Replicate, Confirmation]] = []
    for item in _distinct(window.policy.replicates):
        found, runs = said.get(_key(item.axis, item.edit)), window.replicates(item)
        mean = _effect(found)
        if found is not None and mean is not None and any(t.slot.dev is not None for t in runs):
            tried.append((mean, item, found))
        elif all(t.slot.outcome in ("infrastructure", "evaluated") for t in runs):
            waiting.append(item)
        else:
            text = f"{spell(item.edit)} is refuted: its replicates delivered no score."
            notes.claim(text, [trial.row for trial in runs])
    promoted: list[Promotion] = []
    for mean, item, found in sorted(tried, key=lambda each: (-each[0], each[1].origin)):
        if any(_collide(item.edit, other.edit) for other in promoted):
            waiting.append(item)
            continue
        text = _said(found)
        if item.axis in window.misleading_axes:
            notes.claim(f"{spell(item.edit)} is refuted: dev misleads; {text}.", found.rows)
        elif is_overruled(window, item.axis, item.edit):
            notes.claim(f"{spell(item.edit)} is refuted: external is worse; {text}.", found.rows)
        elif found.is_confirmed:
            promoted.append(Promotion(axis=item.axis, edit=item.edit, effect=mean, rows=found.rows))
            notes.claim(f"{spell(item.edit)} is promoted: {text}.", found.rows)
        elif found.runs < RUNS and _is_hopeful(found, window):
            waiting.append(item)
        else:
            notes.claim(f"{spell(item.edit)} is refuted: {text}.", found.rows)
    return Settled(promoted, waiting)


def queue(window: Window, settled: Settled, notes: Notes) -> list[Replicate]:
    """The candidates of the next round, at most one of an axis: who waits, then the best new."""
    error = window.standard_error(runs=1)
    found: list[tuple[float, Replicate]] = []
    for trial in window.trials:
        slot = trial.slot
        if not window.is_new(trial) or slot.kind != "explore" or slot.axis is None:
            continue
        promise = _promise(trial, error, window)
        if slot.edit.is_empty() or promise is None or promise <= SCREEN:
            continue
        if changes_seeds_alone(slot.edit):
            text = f"{spell(slot.edit)} is no candidate: seeds are drawn by the controller."
            notes.claim(text, trial.verdict.rows)
        elif is_overruled(window, slot.axis, slot.edit):
            text = f"{spell(slot.edit)} is no candidate: external is worse."
            notes.claim(text, trial.verdict.rows)
        else:
            found.append((promise, Replicate(axis=slot.axis, edit=slot.edit, origin=trial.row)))
    found.sort(key=lambda each: (-each[0], each[1].origin))
    taken = {promotion.axis for promotion in settled.promoted} | window.misleading_axes
    line: list[Replicate] = []
    for item in [*settled.waiting, *(item for _, item in found)]:
        if item.axis not in taken:
            taken.add(item.axis)
            line.append(item)
    return line[: math.ceil(window.policy.budget.replicates / REPLICATES)]


def is_overruled(window: Window, axis: str | None, edit: Edit) -> bool:
    """Whether the external scores of an edit's trials lie below their anchors' beyond noise (C1).

    A look whose noise is unknown overrules nothing.
    """
    looks = [
        (trial.verdict.external_effect, trial.verdict.external_error)
        for trial in window.trials
        if trial.verdict.external_effect is not None
        and trial.slot.axis == axis
        and trial.slot.edit == edit
    ]
    effects = [effect for effect, error in looks if effect is not None and error is not None]
    errors = [error for _, error in looks if error is not None]
    if not effects:
        return False
    bar = quantile(window.report.results.noise.external_degrees, EXTERNAL)
    return fmean(effects) < -bar * math.hypot(*errors) / len(errors)


def _promise(trial: Trial, error: float | None, window: Window) -> float | None:
    """The effect of a first trial in standard errors; on external, if greater, where dev misleads.

    None where nothing is known.
    """
    verdict, known = trial.verdict, []
    if verdict.effect is not None and error:
        known.append(verdict.effect / error)
    if window.report.results.ignored and verdict.external_effect is not None:
        known += (
            [verdict.external_effect / verdict.external_error] if verdict.external_error else []
        )
    return max(known, default=None)


def _effect(found: Confirmation | None) -> float | None:
    """What is said of a candidate's runs: their effect on dev, or else on external."""
    if found is None:
        return None
    return found.external_effect if found.effect is None else found.effect


def _said(found: Confirmation) -> str:
    parts = [
        f"{name}effect {effect:+.4f} over {runs} fresh runs"
        + (f", bar {bar:.4f}" if bar is not None else "")
        for name, effect, bar, runs in (
            ("", found.effect, found.bar, found.runs),
            ("external ", found.external_effect, found.external_bar, found.external_runs),
        )
        if effect is not None and (not name or found.external_bar is not None)
    ]
    return "; ".join(parts)


def _is_hopeful(found: Confirmation, window: Window) -> bool:
    """Whether more runs may confirm a candidate: what is known of it is above its noise."""
    if found.effect is not None:
        error = window.standard_error(found.runs) or 0.0
        if found.effect > FUTILITY * error:
            return True
    has_external = bool(window.report.results.ignored) and found.external_effect is not None
    return has_external and (found.external_effect or 0.0) > 0


def touched(edit: Edit) -> set[tuple[str, str]]:
    """The constants that an edit sets, as (file, name)."""
    return {(file, name) for file, values in edit.overrides.items() for name in values}


def _distinct(replicates: list[Replicate]) -> list[Replicate]:
    return list(
        {canonical_json(item.model_dump(mode="json")): item for item in replicates}.values()
    )


def _collide(one: Edit, other: Edit) -> bool:
    # Two patches are each against the same text: the second would not apply after the first.
    both_patch = one.patch is not None and other.patch is not None
    return both_patch or bool(touched(one) & touched(other))


def _key(axis: str, edit: Edit) -> str:
    return canonical_json([axis, edit.model_dump(mode="json")])
