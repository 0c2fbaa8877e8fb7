"""Calls: who speaks with a language model in a campaign, and who answers.

A provider answers. In a test a function does, and when a campaign is run again, its journal.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from agents.messages import Converse, ProviderFailure, Reply, Request
from flows.house import House

Role = Literal["worker", "collector", "meta"]


@dataclass(frozen=True)
class Speaker:
    """One conversation of a campaign, by name: whose it is, and in which round."""

    campaign: str
    role: Role
    model: str  # kind, such as `anthropic:MODEL`
    round: int
    slot: int | None = None  # of a worker
    attempt: int = 1  # of a worker, at its trial


Answerer = Callable[[House, Speaker], Converse]


def converse_with(house: House, speaker: Speaker) -> Converse:
    """What a speaker converses through."""
    return _answerer.get()(house, speaker)


@contextmanager
def answered_by(answerer: Answerer) -> Iterator[None]:
    """Within the block, models of this context's campaigns are answered for by `answerer`."""
    token = _answerer.set(answerer)
    try:
        yield
    finally:
        _answerer.reset(token)


def provider(house: House, speaker: Speaker) -> Converse:
    """The provider that a speaker's model names."""

    async def nobody(request: Request) -> Reply:
        raise ProviderFailure(
            f"wanted {speaker.model} to answer, found no provider in this installation; choose "
            "`sampler`, `reviser` and `code`",
            permanent=True,
        )

    return nobody


_answerer: ContextVar[Answerer] = ContextVar("answerer", default=provider)
