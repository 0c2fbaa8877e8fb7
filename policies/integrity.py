"""Integrity events: what a trial did that no honest trial does, by a closed list of kinds."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, get_args

from policies.report import Flagged, RoundReport, SetScore, SlotResult

EventKind = Literal[
    "sealed_files_changed",
    "code_changed_in_run",
    "hand_in_differs",
    "false_declaration",
    "foreign_adapter",
    "seed_ignored",
    "contaminated_data",
    "held_out_written",
    "tamper_attempt",
    "implausible_score",
    "keeper_lost",
]

MEANING: dict[EventKind, str] = {
    "sealed_files_changed": "Sealed files of the fork are not as it was made, added ones included.",
    "code_changed_in_run": "The run changed or removed files of the edit that it was a run of.",
    "hand_in_differs": "The fork that ran does not hold the edit that was handed in.",
    "false_declaration": "The run declared a hash of training data that the file does not have.",
    "foreign_adapter": "The adapter is one that was there before: of another run, or shipped.",
    "seed_ignored": "An edited recipe delivered under a new seed what it did under another.",
    "contaminated_data": "Problems of dev, external or lockbox are in what was trained on.",
    "held_out_written": "A canary of the judge is in what the trial wrote.",
    "tamper_attempt": "Code, command or output reaches for the judge, the host or other forks.",
    "implausible_score": "The score is above what is possible on these problems, beyond noise.",
    "keeper_lost": "The process that guards the run was killed; nothing was measured.",
}
assert MEANING.keys() == set(get_args(EventKind))

# The machine can do this too: it is shown and counted, and the trial stays missing data.
NOTED: frozenset[str] = frozenset({"keeper_lost"})

DETAIL = 500  # characters
CONTROLLER = "controller"  # who works in the slots that no worker edits: anchor and replicates


@dataclass(frozen=True)
class Incident:
    """An integrity event that has no row yet."""

    kind: EventKind
    detail: str  # what was found, of a stranger's making


def is_flagged(kinds: Iterable[str]) -> bool:
    """Whether a trial with these events is `tampered`: its score is discarded for every purpose."""
    return not NOTED.issuperset(kinds)


def flagged_effect(
    slots: Sequence[SlotResult],
    *,
    mean: float | None,
    sign: int,
    counted: Callable[[SetScore | None], float | None],
) -> Flagged | None:
    """The round's effect with and without its flagged trials; None where there are none.

    `mean` is the standing recipe's, `sign` is 1 where more is better, `counted` what a dev score
    counts for.
    """
    flagged = [slot for slot in slots if is_flagged(slot.integrity)]
    if not flagged:
        return None
    tried = [slot for slot in slots if slot.axis is not None]

    def effects(scores: Iterable[SetScore | None]) -> list[float]:
        values = [] if mean is None else [counted(score) for score in scores]
        return [sign * (value - (mean or 0.0)) for value in values if value is not None]

    without = effects(slot.dev for slot in tried)
    whole = without + effects(slot.discarded for slot in tried)
    return Flagged(
        trials=len(flagged),
        effect=fmean(without) if without else None,
        effect_with=fmean(whole) if whole else None,
        best=max(without, default=None),
        best_with=max(whole, default=None),
    )


def rates(reports: Iterable[RoundReport]) -> list[tuple[str, int, int]]:
    """By kind of worker, sorted: how many of its trials were flagged, and how many there were."""
    trials: Counter[str] = Counter()
    flagged: Counter[str] = Counter()
    for report in reports:
        for slot in report.results.slots:
            worker = report.account.worker if slot.kind == "explore" else CONTROLLER
            trials[worker] += 1
            flagged[worker] += is_flagged(slot.integrity)
    return [(worker, flagged[worker], count) for worker, count in sorted(trials.items())]
