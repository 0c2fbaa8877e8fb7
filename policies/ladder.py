"""The ladder: external scores as those who search may read them.

A score that is read often enough becomes a training signal, even if no one trains on it. By the
ladder rule (A. Blum and M. Hardt, ICML 2015, arXiv:1502.04585) a reader learns a new score only
where it beats the best known one by more than a step, and else learns that best again: what leaks
of the hidden problems grows with the logarithm of the number of looks, not with their number. The
step is 1 / sqrt(n), about two standard errors of a score over n problems. Evidence, which is code,
reads full counts.
"""

import math
from collections.abc import Iterable
from typing import Any

from policies.evidence import Direction
from policies.policy import SearchPolicy
from policies.report import RoundReport, SetScore, SlotResult


def climb(scores: Iterable[SetScore | None], direction: Direction) -> list[float | None]:
    """What a reader learns of each score, in the order in which they were looked at.

    The first is rounded to its step. Scores of another metric version begin a ladder of their own;
    None, or what is not finite, stays None.
    """
    sign = 1 if direction == "maximise" else -1
    best: dict[str, float] = {}
    shown: list[float | None] = []
    for score in scores:
        if score is None or not math.isfinite(score.value):
            shown.append(None)
            continue
        step = 1 / math.sqrt(score.n)
        known = best.get(score.metric_version)
        if known is None or sign * (score.value - known) > step:
            best[score.metric_version] = round(score.value / step) * step
        shown.append(best[score.metric_version])
    return shown


def for_readers(reports: Iterable[RoundReport], direction: Direction) -> list[RoundReport]:
    """The reports with external scores by the ladder, and nothing that would give them away.

    Looks of a round are read in the order in which they were obtained. Scores by domain, effects
    and errors on external are left out, and so is what the decoupling test measured, but for its
    verdicts, and every score that was discarded.
    """
    reports = sorted(reports, key=lambda report: report.round)
    looks = [(report.round, slot) for report in reports for slot in report.results.looks]
    slots = {(r.round, slot.slot): slot for r in reports for slot in r.results.slots}
    scores = [slots[look].external if look in slots else None for look in looks]
    shown = dict(zip(looks, climb(scores, direction), strict=True))
    return [_for_readers(report, shown) for report in reports]


def policy_for_readers(policy: SearchPolicy) -> dict[str, Any]:
    """The policy as JSON values, without what was found on external.

    Left out are the findings of claims. The noise on external is null, and where some of dev is not
    trusted so are the effects of promotions, which may be effects on external then.
    """
    data = policy.data()
    for claim in data["claims"]:
        del claim["findings"]
    data["noise"]["external_sigma"] = None
    misled = any(word != "trusted" for word in policy.trust.values())
    for promotion in data["standing_recipe"]["provenance"] if misled else []:
        promotion["effect"] = None  # where dev ranks nothing it may be one on external
    return data


def _for_readers(report: RoundReport, shown: dict[tuple[int, int], float | None]) -> RoundReport:
    results = report.results

    def slot_shown(slot: SlotResult) -> SlotResult:
        slot = slot.model_copy(update={"discarded": None})
        value = shown.get((report.round, slot.slot))
        if slot.external is None or value is None:
            return slot.model_copy(update={"external": None})
        score = slot.external.model_copy(update={"value": value, "domains": {}})
        return slot.model_copy(update={"external": score})

    anchor = shown.get((report.round, 0))
    hidden = {"external_effect": None, "external_error": None}
    unconfirmed = {"external_effect": None, "external_bar": None}
    unsaid = {
        "external_change": None,
        "external_error": None,
        "shortfall": None,
        "error": None,
    }
    return report.model_copy(
        update={
            "results": results.model_copy(
                update={
                    "slots": [slot_shown(slot) for slot in results.slots],
                    "spread": results.spread.model_copy(update={"external": anchor}),
                    "noise": results.noise.model_copy(update={"external_sigma": None}),
                    "verdicts": [v.model_copy(update=hidden) for v in results.verdicts],
                    "confirmations": [
                        c.model_copy(update=unconfirmed) for c in results.confirmations
                    ],
                    "decoupling": [d.model_copy(update=unsaid) for d in results.decoupling],
                    "flagged": None,
                    "narrative": "",
                }
            )
        }
    )
