"""Calls: who speaks with a language model in a campaign, and who answers.

A provider answers. In a test a function does, and when a campaign is run again, its journal.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from agents.journal import Exchange
from agents.messages import Converse
from flows.exchanges import exchanges_of
from flows.house import House
from flows.roles import converse_for
from policies.tables import Role


@dataclass(frozen=True)
class Speaker:
    """One conversation of a campaign, by name: whose it is, and in which round."""

    campaign: str
    role: Role
    model: str  # kind, such as `anthropic:MODEL`
    round: int
    slot: int | None = None  # of a worker
    attempt: int = 1  # of a worker, at its trial

    @property
    def place(self) -> str:
        """Where in the campaign it speaks: `r1/s3/a1`, or `r1` of who speaks of the round."""
        trial = "" if self.slot is None else f"/s{self.slot}/a{self.attempt}"
        return f"r{self.round}{trial}"


Answerer = Callable[[House, Speaker], Converse]

# The exchanges of a conversation that are on record, in order.
Journal = Callable[[Speaker], Sequence[Exchange]]


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
    return converse_for(house, speaker.campaign, speaker.role, speaker.place)


def journal_of(house: House, campaign_id: str) -> Journal:
    """What was said in a campaign. The journal raises ExchangeDamaged."""
    return lambda speaker: exchanges_of(house, campaign_id, f"{speaker.place}/{speaker.role}")


_answerer: ContextVar[Answerer] = ContextVar("answerer", default=provider)
