"""A mirror: one member of a population as a PEFT model of its own, to measure influence on.

    mirror = Mirror(job)
    mirror.show(population.adapter(SOLVER))
    found = influence(mirror.model, mirror.batches(answers, normaliser=z), questions=n, ...)
    mirror.as_row(found.gradient)       as the population's own gradients lie

The losses are policy gradients of completions that the member has sampled, one term a question. It
holds the base a second time, so that it is for small models.

Shapes are suffixes: B rows of a micro-batch, T tokens of a row, P numbers of a member.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.influence import SecondMoment
from training.journal import Job
from training.loss import token_logprobs
from training.match import Text
from training.models import load_with_lora
from training.population import Row
from training.question_gradients import MicroBatch, lora_factors

BATCH_TOKENS = 8192  # that go through the model at once, padding included
LONGEST_LOG_RATIO = 20.0  # the authors'


@dataclass(frozen=True)
class Answer:
    """A sampled completion, the number of the question that it answers, and its advantage."""

    question: int
    text: Text
    advantage: float


class Mirror:
    def __init__(self, job: Job, *, temperature: float, cap: float) -> None:
        """Completions are sampled at `temperature`; `cap` is the largest importance weight of a
        token (truncated importance sampling, as INFUSER's authors have it).
        """
        # What LoRA draws is overwritten, and must not move the numbers that others draw.
        with torch.random.fork_rng(devices=[]):
            self.model = load_with_lora(job)
        self.model.eval()
        self._factors = lora_factors(self.model)
        self._temperature, self._cap = temperature, cap
        self._device = next(iter(self._factors.values())).device

    @torch.no_grad()
    def show(self, adapter: Mapping[str, Tensor]) -> None:
        """Be this member, given by PEFT's names as `Population.adapter` gives it."""
        for key, tensor in adapter.items():
            self._factors[_name(key)].copy_(tensor)

    def by_name(self, row_P: Tensor, adapter: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A row of a population, or of its optimiser, by the names of this model's factors."""
        parts = row_P.split([tensor.numel() for tensor in adapter.values()])
        pairs = zip(adapter.items(), parts, strict=True)
        return {_name(key): part.view(tensor.shape) for (key, tensor), part in pairs}

    def as_row(self, gradient: Mapping[str, Tensor], adapter: Mapping[str, Tensor]) -> Tensor:
        """The other way round, (P,)."""
        return torch.cat([gradient[_name(key)].flatten() for key in adapter])

    def moment(
        self, state: Mapping[str, Tensor], member: int, adapter: Mapping[str, Tensor], beta2: float
    ) -> SecondMoment:
        """A member's live second moment, from the state of `MemberAdam`; zeros before a step."""
        squares_P = state.get(f"{member}.exp_avg_sq")
        if squares_P is None:
            numbers = sum(tensor.numel() for tensor in adapter.values())
            squares_P = torch.zeros(numbers, device=self._device)
        step = state.get(f"{member}.step")
        steps = 0 if step is None else int(step)
        return SecondMoment(self.by_name(squares_P, adapter), steps, beta2, epsilon=1e-8)

    def batches(self, answers: Sequence[Answer], *, normaliser: float) -> list[MicroBatch]:
        """The policy-gradient losses: -(1 / normaliser) times the sum over the tokens of weight,
        advantage and log-probability.

        A token's weight is the ratio of its probability here to that it was sampled at, at most
        `cap`. With one step on each batch the policy is the one that sampled: PPO's clipping would
        never act.
        """
        return [self._batch(some, normaliser) for some in _together(answers)]

    @torch.no_grad()
    def log_likelihood(self, rows: Sequence[Row]) -> float:
        """The mean log-likelihood of completions, in nats a completion."""
        total = 0.0
        for some in _together([Answer(0, Text(row, [], ""), 1.0) for row in rows]):
            tokens_B_T, mask_B_T, *_ = self._padded(some)
            total += float((self._logprobs(tokens_B_T) * mask_B_T[:, 1:]).sum())
        return total / len(rows)

    def _batch(self, answers: Sequence[Answer], normaliser: float) -> MicroBatch:
        tokens_B_T, mask_B_T, sampled_B_T, questions_B_T = self._padded(answers)
        advantages_B = torch.tensor([answer.advantage for answer in answers], device=self._device)
        factors_B_T = mask_B_T * advantages_B[:, None] / normaliser

        def loss() -> Tensor:
            logprobs_B_T = self._logprobs(tokens_B_T)
            ratios_B_T = (logprobs_B_T.detach() - sampled_B_T[:, 1:]).clamp(
                -LONGEST_LOG_RATIO, LONGEST_LOG_RATIO
            )
            weights_B_T = ratios_B_T.exp().clamp(max=self._cap) * factors_B_T[:, 1:]
            return -(weights_B_T * logprobs_B_T).sum()

        return MicroBatch(questions_B_T, loss)

    def _logprobs(self, tokens_B_T: Tensor) -> Tensor:
        """Log-probabilities of all tokens but the first, (B, T - 1)."""
        logits = self.model(input_ids=tokens_B_T, use_cache=False).logits
        return token_logprobs(logits[:, :-1], tokens_B_T[:, 1:], self._temperature)

    def _padded(self, answers: Sequence[Answer]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens, where completions are, their sampled log-probabilities, and questions, (B, T)
        each. Rows are padded on the right, which a causal model's earlier tokens do not see.
        """
        rows: list[tuple[list[int], list[float], list[float], list[int]]] = []
        width = max(_length(answer) for answer in answers)
        for answer in answers:
            row, logprobs = answer.text.row, answer.text.logprobs
            prompt, count = len(row.prompt), len(row.completion)
            rest = width - prompt - count
            rows.append(
                (
                    [*row.prompt, *row.completion, *[0] * rest],
                    [0.0] * prompt + [1.0] * count + [0.0] * rest,
                    [0.0] * prompt + (logprobs or [0.0] * count) + [0.0] * rest,
                    [answer.question] * (prompt + count) + [-1] * rest,
                )
            )
        tokens, mask, sampled, questions = (
            torch.tensor(part, device=self._device) for part in zip(*rows, strict=True)
        )
        return tokens, mask, sampled, questions


def _name(key: str) -> str:
    """The parameter of PEFT's key."""
    return key.removesuffix(".weight") + ".default.weight"


def _length(answer: Answer) -> int:
    return len(answer.text.row.prompt) + len(answer.text.row.completion)


def _together(answers: Sequence[Answer]) -> list[list[Answer]]:
    """Answers that go through the model at once: of like length, those without advantage left out,
    which have no gradient.
    """
    passes: list[list[Answer]] = []
    for answer in sorted((a for a in answers if a.advantage != 0), key=_length):
        if passes and (len(passes[-1]) + 1) * _length(answer) <= BATCH_TOKENS:
            passes[-1].append(answer)
        else:
            passes.append([answer])
    return passes
