"""The target of influence, attempts that end early, and what a solver's halves say."""

import json
import random
from collections.abc import Sequence
from typing import cast

import pytest

from training.match import Text
from training.population import Row
from training.posed import Posed, pose_problems
from training.table import Table
from training.target import Target

PROBLEMS = [{"domain": "x", "depth": 1 + n % 3, "prompt": str(n), "answer": "a"} for n in range(30)]


def posed(*rewards: float) -> Posed:
    texts = [Text(Row(1, [1], [2]), [-0.5], "t") for _ in rewards]
    return Posed(texts, ["right" if reward else "wrong" for reward in rewards], list(rewards))


class Script:
    """A table whose member's n-th attempt at a prompt is given, and which counts what it writes."""

    def __init__(self, attempts: dict[str, str]) -> None:
        self.attempts = attempts
        self.written: list[str] = []

    def write(self, wanted: Sequence[tuple[int, str]], *, seed: int) -> list[Text]:
        texts = []
        for member, prompt in wanted:
            sign = self.attempts[prompt][self.written.count(prompt)]
            self.written.append(prompt)
            texts.append(Text(Row(member, [1], [2]), [-0.5], sign))
        return texts


def test_attempts_end_early_where_they_are_all_worth_the_same() -> None:
    script = Script({"0": "aa------", "1": "bb------", "2": "abbaabab"})
    found = pose_problems(cast(Table, script), 1, PROBLEMS[:3], attempts=8, soundings=2, seed=3)
    assert [len(one.attempts) for one in found] == [2, 2, 8]
    assert [one.sometimes for one in found] == [False, False, True]
    assert found[2].rewards == [1, 0, 0, 1, 1, 0, 1, 0]
    assert found[2].grades.count("right") == 4
    assert len(script.written) == 12


def test_advantages_are_rewards_less_their_mean() -> None:
    answers = posed(1, 0, 0, 1).answers(7)
    assert [answer.advantage for answer in answers] == [0.5, -0.5, -0.5, 0.5]
    assert {answer.question for answer in answers} == {7}


def test_halves_have_every_second_attempt() -> None:
    even, odd = posed(1, 0, 1, 0).halves()
    assert (even.rewards, odd.rewards) == ([1, 1], [0, 0])
    assert not even.sometimes


def test_a_target_remembers_what_was_solved_sometimes_and_forgets_the_oldest() -> None:
    target = Target(PROBLEMS, [], fewest=2, most=8, remembered=3)
    assert target.count == 2
    for n in range(3):
        its = target.draw(2, random.Random(n))
        target.note(its, [posed(1, 0, n), posed(1, 1, 1)])
    kept = target.state()["remembered"]
    assert [one["rewards"] for one in kept] == [[1, 0, 0], [1, 0, 1], [1, 0, 2]]
    target.note(PROBLEMS[:2], [posed(0, 3), posed(0, 0)])
    assert [one["rewards"] for one in target.state()["remembered"]] == [
        [1, 0, 1],
        [1, 0, 2],
        [0, 3],
    ]


def test_a_target_goes_on_from_json_where_it_was() -> None:
    one = Target(PROBLEMS, [], fewest=2, most=8, remembered=3)
    one.note(PROBLEMS[:2], [posed(1, 0), posed(1, 1)])
    other = Target(PROBLEMS, [], fewest=2, most=8, remembered=3)
    other.restore(json.loads(json.dumps(one.state())))
    assert other.state() == one.state()
    assert other.draw(20, random.Random(5)) == one.draw(20, random.Random(5))


def test_a_target_of_domains_that_no_problem_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"wanted target problems of \['y'\]"):
        Target(PROBLEMS, ["y"], fewest=2, most=8, remembered=3)
