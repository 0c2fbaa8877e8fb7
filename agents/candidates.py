"""Candidates: edits whose first trial looked good, and what their fresh runs say of them.

The trial that made an edit a candidate was selected for its score, which therefore never counts as
confirmation: that takes replicates on fresh seeds.
"""

import math
from dataclasses import dataclass
from statistics import fmean

from agents.window import Notes, Trial, Window, spell
from policies.canonical import canonical_json
from policies.evidence import quantile, threshold
from policies.policy import Edit, Promotion, Replicate

# Chosen by simulation (tests/simulation), for rounds of eight.
SCREEN = 1.0  # effect of a first trial, in standard errors, that makes its edit a candidate
REPLICATES = 2  # runs of a candidate in a round
RUNS = 4  # runs after which a candidate is settled
LEVEL = 0.015  # chance that the candidates of a round, none of which helps, lead to a promotion
FUTILITY = 1.0  # standard errors that the mean of a candidate's runs must reach to get more
EXTERNAL = 0.05  # chance that noise on external overrules a candidate that does no harm there


@dataclass(frozen=True)
class Settled:
    """What became of the candidates of a round."""

    promoted: list[Promotion]
    waiting: list[Replicate]


def settle(window: Window, notes: Notes) -> Settled:
    """Promote, keep or refute each candidate by the mean effect of its fresh runs.

    Most promising first. A candidate that had no slot, or whose runs were lost, waits.
    """
    results = window.report.results
    waiting: list[Replicate] = []
    tried: list[tuple[float, Replicate, list[Trial]]] = []
    for item in _distinct(window.policy.replicates):
        runs = window.runs(item)
        scored = [trial for trial in runs if trial.verdict.effect is not None]
        if any(window.is_new(trial) for trial in scored):
            tried.append((_mean(scored), item, scored))
        elif all(t.slot.outcome in ("infrastructure", "evaluated") for t in runs):
            waiting.append(item)
        else:
            text = f"{spell(item.edit)} is refuted: its replicates delivered no score."
            notes.claim(text, [trial.row for trial in runs])
    promoted: list[Promotion] = []
    for mean, item, scored in sorted(tried, key=lambda each: (-each[0], each[1].origin)):
        rows = [row for trial in scored for row in trial.verdict.rows]
        bar = threshold(
            results.noise,
            runs=len(scored),
            standing=results.spread.n,
            comparisons=len(tried) * math.ceil(RUNS / REPLICATES),
            level=LEVEL,
        )
        if bar is None or any(_collide(item.edit, other.edit) for other in promoted):
            waiting.append(item)
            continue
        said = f"effect {mean:+.4f} over {len(scored)} fresh runs, bar {bar:.4f}"
        if is_overruled(window, item.axis, item.edit):
            notes.claim(f"{spell(item.edit)} is refuted: external is worse. Dev {said}.", rows)
        elif mean > bar:
            promoted.append(Promotion(axis=item.axis, edit=item.edit, effect=mean, rows=rows))
            notes.claim(f"{spell(item.edit)} is promoted: {said}.", rows)
        elif mean > FUTILITY * (window.standard_error(len(scored)) or 0) and len(scored) < RUNS:
            waiting.append(item)
        else:
            notes.claim(f"{spell(item.edit)} is refuted: {said}.", rows)
    return Settled(promoted, waiting)


def queue(window: Window, settled: Settled, notes: Notes) -> list[Replicate]:
    """The candidates of the next round, at most one of an axis: who waits, then the best new."""
    error = window.standard_error(runs=1)
    found: list[tuple[float, Replicate]] = []
    for trial in window.trials:
        effect, slot = trial.verdict.effect, trial.slot
        if not window.is_new(trial) or slot.kind != "explore" or slot.axis is None:
            continue
        if slot.edit.is_empty() or error is None or effect is None or effect <= SCREEN * error:
            continue
        if is_overruled(window, slot.axis, slot.edit):
            text = f"{spell(slot.edit)} is no candidate: dev {effect:+.4f}, but external is worse."
            notes.claim(text, trial.verdict.rows)
        else:
            found.append((effect, Replicate(axis=slot.axis, edit=slot.edit, origin=trial.row)))
    found.sort(key=lambda each: (-each[0], each[1].origin))
    taken = {promotion.axis for promotion in settled.promoted}
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
        if (trial.slot.axis, trial.slot.edit) == (axis, edit)
        and trial.verdict.external_effect is not None
    ]
    effects = [effect for effect, error in looks if effect is not None and error is not None]
    errors = [error for _, error in looks if error is not None]
    if not effects:
        return False
    bar = quantile(window.report.results.noise.degrees, EXTERNAL)
    return fmean(effects) < -bar * math.hypot(*errors) / len(errors)


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


def _mean(scored: list[Trial]) -> float:
    return fmean(t.verdict.effect for t in scored if t.verdict.effect is not None)
