"""Findings: what evidence says of a round, as tables and lines."""

from collections.abc import Sequence

from policies.cells import (
    Block,
    Cell,
    Code,
    Interval,
    Items,
    Mark,
    Paragraph,
    Refs,
    Said,
    Table,
    Tone,
    code_or,
    joined,
    number,
    signed,
    with_error,
)
from policies.integrity import DETAIL, rates
from policies.report import Confirmation, Decoupling, Flagged, RoundReport, Verdict

TONES: dict[str, Tone] = {
    "better": "good",
    "worse": "bad",
    "unresolved": "quiet",
    "tracking": "good",
    "decoupled": "bad",
    "insufficient": "quiet",
    "yes": "good",
    "no": "quiet",
}


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    rows = [
        (
            str(item.slot),
            Code(item.axis),
            signed(item.effect),
            Interval(item.effect, item.low, item.high),
            toned(item.verdict),
            with_error(item.external_effect, item.external_error),
            Refs(item.rows),
        )
        for item in verdicts
    ]
    head = ("slot", "axis", "effect on dev", "interval", "verdict", "effect on external", "rows")
    return Table(head, rows)


def confirmation_table(confirmations: Sequence[Confirmation]) -> Table:
    rows = [
        (
            Code(item.axis),
            str(item.runs),
            signed(item.effect),
            number(item.bar, "none"),
            f"{item.level:.2g}",
            toned("yes" if item.is_confirmed else "no"),
            Refs(item.rows),
        )
        for item in confirmations
    ]
    head = ("axis", "fresh runs", "mean effect", "bar", "share of errors", "confirmed", "rows")
    return Table(head, rows)


def decoupling_table(tests: Sequence[Decoupling]) -> Table:
    rows = [
        (
            Said(item.domain),
            toned(item.verdict),
            "none" if item.probability is None else f"{item.probability:.2g}",
            "none" if item.level is None else f"{item.level:.2g}",
            code_or(item.axis, "standing recipe" if item.pairs else "none"),
            str(item.pairs),
            signed(item.dev_change),
            with_error(item.external_change, item.external_error),
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
    return Table(head, rows)


def integrity_blocks(report: RoundReport) -> list[Block]:
    """The integrity events of a round, their rate, and its effect with and without them."""
    events: list[Cell] = [
        (
            f"slot {event.slot}, attempt {event.attempt}, ",
            Code(event.worker),
            ": ",
            Said(event.kind),
            ": ",
            Said(event.detail, DETAIL),
        )
        for event in report.account.integrity
    ]
    told = {event.slot for event in report.account.integrity}
    events += [
        (f"slot {slot.slot}: ", Said(kind))
        for slot in report.results.slots
        for kind in slot.integrity
        if slot.slot not in told
    ]
    if not events:
        return []
    said: list[Cell] = [rates_line([report])]
    if report.results.flagged:
        said.append(_with_and_without(report.results.flagged))
    return [Items(events), Paragraph(said)]


def rates_line(reports: Sequence[RoundReport]) -> Cell:
    """How many trials were flagged, in all and by kind of worker."""
    found = rates(reports)
    flagged, trials = sum(some for _, some, _ in found), sum(all for _, _, all in found)
    each = [(Code(worker), f" {some} of {all}") for worker, some, all in found]
    by_worker = [piece for pair in each for piece in (", ", *pair)][1:]
    return (f"Flagged trials: {flagged} of {trials} (", *by_worker, ").")


def ignored_line(names: Sequence[str]) -> Cell:
    """Where dev counts for nothing; "" where that is nowhere."""
    return ("No verdict counts dev in: ", *joined(map(Said, names)), ".") if names else ""


def toned(word: str) -> Mark:
    """A word of a verdict, in its tone."""
    return Mark(word, TONES[word])


def _with_and_without(flagged: Flagged) -> str:
    return (
        f"Mean effect on dev {signed(flagged.effect)} without flagged trials, "
        f"{signed(flagged.effect_with)} with them; the best {signed(flagged.best)} without, "
        f"{signed(flagged.best_with)} with."
    )
