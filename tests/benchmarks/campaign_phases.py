"""Where the time of a campaign on the stub goes, and what Prefect adds to it."""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

REPEATS = 5
ROUNDS = 2
STUB = Path(__file__).parent.parent / "substrates" / "stub"

WHAT = (
    "Wall time of campaigns on the stub, whose trials cost nothing: by phase in 2 rounds of 8, and "
    "of one round of 8 and one of 100. The baseline runs the same functions in the same order "
    "without Prefect. Medians of 5 for rounds of 8; 1 of 100."
)


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["SEEDBED_HOME"] = f"{scratch}/home"
        from flows.foreground import prepare_prefect
        from flows.settings import Settings

        prepare_prefect(Settings())
        return asyncio.run(_measure())


async def _measure() -> dict[str, Any]:
    from flows.campaign import campaign
    from flows.house import open_house
    from flows.plan import Plan
    from flows.server import temporary_server

    house = open_house()
    plan = Plan(substrate=str(STUB), rounds=ROUNDS)
    await _without_prefect(plan)  # warm: the files and modules that a first campaign reads
    started = time.monotonic()
    async with temporary_server(house.settings.prefect_home, house.settings.folder / "log"):
        server = time.monotonic() - started
        await campaign(plan)  # warm: the client, the flow's first registration
        bare, with_prefect, measured = [], [], []
        for _ in range(REPEATS):  # in turn, so that both meet the same load
            bare.append(await _seconds(lambda: _without_prefect(plan)))
            with_prefect.append(await _seconds(lambda: campaign(plan)))
            measured.append(house.ledger.campaigns()[0].id)
        wide = {
            width: await _seconds(lambda w=width: campaign(_wide(plan, w))) for width in (8, 100)
        }
    figures: dict[str, Any] = {
        f"campaign of {ROUNDS} x 8, seconds": statistics.median(with_prefect),
        "the same without Prefect, seconds": statistics.median(bare),
        "ratio, with to without": statistics.median(with_prefect) / statistics.median(bare),
        "start of Prefect's temporary server (cold), seconds": server,
        "one round of 8, seconds": wide[8],
        "one round of 100, seconds": wide[100],
        "a trial in a round of 8, seconds": wide[8] / 8,
        "a trial in a round of 100, seconds": wide[100] / 100,
    }
    phases = [_phases(campaign_id) for campaign_id in measured]
    for name in phases[0]:
        figures[f"phase {name}, seconds"] = statistics.median(found[name] for found in phases)
    return figures


def _wide(plan: Any, width: int) -> Any:
    return plan.model_copy(update={"rounds": 1, "width": width})


def _phases(campaign_id: str) -> dict[str, float]:
    """Seconds of a whole campaign by phase; those of trials are sums over trials side by side."""
    import json

    from flows.house import open_house

    found: dict[str, float] = {}
    for event in open_house().ledger.events(campaign_id, kind="round.timed"):
        for name, seconds in json.loads(event.body).items():
            found[f"round: {name}"] = found.get(f"round: {name}", 0.0) + seconds
    for report in open_house().reports(campaign_id):
        for account in report.account.slots:
            for name, seconds in account.seconds.items():
                found[f"trials: {name}"] = found.get(f"trials: {name}", 0.0) + seconds
    return found


async def _seconds(work: Callable[[], Awaitable[object]]) -> float:
    started = time.monotonic()
    await work()
    return time.monotonic() - started


async def _without_prefect(plan: Any) -> None:
    """The loop of `flows/campaign.py` with the same functions, and nothing of Prefect's."""
    from flows import round as steps
    from flows.house import open_house
    from flows.revision import revise_policy
    from flows.start import start_campaign
    from flows.trial import run_trial, runs_at_once

    house = open_house()
    campaign_id = start_campaign(house, plan)
    gate = asyncio.Semaphore(runs_at_once(house.snapshot(campaign_id)))

    async def through_gate(number: int, slot: int) -> None:
        async with gate:
            await run_trial(campaign_id, number, slot)

    for number in range(1, plan.rounds + 1):
        await steps.open_round(house, campaign_id, number)
        async with asyncio.TaskGroup() as trials:
            for slot in range(plan.width):
                trials.create_task(through_gate(number, slot))
        await steps.take_looks(house, campaign_id, number)
        report = steps.build_report(house, campaign_id, number)
        revision = await revise_policy(house, campaign_id, report)
        steps.record_round(house, campaign_id, report, revision)
