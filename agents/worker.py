"""A worker: what it is given, what it hands in, and how a kind of worker is found by name."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from policies.policy import Brief
from substrate.fork import Fork


class UnknownWorker(ValueError):
    """No worker is of that kind."""


@dataclass(frozen=True)
class Workplace:
    """All that a worker gets: a fork of its own, one brief, and the seed of its random numbers."""

    fork: Fork
    brief: Brief
    seed: int


@dataclass(frozen=True)
class HandIn:
    """What a worker says of its edit. The edit itself is what it left in its fork."""

    hypothesis: str
    notes: str


Worker = Callable[[Workplace], Awaitable[HandIn]]


def find_worker(kind: str) -> Worker:
    """The worker of that kind. Raises UnknownWorker with the kinds there are."""
    from agents.sampler import sampler  # here: each kind needs this module's records

    workers: dict[str, Worker] = {"sampler": sampler}
    if kind not in workers:
        raise UnknownWorker(
            f"wanted a kind of worker of {sorted(workers)}, found {kind!r}; choose one of these"
        )
    return workers[kind]
