"""Influence: how much a training step on one question would help on the target questions, to first
order, with AdamW's scaling (INFUSER, arXiv 2606.09052, as its authors' code has it).

    target = target_gradient(model, target_batches, questions=100)
    found = influence(model, batches, questions=64, target=target.gradient, moment=moment)
    scores_Q = preconditioned_cosine(found)

With g the gradient of a question's loss, t that of the target questions', and v AdamW's second
moment before the step, the direction of the step is g / (sqrt(v' / (1 - beta2^n)) + epsilon), v'
being v with g in it and n the number of the step. The published score is its cosine with t. The
first moment is left out, since it adds one direction to all questions; so are weight decay, the
learning rate and the clipping of gradients. Both gradients are those of losses, so that a positive
score means that the step lowers the target questions' loss.

Shapes are suffixes: Q questions, U some of them, O and I outputs and inputs of a factor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.question_gradients import MicroBatch, lora_factors, measure_questions

SHORTEST = 1e-12  # lengths below are taken for this: a question without a gradient scores 0


@dataclass(frozen=True)
class SecondMoment:
    """What AdamW knows about the size of gradients, before its next step."""

    values: Mapping[str, Tensor]  # by parameter: its own tensors, which its next step changes
    steps: int  # that were taken
    beta2: float
    epsilon: float


@dataclass(frozen=True)
class TargetGradient:
    """The target questions' gradient, and how long each one's is."""

    gradient: dict[str, Tensor]  # by factor: the sum over the questions
    length: float
    lengths_Q: Tensor  # float64


@dataclass(frozen=True)
class Influence:
    """For each question, all that the scores are made of, (Q,), float64."""

    dots_Q: Tensor  # of the question's gradient and the target's
    lengths_Q: Tensor  # of the question's gradient
    step_dots_Q: Tensor  # of the direction of AdamW's step and the target's gradient
    step_lengths_Q: Tensor  # of that direction
    target_length: float
    gradient: dict[str, Tensor]  # by factor, the questions' sum: what a training step needs


def target_gradient(
    model: nn.Module, micro_batches: Sequence[MicroBatch], *, questions: int
) -> TargetGradient:
    """The gradient that influence is measured against, of the model as it is.

    Errors are those of `measure_questions`.
    """
    found = measure_questions(model, micro_batches, questions=questions, measure=_squared_lengths)
    squares = [gradient.double().square().sum() for gradient in found.gradient.values()]
    length = torch.stack(squares).sum().sqrt().item()
    lengths_Q = found.numbers_Q_K.sum(1).sqrt()
    return TargetGradient(found.gradient, length, lengths_Q)


def influence(
    model: nn.Module,
    micro_batches: Sequence[MicroBatch],
    *,
    questions: int,
    target: Mapping[str, Tensor],
    moment: SecondMoment,
) -> Influence:
    """The influence of each question, of the model as it is: before any step on these questions.

    Each question's loss should have the normaliser of that question alone, for the step is one on
    this question only. Other errors are those of `measure_questions`; raises ValueError where the
    target's gradient or the second moment is of other parameters than the model trains.
    """
    factors = lora_factors(model)
    for what, values in (("a target gradient", target), ("a second moment", moment.values)):
        shapes = {name: tuple(value.shape) for name, value in values.items()}
        wanted = {name: tuple(factor.shape) for name, factor in factors.items()}
        if shapes != wanted:
            differ = sorted(n for n in {*shapes, *wanted} if shapes.get(n) != wanted.get(n))
            raise ValueError(
                f"wanted {what} of the parameters that are trained, found a difference at "
                f"{differ[:3]}; take it from this model and its adapter"
            )

    def measure(name: str, gradients_U_O_I: Tensor) -> Tensor:
        step_U_O_I = adamw_direction(
            gradients_U_O_I,
            moment.values[name],
            steps=moment.steps,
            beta2=moment.beta2,
            epsilon=moment.epsilon,
        )
        target_1_O_I = target[name].to(gradients_U_O_I.dtype)[None]
        pairs = (
            (gradients_U_O_I, target_1_O_I),
            (gradients_U_O_I, gradients_U_O_I),
            (step_U_O_I, target_1_O_I),
            (step_U_O_I, step_U_O_I),
        )
        return torch.stack([_dots(one, other) for one, other in pairs], dim=1)

    found = measure_questions(model, micro_batches, questions=questions, measure=measure)
    numbers_Q_4 = found.numbers_Q_K
    if numbers_Q_4.shape[1] == 0:  # no question has a token
        numbers_Q_4 = numbers_Q_4.new_zeros(questions, 4)
    squares = [gradient.double().square().sum() for gradient in target.values()]
    return Influence(
        dots_Q=numbers_Q_4[:, 0],
        lengths_Q=numbers_Q_4[:, 1].sqrt(),
        step_dots_Q=numbers_Q_4[:, 2],
        step_lengths_Q=numbers_Q_4[:, 3].sqrt(),
        target_length=torch.stack(squares).sum().sqrt().item(),
        gradient=found.gradient,
    )


def dot(found: Influence) -> Tensor:
    """Scores (Q,): the gradients' inner product, which a step of plain descent lowers the loss by,
    over its learning rate (TracIn, Pruthi et al., arXiv 2002.08484).
    """
    return found.dots_Q


def cosine(found: Influence) -> Tensor:
    """Scores (Q,): the gradients' cosine, in which the length of a question's gradient is nothing.

    0 where either is 0.
    """
    return _cosines(found.dots_Q, found.lengths_Q, found.target_length)


def preconditioned_dot(found: Influence) -> Tensor:
    """Scores (Q,): the inner product of AdamW's step and the target's gradient."""
    return found.step_dots_Q


def preconditioned_cosine(found: Influence) -> Tensor:
    """Scores (Q,): the cosine of AdamW's step and the target's gradient, INFUSER's own score.

    Only the question's side is scaled. 0 where either is 0.
    """
    return _cosines(found.step_dots_Q, found.step_lengths_Q, found.target_length)


SCORES = {
    "dot": dot,
    "cosine": cosine,
    "preconditioned_dot": preconditioned_dot,
    "preconditioned_cosine": preconditioned_cosine,
}


def second_moment(model: nn.Module, optimiser: torch.optim.AdamW) -> SecondMoment:
    """AdamW's second moment of the trained factors; before its first step, zeros.

    Raises ValueError where the factors are not all the optimiser's, or their settings or numbers of
    steps differ, or it keeps the largest moments (amsgrad).
    """
    settings = {
        factor: (group["betas"][1], group["eps"], group["amsgrad"])
        for group in optimiser.param_groups
        for factor in group["params"]
    }
    factors = lora_factors(model)
    values, found = {}, set()
    for name, factor in factors.items():
        state = optimiser.state.get(factor, {})  # there is none before the first step
        values[name] = state["exp_avg_sq"] if state else torch.zeros_like(factor)
        steps = int(state["step"]) if state else 0
        found.add((steps, *settings.get(factor, (None, None, True))))
    if len(found) != 1 or any(amsgrad for *_, amsgrad in found):
        shown = sorted(found, key=str)
        raise ValueError(
            "wanted one AdamW without amsgrad over all trained factors, with the same beta2, "
            f"epsilon and number of steps for each, found (steps, beta2, epsilon, amsgrad) {shown}"
            "; give the optimiser the parameters of this adapter, and step them together"
        )
    ((steps, beta2, epsilon, _),) = found
    return SecondMoment(values, steps, beta2, epsilon)


def adamw_direction(
    gradients_U_O_I: Tensor, moment_O_I: Tensor, *, steps: int, beta2: float, epsilon: float
) -> Tensor:
    """The direction of AdamW's next step on each gradient alone, (U, O, I), without its first
    moment (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2).

    `steps` were taken so far; before the first, directions are signs. A gradient of 0 gives 0.
    """
    moments_U_O_I = (beta2 * moment_O_I).to(gradients_U_O_I.dtype).expand_as(gradients_U_O_I)
    moments_U_O_I = moments_U_O_I.addcmul(gradients_U_O_I, gradients_U_O_I, value=1 - beta2)
    correction = 1 - beta2 ** (steps + 1)
    return gradients_U_O_I / moments_U_O_I.div_(correction).sqrt_().add_(epsilon)


def _squared_lengths(name: str, gradients_U_O_I: Tensor) -> Tensor:
    return _dots(gradients_U_O_I, gradients_U_O_I)[:, None]


def _dots(one_U_O_I: Tensor, other_U_O_I: Tensor) -> Tensor:
    """Inner products (U,)."""
    return (one_U_O_I * other_U_O_I).sum((1, 2))


def _cosines(dots_Q: Tensor, lengths_Q: Tensor, length: float) -> Tensor:
    return dots_Q / (lengths_Q.clamp(min=SHORTEST) * max(length, SHORTEST))
