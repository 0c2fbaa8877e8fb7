"""What all checks cost on a pocket trial: seals, inspection, adapter, walls."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SEEDS = (1, 2, 3)
WIDTH = 3
ROLLOUTS = 1920  # as in `make demo`: of a longer trial checks are a smaller share
JAILS = 2  # of a trial: the run and the model that answers
SEALINGS = 3  # of a trial: before each of its two forks and before it is measured
REPEATS = 20

WHAT = (
    "Trials of pocket as short as those of `make demo`, one at a time: the share of their wall "
    "time that checks take. Inspection by the trial's own clock; verification of the snapshot, "
    "comparison of seals and what walls add to the start of a jail by themselves, times their "
    "number in a trial. Medians of 3 rounds of 3 trials, of 20 for the parts."
)


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["SEEDBED_HOME"] = f"{scratch}/home"
        return asyncio.run(_measure(Path(scratch)))


async def _measure(scratch: Path) -> dict[str, Any]:
    from flows.house import open_house
    from flows.plan import BudgetPlan, Plan
    from flows.round import build_report, open_round
    from flows.start import start_campaign
    from flows.trial import run_trial
    from substrate.fork import make_fork, sealed_changes
    from substrate.isolation import best_level

    house = open_house()
    seconds: list[dict[str, float]] = []
    campaign_id = ""
    for seed in SEEDS:
        budget = BudgetPlan(rollouts=ROLLOUTS)
        plan = Plan(substrate="pocket", rounds=1, width=WIDTH, seed=seed, budget=budget)
        campaign_id = start_campaign(house, plan)
        await open_round(house, campaign_id, 1)
        for slot in range(WIDTH):
            await run_trial(campaign_id, 1, slot)
        report = build_report(house, campaign_id, 1)
        assert not report.account.integrity
        scored = {slot.slot for slot in report.results.slots if slot.dev is not None}
        seconds += [a.seconds for a in report.account.slots if a.slot in scored]

    snapshot = house.snapshot(campaign_id)
    fork = make_fork(snapshot, scratch / "fork", overrides={}, patches=[])
    verify = _median(lambda: house.store.verify(snapshot, weights=False))
    seals = _median(lambda: sealed_changes(fork))
    walls = await _start(best_level(), scratch) - await _start("none", scratch)

    trial = statistics.median(sum(each.values()) for each in seconds)
    inspection = statistics.median(each["inspect"] for each in seconds)
    checks = inspection + SEALINGS * verify + seals + JAILS * walls
    return {
        "trial, s": trial,
        "all checks, ms": 1000 * checks,
        "share of the trial, %": 100 * checks / trial,
        "inspection with comparison of seals, ms": 1000 * inspection,
        "slowest inspection, ms": 1000 * max(each["inspect"] for each in seconds),
        "verification of code and data, each, ms": 1000 * verify,
        "comparison of a fork's seals, each, ms": 1000 * seals,
        "walls, each jail, ms": 1000 * walls,
    }


async def _start(level: Any, scratch: Path) -> float:
    """The median seconds of a jail whose program does nothing."""
    from substrate.interpreter import python_places
    from substrate.jail import Limits, run_jailed
    from substrate.walls import Walls

    desk = scratch / "desk"
    desk.mkdir(exist_ok=True)
    walls = Walls(level=level, writable=(desk,), readable=python_places(sys.executable))
    found = []
    for _ in range(REPEATS):
        started = time.monotonic()
        await run_jailed(
            ["/bin/true"],
            cwd=desk,
            env={},
            limits=Limits(seconds=60.0, memory_mb=256, file_mb=1),
            log=scratch / "log",
            walls=walls,
        )
        found.append(time.monotonic() - started)
    return statistics.median(found)


def _median(work: Callable[[], object]) -> float:
    """The median seconds of REPEATS calls."""
    found = []
    for _ in range(REPEATS):
        started = time.monotonic()
        work()
        found.append(time.monotonic() - started)
    return statistics.median(found)
