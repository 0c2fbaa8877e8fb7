"""The lease on a campaign: one process conducts it, notices a request to stop, and lets go."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from flows.house import House

LEASE_SECONDS = 30.0
BEAT_SECONDS = 0.5


class CampaignBusy(RuntimeError):
    """Another process conducts this campaign."""


class CampaignStopped(Exception):
    """Somebody asked for the campaign to stop. It can be resumed."""


def lease_name(campaign_id: str) -> str:
    return f"campaign/{campaign_id}"


def holder() -> str:
    """This process, named so that another can tell whether it is still alive."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def is_dead(name: str) -> bool:
    """Whether a holder of this host has ended. A holder of another host is never known dead."""
    host, pid, started = name.rsplit(":", 2)
    return host == socket.gethostname() and _started(int(pid)) != started


@asynccontextmanager
async def held(house: House, campaign_id: str) -> AsyncIterator[None]:
    """Hold the campaign's lease for the length of the block.

    Raises CampaignBusy when another living process holds it, and CampaignStopped from inside the
    block, after everything in it was cancelled, when `seedbed stop` asked for that.
    """
    ledger, name, me = house.ledger, lease_name(campaign_id), holder()
    if not ledger.claim_lease(name, me, LEASE_SECONDS):
        other = ledger.lease_holder(name)
        if other is not None and is_dead(other):
            ledger.release_lease(name, other)
        if not ledger.claim_lease(name, me, LEASE_SECONDS):
            raise CampaignBusy(
                f"wanted to conduct {campaign_id}, but process {other} does; wait for it, or end "
                f"it with `seedbed stop {campaign_id}`"
            )
    asked = len(ledger.events(campaign_id, kind="stop.requested"))
    work = asyncio.current_task()
    assert work is not None
    stopping = asyncio.Event()

    async def beat() -> None:
        renewed = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if len(ledger.events(campaign_id, kind="stop.requested")) > asked:
                stopping.set()
                work.cancel()
                return
            if asyncio.get_running_loop().time() - renewed > LEASE_SECONDS / 3:
                renewed = asyncio.get_running_loop().time()
                if not ledger.renew_lease(name, me, LEASE_SECONDS):
                    work.cancel(f"the lease on {campaign_id} was lost")
                    return

    beating = asyncio.create_task(beat())
    try:
        yield
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
        work.uncancel()
        raise CampaignStopped(
            f"{campaign_id} was stopped; go on with `seedbed resume {campaign_id}`"
        ) from None
    finally:
        beating.cancel()
        ledger.release_lease(name, me)


def _started(pid: int) -> str:
    """Start time of a process in clock ticks, from /proc; empty when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
