"""Everything tried so far, as a table: a row for each edit, however often it was run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from agents.quotation import line
from agents.window import spell
from policies.report import RoundReport, SlotResult, Verdict
from policies.rows import Rows, Trial

MOST_ROWS = 300  # of the table, the newest


@dataclass(frozen=True)
class Tried:
    """One edit and what its trials say."""

    diff: str  # beginning of the hash of its diff; what is alike is one edit
    axis: str
    edit: str
    rows: tuple[str, ...]
    effect: float | None  # mean change on dev over its scored runs
    low: float | None  # of its newest interval
    high: float | None
    verdict: str  # of its newest scored run, with how it ended
    outcomes: str


def everything_tried(reports: Sequence[RoundReport]) -> list[Tried]:
    """The edits of all rounds in the order of their first trials, one entry for each diff."""
    by_diff: dict[tuple[str, str], list[Trial]] = {}
    for trial in Rows(reports).trials():
        if trial.slot.axis is not None:
            key = (trial.slot.diff_sha256 or trial.row, trial.slot.axis)
            by_diff.setdefault(key, []).append(trial)
    return [_tried(diff, axis, trials) for (diff, axis), trials in by_diff.items()]


def tried_table(tried: Sequence[Tried]) -> str:
    """The table as text, the newest MOST_ROWS edits."""
    shown = tried[-MOST_ROWS:]
    left_out = len(tried) - len(shown)
    head = "diff | axis | edit | trials | effect on dev (interval) | verdict | outcomes"
    lines = [f"{left_out} older edits are left out."] if left_out else []
    lines += [head, *(_row(item) for item in shown)]
    return "\n".join(lines)


def _tried(diff: str, axis: str, trials: Sequence[Trial]) -> Tried:
    scored = [
        trial.verdict
        for trial in trials
        if trial.verdict is not None and trial.verdict.effect is not None
    ]
    newest: Verdict | None = scored[-1] if scored else None
    effects = [verdict.effect for verdict in scored if verdict.effect is not None]
    outcomes = Counter(trial.slot.outcome for trial in trials)
    return Tried(
        diff=diff[:12] if "/" not in diff else "none",
        axis=axis,
        edit=_edit(trials[0].slot),
        rows=tuple(trial.row for trial in trials),
        effect=fmean(effects) if effects else None,
        low=newest.low if newest else None,
        high=newest.high if newest else None,
        verdict=newest.verdict if newest else "unscored",
        outcomes=", ".join(f"{count} {name}" for name, count in outcomes.items()),
    )


def _edit(slot: SlotResult) -> str:
    return line(spell(slot.edit), 160) if not slot.edit.is_empty() else "nothing"


def _row(item: Tried) -> str:
    effect = "" if item.effect is None else f"{item.effect:+.4f}"
    if item.low is not None and item.high is not None:
        effect = f"{effect} ({item.low:+.4f} to {item.high:+.4f})"
    trials = " ".join(item.rows[:6]) + (" …" if len(item.rows) > 6 else "")
    cells = (item.diff, item.axis, item.edit, trials, effect, item.verdict, item.outcomes)
    return " | ".join(cells)
