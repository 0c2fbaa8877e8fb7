"""Findings: what evidence says of a round, as rows of text for tables."""

from collections.abc import Sequence

from policies.escape import code, markdown
from policies.integrity import DETAIL, rates
from policies.report import Confirmation, Decoupling, Flagged, RoundReport, Verdict

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]  # head and rows, Markdown already


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    rows = [
        (
            str(item.slot),
            code(item.axis),
            signed(item.effect),
            f"{signed(item.low)} to {signed(item.high)}",
            item.verdict,
            _with_error(item.external_effect, item.external_error),
            " ".join(item.rows),
        )
        for item in verdicts
    ]
    head = ("slot", "axis", "effect on dev", "interval", "verdict", "effect on external", "rows")
    return head, rows


def confirmation_table(confirmations: Sequence[Confirmation]) -> Table:
    rows = [
        (
            code(item.axis),
            str(item.runs),
            signed(item.effect),
            "none" if item.bar is None else f"{item.bar:.4f}",
            f"{item.level:.2g}",
            "yes" if item.is_confirmed else "no",
            " ".join(item.rows),
        )
        for item in confirmations
    ]
    head = ("axis", "fresh runs", "mean effect", "bar", "share of errors", "confirmed", "rows")
    return head, rows


def decoupling_table(tests: Sequence[Decoupling]) -> Table:
    rows = [
        (
            markdown(item.domain),
            item.verdict,
            "none" if item.probability is None else f"{item.probability:.2g}",
            "none" if item.level is None else f"{item.level:.2g}",
            code(item.axis) if item.axis else "standing recipe" if item.pairs else "none",
            str(item.pairs),
            signed(item.dev_change),
            _with_error(item.external_change, item.external_error),
        )
        for item in tests
    ]
    head = (
        "domain",
        "dev",
        "chance if it tracks",
        "alarm at",
        "largest shortfall on",
        "pairs",
        "change on dev",
        "change on external",
    )
    return head, rows


def integrity_lines(report: RoundReport) -> list[str]:
    """The integrity events of a round, their rate, and its effect with and without them."""
    events = [
        f"- slot {event.slot}, attempt {event.attempt}, {code(event.worker)}: "
        f"{markdown(event.kind)}: {markdown(event.detail, DETAIL)}"
        for event in report.account.integrity
    ]
    told = {event.slot for event in report.account.integrity}
    events += [
        f"- slot {slot.slot}: {markdown(kind)}"
        for slot in report.results.slots
        for kind in slot.integrity
        if slot.slot not in told
    ]
    if not events:
        return []
    said = [*events, "", rates_line([report])]
    return [*said, _with_and_without(report.results.flagged)] if report.results.flagged else said


def rates_line(reports: Sequence[RoundReport]) -> str:
    """How many trials were flagged, in all and by kind of worker."""
    found = rates(reports)
    flagged, trials = sum(some for _, some, _ in found), sum(all for _, _, all in found)
    each = ", ".join(f"{code(worker)} {some} of {all}" for worker, some, all in found)
    return f"Flagged trials: {flagged} of {trials} ({each})."


def _with_and_without(flagged: Flagged) -> str:
    return (
        f"Mean effect on dev {signed(flagged.effect)} without flagged trials, "
        f"{signed(flagged.effect_with)} with them; the best {signed(flagged.best)} without, "
        f"{signed(flagged.best_with)} with."
    )


def signed(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.4f}"


def _with_error(value: float | None, error: float | None) -> str:
    return signed(value) if value is None or error is None else f"{value:+.4f} ± {error:.4f}"
