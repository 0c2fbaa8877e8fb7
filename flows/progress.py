"""Progress: how many of a campaign's trials have ended, shown in Prefect while a round runs.

It is a view and nothing waits for it: whatever keeps it from being shown is logged.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from flows.house import House
from flows.plan import artifact_key
from flows.publish import PROGRESS, publish_outbox
from policies.tables import Outbox

PAUSE_SECONDS = 1.0  # between two updates: trials that end meanwhile are one update
MOST_SECONDS = 60.0  # between two while no server takes them

logger = logging.getLogger(__name__)


@asynccontextmanager
async def shown_progress(
    house: House, campaign_id: str, number: int
) -> AsyncIterator[Callable[[], None]]:
    """Show how far a round is for the length of the block; what it yields says that a trial ended.

    The round's own rows say the last of it: see `flows.round.record_round`.
    """
    ended = asyncio.Event()
    ended.set()  # what was recorded before

    async def follow() -> None:
        pause = PAUSE_SECONDS
        while True:
            await ended.wait()
            ended.clear()
            house.ledger.append(progress_of(house, campaign_id, number))
            published = await publish_outbox(house.ledger, campaign_id)
            pause = PAUSE_SECONDS if published else min(MOST_SECONDS, 2 * pause)
            await asyncio.sleep(pause)

    following = asyncio.create_task(follow())
    try:
        yield ended.set
    finally:
        following.cancel()
        (found,) = await asyncio.gather(following, return_exceptions=True)
        if isinstance(found, Exception):
            logger.warning("%s: its progress was not shown", campaign_id, exc_info=found)


def progress_of(house: House, campaign_id: str, number: int) -> Outbox:
    """How far the campaign is in that round: in percent of all its trials, and in words."""
    plan, ended = house.plan(campaign_id), len(house.ledger.trials(campaign_id, number))
    percent = 100 * ((number - 1) * plan.width + ended) / (plan.rounds * plan.width)
    words = f"{campaign_id}: round {number} of {plan.rounds}, {ended} of {plan.width} trials"
    return Outbox(
        campaign=campaign_id,
        kind=PROGRESS,
        key=artifact_key(campaign_id, "progress"),
        body=json.dumps({"description": words, "data": round(percent, 1)}),
    )
