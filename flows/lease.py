"""Leases: one process conducts a campaign or calibrates a substrate, and then lets go."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from flows.house import House
from flows.process import ProcessMark, is_alive, mark
from policies.ledger import Ledger

LEASE_SECONDS = 30.0
BEAT_SECONDS = 0.5


class Busy(RuntimeError):
    """Another process does it already."""


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

    Raises as `leased` does, and, from inside the block, CampaignStopped when `seedbed stop` asked
    for that.
    """
    ledger = house.ledger
    asked = len(ledger.events(campaign_id, kind="stop.requested"))

    def notice_stop() -> None:
        if len(ledger.events(campaign_id, kind="stop.requested")) > asked:
            raise CampaignStopped(
                f"{campaign_id} was stopped; go on with `seedbed resume {campaign_id}`"
            )

    stop = f"end it with `seedbed stop {campaign_id}`"
    name, task = lease_name(campaign_id), f"conduct {campaign_id}"
    async with leased(ledger, name, task=task, otherwise=stop, notice=notice_stop):
        yield


@asynccontextmanager
async def leased(
    ledger: Ledger,
    name: str,
    *,
    task: str,
    otherwise: str,
    notice: Callable[[], None] = lambda: None,
) -> AsyncIterator[None]:
    """Hold a lease for the length of the block; that of a dead process of this host is taken over.

    `task` says in an error what it is held for, and `otherwise` what to do but wait. `notice` is
    called at every beat. Raises Busy when another living process holds it. What follows is raised
    from inside the block, after everything in it was cancelled: LeaseLost when the lease is
    another's, and whatever `notice` raises or keeps the lease from being renewed.
    """
    me = holder()
    if not ledger.claim_lease(name, me, LEASE_SECONDS):
        other = ledger.lease_holder(name)
        if other is not None and is_dead(other):
            ledger.release_lease(name, other)
        if not ledger.claim_lease(name, me, LEASE_SECONDS):
            raise Busy(f"wanted to {task}, but process {other} does; wait for it, or {otherwise}")

    async def beat() -> None:
        renewed = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            notice()
            if asyncio.get_running_loop().time() - renewed > LEASE_SECONDS / 3:
                # Claimed and not renewed: one that ran out while nobody wanted it is still ours.
                if not ledger.claim_lease(name, me, LEASE_SECONDS):
                    raise LeaseLost(
                        f"wanted to go on to {task}, found that another process has taken the "
                        "lease; let that one finish"
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
