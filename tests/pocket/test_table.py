"""The table on the pocket base: who writes, who attempts, who learns when, and what is kept."""

import importlib.util
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch

from training.codetasks import Task
from training.complexity import Complexity
from training.crossplay import cross_play
from training.exam import exam
from training.journal import Job, Journal
from training.lessons import Lesson
from training.match import DUPLICATE, VALID, Order, Proposal, Text
from training.table import Table

POCKET = Path(__file__).parents[2] / "substrate" / "library" / "pocket"
TEACHER, STUDENT, OTHER, BASE = 0, 1, 2, 3
GATHER = {"teacher": 2, "student": 3}


def promptbook() -> Any:
    """Pocket's own, which a fork has in the place of the reference's."""
    path = POCKET / "overlay" / "training" / "promptbook.py"
    spec = importlib.util.spec_from_file_location("promptbook_of_pocket", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Promptbook()


@pytest.fixture
def seated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Table]]:
    """Makes tables of a teacher and two students, with an open journal, in a folder like a fork."""
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    journals: list[Journal] = []
    job = Job(
        recipe="recipes/populora.py",
        seed=3,
        rollouts=10_000,
        tokens=None,
        seconds=100.0,
        threads=1,
        device="cpu",
        base=POCKET / "base",
        target=POCKET / "data" / "target.jsonl",
        rank=4,
        alpha=8.0,
        target_modules=("q_proj", "v_proj"),
        checkpoint=None,
        smoke=False,
    )

    def make() -> Table:
        journals.append(Journal(job).__enter__())
        return Table(
            job,
            journals[-1],
            promptbook(),
            members=3,
            archive=100,
            betas=[0.9, 0.95],
            temperature=1.0,
            max_tokens=60,
        )

    yield make
    for journal in journals:
        journal.__exit__(None, None, None)
    signal.signal(signal.SIGTERM, before)


def orders(author: int, count: int, match: int = 0) -> list[Order]:
    return [Order(match, author, "deduction", "<propose>integers02")] * count


def texts(table: Table, member: int, count: int) -> list[Text]:
    return table.write([(member, "<propose>strings")] * count, seed=1)


def lessons(some: Sequence[Text], role: str, advantages: Sequence[float]) -> list[Lesson]:
    return [
        Lesson(text, (role, text.row.member), advantage)
        for text, advantage in zip(some, advantages, strict=True)
    ]


def learn(table: Table, some: Sequence[Lesson]) -> list[float]:
    _, norms = table.learn(some, [1e-2] * 3, gather=GATHER, clip_norm=1.0, clip_ratio=0.2)
    return norms


def factors(table: Table, place: int) -> torch.Tensor:
    return table.population.factors_G_P[place].clone()


def test_lessons_are_gathered_from_step_to_step_until_there_are_enough(
    seated: Callable[[], Table],
) -> None:
    table = seated()
    before = factors(table, STUDENT)
    some = lessons(texts(table, STUDENT, 5), "student", [1.0, 0.0, -1.0, 0.0, 0.5])
    # Two of three with an advantage: not enough, however many have none.
    assert learn(table, some[:4]) == [0.0, 0.0, 0.0]
    assert torch.equal(factors(table, STUDENT), before)
    norms = learn(table, some[4:])
    assert norms[STUDENT] > 0 and norms[TEACHER] == norms[OTHER] == 0
    # The same as from all of them at once, those without an advantage too.
    at_once = seated()
    assert learn(at_once, some) == norms
    assert torch.equal(factors(table, STUDENT), factors(at_once, STUDENT))
    fewer = seated()
    assert learn(fewer, [lesson for lesson in some if lesson.advantage != 0]) != norms
    # They are used up.
    assert learn(table, some[:1]) == [0.0, 0.0, 0.0]


def test_what_was_taught_is_counted_in_tokens(seated: Callable[[], Table]) -> None:
    table = seated()
    some = texts(table, STUDENT, 4)
    # Sampled as if half as likely: their ratios are 2, past the clip of those that are rewarded.
    unlikely = [replace(text, logprobs=[p - log(2) for p in text.logprobs]) for text in some]
    kept = lessons(some[:2], "student", [1.0, 0.0]) + lessons(unlikely[2:], "student", [1.0, -1.0])
    taught, _ = table.learn(
        kept, [1e-2] * 3, gather={**GATHER, "student": 1}, clip_norm=1.0, clip_ratio=0.2
    )
    length = [len(text.row.completion) for text in some]
    assert taught.tokens == length[0] + length[2] + length[3]
    assert taught.clipped == length[2]


def test_each_member_and_role_gathers_for_itself(seated: Callable[[], Table]) -> None:
    table = seated()
    some = [
        *lessons(texts(table, TEACHER, 2), "teacher", [1.0, -1.0]),
        *lessons(texts(table, STUDENT, 2), "student", [1.0, -1.0]),
        *lessons(texts(table, OTHER, 2), "student", [1.0, -1.0]),
        *lessons(texts(table, STUDENT, 1), "teacher", [1.0]),
    ]
    norms = learn(table, some)
    assert norms[TEACHER] > 0 and norms[STUDENT] == norms[OTHER] == 0


def test_a_newcomer_inherits_neither_moments_nor_lessons(seated: Callable[[], Table]) -> None:
    table, fresh = seated(), seated()
    written = texts(table, STUDENT, 3)
    for place in (STUDENT, OTHER):
        learn(table, lessons(texts(table, place, 3), "student", [1.0, -1.0, 0.5]))
        learn(table, lessons(texts(table, place, 2), "student", [1.0, -1.0]))
    child = fresh.population.adapter(STUDENT)
    table.replace(STUDENT, child)
    assert torch.equal(factors(table, STUDENT), factors(fresh, STUDENT))
    moved = {name.partition(".")[0] for name in table.optimiser.state_dict()}
    assert moved == {str(OTHER)}
    # What was gathered is gone: two more are too few. The other member's two and one are enough.
    assert learn(table, lessons(written[:2], "student", [1.0, 0.5])) == [0.0, 0.0, 0.0]
    assert learn(table, lessons(texts(table, OTHER, 1), "student", [1.0]))[OTHER] > 0
    # And it steps as one that never stepped before.
    learn(table, lessons(written[2:], "student", [-1.0]))
    learn(fresh, lessons(written, "student", [1.0, 0.5, -1.0]))
    assert torch.equal(factors(table, STUDENT), factors(fresh, STUDENT))


def test_a_table_goes_on_from_its_checkpoint_as_if_it_had_never_stopped(
    seated: Callable[[], Table],
) -> None:
    table = seated()
    table.propose(orders(TEACHER, 6), seed=5)
    learn(table, lessons(texts(table, STUDENT, 3), "student", [1.0, -1.0, 0.5]))
    later = lessons(texts(table, STUDENT, 3), "student", [1.0, 0.25, -1.0])
    learn(table, later[:2])
    table.journal.step(loss=0.0)
    table.save({"kept": [1, 2]})
    resumed = seated()
    assert resumed.restore(Path("out/checkpoints/000001")) == {"kept": [1, 2]}
    for place in (TEACHER, STUDENT, OTHER):
        assert torch.equal(factors(resumed, place), factors(table, place))
    assert resumed.archive.to_json() == table.archive.to_json()
    assert len(resumed.archive) > 0
    assert (resumed.journal.rollouts, resumed.journal.tokens, resumed.journal.steps) == (
        table.journal.rollouts,
        table.journal.tokens,
        1,
    )
    norms = learn(table, later[2:])
    assert norms[STUDENT] > 0
    assert learn(resumed, later[2:]) == norms
    assert torch.equal(factors(resumed, STUDENT), factors(table, STUDENT))


def test_a_proposal_counts_once(seated: Callable[[], Table]) -> None:
    table = seated()
    first = table.propose(orders(BASE, 12), seed=5)
    assert table.journal.rollouts == 12
    valid = [proposal for proposal in first if proposal.reason == VALID]
    assert len(valid) == len(table.archive) > 0
    again = table.propose(orders(BASE, 12), seed=5)
    assert [p.written.text for p in again] == [p.written.text for p in first]
    for before, after in zip(first, again, strict=True):
        assert after.task == before.task
        wanted = DUPLICATE if before.task is not None else before.reason
        assert after.reason == wanted
    assert table.play(again, {0: STUDENT}, attempts=2, seed=1) == []


def test_a_student_attempts_the_tasks_of_its_own_match(seated: Callable[[], Table]) -> None:
    table = seated()
    wanted = [*orders(BASE, 8, match=0), *orders(BASE, 8, match=1)]
    proposals = table.propose(wanted, seed=5)
    tasks = [proposal for proposal in proposals if proposal.reason == VALID]
    assert {proposal.order.match for proposal in tasks} == {0, 1}
    before = table.journal.rollouts
    played = table.play(proposals, {0: STUDENT, 1: OTHER}, attempts=3, seed=2)
    assert table.journal.rollouts - before == 3 * len(tasks)
    assert [task.proposal for task in played] == tasks
    entries = {entry.task.behaviour: entry for entry in table.archive.entries()}
    for task in played:
        player = STUDENT if task.proposal.order.match == 0 else OTHER
        assert {text.row.member for text in task.attempts} == {player}
        assert len(task.attempts) == len(task.grades) == 3
        assert task.grades == table.book.judge([task.task] * 3, [t.text for t in task.attempts])
        assert task.solve_rate == task.grades.count("right") / 3
        entry = entries[task.task.behaviour]
        assert (entry.attempts, entry.solves) == (3, task.grades.count("right"))


def test_texts_keep_the_tokens_and_probabilities_that_they_were_sampled_with(
    seated: Callable[[], Table],
) -> None:
    table = seated()
    some = [*texts(table, TEACHER, 2), *texts(table, BASE, 2)]
    assert table.journal.tokens == sum(len(text.row.completion) for text in some)
    with torch.no_grad():
        logprobs_N_T, _ = table.population.logprobs([text.row for text in some])
    for text, found_T in zip(some, logprobs_N_T, strict=True):
        assert found_T[: len(text.logprobs)].tolist() == pytest.approx(text.logprobs, abs=1e-4)
    greedy = table.write([(BASE, "<propose>bits")] * 2, seed=1, greedy=True)
    assert greedy[0].text == greedy[1].text
    rollouts = table.journal.rollouts
    table.write([(BASE, "<propose>bits")], seed=1, counted=False)
    assert table.journal.rollouts == rollouts


# Measurements.


def task_of(problem: dict[str, Any]) -> Task:
    """A labelled problem as a task of deduction."""
    return Task(
        type="deduction",
        prompt=problem["prompt"],
        program="",
        detail=problem,
        shape=problem["prompt"],
        behaviour=problem["prompt"],
        complexity=Complexity(1, 1, 1, 0, 1, 1, 0.0, 0.0),
        returns="int",
    )


def problems(depth: int, count: int) -> list[dict[str, Any]]:
    lines = (POCKET / "data" / "target.jsonl").read_text().splitlines()
    found = [problem for problem in map(json.loads, lines) if problem["depth"] == depth]
    return found[:count]


def proposed(table: Table, author: int, problem: dict[str, Any], reason: str = VALID) -> Proposal:
    (text,) = texts(table, author, 1)
    return Proposal(Order(0, author, "deduction", "p"), text, task_of(problem), reason)


def test_all_students_meet_the_tasks_of_all_teachers_and_then_those_of_before(
    seated: Callable[[], Table],
) -> None:
    """The base solves all problems of depth 1 and none of depth 16, and so do its students."""
    table = seated()
    easy, hard = problems(1, 4), problems(16, 2)
    first = [proposed(table, TEACHER, problem) for problem in easy]
    first += [proposed(table, OTHER, problem) for problem in hard]
    first.append(proposed(table, BASE, hard[0]))
    first.append(proposed(table, OTHER, easy[0], DUPLICATE))
    hall: list[Task] = []
    counted = table.journal.rollouts
    teachers, students = [TEACHER, OTHER], [STUDENT, BASE]
    sizes = {"tasks": 3, "attempts": 2, "seed": 1}
    found = cross_play(table, first, teachers, students, hall, **sizes)
    assert found["fresh"] == [[1.0, 1.0], [0.0, 0.0]]
    assert (found["earlier"], found["tasks"]) == (None, [3, 2])
    assert [task.prompt for task in hall] == [p["prompt"] for p in (*easy[:3], *hard)]
    # In the second one the first teacher has no task, and all five earlier ones are met again.
    found = cross_play(table, first[4:6], teachers, students, hall, **sizes)
    assert found["fresh"] == [[None, None], [0.0, 0.0]]
    assert found["earlier"] == [pytest.approx(3 / 5)] * 2
    assert len(hall) == 7
    assert table.journal.rollouts == counted
    assert len(table.archive) == 0
    nothing = cross_play(table, [], teachers, students, [], **sizes)
    assert nothing["fresh"] == [[None, None], [None, None]]


def test_an_exam_counts_right_attempts_of_each_member_outside_the_budget(
    seated: Callable[[], Table],
) -> None:
    """With the letter of the answer wanted, as the reference's world has it."""
    table = seated()
    table.population.factors_G_P[OTHER] += 1.0  # babbles
    counted = table.journal.rollouts
    found = exam(table, [STUDENT, OTHER], problems(1, 3), attempts=4, seed=1)
    assert found["pass_at"] == {"1": [1.0, 0.0], "2": [1.0, 0.0], "4": [1.0, 0.0]}
    assert (found["problems"], found["attempts"], found["agreement"]) == (3, 4, 0.0)
    assert found["tokens"] > 0
    assert table.journal.rollouts == counted
    alike = exam(table, [STUDENT, BASE], problems(1, 3), attempts=1, seed=1)
    assert alike["agreement"] == 1.0
    assert exam(table, [STUDENT], problems(1, 3), attempts=1, seed=1)["agreement"] is None
