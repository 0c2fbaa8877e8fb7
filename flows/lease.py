"""Leases: one process conducts a campaign or calibrates a substrate, and then lets go.

Whoever clears up takes one for a moment.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from flows.house import House
from flows.process import ProcessMark, began, is_alive, mark
from policies.ledger import Ledger

LEASE_SECONDS = 30.0
BEAT_SECONDS = 0.5
FORGOTTEN_SECONDS = 86_400.0  # after which the lease of another host that ran out is nobody's


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


def live_leases(ledger: Ledger) -> dict[str, float]:
    """The leases that a process may still work under, and since when at the earliest it may.

    Of a process of this host that is when it began, in seconds of the epoch; of another host's
    nothing is known: 0. One that ran out there a day ago is nobody's.
    """
    found = {}
    for lease in ledger.leases():
        host, pid, started = lease.holder.rsplit(":", 2)
        if host != socket.gethostname():
            if lease.expires_at.timestamp() + FORGOTTEN_SECONDS > time.time():
                found[lease.name] = 0.0
        elif not is_dead(lease.holder):
            found[lease.name] = began(ProcessMark(pid=int(pid), started=int(started)))
    return found


@contextmanager
def borrowed(ledger: Ledger, name: str) -> Iterator[bool]:
    """Hold a lease that nobody works under, for a moment; False where somebody does.

    That of a process that died is left as it was found: it says that there is something to resume.
    """
    dead = ledger.lease_holder(name)
    if name in live_leases(ledger) or not _claim(ledger, name, holder()):
        yield False
        return
    try:
        yield True
    finally:
        ledger.release_lease(name, holder())
        if dead is not None:
            ledger.claim_lease(name, dead, 0.0)


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
    if not _claim(ledger, name, me):
        other = ledger.lease_holder(name)
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


def _claim(ledger: Ledger, name: str, me: str) -> bool:
    """Take a lease that is free, or that a process had which is dead."""
    if ledger.claim_lease(name, me, LEASE_SECONDS):
        return True
    other = ledger.lease_holder(name)
    if other is not None and is_dead(other):
        ledger.release_lease(name, other)
    return ledger.claim_lease(name, me, LEASE_SECONDS)
