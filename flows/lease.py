"""The lease on a campaign: one process conducts it, notices a request to stop, and lets go."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from flows.house import House
from flows.process import ProcessMark, is_alive, mark

LEASE_SECONDS = 30.0
BEAT_SECONDS = 0.5


class CampaignBusy(RuntimeError):
    """Another process conducts this campaign."""


class CampaignStopped(Exception):
    """Somebody asked for the campaign to stop. It can be resumed."""


class LeaseLost(RuntimeError):
    """This process did not renew its lease in time, and another took it."""


def lease_name(campaign_id: str) -> str:
    return f"campaign/{campaign_id}"


def holder() -> str:
    """This process, named so that another can tell whether it is still alive."""
    this = mark(os.getpid())
    assert this is not None, "a process that asks runs"
    return f"{socket.gethostname()}:{this.pid}:{this.started}"


def is_dead(name: str) -> bool:
    """Whether a holder of this host has ended. A holder of another host is never known dead."""
    host, pid, started = name.rsplit(":", 2)
    return host == socket.gethostname() and not is_alive(
        ProcessMark(pid=int(pid), started=int(started))
    )


@asynccontextmanager
async def held(house: House, campaign_id: str) -> AsyncIterator[None]:
    """Hold the campaign's lease for the length of the block.

    Raises CampaignBusy when another living process holds it. What follows is raised from inside the
    block, after everything in it was cancelled: CampaignStopped when `seedbed stop` asked for that,
    LeaseLost when the lease is another's, and whatever keeps the lease from being renewed.
    """
    ledger, name, me = house.ledger, lease_name(campaign_id), holder()
    asked = len(ledger.events(campaign_id, kind="stop.requested"))
    if not ledger.claim_lease(name, me, LEASE_SECONDS):
        other = ledger.lease_holder(name)
        if other is not None and is_dead(other):
            ledger.release_lease(name, other)
        if not ledger.claim_lease(name, me, LEASE_SECONDS):
            raise CampaignBusy(
                f"wanted to conduct {campaign_id}, but process {other} does; wait for it, or end "
                f"it with `seedbed stop {campaign_id}`"
            )

    async def beat() -> None:
        renewed = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if len(ledger.events(campaign_id, kind="stop.requested")) > asked:
                raise CampaignStopped(
                    f"{campaign_id} was stopped; go on with `seedbed resume {campaign_id}`"
                )
            if asyncio.get_running_loop().time() - renewed > LEASE_SECONDS / 3:
                # Claimed and not renewed: one that ran out while nobody wanted it is still ours.
                if not ledger.claim_lease(name, me, LEASE_SECONDS):
                    raise LeaseLost(
                        f"wanted to renew the lease on {campaign_id}, found that another process "
                        "holds it; look at what that one does with `seedbed report`"
                    )
                renewed = asyncio.get_running_loop().time()

    work = asyncio.current_task()
    assert work is not None
    beating = asyncio.create_task(beat())
    beating.add_done_callback(lambda ended: ended.cancelled() or work.cancel())
    try:
        yield
    except asyncio.CancelledError:
        if not beating.done() or beating.cancelled():
            raise
        work.uncancel()
        raise beating.exception() or AssertionError("a beat ends by an error") from None
    finally:
        beating.cancel()
        ledger.release_lease(name, me)
