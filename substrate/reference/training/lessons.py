"""Lessons: what members learn from their own texts, all members in one pass."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from training.loss import clipped_loss
from training.match import Text
from training.population import Population, Row

ROW_TOKENS = 16384  # of the rows, padding included, that go through the model at once


@dataclass(frozen=True)
class Lesson:
    text: Text
    batch: tuple[str, int]  # the texts whose tokens are averaged over: role, place of the member
    advantage: float

    @staticmethod
    def of(kept: dict[str, Any]) -> "Lesson":
        """The lesson of which `dataclasses.asdict` made this, by way of JSON."""
        text = kept["text"]
        row = Row(**text["row"])
        return Lesson(
            Text(row, text["logprobs"], text["text"]), tuple(kept["batch"]), kept["advantage"]
        )


@dataclass(frozen=True)
class Taught:
    """What came of lessons."""

    loss: float
    tokens: int = 0  # that have a gradient
    clipped: int = 0  # of them: whose ratio of probabilities is past where it is clipped


def add_gradients(
    population: Population, lessons: Sequence[Lesson], *, clip_ratio: float, temperature: float
) -> Taught:
    """Add the gradient of the clipped policy-gradient loss to the members' factors.

    The loss is the sum over batches of the mean over their tokens (token-mean, as in verl's PPO).
    Lessons of advantage 0 count in that mean; having no gradient, they are not computed.
    """
    tokens = Counter[tuple[str, int]]()
    for lesson in lessons:
        tokens[lesson.batch] += len(lesson.text.row.completion)
    taught = [lesson for lesson in lessons if lesson.advantage != 0]
    total, clipped = 0.0, 0
    for some in _passes(sorted(taught, key=lambda lesson: lesson.text.row.member)):
        logprobs_N_T, mask_N_T = population.logprobs([x.text.row for x in some], temperature)
        old_N_T = torch.zeros_like(logprobs_N_T)
        for n, lesson in enumerate(some):
            old_N_T[n, : len(lesson.text.logprobs)] = torch.tensor(lesson.text.logprobs)
        weights_N = torch.tensor([x.advantage / tokens[x.batch] for x in some])
        loss = clipped_loss(
            logprobs_N_T[:, None],
            old_N_T[:, None],
            weights_N[:, None].to(logprobs_N_T.device),
            mask_N_T[:, None],
            normaliser=1.0,
            epsilon=clip_ratio,
        )
        loss.backward()
        total += float(loss.detach())
        # A gain is clipped where the ratio has gone too far in its advantage's direction.
        gone_N_T = (logprobs_N_T.detach() - old_N_T.to(logprobs_N_T.device)).exp() - 1
        signs_N = weights_N.to(logprobs_N_T.device).sign()
        clipped += int(((gone_N_T * signs_N[:, None] > clip_ratio) * mask_N_T).sum())
    return Taught(total, sum(len(lesson.text.row.completion) for lesson in taught), clipped)


def _passes(lessons: Sequence[Lesson]) -> list[list[Lesson]]:
    """Lessons that go through the model together: in order, in at most ROW_TOKENS tokens."""
    passes: list[list[Lesson]] = []
    widest = 0
    for lesson in lessons:
        width = len(lesson.text.row.prompt) + len(lesson.text.row.completion)
        if passes and (len(passes[-1]) + 1) * max(widest, width) <= ROW_TOKENS:
            passes[-1].append(lesson)
            widest = max(widest, width)
        else:
            passes.append([lesson])
            widest = width
    return passes
