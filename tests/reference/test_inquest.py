"""An inquest into a step that is counted by hand."""

import math
from typing import Any

import pytest
import torch

from training.influence import Influence
from training.inquest import inquest, manner
from training.match import Text
from training.passage import Passage
from training.population import Row
from training.posed import Posed
from training.questions import Question

WORTH = {"right": 1.0, "wrong": 0.0, "malformed": 0.0}


def text(words: str, *logprobs: float) -> Text:
    return Text(Row(1, [1], [2] * len(logprobs)), [*logprobs], words)


def question(name: str, document: str) -> Question:
    return Question("free", name, f"{name}?", (), None, "1", "because", document)


def posed(*grades: str, tokens: int = 1) -> Posed:
    attempts = [text("4", *[-0.5] * tokens) for _ in grades]
    return Posed(attempts, [*grades], [WORTH[grade] for grade in grades])


@pytest.fixture
def found() -> dict[str, Any]:
    """Two documents, three completions about each: four questions, three of them scored."""
    one, two = Passage("a", "", kind="deep", topic="x"), Passage("b", "", kind="thin", topic="y")
    q = [question("q0", "a"), question("q1", "a"), question("q2", "b"), question("q3", "b")]
    games = [
        posed("right", "wrong", "wrong", "wrong"),
        posed("right", "right", "wrong", "malformed", tokens=3),
        posed("right", "right", "right", "wrong", tokens=2),
        posed("right", "right"),  # its soundings were alike
    ]
    depths = {"q0": 2, "q1": 4, "q2": 5, "q3": 1}
    measured = Influence(
        dots_Q=torch.tensor([1.0, -2.0, 3.0, 9.0], dtype=torch.float64),
        lengths_Q=torch.tensor([1.0, 2.0, 3.0, 2.0], dtype=torch.float64),
        step_dots_Q=torch.zeros(4, dtype=torch.float64),
        step_lengths_Q=torch.tensor([1.0, 1.0, 1.0, 5.0], dtype=torch.float64),
        target_length=2.0,
        gradient={},
    )
    return inquest(
        lambda q: {
            "depth": depths[q.text],
            "topic": q.document.upper(),
            "key_right": q.text < "q2",
        },
        [one, two],
        [one, one, one, two, two, two],
        [q[0], q[1], "malformed", q[2], q[3], "opt_out"],
        q,
        games,
        {q[0].id: 0.5, q[1].id: -0.25, q[2].id: 0.75},
        measured,
    )


def test_what_was_solved(found: dict[str, Any]) -> None:
    assert found["solve_rates"] == {"none": 0, "some": 3, "all": 1}
    assert found["solve_rate"] == pytest.approx((0.25 + 0.5 + 0.75 + 1) / 4)
    assert found["malformed"] == pytest.approx(1 / 14)
    # pass@2 of 1, 2, 3 and 4 right of 4: 1 - 3/6, 1 - 1/6, 1, 1. Two right of two are four of four.
    assert found["pass_at"] == {
        "1": pytest.approx(0.625),
        "2": pytest.approx((0.5 + 5 / 6 + 1 + 1) / 4),
        "4": 1.0,
    }
    assert found["key_right"] == 0.5
    assert (found["question_depth"], found["useful_depth"]) == (3, pytest.approx(11 / 3))


def test_what_scores_are_and_go_with(found: dict[str, Any]) -> None:
    score = found["score"]
    assert (score["mean"], score["least"], score["most"]) == (pytest.approx(1 / 3), -0.25, 0.75)
    squares = 0.5**2 + 0.25**2 + 0.75**2
    assert score["deviation"] == pytest.approx(math.sqrt(squares / 3 - 1 / 9))
    assert score["positive"] == pytest.approx(2 / 3)
    # Scores rank 2, 1, 3. Cosines: 1/2, -1/2 and 1/2, two of which share a rank.
    assert score["with_cosine"] == pytest.approx(math.sqrt(3) / 2)
    # Variances 3/16, 4/16, 3/16: the middle one is the largest, where the score is the least.
    assert score["with_variance"] == pytest.approx(-math.sqrt(3) / 2)
    assert score["with_malformed"] == pytest.approx(-math.sqrt(3) / 2)
    # Lengths 1, 3, 2 rank 1, 3, 2: deviations -1, 1, 0 against 0, -1, 1.
    assert score["with_length"] == pytest.approx(-0.5)
    assert score["within_document"] == pytest.approx(0.375)  # of .5 and -.25; the other has one
    assert found["lengths"] == {"questions": 2.0, "steps": 2.0, "target": 2.0}


def test_means_by_what_nobody_was_told(found: dict[str, Any]) -> None:
    assert found["valid_by_kind"] == {"deep": pytest.approx(2 / 3), "thin": pytest.approx(2 / 3)}
    assert found["some_by_kind"] == {"deep": 1.0, "thin": 0.5}
    assert found["score_by_kind"] == {"deep": 0.125, "thin": 0.75}
    assert found["score_by_topic"] == {"A": 0.125, "B": 0.75}
    assert found["score_by_depth"] == {"2": 0.5, "4": -0.25, "5": 0.75}
    assert found["score_by_key"] == {"False": 0.75, "True": 0.125}


def test_a_step_without_questions_has_nulls() -> None:
    found = inquest(lambda q: {}, [], [], [], [], [], {}, None)
    assert found["solve_rates"] == {"none": 0, "some": 0, "all": 0}
    assert found["pass_at"] == found["valid_by_kind"] == {}
    nulls = ("solve_rate", "malformed", "key_right", "question_depth", "useful_depth", "lengths")
    assert {found[name] for name in nulls} == {None}
    assert set(found["score"].values()) == {None}


def test_the_manner_of_completions() -> None:
    texts = [text("so it is", -1.0, -2.0), text("so what", -3.0), text("4", -1.0, -1.0), text(" ")]
    assert manner(texts, max_tokens=2) == {
        "tokens": 5 / 4,
        "cut_off": 0.5,
        "surprisal": pytest.approx(8 / 5),
        "opener": 0.5,  # two of four begin with `so`
    }
    assert {*manner([], max_tokens=2).values()} == {None}
