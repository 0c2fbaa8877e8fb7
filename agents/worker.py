"""A worker: what it is given, what it hands in, and how a kind of worker is found by name."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from agents.messages import Converse
from agents.model import is_model
from policies.policy import Brief
from substrate.fork import Fork
from substrate.measure import Measured
from substrate.outcome import Outcome
from substrate.run import RunRecord
from substrate.walls import Level


class UnknownWorker(ValueError):
    """No worker is of that kind."""


class CapReached(RuntimeError):
    """A worker asked for more than its caps allow. Nothing was done."""


class Caps(BaseModel):
    """What one worker may use in one attempt at a trial, besides the counted run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    turns: int = Field(default=60, ge=1, le=1000, description="Answers of a language model.")
    seconds: float = Field(
        default=7200.0, gt=0, description="Wall time of a worker, its runs of the recipe included."
    )
    smokes: int = Field(default=10, ge=0, description="Smoke runs: a few steps of the recipe.")
    drafts: int = Field(default=2, ge=0, description="Runs of the recipe on the trial's budget.")
    dev_scores: int = Field(default=2, ge=0, description="Dev scores of what drafts delivered.")
    shell_seconds: float = Field(default=120.0, gt=0, description="Wall time of a shell command.")
    context_characters: int = Field(
        default=240_000,
        ge=20_000,
        description="Of a conversation: beyond that, old results of tools are folded.",
    )
    answer_tokens: int = Field(default=8192, ge=256, description="Of one answer of a model.")


@dataclass(frozen=True)
class Drafts:
    """What a worker may cause besides editing. Each use is counted; beyond a cap: CapReached."""

    recipe: str  # name of the module in recipes/
    rollouts: int  # budget of a draft, as of the counted run
    run: Callable[[bool], Awaitable[RunRecord]]  # of the recipe in the worker's fork; True: a smoke
    score: Callable[[str], Awaitable[Measured]]  # of an adapter's folder in the fork, on dev


@dataclass(frozen=True)
class Workplace:
    """All that a worker gets: a fork of its own, one brief, the seed of its random numbers, and,
    where its kind has a use for them, drafts and a model to converse with."""

    fork: Fork
    brief: Brief
    seed: int
    drafts: Drafts | None = None
    converse: Converse | None = None
    caps: Caps = field(default_factory=Caps)
    level: Level | None = None  # of the walls around its programs; None: the highest there is
    attempts: list[str] = field(default_factory=list)  # to tamper, which its tools have seen


@dataclass(frozen=True)
class HandIn:
    """What a worker says of its edit. The edit itself is what it left in its fork."""

    hypothesis: str
    notes: str


class WorkEnded(Exception):
    """A worker ended without handing in. Its outcome is the trial's; what it said is kept."""

    def __init__(self, outcome: Outcome, reason: str, notes: str = "") -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.notes = notes


Worker = Callable[[Workplace], Awaitable[HandIn]]


def find_worker(kind: str) -> Worker:
    """The worker of that kind. Raises UnknownWorker with the kinds there are."""
    from agents.client import client  # here: each kind needs this module's records
    from agents.researcher import researcher
    from agents.sampler import sampler

    if kind == "sampler":
        return sampler
    if is_model(kind):
        return researcher
    if kind.startswith("command:"):
        return client(kind.removeprefix("command:"))
    raise UnknownWorker(
        f"wanted a kind of worker, found {kind!r}; choose `sampler`, `anthropic:MODEL`, "
        "`openai:MODEL` or `command:PROGRAM`"
    )
