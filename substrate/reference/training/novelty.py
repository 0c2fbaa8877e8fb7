"""Novelty: how far tasks are from their nearest neighbours among those that were written before.

A program is the set of its pairs of a node's type and a child's, in the syntax tree; two programs
are as far apart as the share of the pairs of either that only one has (Jaccard's distance). That
needs no embedding, and neither names nor values nor lengths count. Novelty is the mean distance to
the NEAREST nearest (Lehman and Stanley, Evolutionary Computation 19, 2011).
"""

import random
from collections.abc import Sequence
from statistics import fmean

from training.archive import Archive
from training.codetasks import Task
from training.syntax import parts, read_tree

NEAREST = 8
SAMPLE = 256  # of the archive, drawn uniformly: to look at all of it would take seconds a step

Pairs = frozenset[tuple[str, str]]


def novelty(tasks: Sequence[Task], archive: Archive, dice: random.Random) -> float | None:
    """The mean novelty of tasks; None without any, or where the archive has no other."""
    own = {task.behaviour for task in tasks}
    others = [entry.task for entry in archive.entries() if entry.task.behaviour not in own]
    sample = [pairs_of(task.program) for task in dice.sample(others, min(SAMPLE, len(others)))]
    if not tasks or not sample:
        return None
    return fmean(_novelty(pairs_of(task.program), sample) for task in tasks)


def pairs_of(program: str) -> Pairs:
    """The pairs of node types of a program that was parsed before."""
    found: set[tuple[str, str]] = set()
    pending = [*parts(read_tree(program))]
    while pending:
        node = pending.pop()
        children = [*parts(node)]
        found |= {(type(node).__name__, type(child).__name__) for child in children}
        pending += children
    return frozenset(found)


def distance(one: Pairs, other: Pairs) -> float:
    """The share of all their pairs that only one has; 0 where neither has any."""
    either = len(one | other)
    return len(one ^ other) / either if either else 0.0


def _novelty(pairs: Pairs, sample: Sequence[Pairs]) -> float:
    return fmean(sorted(distance(pairs, other) for other in sample)[:NEAREST])
