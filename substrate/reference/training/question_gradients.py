"""The gradient of each question's loss in LoRA's factors, from one backward pass over all of them.

    measured = measure_questions(model, micro_batches, questions=64, measure=squared_length)

A factor W is used as y = x W^T, so the gradient of one question's loss is the sum of delta x^T over
that question's tokens, delta being the gradient in y. One backward over many questions has all of
these products; it only does not add them up across questions. The factors' products are therefore
a function of their own for autograd, which forms the gradients of one factor, hands them to
`measure` and lets go of them: what is kept is a few numbers a question. It is exact, and works
under gradient checkpointing, since what it needs is saved as autograd saves tensors.

It has no second derivatives, and no communication between devices: each has its own questions.

Shapes are suffixes: B rows of a micro-batch, T tokens of a row, N = B * T, Q questions, U some of
the questions, S tokens of one, O and I outputs and inputs of a factor, K numbers a question.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn

TOGETHER = 32  # questions whose gradients in one factor exist at a time

# From a factor's name and gradients (U, O, I) to K numbers for each question, (U, K), which are
# added up over the factors.
Measure = Callable[[str, Tensor], Tensor]


@dataclass(frozen=True)
class MicroBatch:
    """Tokens that go through the model at once. A question may have some of its completions in one
    micro-batch and the others in later ones.
    """

    questions_B_T: Tensor  # whose each token of the model's input is, prompts too; -1: padding
    loss: Callable[[], Tensor]  # runs the model on them, once; the sum of its questions' losses


@dataclass(frozen=True)
class Measured:
    """What the gradients of questions came to."""

    numbers_Q_K: Tensor  # float64
    gradient: dict[str, Tensor]  # by factor, their sum: what an ordinary backward leaves in `.grad`


def measure_questions(
    model: nn.Module, micro_batches: Sequence[MicroBatch], *, questions: int, measure: Measure
) -> Measured:
    """One forward and one backward for each micro-batch; `.grad` stays as it is.

    Questions are numbered from 0. One without tokens, or whose loss is constant, has the gradient
    0. One that is split over micro-batches has its gradients held until the last of them. Numbers
    are those of the loss as it is given: with the normaliser of one question, say, they are those
    of a training step on that question alone.

    Raises ValueError where something other than plain LoRA is trained; where a question's number is
    out of range; where `loss` runs the model more than once or on other rows than `questions_B_T`
    has; and where tokens of no question have a gradient, since sums would then leave it out.
    """
    factors = lora_factors(model)
    last: dict[int, int] = {}
    spans: list[list[int]] = []
    for number, micro_batch in enumerate(micro_batches):
        spans.append(_owners(micro_batch, questions))
        last.update(dict.fromkeys(spans[-1], number))
    watch = _Watch(measure, questions)
    with _watched(model, factors, watch):
        for number, micro_batch in enumerate(micro_batches):
            ended = {question for question in spans[number] if last[question] == number}
            watch.open(micro_batch.questions_B_T, ended)
            micro_batch.loss().backward()
            watch.close(factors)
    if watch.unowned is not None and watch.unowned.item() != 0:
        raise ValueError(
            "wanted every token that the loss depends on to belong to a question, prompts too, "
            f"found a gradient of {watch.unowned.item():.3g} at tokens numbered -1; number them in "
            "questions_B_T"
        )
    device = next(iter(factors.values())).device
    numbers_Q_K = watch.numbers_Q_K
    if numbers_Q_K is None:
        numbers_Q_K = torch.zeros(questions, 0, dtype=torch.float64, device=device)
    zeros = {name: torch.zeros_like(factor) for name, factor in factors.items()}
    return Measured(numbers_Q_K, zeros | watch.gradient)


def lora_factors(model: nn.Module) -> dict[str, nn.Parameter]:
    """The factors that are trained, by name: A and B of the active adapter.

    Raises ValueError where something else is trained, or nothing, or in half precision.
    """
    factors = {name: factor for name, factor in model.named_parameters() if factor.requires_grad}
    watched = {name for name, _, _, _ in _linears(model)}
    others = sorted(set(factors) - watched)
    if others or not factors:
        raise ValueError(
            "wanted the factors of plain LoRA on linear layers to be trained and nothing else, "
            f"found {others[:3] or 'nothing trained'}; use LoraConfig without DoRA, bias or "
            "modules_to_save, and set the adapter that is trained active"
        )
    types = {factor.dtype for factor in factors.values()}
    if not types <= {torch.float32, torch.float64}:
        raise ValueError(
            f"wanted factors of float32 or float64, found {types}; squares of gradients need their "
            "range: load the adapter with autocast_adapter_dtype=True, PEFT's default"
        )
    return factors


@dataclass(frozen=True)
class _Block:
    """Some questions of a micro-batch, of about the same length."""

    questions: list[int]
    places_U_S: Tensor  # of their tokens among the N
    filled_U_S_1: Tensor  # False: there is no such token, the place is any


@dataclass
class _Watch:
    """What is known about a pass while it runs."""

    measure: Measure
    questions: int
    numbers_Q_K: Tensor | None = None
    gradient: dict[str, Tensor] = field(default_factory=dict)
    unowned: Tensor | None = None  # largest gradient at a token of no question
    held: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    questions_B_T: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    padding_N: Tensor = field(default_factory=lambda: torch.zeros(0))  # places of no question
    blocks: list[_Block] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)  # questions that this micro-batch completes
    seen: set[str] = field(default_factory=set)

    def open(self, questions_B_T: Tensor, ended: set[int]) -> None:
        self.questions_B_T, self.ended = questions_B_T, ended
        self.padding_N = (questions_B_T.flatten() < 0).nonzero()[:, 0]
        self.blocks = _blocks(questions_B_T)
        self.seen = set()

    def close(self, factors: Mapping[str, Tensor]) -> None:
        missing = sorted(set(factors) - self.seen)
        if missing:
            raise ValueError(
                f"wanted a loss that depends on every factor, found none on {missing[:3]}; run "
                "the model that was given, with its adapter enabled, in `loss`"
            )

    def take(self, name: str, delta_B_T_O: Tensor, input_B_T_I: Tensor) -> None:
        """A factor's part of the backward pass."""
        if name in self.seen or delta_B_T_O.shape[:-1] != self.questions_B_T.shape:
            found = "a second" if name in self.seen else f"rows {tuple(delta_B_T_O.shape[:-1])}"
            raise ValueError(
                f"wanted one pass through {name} of rows {tuple(self.questions_B_T.shape)}, as "
                f"questions_B_T has, found {found}; run the model once in `loss`, on those rows"
            )
        self.seen.add(name)
        delta_N_O, input_N_I = delta_B_T_O.flatten(0, -2), input_B_T_I.flatten(0, -2)
        if len(self.padding_N):
            stray = delta_N_O[self.padding_N].abs().max()
            self.unowned = stray if self.unowned is None else torch.maximum(self.unowned, stray)
        for block in self.blocks:
            delta_U_S_O = delta_N_O[block.places_U_S] * block.filled_U_S_1
            gradients_U_O_I = delta_U_S_O.transpose(1, 2) @ input_N_I[block.places_U_S]
            summed = gradients_U_O_I.sum(0)
            if name in self.gradient:
                self.gradient[name] += summed
            else:
                self.gradient[name] = summed
            self._finish(name, block.questions, gradients_U_O_I)

    def _finish(self, name: str, questions: list[int], gradients_U_O_I: Tensor) -> None:
        """Measure the questions that are complete, hold the others."""
        for row, question in enumerate(questions):
            before = self.held.pop((name, question), None)
            if before is not None:
                gradients_U_O_I[row] += before
            if question not in self.ended:
                self.held[name, question] = gradients_U_O_I[row].clone()
        rows = [row for row, question in enumerate(questions) if question in self.ended]
        if not rows:
            return
        if len(rows) < len(questions):
            gradients_U_O_I = gradients_U_O_I[rows]
        numbers_U_K = self.measure(name, gradients_U_O_I).double()
        if self.numbers_Q_K is None:
            self.numbers_Q_K = numbers_U_K.new_zeros(self.questions, numbers_U_K.shape[1])
        ended_U = torch.tensor([questions[row] for row in rows], device=numbers_U_K.device)
        self.numbers_Q_K.index_add_(0, ended_U, numbers_U_K)


class _Product(torch.autograd.Function):
    """Input times a factor; the factor's gradient goes to the watch."""

    @staticmethod
    def forward(
        ctx: Any, input_B_T_I: Tensor, factor_O_I: Tensor, name: str, watch: _Watch
    ) -> Tensor:
        ctx.save_for_backward(input_B_T_I, factor_O_I)
        ctx.name, ctx.watch = name, watch
        return F.linear(input_B_T_I, factor_O_I)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, None, None, None]:
        (delta_B_T_O,) = deltas
        input_B_T_I, factor_O_I = ctx.saved_tensors
        ctx.watch.take(ctx.name, delta_B_T_O, input_B_T_I)
        return delta_B_T_O @ factor_O_I if ctx.needs_input_grad[0] else None, None, None, None


class _Factor(nn.Module):
    """Stands in PEFT's layer for one of its factors while a pass runs."""

    def __init__(self, weight: nn.Parameter, name: str, watch: _Watch) -> None:
        super().__init__()
        self.weight = weight  # PEFT asks for its type
        self.name, self.watch = name, watch

    def forward(self, input_B_T_I: Tensor) -> Tensor:
        product = _Product.apply(input_B_T_I, self.weight, self.name, self.watch)
        assert isinstance(product, Tensor)
        return product


@contextmanager
def _watched(model: nn.Module, factors: Mapping[str, Tensor], watch: _Watch) -> Iterator[None]:
    """Within, products with the trained factors are seen by the watch."""
    replaced = [entry for entry in _linears(model) if entry[0] in factors]
    try:
        for name, linears, adapter, linear in replaced:
            weight = linear.weight
            assert isinstance(weight, nn.Parameter)
            linears[adapter] = _Factor(weight, name, watch)
        yield
    finally:
        for _, linears, adapter, linear in replaced:
            linears[adapter] = linear


def _linears(model: nn.Module) -> list[tuple[str, nn.ModuleDict, str, nn.Linear]]:
    """Each factor of plain LoRA: its parameter's name, where its module is, and the module."""
    found = []
    for place, layer in model.named_modules():
        if not isinstance(layer, LoraLinear):
            continue
        for kind, linears in (("lora_A", layer.lora_A), ("lora_B", layer.lora_B)):
            for adapter, linear in linears.items():
                plain = isinstance(linear, nn.Linear) and linear.bias is None
                if plain and adapter not in layer.lora_variant:
                    name = f"{place}.{kind}.{adapter}.weight".removeprefix(".")
                    found.append((name, linears, adapter, linear))
    return found


def _owners(micro_batch: MicroBatch, questions: int) -> list[int]:
    """The questions of a micro-batch. Raises ValueError for a number out of range."""
    owners = micro_batch.questions_B_T.unique().tolist()
    if owners and (owners[0] < -1 or owners[-1] >= questions):
        raise ValueError(
            f"wanted questions numbered 0 to {questions - 1}, -1 for padding, found {owners[0]} "
            f"to {owners[-1]}; number them anew"
        )
    return [owner for owner in owners if owner >= 0]


def _blocks(questions_B_T: Tensor) -> list[_Block]:
    """The places of each question's tokens. Questions of about the same length go together, so that
    little is filled up.
    """
    owner_N = questions_B_T.flatten()
    owned_N = (owner_N >= 0).nonzero()[:, 0]
    order_N = owned_N[owner_N[owned_N].argsort(stable=True)]
    owners, counts = owner_N[order_N].unique_consecutive(return_counts=True)
    ends = counts.cumsum(0)
    blocks = []
    for chosen_U in counts.argsort(stable=True).split(TOGETHER):
        if not len(chosen_U):
            continue
        offsets_S = torch.arange(int(counts[chosen_U].max()), device=order_N.device)
        filled_U_S = offsets_S < counts[chosen_U, None]
        places_U_S = (ends - counts)[chosen_U, None] + offsets_S
        places_U_S = order_N[places_U_S.clamp(max=len(order_N) - 1)]
        blocks.append(_Block(owners[chosen_U].tolist(), places_U_S, filled_U_S[..., None]))
    return blocks
