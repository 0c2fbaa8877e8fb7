"""Novelty against distances that are counted by hand."""

import random

import pytest

from training.archive import Archive
from training.codetasks import Task
from training.complexity import Complexity
from training.novelty import distance, novelty, pairs_of

# Pairs of node types, without what the trees share: Return-BinOp, BinOp-Name, BinOp-Add ...
ADDS = "def f(x):\n    return x + x"
SUBTRACTS = "def f(x):\n    return x - x"
GIVES = "def f(x):\n    return x"


def task(program: str, number: int) -> Task:
    complexity = Complexity(1, 1, 1, 0, 1, 1, 0.0, 0.0)
    return Task("deduction", f"p{number}", program, {}, "s", f"b{number}", complexity, "int")


def test_the_distance_is_the_share_of_pairs_that_only_one_program_has() -> None:
    shared = {("FunctionDef", "arguments"), ("FunctionDef", "Return"), ("arguments", "arg")}
    assert pairs_of(GIVES) == shared | {("Return", "Name")}
    added = {("Return", "BinOp"), ("BinOp", "Name"), ("BinOp", "Add")}
    assert pairs_of(ADDS) == shared | added
    assert distance(pairs_of(GIVES), pairs_of(ADDS)) == pytest.approx(4 / 7)
    assert distance(pairs_of(ADDS), pairs_of(SUBTRACTS)) == pytest.approx(2 / 7)
    assert distance(pairs_of(ADDS), pairs_of(ADDS)) == 0
    assert distance(frozenset(), frozenset()) == 0


def test_names_and_values_are_no_novelty() -> None:
    assert pairs_of("def f(a):\n    return a + 1") == pairs_of("def f(b):\n    return b + 2")


def test_novelty_is_the_mean_over_tasks_of_the_mean_to_their_nearest() -> None:
    archive = Archive(100)
    for number, program in enumerate((ADDS, SUBTRACTS)):
        archive.add(task(program, number))
    new = [task(GIVES, 2), task(ADDS, 3)]
    for each in new:
        archive.add(each)
    # Of GIVES: 4/7 to both. Of ADDS: 0 and 2/7. What is new itself is no neighbour.
    assert novelty(new, archive, random.Random(0)) == pytest.approx((4 / 7 + 1 / 7) / 2)


def test_without_tasks_or_neighbours_there_is_no_novelty() -> None:
    archive = Archive(100)
    assert novelty([], archive, random.Random(0)) is None
    alone = task(ADDS, 0)
    archive.add(alone)
    assert novelty([alone], archive, random.Random(0)) is None
