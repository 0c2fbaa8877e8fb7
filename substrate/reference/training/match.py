"""A match: what a teacher wrote, and a student's attempts at it.

Texts keep the tokens that they were sampled as, and the log-probabilities: what is learnt from is
what was written, never a text read again.
"""

from dataclasses import dataclass

from training.codetasks import Task
from training.population import Row

VALID = "valid"
DUPLICATE = "duplicate"  # a valid task that the archive has already


@dataclass(frozen=True)
class Text:
    """A completion, and what sampling it was like."""

    row: Row  # the member, and the tokens of prompt and completion
    logprobs: list[float]  # of the completion's tokens
    text: str


@dataclass(frozen=True)
class Order:
    """A proposal that is wanted: for which match, from whom, of which type."""

    match: int
    author: int  # its place in the population
    type: str
    prompt: str


@dataclass(frozen=True)
class Proposal:
    """A proposal as it was written and read."""

    order: Order
    written: Text
    task: Task | None
    reason: str  # why it is no task that counts, or VALID


@dataclass(frozen=True)
class Played:
    """A task with all attempts at it."""

    proposal: Proposal
    task: Task
    attempts: list[Text]
    grades: list[str]  # of each attempt: right, wrong or malformed

    @property
    def solve_rate(self) -> float:
        """The share of the attempts that are right."""
        return self.grades.count("right") / len(self.grades)
