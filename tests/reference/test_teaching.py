"""Rewards of teachers and students, and the lessons that are made of them."""

from dataclasses import replace

import pytest

from training.baselines import reinforce_plus_baseline
from training.codetasks import Task
from training.complexity import Complexity
from training.match import DUPLICATE, VALID, Order, Played, Proposal, Text
from training.population import Row
from training.teaching import Taste, lessons, students_marks, teacher_reward, teachers_marks

TEACHER, STUDENT, BASE = 0, 1, 2
PUBLISHED = Taste(exponent=0.0, invalid=-1.0, gap=0.0)
TASK = Task(
    type="deduction",
    prompt="p",
    program="def f(x):\n return x",
    detail={},
    shape="s",
    behaviour="b",
    complexity=Complexity(1, 1, 1, 0, 1, 1, 0.0, 0.0),
    returns="int",
)


def text(member: int) -> Text:
    return Text(Row(member, [1], [2]), [-0.5], "x")


def proposal(author: int, reason: str = VALID) -> Proposal:
    task = TASK if reason in (VALID, DUPLICATE) else None
    return Proposal(Order(0, author, "deduction", "p"), text(author), task, reason)


def played(of: Proposal, *grades: str) -> Played:
    return Played(of, TASK, [text(STUDENT) for _ in grades], list(grades))


def rewards(taste: Taste) -> list[float]:
    """Of a task with 0, 1, 2, 4, 7 and 8 of 8 attempts right."""
    found = []
    for right in (0, 1, 2, 4, 7, 8):
        grades = ["right"] * right + ["wrong"] * (8 - right)
        found.append(teacher_reward(played(proposal(TEACHER), *grades), taste))
    return found


def test_as_published_the_hardest_task_that_is_ever_solved_is_worth_most() -> None:
    assert rewards(PUBLISHED) == [0.0, 0.875, 0.75, 0.5, 0.125, 0.0]


def test_with_an_exponent_of_one_the_task_that_is_solved_half_the_time_is_worth_most() -> None:
    # rate (1 - rate) over its maximum, 1/4.
    assert rewards(replace(PUBLISHED, exponent=1.0)) == [0.0, 0.4375, 0.75, 1.0, 0.4375, 0.0]
    # With 3 the best is 3/4: at 1/2 it is .5 ** 3 * .5 over .75 ** 3 * .25 = .0625 / .10546875.
    third = rewards(replace(PUBLISHED, exponent=3.0))[3]
    assert third == pytest.approx(16 / 27)


def test_proposals_are_marked_by_the_attempts_at_their_own_task() -> None:
    hard, easy, twice = proposal(TEACHER), proposal(TEACHER), proposal(TEACHER, DUPLICATE)
    bad, of_base = proposal(TEACHER, "malformed"), proposal(BASE)
    graded = [
        played(easy, "right", "right"),
        played(hard, "right", "wrong"),
        played(of_base, "right", "wrong"),
    ]
    taste = replace(PUBLISHED, exponent=1.0, invalid=-0.25)
    marks = teachers_marks([hard, easy, twice, bad, of_base], graded, taste, base=BASE)
    assert [mark.reward for mark in marks] == [1.0, 0.0, 0.0, -0.25]
    assert {(mark.batch, mark.group) for mark in marks} == {(("teacher", TEACHER), "p")}


def test_an_invalid_proposal_is_worse_only_where_a_task_is_better() -> None:
    easy, bad, useful = proposal(TEACHER), proposal(TEACHER, "malformed"), proposal(TEACHER)
    taste = replace(PUBLISHED, exponent=1.0, invalid=0.0, gap=0.5)
    graded = [played(easy, "right", "right")]
    alike = teachers_marks([easy, bad], graded, taste, base=BASE)
    assert [mark.reward for mark in alike] == [0.0, 0.0]
    graded.append(played(useful, "right", "wrong"))
    found = teachers_marks([easy, bad, useful], graded, taste, base=BASE)
    assert [mark.reward for mark in found] == [0.0, -0.5, 1.0]
    assert teachers_marks([bad], [], taste, base=BASE)[0].reward == 0.0
    # Another teacher's tasks are no measure of its own.
    stranger = proposal(STUDENT, "malformed")
    found = teachers_marks([easy, bad, useful, stranger], graded, taste, base=BASE)
    assert found[-1].reward == 0.0


def test_attempts_are_marked_by_their_grade_and_grouped_by_task() -> None:
    tasks = [played(proposal(TEACHER), "right", "wrong"), played(proposal(BASE), "malformed")]
    marks = students_marks(tasks)
    assert [(mark.reward, mark.group) for mark in marks] == [(1.0, 0), (-0.5, 0), (-1.0, 1)]
    assert [mark.group for mark in students_marks(tasks, by_task=False)] == ["deduction"] * 3


def test_lessons_compare_within_a_group_and_scale_within_a_batch() -> None:
    hard, easy = proposal(TEACHER), proposal(TEACHER)
    tasks = [played(hard, "right", "wrong"), played(easy, "right", "right")]
    marks = students_marks(tasks)
    marks += teachers_marks([hard, easy], tasks, replace(PUBLISHED, exponent=1.0), base=BASE)
    found = lessons(marks, reinforce_plus_baseline)
    # The student's, centred: .75, -.75, 0, 0, of deviation sqrt(2 * .75 ** 2 / 3) = .6123724.
    # The teacher's, which do not mix with them: 1 and 0, of deviation sqrt(.5).
    wanted = [0.75 / 0.6123724, -0.75 / 0.6123724, 0.0, 0.0, 0.5**0.5, -(0.5**0.5)]
    assert [lesson.advantage for lesson in found] == pytest.approx(wanted, rel=1e-5)
    assert [lesson.batch for lesson in found[3:5]] == [("student", STUDENT), ("teacher", TEACHER)]
