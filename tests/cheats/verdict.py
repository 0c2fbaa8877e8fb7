"""The verdict on a round of cheats: each ended as it must, and nothing else was touched."""

import re
from collections.abc import Sequence

from policies.render import report_markdown
from policies.report import RoundReport, SlotResult
from tests.cheats.cheat import Cheat
from tests.cheats.yard import Yard, by_axis, left_running

A_ROUND = 7  # cheats, beside the anchor


def rounds_of(cheats: Sequence[Cheat]) -> list[Sequence[Cheat]]:
    """As few rounds as there must be, of equal size."""
    count = -(-len(cheats) // A_ROUND)
    return [cheats[number::count] for number in range(count)]


def judge_round(yard: Yard, cheats: Sequence[Cheat], anchor: SlotResult) -> None:
    report = yard.run([yard.order(cheat) for cheat in cheats])
    faults = [said for cheat in cheats if (said := fault_in(cheat, report))]
    found, _ = by_axis(report)["anchor"]
    if (found.outcome, found.dev, found.integrity) != ("evaluated", anchor.dev, []):
        faults.append(f"the anchor: {found}, where without cheats it is {anchor}")
    if found.adapter_sha256 != anchor.adapter_sha256:
        faults.append("the anchor's adapter is another one than in a round without cheats")
    faults += [f"runs on: {said}" for said in left_running([yard.mark, report.campaign])]
    faults += [f"left behind: {path}" for path in yard.house.settings.forks.glob("*/*")]
    yard.house.store.verify(yard.house.snapshot(report.campaign))
    assert not faults, "\n".join(faults)


def fault_in(cheat: Cheat, report: RoundReport) -> str | None:
    """What is not as it must be with a cheat's trial, or None."""
    result, account = by_axis(report)[cheat.name]
    reason = account.reason
    events = [cheat.event] if cheat.event else []
    is_right = (result.outcome, result.integrity) == (cheat.outcome, events)
    if not is_right or result.dev is not None or result.external is not None:
        return f"{cheat.name}: {result.outcome} {result.integrity} {result.dev}: {reason}"
    if cheat.event == "tamper_attempt" and result.discarded is not None:
        return f"{cheat.name}: it got what it reached for, {result.discarded}"
    if not re.search(cheat.says, reason, re.IGNORECASE) or not reason.isprintable():
        return f"{cheat.name}: the reason is {reason!r}"
    line = next(
        (row for row in report_markdown(report).splitlines() if f"`{cheat.name}`" in row), ""
    )
    return None if cheat.outcome in line else f"{cheat.name}: not named in the report: {line!r}"
