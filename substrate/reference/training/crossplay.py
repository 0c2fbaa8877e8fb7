"""Cross-play: every student at tasks of every teacher, and at tasks of earlier cross-plays.

In a match a student meets one teacher; who is better than whom shows where all of them meet. The
tasks of earlier cross-plays are a hall of fame: students that no longer solve them run in circles
with their teachers.

The attempts are outside a run's budget, and leave no trace in the archive: nobody learns from them,
or is chosen by them.
"""

import random
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from training.codetasks import Task
from training.match import VALID, Proposal
from training.table import Table


def cross_play(
    table: Table,
    proposals: Sequence[Proposal],
    teachers: Sequence[int],
    students: Sequence[int],
    hall: list[Task],
    *,
    tasks: int,
    attempts: int,
    seed: int,
) -> dict[str, Any]:
    """Solve rates, as JSON, of students at these places: `fresh` has for each teacher a list with
    those of all students, at up to so many of its own tasks out of the proposals, and nulls for a
    teacher without a task; `earlier` has them at as many tasks of the hall as there are fresh ones
    at most, and is null while it is empty. The fresh tasks then join the hall.
    """
    fresh: list[list[Task]] = []
    for teacher in teachers:
        own = [p.task for p in proposals if p.order.author == teacher and p.reason == VALID]
        fresh.append([task for task in own if task is not None][:tasks])
    dice = random.Random(seed)
    old = dice.sample(hall, min(len(hall), tasks * len(teachers)))
    played = [task for own in fresh for task in own] + old
    each = [(place, task) for place in students for task in played for _ in range(attempts)]
    texts = table.write([(place, task.prompt) for place, task in each], seed=seed, counted=False)
    grades = table.book.judge([task for _, task in each], [text.text for text in texts])
    right = [grade == "right" for grade in grades]

    def rates(first: int, count: int) -> list[float] | list[None]:
        """Of each student, at so many of the tasks that are played."""
        if count == 0:
            return [None] * len(students)
        starts = [(n * len(played) + first) * attempts for n in range(len(students))]
        return [fmean(right[start : start + count * attempts]) for start in starts]

    found: list[list[float] | list[None]] = []
    first = 0
    for own in fresh:
        found.append(rates(first, len(own)))
        first += len(own)
        hall += own
    return {
        "fresh": found,
        "earlier": rates(first, len(old)) if old else None,
        "tasks": [len(own) for own in fresh],
        "tokens": sum(len(text.logprobs) for text in texts),
    }
