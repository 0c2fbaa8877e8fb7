"""The archive: tasks that were written, each once, and what became of them.

A task is added once and for all: one of the same behaviour is never added again, even after the
first was evicted, nor is one of the same prompt (two inputs of a program with one output are one
task of abduction). At its capacity the archive evicts, for each task that it takes in, one that is
drawn uniformly from all tasks, the newcomer too, in cells that hold at least as many as the mean
cell; a cell is a type, a syntax tree's depth and a cyclomatic complexity. So rare kinds of tasks
stay, common ones are renewed, and it never freezes on the oldest, as Absolute Zero's buffers do
(arXiv 2505.03335, whose cap keeps the first tasks that came).

A task that nobody has solved in `patience` attempts is evicted as well: it may be impossible or
merely opaque, and as a reference for new tasks it would teach teachers to write such.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean
from typing import Any

from training.codetasks import TYPES, Task

PATIENCE = 8  # attempts without a success: one student, with as many as Absolute Zero asks for


@dataclass(frozen=True)
class Entry:
    """A task in the archive with its record."""

    task: Task
    attempts: int = 0
    solves: int = 0


class Archive:
    """At most `capacity` tasks. Nothing in it depends on the clock or on hashes' seeds."""

    def __init__(self, capacity: int, *, patience: int = PATIENCE, seed: int = 0) -> None:
        if capacity < 1 or patience < 1:
            raise ValueError(
                f"wanted a capacity and a patience of 1 or more, found {capacity} and {patience}"
            )
        self._capacity, self._patience, self._seed = capacity, patience, seed
        self._entries: list[Entry] = []
        self._places: dict[str, int] = {}  # in _entries, by behaviour
        self._cells: Counter[tuple[str, int, int]] = Counter()
        self._evictions = 0  # of those for room: each has dice of its own
        # All that ever were, in order of appearance.
        self._behaviours: dict[str, None] = {}
        self._prompts: dict[str, None] = {}
        self._shapes: dict[str, None] = {}
        self._kinds: dict[tuple[int, int, str], None] = {}
        self._authors: dict[int, dict[tuple[int, int, str], None]] = {}  # whose kinds these were

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, task: Task) -> bool:
        """Whether it, or one that it is the same as, was ever added, evicted or not."""
        return task.behaviour in self._behaviours or _read_by(task) in self._prompts

    def entries(self) -> list[Entry]:
        """What is in it, in an order that means nothing and a resumed archive has too."""
        return list(self._entries)

    def add(self, task: Task, author: int = 0) -> bool:
        """Take a task in; False, and nothing else, if it is no new one. `author` is a number."""
        if task in self:
            return False
        self._behaviours[task.behaviour] = None
        self._prompts[_read_by(task)] = None
        self._shapes[task.shape] = None
        kind = (task.complexity.depth, task.complexity.cyclomatic, task.returns)
        self._kinds[kind] = None
        self._authors.setdefault(author, {})[kind] = None
        self._places[task.behaviour] = len(self._entries)
        self._entries.append(Entry(task))
        self._cells[_cell(task)] += 1
        if len(self._entries) > self._capacity:
            self._evict(self._common_place())
        return True

    def record(self, task: Task, *, attempts: int, solves: int) -> None:
        """Note attempts at a task and how many were right. One that is no more in it is passed
        over; one that was never solved in `patience` attempts is evicted.
        """
        if not 0 <= solves <= attempts:
            raise ValueError(
                f"wanted as many solves as attempts or fewer, found {solves} of {attempts}"
            )
        place = self._places.get(task.behaviour)
        if place is None:
            return
        entry = self._entries[place]
        entry = replace(entry, attempts=entry.attempts + attempts, solves=entry.solves + solves)
        self._entries[place] = entry
        if entry.solves == 0 and entry.attempts >= self._patience:
            self._evict(place)

    def references(
        self, count: int, dice: random.Random, types: Collection[str] = TYPES
    ) -> list[Task]:
        """So many tasks of these types, or all if there are fewer, uniformly without replacement.

        Uniformly, as Absolute Zero draws them: recent ones first would narrow what comes next.
        """
        held = sum(number for cell, number in self._cells.items() if cell[0] in types)
        if held <= count:
            found = [entry.task for entry in self._entries if entry.task.type in types]
            return dice.sample(found, held)
        drawn: dict[int, Task] = {}
        while len(drawn) < count:
            place = dice.randrange(len(self._entries))
            task = self._entries[place].task
            if task.type in types:
                drawn[place] = task
        return list(drawn.values())

    def replay(self, count: int, dice: random.Random, types: Collection[str] = TYPES) -> list[Task]:
        """The same of those tasks that were solved, but not at every attempt: what a student can
        still learn from.
        """
        found = [
            entry.task
            for entry in self._entries
            if 0 < entry.solves < entry.attempts and entry.task.type in types
        ]
        return dice.sample(found, min(count, len(found)))

    def coverage(self) -> dict[str, int]:
        """How many different shapes, behaviours, and cells of depth, cyclomatic complexity and
        type of output were ever added.
        """
        return {
            "shapes": len(self._shapes),
            "behaviours": len(self._behaviours),
            "cells": len(self._kinds),
        }

    def coverage_by_author(self) -> dict[int, int]:
        """How many of these cells each author has reached with a new task, by its number."""
        return {author: len(kinds) for author, kinds in sorted(self._authors.items())}

    def overlap(self, authors: Collection[int]) -> float | None:
        """Jaccard's index of the cells of two authors, the mean over pairs of those that have any;
        None where there is no such pair.
        """
        reached = [set(self._authors[each]) for each in authors if self._authors.get(each)]
        pairs = [len(one & two) / len(one | two) for one, two in combinations(reached, 2)]
        return fmean(pairs) if pairs else None

    def to_json(self) -> dict[str, Any]:
        """All of it, from which it goes on exactly."""
        return {
            "capacity": self._capacity,
            "patience": self._patience,
            "seed": self._seed,
            "evictions": self._evictions,
            "entries": [
                {"task": entry.task.to_json(), "attempts": entry.attempts, "solves": entry.solves}
                for entry in self._entries
            ],
            "behaviours": list(self._behaviours),
            "prompts": list(self._prompts),
            "shapes": list(self._shapes),
            "cells": [list(kind) for kind in self._kinds],
            "authors": [[author, [*map(list, its)]] for author, its in self._authors.items()],
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> "Archive":
        """The archive whose `to_json` this is. Raises KeyError or TypeError for what is none."""
        archive = Archive(found["capacity"], patience=found["patience"], seed=found["seed"])
        archive._evictions = found["evictions"]
        for row in found["entries"]:
            entry = Entry(Task.from_json(row["task"]), row["attempts"], row["solves"])
            archive._places[entry.task.behaviour] = len(archive._entries)
            archive._entries.append(entry)
            archive._cells[_cell(entry.task)] += 1
        archive._behaviours = dict.fromkeys(found["behaviours"])
        archive._prompts = dict.fromkeys(found["prompts"])
        archive._shapes = dict.fromkeys(found["shapes"])
        archive._kinds = dict.fromkeys((d, c, name) for d, c, name in found["cells"])
        archive._authors = {
            author: dict.fromkeys((d, c, name) for d, c, name in its)
            for author, its in found["authors"]
        }
        return archive

    def _common_place(self) -> int:
        """Where a task stands that is drawn uniformly from those in common cells.

        Draws from all until one is of such a cell: some cell always is, and mostly it is large.
        """
        dice = random.Random(self._seed * 1_000_003 + self._evictions)
        self._evictions += 1
        mean = len(self._entries) / len(self._cells)
        while True:
            place = dice.randrange(len(self._entries))
            if self._cells[_cell(self._entries[place].task)] >= mean:
                return place

    def _evict(self, place: int) -> None:
        """Take a task out; the last one takes its place."""
        gone = self._entries[place]
        last = self._entries.pop()
        if place < len(self._entries):
            self._entries[place] = last
            self._places[last.task.behaviour] = place
        del self._places[gone.task.behaviour]
        cell = _cell(gone.task)
        self._cells[cell] -= 1
        if self._cells[cell] == 0:
            del self._cells[cell]


def _cell(task: Task) -> tuple[str, int, int]:
    return task.type, task.complexity.depth, task.complexity.cyclomatic


def _read_by(task: Task) -> str:
    """A hash of what a student reads."""
    return hashlib.sha256(task.prompt.encode("utf-8", "surrogatepass")).hexdigest()[:32]
