"""Every cheat ends as it must, without a score, is named, and touches nothing else."""

import re

import pytest

from policies.render import report_markdown
from policies.report import RoundReport, SlotResult
from substrate.isolation import LEVELS, why_not
from tests.cheats.adapters import ADAPTERS
from tests.cheats.cheat import Cheat
from tests.cheats.forged import FORGED
from tests.cheats.processes import PROCESSES
from tests.cheats.reach import REACH
from tests.cheats.sealed import SEALED
from tests.cheats.yard import Yard, by_axis, left_running

CHEATS = {cheat.name: cheat for cheat in (*FORGED, *ADAPTERS, *SEALED, *REACH, *PROCESSES)}
A_ROUND = 7  # cheats, beside the anchor
# One round runs always.
SAMPLE = (
    "planted-score-file",
    "rewritten-orders",
    "untouched-base",
    "pickled",
    "evaluator-edit-undone",
    "data-of-its-own",
    "the-judge",
)

pytestmark = pytest.mark.skipif(
    why_not(LEVELS[0]) is not None, reason=f"wanted {LEVELS[0]} on this machine"
)


def rounds_of(cheats: list[Cheat]) -> list[list[Cheat]]:
    """As few rounds as there must be, of equal size."""
    count = -(-len(cheats) // A_ROUND)
    return [cheats[number::count] for number in range(count)]


@pytest.fixture(scope="module")
def honest_anchor(yard: Yard) -> SlotResult:
    """The anchor of a round in which nobody cheats."""
    honest = [Cheat(name, "Turns a constant.", "evaluated", "") for name in ("one", "two")]
    report = yard.run([yard.order(cheat) for cheat in honest])
    assert [slot.outcome for slot in report.results.slots] == ["evaluated"] * 3
    return by_axis(report)["anchor"][0]


def check(yard: Yard, cheats: list[Cheat], anchor: SlotResult) -> None:
    report = yard.run([yard.order(cheat) for cheat in cheats])
    assert [said for cheat in cheats if (said := fault_in(cheat, report))] == []
    found, _ = by_axis(report)["anchor"]
    assert (found.outcome, found.dev, found.integrity) == ("evaluated", anchor.dev, [])
    assert found.adapter_sha256 == anchor.adapter_sha256
    assert left_running([yard.mark, report.campaign]) == []
    assert not list(yard.house.settings.forks.glob("*/*"))
    yard.house.store.verify(yard.house.snapshot(report.campaign))


def fault_in(cheat: Cheat, report: RoundReport) -> str | None:
    """What is not as it must be with a cheat's trial, or None."""
    result, account = by_axis(report)[cheat.name]
    reason = account.reason
    events = [cheat.event] if cheat.event else []
    is_right = (result.outcome, result.integrity) == (cheat.outcome, events)
    if not is_right or result.dev is not None or result.external is not None:
        return f"{cheat.name}: {result.outcome} {result.integrity} {result.dev}: {reason}"
    if not re.search(cheat.says, reason, re.IGNORECASE) or not reason.isprintable():
        return f"{cheat.name}: the reason is {reason!r}"
    line = next((row for row in report_markdown(report).splitlines() if cheat.name in row), "")
    return None if cheat.outcome in line else f"{cheat.name}: not named in the report: {line!r}"


def test_there_are_at_least_forty_ways_and_no_two_of_one_name() -> None:
    assert len(CHEATS) == sum(map(len, (FORGED, ADAPTERS, SEALED, REACH, PROCESSES))) >= 40


def test_a_cheat_of_each_kind_gains_nothing(yard: Yard, honest_anchor: SlotResult) -> None:
    check(yard, [CHEATS[name] for name in SAMPLE], honest_anchor)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "cheats",
    rounds_of([c for c in CHEATS.values() if c.name not in SAMPLE]),
    ids=lambda cheats: cheats[0].name,
)
def test_no_cheat_gains_anything(
    yard: Yard, honest_anchor: SlotResult, cheats: list[Cheat]
) -> None:
    check(yard, cheats, honest_anchor)
