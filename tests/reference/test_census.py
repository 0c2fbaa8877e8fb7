"""A census against a step that is counted by hand."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from training.archive import Archive
from training.census import census, likeness
from training.codetasks import Task
from training.complexity import Complexity
from training.match import DUPLICATE, VALID, Order, Played, Proposal, Text
from training.pass_at import mean_pass_at, pass_at
from training.population import Row
from training.teaching import Marked, students_marks

TEACHER, OTHER, STUDENT, BASE = 0, 1, 2, 3


def text(member: int, *probabilities: float) -> Text:
    logprobs = [math.log(p) for p in probabilities]
    return Text(Row(member, [1], [2] * len(logprobs)), logprobs, "x")


def task(depth: int, *, steps: int | None = None, type: str = "deduction") -> Task:
    """Told apart by its depth."""
    return Task(
        type=type,
        prompt=f"{type} {depth}",
        program="",
        detail={},
        shape=f"s{depth}",
        behaviour=f"{type} {depth}",
        complexity=Complexity(depth, 10 * depth, 1, 3, 2, 1, 0.0, 0.0, steps),
        returns="int",
    )


def proposal(author: int, what: Task | str, *probabilities: float, reason: str = VALID) -> Proposal:
    written = text(author, *(probabilities or (0.5,)))
    type = "deduction" if isinstance(what, str) else what.type
    order = Order(0, author, type, "p")
    if isinstance(what, str):
        return Proposal(order, written, None, what)
    return Proposal(order, written, what, reason)


def played(of: Proposal, grades: Sequence[str], *probabilities: float) -> Played:
    assert of.task is not None
    attempts = [text(STUDENT, *(probabilities or (1.0,))) for _ in grades]
    return Played(of, of.task, attempts, list(grades))


@pytest.fixture
def found() -> dict[str, Any]:
    """Five proposals and one of the base; three tasks are played, twice each."""
    shallow = proposal(TEACHER, task(2, steps=4), 0.5, 0.25)
    deep = proposal(OTHER, task(4), 0.5)
    guess = proposal(OTHER, task(6, steps=8, type="induction"), 0.5)
    twice = proposal(OTHER, task(4), 0.5, reason=DUPLICATE)
    bad = proposal(TEACHER, "syntax", 1.0)
    of_base = proposal(BASE, task(9, steps=90), 0.125)
    archive = Archive(10)
    for each in (shallow, deep, guess, of_base):
        assert each.task is not None
        archive.add(each.task, each.order.author)
    games = [
        played(shallow, ["right", "right"], 0.5, 0.5),
        played(deep, ["right", "wrong"], 1.0),
        played(guess, ["malformed", "wrong"], 0.25),
        played(of_base, ["wrong", "wrong"], 1.0),
    ]
    marks = [
        Marked(shallow.written, ("teacher", TEACHER), "p", 0.0),
        Marked(deep.written, ("teacher", OTHER), "p", 1.0),
        Marked(guess.written, ("teacher", OTHER), "p", 0.0),
        Marked(twice.written, ("teacher", OTHER), "p", 0.5),
        Marked(bad.written, ("teacher", TEACHER), "p", -1.0),
    ]
    proposals = [shallow, deep, guess, twice, bad, of_base]
    return census(proposals, games, marks + students_marks(games), archive, base=BASE)


def test_the_bases_own_proposals_are_played_and_not_counted(found: dict[str, Any]) -> None:
    assert found["proposals"] == {"duplicate": 1, "syntax": 1, "valid": 3}
    # Of 2, 4 and 6, not 9.
    assert found["complexity"]["depth"] == 4
    assert found["complexity"]["nodes"] == 40
    assert found["complexity"]["steps"] == 6  # of the two whose steps could be counted
    assert found["complexity"]["halstead_volume"] == 0
    assert found["solve_rates"] == {"none": 2, "some": 1, "all": 1}
    assert found["solve_rate"] == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert found["coverage"] == {"shapes": 4, "behaviours": 4, "cells": 4}
    # Of the two teachers; they share none of their cells.
    assert found["coverage_by_author"] == {"0": 1, "1": 2}
    assert found["overlap"] == 0


def test_means_are_over_texts_and_over_tokens(found: dict[str, Any]) -> None:
    assert found["teacher_reward"] == pytest.approx(0.5 / 5)
    # Right 1, wrong -.5, malformed -1.
    assert found["student_reward"] == pytest.approx((1 + 1 + 1 - 0.5 - 1 - 0.5 - 0.5 - 0.5) / 8)
    assert found["malformed"] == pytest.approx(1 / 8)
    # Teachers' tokens: 1/2, 1/4, 1/2, 1/2, 1/2 and 1: 6 bits over 6.
    assert found["teacher_entropy"] == pytest.approx(math.log(2))
    # Students': twice (1/2, 1/2), 1, 1/4 and 1: 8 bits over 10.
    assert found["student_entropy"] == pytest.approx(0.8 * math.log(2))
    assert found["proposal_tokens"] == pytest.approx(6 / 5)
    assert found["attempt_tokens"] == pytest.approx(10 / 8)


def test_pass_at_k_is_a_mean_over_tasks(found: dict[str, Any]) -> None:
    assert found["pass_at"] == {"1": pytest.approx(1.5 / 4), "2": pytest.approx(2 / 4)}


def test_each_role_is_told_by_type(found: dict[str, Any]) -> None:
    assert found["types"].keys() == {"teacher", "student"}
    teacher, student = found["types"]["teacher"], found["types"]["student"]
    assert teacher.keys() == student.keys() == {"deduction", "induction"}
    assert teacher["deduction"] == {
        "texts": 4,
        "came_of": {"duplicate": 1, "syntax": 1, "valid": 2},
        "reward": pytest.approx(0.5 / 4),
        # Of 0, 1, .5 and -1: squares 2.25 over 4, less the mean's .125 squared.
        "deviation": pytest.approx((2.25 / 4 - 0.125**2) ** 0.5),
        "entropy": pytest.approx(5 * math.log(2) / 5),
        "tokens": 5 / 4,
    }
    assert student["induction"] == {
        "texts": 2,
        "came_of": {"malformed": 1, "wrong": 1},
        "reward": pytest.approx(-0.75),
        "deviation": pytest.approx(0.25),
        "entropy": pytest.approx(2 * math.log(2)),
        "tokens": 1.0,
    }
    assert student["deduction"]["texts"] == 6


def test_a_step_without_a_task_has_nulls() -> None:
    bad = proposal(TEACHER, "syntax")
    found = census([bad], [], [], Archive(1), base=BASE)
    nulls = {name for name, value in found.items() if value is None}
    assert nulls == {
        *("solve_rate", "teacher_reward", "student_reward", "malformed"),
        *("student_entropy", "attempt_tokens", "overlap"),
    }
    assert (found["complexity"], found["pass_at"]) == ({}, {})
    assert found["likeness"] == {"of_one": None, "of_two": None}
    assert found["types"]["teacher"]["deduction"]["reward"] is None


def test_likeness_is_the_chance_that_two_tasks_are_of_one_kind() -> None:
    # Kinds aab and abc: of one author 1 of 3 pairs and 0 of 3; of two 2 * 1 + 1 * 1 of 9.
    one = [proposal(TEACHER, task(depth)) for depth in (1, 1, 2)]
    other = [proposal(OTHER, task(depth)) for depth in (1, 2, 3)]
    found = likeness([*one, *other, proposal(OTHER, "syntax")])
    assert found == {"of_one": pytest.approx(1 / 6), "of_two": pytest.approx(3 / 9)}
    assert likeness(one) == {"of_one": pytest.approx(1 / 3), "of_two": None}
    # A duplicate is of a kind as well.
    twice = proposal(TEACHER, task(2), reason=DUPLICATE)
    assert likeness([*one, twice])["of_one"] == pytest.approx(2 / 6)
    # A type more is another kind.
    assert likeness([one[0], proposal(OTHER, task(1, type="abduction"))])["of_two"] == 0


def test_pass_at_k_by_hand() -> None:
    # 2 of 4 are right. Of 6 pairs one has none: 5/6. Of triples each has one.
    assert [pass_at(k, 4, 2) for k in (1, 2, 3, 4)] == pytest.approx([0.5, 5 / 6, 1, 1])
    assert [pass_at(k, 8, 0) for k in (1, 8)] == [0, 0]
    assert mean_pass_at(6, [6, 0]) == {"1": 0.5, "2": 0.5, "4": 0.5}
    assert mean_pass_at(1, [1]) == {"1": 1.0}
    assert mean_pass_at(4, []) == {}
