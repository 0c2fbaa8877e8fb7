"""What was posed to a solver: a question or a problem, by its attempts and what they earned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from training import world
from training.match import Text
from training.mirror import Answer
from training.population import Row
from training.questionbook import Questionbook
from training.questions import Question
from training.seeds import seed_of
from training.table import Table


@dataclass(frozen=True)
class Posed:
    """A question or a target problem with the solver's attempts at it."""

    attempts: list[Text]
    grades: list[str]
    rewards: list[float]

    @staticmethod
    def of(kept: dict[str, Any]) -> "Posed":
        """What `dataclasses.asdict` made this of, by way of JSON."""
        texts = [
            Text(Row(**text["row"]), text["logprobs"], text["text"]) for text in kept["attempts"]
        ]
        return Posed(texts, kept["grades"], kept["rewards"])

    @property
    def sometimes(self) -> bool:
        """Whether attempts differ in worth: else there is nothing to learn from them."""
        return len(set(self.rewards)) > 1

    def halves(self) -> tuple["Posed", "Posed"]:
        """Every second attempt, and the others."""
        even, odd = (
            Posed(self.attempts[n::2], self.grades[n::2], self.rewards[n::2]) for n in (0, 1)
        )
        return even, odd

    def answers(self, number: int) -> list[Answer]:
        """The attempts with Dr.GRPO's advantages (Liu et al., arXiv 2503.20783), as answers to
        question `number` of a batch.
        """
        mean = fmean(self.rewards)
        pairs = zip(self.attempts, self.rewards, strict=True)
        return [Answer(number, text, reward - mean) for text, reward in pairs]


def pose_problems(
    table: Table,
    member: int,
    problems: Sequence[Mapping[str, Any]],
    *,
    attempts: int,
    soundings: int,
    seed: int,
) -> list[Posed]:
    """A member's attempts at problems, judged by the world. See `_pose`."""

    def judge(number: int, texts: Sequence[Text]) -> tuple[list[str], list[float]]:
        rewards = [world.reward(problems[number], text.text) for text in texts]
        return ["right" if reward == 1 else "wrong" for reward in rewards], rewards

    prompts = [problem["prompt"] for problem in problems]
    return _pose(table, member, prompts, judge, attempts, soundings, seed)


def pose_questions(
    table: Table,
    member: int,
    questions: Sequence[Question],
    book: Questionbook,
    *,
    labels: str,
    mid_eos: float,
    max_tokens: int,
    attempts: int,
    soundings: int,
    seed: int,
) -> list[Posed]:
    """A member's attempts at questions, judged by their keys, or with `labels` "majority" by what
    most of them say. One of fewer than `max_tokens` that has no answer earns `mid_eos` less.
    """

    def judge(number: int, texts: Sequence[Text]) -> tuple[list[str], list[float]]:
        question, written = questions[number], [text.text for text in texts]
        if labels == "majority":
            grades = book.vote(question, written)
        else:
            grades = book.judge([question] * len(written), written)
        rewards = [float(grade == "right") for grade in grades]
        for place, (grade, text) in enumerate(zip(grades, texts, strict=True)):
            if grade == "malformed" and len(text.logprobs) < max_tokens:
                rewards[place] -= mid_eos
        return grades, rewards

    prompts = [question.prompt for question in questions]
    return _pose(table, member, prompts, judge, attempts, soundings, seed)


def _pose(
    table: Table,
    member: int,
    prompts: Sequence[str],
    judge: Callable[[int, Sequence[Text]], tuple[list[str], list[float]]],
    attempts: int,
    soundings: int,
    seed: int,
) -> list[Posed]:
    """`soundings` attempts at each prompt, and where these are not all worth the same, more, up to
    `attempts`: what is always or never solved costs little. `judge` gives grades and rewards of
    attempts at the prompt of that number.
    """
    first = _write(table, member, prompts, soundings, seed_of(seed, 0, "soundings"))
    found = [Posed(texts, *judge(n, texts)) for n, texts in enumerate(first)]
    unsettled = [n for n, posed in enumerate(found) if posed.sometimes]
    more = _write(
        table,
        member,
        [prompts[n] for n in unsettled],
        attempts - soundings,
        seed_of(seed, 0, "further attempts"),
    )
    for n, texts in zip(unsettled, more, strict=True):
        every = [*found[n].attempts, *texts]
        found[n] = Posed(every, *judge(n, every))
    return found


def _write(
    table: Table, member: int, prompts: Sequence[str], number: int, seed: int
) -> list[list[Text]]:
    texts = table.write([(member, prompt) for prompt in prompts for _ in range(number)], seed=seed)
    return [texts[n * number : (n + 1) * number] for n in range(len(prompts))]
