"""The archive: what it keeps, what it lets go, and that it goes on exactly."""

import hashlib
import json
import random
from collections import Counter
from typing import Any

import pytest

from training.archive import Archive
from training.codetasks import Task
from training.complexity import Complexity


def task(number: int, *, type: str = "deduction", cell: int = 0, **changes: Any) -> Task:
    """A task of its own; `cell` makes the depth and the cyclomatic complexity."""
    digest = hashlib.sha256(str(number).encode()).hexdigest()[:32]
    complexity = Complexity(5 + cell, 9, 1 + cell % 3, 0, 2, 1, 18.1, 36.2, number)
    found: dict[str, Any] = {
        "type": type,
        "prompt": f"task {number}",
        "program": f"def f(x):\n    return x + {number}",
        "detail": {"input": "1", "output": str(number + 1)},
        "shape": digest,
        "behaviour": digest,
        "complexity": complexity,
        "returns": "int",
    }
    return Task(**{**found, **changes})


def numbers(archive: Archive) -> list[int]:
    """The numbers of the tasks that are in an archive."""
    return sorted(int(entry.task.prompt.split()[1]) for entry in archive.entries())


# --- each task once


def test_a_task_is_added_once_and_known_from_then_on() -> None:
    archive = Archive(10)
    assert task(1) not in archive
    assert archive.add(task(1))
    assert task(1) in archive
    assert not archive.add(task(1))
    assert len(archive) == 1


def test_a_task_of_known_behaviour_is_none_and_one_of_known_shape_is() -> None:
    archive = Archive(10)
    archive.add(task(1))
    assert not archive.add(task(2, behaviour=task(1).behaviour))
    assert archive.add(task(3, shape=task(1).shape))
    assert archive.coverage() == {"shapes": 1, "behaviours": 2, "cells": 1}


def test_a_task_that_students_would_read_as_one_they_know_is_none() -> None:
    archive = Archive(10)
    archive.add(task(1))
    assert not archive.add(task(2, prompt=task(1).prompt))


# --- room


def test_at_its_capacity_it_evicts_one_for_each_that_it_takes_in() -> None:
    archive = Archive(5)
    for number in range(20):
        assert archive.add(task(number))
        assert len(archive) == min(number + 1, 5)
    assert len(set(numbers(archive))) == 5


def test_what_was_evicted_is_not_new_again() -> None:
    archive = Archive(1)
    archive.add(task(0))
    archive.add(task(1))
    assert len(archive) == 1
    assert not archive.add(task(0))
    assert not archive.add(task(1))
    assert archive.coverage()["behaviours"] == 2


def test_neither_the_oldest_nor_the_newest_are_what_it_keeps() -> None:
    # 400 archives of 50 that saw 100 tasks of one cell. Task n stays with probability
    # (50/51) ** min(100 - n, 50): the newcomer is drawn like the others.
    stayed = Counter[int]()
    for seed in range(400):
        archive = Archive(50, seed=seed)
        for number in range(100):
            archive.add(task(number))
        stayed.update(numbers(archive))
    oldest = sum(stayed[n] for n in range(50)) / (400 * 50)
    newest = sum(stayed[n] for n in range(90, 100)) / (400 * 10)
    assert oldest == pytest.approx((50 / 51) ** 50, abs=0.02)
    expected = sum((50 / 51) ** n for n in range(1, 11)) / 10
    assert newest == pytest.approx(expected, abs=0.02)
    assert stayed[99] < 400


def test_rare_kinds_of_tasks_stay_and_common_ones_make_room() -> None:
    archive = Archive(100)
    for number in range(10):
        archive.add(task(number, cell=1))
        archive.add(task(100 + number, type="abduction", cell=2))
    for number in range(1000, 3000):
        archive.add(task(number, cell=0))
    # The mean cell has 100 / 3 tasks: only cell 0 is at or above it.
    kept = numbers(archive)
    assert set(range(10)) | set(range(100, 110)) <= set(kept)
    assert len(kept) == 100


def test_cells_that_hold_alike_are_evicted_from_alike() -> None:
    held = Counter[int]()
    for seed in range(200):
        archive = Archive(20, seed=seed)
        for number in range(40):
            archive.add(task(number, cell=number % 4))
        held.update(n % 4 for n in numbers(archive))
    assert all(abs(count - 1000) < 100 for count in held.values())


def test_twenty_thousand_tasks_with_as_many_evictions_keep_its_books_in_order() -> None:
    archive = Archive(1000)
    dice = random.Random(0)
    for number in range(20_000):
        archive.add(task(number, cell=min(int(dice.expovariate(0.2)), 40)))
    assert len(archive) == 1000
    assert archive.coverage() == {"shapes": 20_000, "behaviours": 20_000, "cells": 41}
    for entry in archive.entries():
        archive.record(entry.task, attempts=8, solves=0)
    assert len(archive) == 0


# --- records


def test_records_add_up() -> None:
    archive = Archive(10, patience=8)
    archive.add(task(1))
    archive.record(task(1), attempts=4, solves=1)
    archive.record(task(1), attempts=8, solves=0)
    (entry,) = archive.entries()
    assert (entry.attempts, entry.solves) == (12, 1)


def test_a_task_that_nobody_solves_goes_when_patience_ends() -> None:
    archive = Archive(10, patience=8)
    for number in range(3):
        archive.add(task(number))
    archive.record(task(0), attempts=7, solves=0)
    archive.record(task(1), attempts=8, solves=1)
    assert numbers(archive) == [0, 1, 2]
    archive.record(task(0), attempts=1, solves=0)
    assert numbers(archive) == [1, 2]
    assert not archive.add(task(0))
    archive.record(task(0), attempts=8, solves=8)  # it is passed over
    assert numbers(archive) == [1, 2]


def test_records_go_to_the_right_task_after_others_were_evicted() -> None:
    archive = Archive(10, patience=8)
    for number in range(5):
        archive.add(task(number))
    archive.record(task(0), attempts=8, solves=0)
    archive.record(task(4), attempts=8, solves=3)
    archive.record(task(2), attempts=8, solves=2)
    solves = {entry.task.prompt: entry.solves for entry in archive.entries()}
    assert solves == {"task 1": 0, "task 2": 2, "task 3": 0, "task 4": 3}


@pytest.mark.parametrize(("attempts", "solves"), [(1, 2), (4, -1), (-1, 0)])
def test_a_record_that_cannot_be_is_refused(attempts: int, solves: int) -> None:
    archive = Archive(10)
    archive.add(task(1))
    with pytest.raises(ValueError, match="as many solves as attempts or fewer"):
        archive.record(task(1), attempts=attempts, solves=solves)


def test_an_archive_without_room_or_patience_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity and a patience of 1 or more, found 0 and 8"):
        Archive(0)
    with pytest.raises(ValueError, match="found 5 and 0"):
        Archive(5, patience=0)


# --- draws


def test_references_are_drawn_uniformly_and_none_twice() -> None:
    archive = Archive(100)
    for number in range(10):
        archive.add(task(number, cell=number))
    drawn = Counter[str]()
    for seed in range(2000):
        found = archive.references(3, random.Random(seed))
        assert len({one.prompt for one in found}) == 3
        drawn.update(one.prompt for one in found)
    # 600 each, with a standard deviation of about 20.
    assert all(abs(count - 600) < 100 for count in drawn.values())


def test_references_are_of_the_types_asked_for_and_fewer_where_there_are_fewer() -> None:
    archive = Archive(100)
    for number, type in enumerate(["deduction", "abduction", "abduction", "induction"]):
        archive.add(task(number, type=type))
    dice = random.Random(0)
    assert [one.type for one in archive.references(6, dice, ["abduction"])] == ["abduction"] * 2
    assert len(archive.references(6, dice)) == 4
    assert len(archive.references(2, dice, ["deduction", "abduction"])) == 2
    assert Archive(5).references(6, dice) == []


def test_replayed_tasks_are_solved_sometimes() -> None:
    archive = Archive(100, patience=100)
    for number, solves in enumerate([0, 1, 7, 8]):
        archive.add(task(number))
        archive.record(task(number), attempts=8, solves=solves)
    archive.add(task(9))  # never attempted
    dice = random.Random(0)
    assert sorted(one.prompt for one in archive.replay(10, dice)) == ["task 1", "task 2"]
    assert len(archive.replay(1, dice)) == 1
    assert archive.replay(1, dice, ["induction"]) == []


def test_cells_of_coverage_are_depth_cyclomatic_and_type_of_output() -> None:
    archive = Archive(1)
    archive.add(task(1))
    archive.add(task(2, returns="str"))
    archive.add(task(3, cell=1))
    archive.add(task(4, cell=1, type="abduction"))
    assert archive.coverage()["cells"] == 3


# --- going on


def test_an_archive_that_was_written_and_read_back_goes_on_as_if_it_had_not_been() -> None:
    one = Archive(50, patience=8, seed=3)
    dice = random.Random(1)
    for number in range(300):
        one.add(task(number, cell=dice.randrange(6)))
        if number % 7 == 0:
            entry = dice.choice(one.entries())
            one.record(entry.task, attempts=8, solves=dice.choice([0, 3]))
    written = json.dumps(one.to_json())
    other = Archive.from_json(json.loads(written))
    assert json.dumps(other.to_json()) == written
    assert other.entries() == one.entries()
    for archive in (one, other):
        again = random.Random(2)
        for number in range(200, 500):
            archive.add(task(number, cell=again.randrange(6)))
        for entry in archive.entries()[::3]:
            archive.record(entry.task, attempts=8, solves=again.choice([0, 1]))
    assert json.dumps(other.to_json()) == json.dumps(one.to_json())
    assert other.coverage() == one.coverage()
    assert other.references(9, random.Random(5)) == one.references(9, random.Random(5))
    assert other.replay(9, random.Random(5)) == one.replay(9, random.Random(5))


def test_another_seed_evicts_others() -> None:
    kept = []
    for seed in (0, 0, 1):
        archive = Archive(20, seed=seed)
        for number in range(100):
            archive.add(task(number))
        kept.append(numbers(archive))
    assert kept[0] == kept[1] != kept[2]
