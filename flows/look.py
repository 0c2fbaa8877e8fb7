"""A look at a judge's set: an adapter scored on held-out problems.

Whoever looks has it in the ledger before.
"""

from pathlib import Path

from substrate.dropin import ScoredSet
from substrate.measure import Measured, SealedAdapter, measure
from substrate.outcome import Outcome
from substrate.store import Judge, Snapshot
from substrate.walls import Level


async def look(
    snapshot: Snapshot,
    adapter: SealedAdapter,
    judge: Judge,
    problems: Path,
    scored: ScoredSet,
    *,
    level: Level,
    tries: int,
) -> Measured:
    """Score an adapter on one of the judge's sets, with at most `tries` tries."""
    while True:
        tries -= 1
        measured = await measure(snapshot, adapter, problems, scored, judge.canaries, level=level)
        if measured.outcome is not Outcome.INFRASTRUCTURE or tries <= 0:
            return measured
