"""Keep if better: the rule that most loops use, to be held against ours on the same truths."""

from collections.abc import Sequence

from agents.reviser import merge
from policies.policy import Promotion, SearchPolicy
from policies.report import RoundReport


def keep_if_better(
    policy: SearchPolicy, report: RoundReport, history: Sequence[RoundReport]
) -> SearchPolicy:
    """Keeps the round's best edit where it scored more on dev than the best that was kept so far.

    The first to beat is the first anchor. One run is enough, and external is not asked.
    """
    kept = policy.standing_recipe.provenance
    reports = [*history, report]
    anchors = [past.results.spread.dev for past in reports]
    incumbent = kept[-1].effect if kept else next((a for a in anchors if a is not None), None)
    scored = [
        (slot.dev.value, slot)
        for slot in report.results.slots
        if slot.kind == "explore" and slot.dev is not None and not slot.edit.is_empty()
    ]
    standing = policy.standing_recipe
    if scored and incumbent is not None:
        value, slot = max(scored, key=lambda each: each[0])
        if value > incumbent and slot.axis is not None:
            row = f"r{report.round}/s{slot.slot}/dev/overall"
            # The score itself stands in for the effect: it is what the next one has to beat.
            new = Promotion(axis=slot.axis, edit=slot.edit, effect=value, rows=[row])
            standing = merge(standing, [new])
    return policy.model_copy(
        update={
            "version": policy.version + 1,
            "parent": policy.digest(),
            "standing_recipe": standing,
        }
    )
