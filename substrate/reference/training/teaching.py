"""What proposals and attempts are worth: the rewards of teachers and students.

The forms are those of PopuLoRA (arXiv 2605.16727) and Absolute Zero (Zhao et al., arXiv 2505.03335,
equations 4 to 6), as secondary sources give them, with the teacher's made a family.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.lessons import Lesson
from training.match import Played, Proposal, Text

# Of an attempt, by its grade: Absolute Zero's.
STUDENT = {"right": 1.0, "wrong": -0.5, "malformed": -1.0}


@dataclass(frozen=True)
class Marked:
    """A text with its reward, and the labels of those that it is compared and scaled with."""

    text: Text
    batch: tuple[str, int]  # role, and place in the population
    group: Hashable  # of proposals: the prompt; of attempts: the task, or its type
    reward: float


@dataclass(frozen=True)
class Taste:
    """What teachers are paid for."""

    exponent: (
        float  # of the solve rate: 0 likes the hardest tasks best, 1 those solved half the time
    )
    invalid: float  # worth of an invalid proposal, at most
    gap: float  # and how far it is below its author's worst task, in spreads of that author's tasks


def teachers_marks(
    proposals: Sequence[Proposal], graded: Sequence[Played], taste: Taste, *, base: int
) -> list[Marked]:
    """The rewards of all proposals but the base's own, which is at the place `base`.

    A task is worth what `teacher_reward` says of its attempts, a duplicate 0. An invalid proposal
    is worth `taste.invalid`, but never more than its author's worst task less the gap: where no
    task is better than another, being invalid is no worse either, so that teachers do not learn to
    be valid, by easy tasks, before they learn what it is for.
    """
    played = {id(task.proposal): task for task in graded}
    own = [proposal for proposal in proposals if proposal.order.author != base]
    worths: dict[int, float] = {}
    for proposal in own:
        if proposal.task is not None:
            task = played.get(id(proposal))  # None: a duplicate
            worths[id(proposal)] = 0.0 if task is None else teacher_reward(task, taste)
    marks = []
    for proposal in own:
        author = proposal.order.author
        reward = worths.get(id(proposal))
        if reward is None:
            tasks = [worths[id(p)] for p in own if p.order.author == author and id(p) in worths]
            spread = max(tasks) - min(tasks) if tasks else 0.0
            reward = min([taste.invalid, *(worth - taste.gap * spread for worth in tasks)])
        marks.append(Marked(proposal.written, ("teacher", author), proposal.order.prompt, reward))
    return marks


def students_marks(played: Sequence[Played], *, by_task: bool = True) -> list[Marked]:
    """The rewards of all attempts, grouped by task; or by the task's type."""
    return [
        Marked(text, ("student", text.row.member), number if by_task else task.task.type, reward)
        for number, task in enumerate(played)
        for text, reward in zip(task.attempts, map(STUDENT.__getitem__, task.grades), strict=True)
    ]


def lessons(
    marks: Sequence[Marked], advantages: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> list[Lesson]:
    """Lessons from rewards; `advantages` is given the rewards and the labels of their groups and
    batches, as `training.baselines.reinforce_plus_baseline` wants them.
    """
    rewards_N = torch.tensor([mark.reward for mark in marks])
    groups_N = _numbered([(mark.batch, mark.group) for mark in marks])
    batches_N = _numbered([mark.batch for mark in marks])
    values = advantages(rewards_N, groups_N, batches_N).tolist()
    return [Lesson(mark.text, mark.batch, value) for mark, value in zip(marks, values, strict=True)]


def teacher_reward(task: Played, taste: Taste) -> float:
    """What a valid task is worth by the attempts at it, from 0 to 1.

    With r the share of attempts that are right, r ** exponent * (1 - r), over its maximum, which is
    at exponent / (1 + exponent). With 1 it is proportional to the variance of the student's
    rewards, which is what a student can learn from. The published form has 0: 1 - r, and 0 for a
    task that nobody solves; it likes a single success best, which may be luck.
    """
    if task.solve_rate == 0:
        return 0.0
    rate, best = task.solve_rate, taste.exponent / (1 + taste.exponent)
    return rate**taste.exponent * (1 - rate) / (best**taste.exponent * (1 - best))


def _numbered(labels: Sequence[Hashable]) -> Tensor:
    """Equal labels as equal numbers."""
    numbers: dict[Hashable, int] = {}
    return torch.tensor([numbers.setdefault(label, len(numbers)) for label in labels])
