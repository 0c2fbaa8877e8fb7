"""GPU-seconds: taken from the campaign's cap before a recipe runs on GPUs, settled after it ran."""

import math
from collections.abc import Awaitable, Callable

from flows.house import House
from flows.roles import purse_of
from substrate.fork import Fork
from substrate.job import Job
from substrate.run import RunRecord, run_recipe
from substrate.walls import Level

Run = Callable[[Fork, Job, Level], Awaitable[RunRecord]]


async def run_uncharged(fork: Fork, job: Job, level: Level) -> RunRecord:
    """A run of the recipe that belongs to no campaign."""
    return await run_recipe(fork, job, level=level)


def run_charged(house: House, campaign_id: str, place: str) -> Run:
    """How recipes are run at a place of a campaign, such as `r1/s3/a1`; without a GPU for nothing.

    The run raises SpendCapReached, before it began, where the cap has no room for its longest.
    """
    place = f"{place}/run"

    async def run(fork: Fork, job: Job, level: Level) -> RunRecord:
        limits = fork.snapshot.manifest.limits
        if not limits.gpus:
            return await run_recipe(fork, job, level=level)
        purse = purse_of(house, campaign_id)
        subject = f"{place}/{purse.next_number(place)}"
        longest = math.ceil(limits.seconds + limits.grace_seconds)
        purse.reserve(subject, {"gpu_seconds": limits.gpus * longest})
        record = await run_recipe(fork, job, level=level)
        used = limits.gpus * math.ceil(record.ending.seconds)
        purse.settle(subject, {"gpu_seconds": used})
        return record

    return run
