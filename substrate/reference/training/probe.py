"""A probe of scores: the true influence of some questions. A training step on each one alone is
taken, its effect on the target measured, and undone.

It tells whether scores, which are of first order and know neither momentum nor clipping, mean what
they say. The effect is the change of the log-likelihood of the target problems' own answers, of
problems that neither the scores nor a step has seen: no sampling, little noise.

Shapes are suffixes: P numbers of a member, Q questions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from training.influence import Influence, SecondMoment, influence, target_gradient
from training.mirror import Answer, Mirror
from training.population import Row
from training.posed import Posed
from training.reliability import score_reliability


@dataclass(frozen=True)
class Step:
    """The step that a member would take: from these factors, with these moments of `MemberAdam`."""

    member: int
    adapter: Mapping[str, Tensor]
    moments: Mapping[str, Tensor]
    rate: float
    betas: tuple[float, float]
    clip_norm: float
    normaliser: float


def probe(
    mirror: Mirror,
    scores: Sequence[float],
    answers: Sequence[Answer],
    targets: Sequence[Row],
    step: Step,
    *,
    number: int,
) -> dict[str, Any]:
    """Scores beside the true influence of `number` questions, spread over the scores' range.

    `scores` are those of questions 0, 1 ... of the answers.
    """
    order = sorted(range(len(scores)), key=lambda n: scores[n])
    count = min(number, len(order))
    chosen = sorted({order[n * (len(order) - 1) // max(count - 1, 1)] for n in range(count)})
    changes = true_influence(mirror, answers, chosen, targets, step)
    scored = [scores[n] for n in chosen]
    correlation = rank_correlation(scored, changes)
    return {"scores": scored, "changes": changes, "rank_correlation": correlation}


def halved_reliability(
    mirror: Mirror,
    posed: Sequence[Posed],
    target: Mapping[str, Tensor],
    moment: SecondMoment,
    score: Callable[[Influence], Tensor],
    normaliser: float,
) -> float:
    """The reliability of scores, from those by every second attempt and by the others. 0 where
    fewer than 3 questions were solved sometimes in both halves.
    """
    both = [one.halves() for one in posed if all(half.sometimes for half in one.halves())]
    if len(both) < 3:
        return 0.0
    found = []
    for place in (0, 1):
        answers = [a for n, halves in enumerate(both) for a in halves[place].answers(n)]
        batches = mirror.batches(answers, normaliser=normaliser)
        measured = influence(
            mirror.model, batches, questions=len(both), target=target, moment=moment
        )
        found.append(score(measured))
    return score_reliability(*found)


def solutions(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Mapping[str, Any]], member: int
) -> list[Row]:
    """Problems with their own answers, as rows of a member: for worlds whose answers are what a
    solver writes.
    """
    return [
        Row(
            member,
            *(
                tokenizer(problem[name], add_special_tokens=False)["input_ids"]  # pyright: ignore
                for name in ("prompt", "answer")
            ),
        )
        for problem in problems
    ]


def true_influence(
    mirror: Mirror,
    answers: Sequence[Answer],
    questions: Sequence[int],
    targets: Sequence[Row],
    step: Step,
) -> list[float]:
    """For each of these questions the change, in nats a target problem, that one AdamW step on its
    answers makes. The mirror shows the member before and after.
    """
    before = mirror.log_likelihood(targets)
    numbers_P = torch.cat([tensor.flatten() for tensor in step.adapter.values()])
    changes = []
    for question in questions:
        own = [Answer(0, a.text, a.advantage) for a in answers if a.question == question]
        batches = mirror.batches(own, normaliser=step.normaliser)
        gradient = target_gradient(mirror.model, batches, questions=1).gradient
        row_P = nn.Parameter(numbers_P.clone())
        row_P.grad = mirror.as_row(gradient, step.adapter)
        nn.utils.clip_grad_norm_([row_P], step.clip_norm)
        adam = torch.optim.AdamW([row_P], lr=step.rate, betas=step.betas, weight_decay=0.0)
        for key, value in step.moments.items():
            place, _, name = key.partition(".")
            if int(place) == step.member:
                adam.state[row_P][name] = value.clone()
        adam.step()
        shapes = [tensor.shape for tensor in step.adapter.values()]
        parts = row_P.detach().split([shape.numel() for shape in shapes])
        stepped = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        mirror.show(dict(zip(step.adapter, stepped, strict=True)))
        changes.append(mirror.log_likelihood(targets) - before)
        mirror.show(step.adapter)
    return changes


def rank_correlation(one_Q: Sequence[float], other_Q: Sequence[float]) -> float | None:
    """Spearman's; None where there are fewer than 3 or all are equal. Equal values share a rank."""
    if len(one_Q) < 3 or len(set(one_Q)) < 2 or len(set(other_Q)) < 2:
        return None
    both = torch.stack([_ranks(one_Q), _ranks(other_Q)])
    return float(torch.corrcoef(both)[0, 1])


def _ranks(values_Q: Sequence[float]) -> Tensor:
    values = torch.tensor(values_Q, dtype=torch.float64)
    below, equal = values[None] < values[:, None], values[None] == values[:, None]
    return below.sum(1) + (equal.sum(1) - 1) / 2
