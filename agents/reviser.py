"""The reviser: the meta-agent's job by rules. It reads a round's report and writes the next policy.

    a first trial that looks good     becomes a candidate, replicated on fresh seeds
    the mean of its fresh runs        above the bar: merged into the standing recipe, and the axis'
                                      range narrows around its value; else more runs, or refuted
    external worse beyond noise       not promoted, whatever dev says (C1)
    dev decoupled from external       trusted no more in that domain: it ranks nothing, and what
                                      only it spoke for is withdrawn (C11)
    worse beyond noise, or a fault    a dead end, and the range is cut there (C7)
    nothing left to try or to find    the axis is retired; two always stay active (C4, C10)

A pure function of policy and reports, without chance, time or a language model. Left out on
purpose: patches of its own, and interactions between axes.
"""

from collections.abc import Sequence
from typing import Any

from agents.axes import cut, in_order, narrow, retire, with_evidence
from agents.candidates import REPLICATES, queue, settle, touched
from agents.trust import asked_for, trust_after, withdraw
from agents.window import CLAIMS, Notes, Window, last_change, read_window
from policies.policy import (
    NoiseModel,
    Overrides,
    Promotion,
    Replicate,
    SearchPolicy,
    StandingRecipe,
)
from policies.report import RoundReport


def revise(
    policy: SearchPolicy, report: RoundReport, history: Sequence[RoundReport]
) -> SearchPolicy:
    """The next version of `policy`, under which `report`'s round ran.

    `history` has the campaign's reports so far, in any order, with or without `report`.
    """
    window, notes = read_window(policy, report, history), Notes()

    trust = trust_after(window, notes)
    objective, ranking = asked_for(policy, trust)
    settled = settle(window, notes)
    standing = merge(withdraw(window, notes), settled.promoted)
    live = queue(window, settled, notes)

    axes = [narrow(axis, settled.promoted) for axis in policy.axes]
    axes = [cut(axis, window, standing, notes) for axis in axes]
    axes = retire(axes, window, standing, live, notes)
    axes = [with_evidence(axis, window) for axis in in_order(axes, window)]

    draft = SearchPolicy(
        **{
            **dict(policy),
            "version": policy.version + 1,
            "parent": policy.digest(),
            "objective": objective,
            "evidence_ranking": ranking,
            "trust": trust,
            "axes": axes,
            "replicates": [candidate for candidate in live for _ in range(REPLICATES)],
            "standing_recipe": standing,
            "noise": _noise(window, [*live, *settled.promoted]),
            "dead_ends": [*policy.dead_ends, *notes.dead_ends],
            "claims": notes.claims[:CLAIMS],
            "rationale": _rationale(window, notes, live_count=len(live)),
            "unchanged_because": None,
        }
    )
    draft = SearchPolicy.model_validate(draft.data())  # copies above were not checked
    if _content(draft) != _content(policy):
        return draft
    why = f"round {report.round} changed neither what is believed nor what to try next"
    return draft.model_copy(update={"unchanged_because": why})


def merge(standing: StandingRecipe, promoted: Sequence[Promotion]) -> StandingRecipe:
    """The standing recipe with promotions merged into it.

    A promotion whose every constant a later one has set again no longer stands: it leaves the
    provenance, and stays in the policies before.
    """
    overrides: Overrides = {file: dict(values) for file, values in standing.overrides.items()}
    provenance = list(standing.provenance)
    for new in promoted:
        for file, values in new.edit.overrides.items():
            overrides.setdefault(file, {}).update(values)
        kept = [
            old
            for old in provenance
            if old.edit.patch is not None or not touched(old.edit) <= touched(new.edit)
        ]
        provenance = [*kept, new]
    patches = [item.edit.patch for item in promoted if item.edit.patch is not None]
    return StandingRecipe(
        overrides=overrides, patches=[*standing.patches, *patches], provenance=provenance
    )


def _noise(window: Window, unsettled: Sequence[Replicate | Promotion]) -> NoiseModel:
    """The report's noise. No threshold is lowered for a candidate that was seen under it (C6)."""
    noise, before = window.report.results.noise, window.policy.noise.threshold
    seen = [(item.axis, item.edit) for item in window.policy.replicates]
    if before is None or not any((item.axis, item.edit) in seen for item in unsettled):
        return noise
    return noise.model_copy(update={"threshold": max(before, noise.threshold or before)})


def _rationale(window: Window, notes: Notes, *, live_count: int) -> str:
    results = window.report.results
    noise, said = results.noise, [claim.text for claim in notes.claims[:CLAIMS]]
    unresolved = sum(verdict.verdict == "unresolved" for verdict in results.verdicts)
    since = last_change(window.policy.standing_recipe) + 1
    if noise.sigma is None:
        spread = "The noise is unknown."
    else:
        spread = (
            f"One trial's dev score varies by {noise.sigma:.4f} ({noise.degrees} degrees of "
            f"freedom). Runs of the standing recipe, in force since round {since}: "
            f"{results.spread.n}."
        )
    counts = (
        f"Unresolved: {unresolved} of {len(results.verdicts)} trials with an axis. "
        f"Edits to replicate next: {live_count}."
    )
    return " ".join([spread, counts, *said])[:8000]


def _content(policy: SearchPolicy) -> dict[str, Any]:
    words = {"version", "parent", "rationale", "unchanged_because"}
    return policy.model_dump(mode="json", exclude=words)
