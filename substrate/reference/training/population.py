"""A population: LoRA adapters of one shape on one frozen base, trained and sampled in one batch.

    population = Population(model, count=8, rank=16, alpha=32, target_modules=[...], seeds=[...])
    logprobs_N_T, mask_N_T = population.logprobs(rows, temperature=1.0)  # rows of any members
    loss_of(logprobs_N_T, mask_N_T).backward()  # the gradients of all of them
    completions = sample(population.pack(), prompts, adapter_of=[0, 0, 3, population.base], ...)

LoRA is Hu et al., arXiv 2106.09685. The factors of a member lie one behind the other in one row of
`factors_G_P`, and their gradients in one of `gradients_G_P`, of which the modules have views. So
members do not touch: what is done to a row is done to one of them. A member's log-probabilities and
gradient do not depend on who else is in the batch, but for rounding: others' rows stand beside its
own in the same products, and change how long its own are padded. On pocket in float32 that is 2e-7
of the gradient's length.

For any causal language model of `transformers` with linear modules. Rows are padded on the right,
where a causal model's earlier tokens do not see it: no mask is needed, and none is made.

Shapes are suffixes: N rows, T tokens of a completion, B rows of a pass, W its width, S completion
tokens of a pass, V vocabulary, G members, P numbers of a member, R rank, I inputs and O outputs of
a module.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch
from peft import LoraConfig
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel

from training.factors import A, B
from training.stacked_lora import Pass, Span, StackedLora
from training.weights import Weights, pack

# Tokens that go through the model at once, padding included: few enough that rows of like length
# go together, and that what a pass works on fits into a processor's cache.
PASS_TOKENS = 4096
PREFIX = "base_model.model."  # of PEFT's keys


@dataclass(frozen=True)
class Row:
    """A completion of a member (its place in the population), in tokens."""

    member: int
    prompt: Sequence[int]
    completion: Sequence[int]


class Population:
    def __init__(
        self,
        model: PreTrainedModel,
        *,
        count: int,
        rank: int,
        alpha: float,
        target_modules: Sequence[str],
        seeds: Sequence[int],
    ) -> None:
        """Takes over the model: freezes it and puts the factors of `count` members beside its
        linear modules of these names (the last part of a module's name).

        Each member's A is drawn from its own seed as PEFT draws it, B is 0: all start as the base.
        Factors are float32 on a base of less precision. The model is on its device beforehand.

        Raises ValueError for a name that no linear module has, or the output head has, and for
        another number of seeds than members.
        """
        if len(seeds) != count or count < 1:
            raise ValueError(
                f"wanted at least one member and a seed for each, found {count} and {len(seeds)}"
            )
        self.model = model
        self.count = count
        self.base = count  # the place of the bare base, in rows and in what `pack` gives
        self._rank, self._alpha, self._targets = rank, alpha, sorted(set(target_modules))
        self._now = Pass()
        self._head = _head(model)
        linears = _targeted(model, self._targets)
        model.requires_grad_(False)
        model.eval()  # no dropout

        weight = next(iter(linears.values())).weight
        numbers = sum(rank * (x.in_features + x.out_features) for x in linears.values())
        dtype = torch.promote_types(weight.dtype, torch.float32)
        self.factors_G_P = torch.zeros(count, numbers, dtype=dtype, device=weight.device)
        self.gradients_G_P = torch.zeros_like(self.factors_G_P)
        self._places: dict[str, tuple[slice, tuple[int, int]]] = {}
        start = 0
        for name, linear in linears.items():
            factors, gradients = [], []
            for end, shape in ((A, (rank, linear.in_features)), (B, (linear.out_features, rank))):
                place = slice(start, start + math.prod(shape))
                factors.append(nn.Parameter(self.factors_G_P[:, place].view(count, *shape)))
                gradients.append(self.gradients_G_P[:, place].view(count, *shape))
                self._places[PREFIX + name + end] = place, shape
                start = place.stop
            module = StackedLora(linear, tuple(factors), tuple(gradients), alpha / rank, self._now)
            model.set_submodule(name, module)
        for member, seed in enumerate(seeds):
            self._draw(member, seed)

    def logprobs(self, rows: Sequence[Row], temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """Log-probabilities (N, T) of the completions' tokens under their members, at a
        temperature, and a mask that is 1 where there is such a token.

        Backward adds to the gradients of all members in one go. What is kept for it grows with the
        rows: give fewer at a time where memory is short, which adds up to the same gradient.

        Raises ValueError for a row without tokens or of an unknown member.
        """
        self._check(rows)
        widest = max((len(row.completion) for row in rows), default=0)
        places, found = [], []
        for numbers in _passes(rows):
            found.append(self._pass([rows[number] for number in numbers], temperature))
            places += [n * widest + t for n in numbers for t in range(len(rows[n].completion))]
        device = self.factors_G_P.device
        places_S = torch.tensor(places, dtype=torch.long, device=device)
        logprobs_S = torch.cat(found) if found else self.factors_G_P.new_zeros(0)
        blank = logprobs_S.new_zeros(len(rows) * widest)
        mask = blank.index_fill(0, places_S, 1.0)
        logprobs = blank.index_put((places_S,), logprobs_S)
        return logprobs.view(len(rows), widest), mask.view(len(rows), widest)

    def pack(self) -> Weights:
        """The members' weights for the decoder, in their order, and the base's behind them: a copy.

        Raises ValueError for an architecture that the decoder does not know.
        """
        return pack(self.model)

    def adapter(self, member: int) -> dict[str, Tensor]:
        """A copy of a member's factors, by PEFT's names."""
        return {key: x.clone() for key, x in self._views(self.factors_G_P[member]).items()}

    def gradient(self, member: int) -> dict[str, Tensor]:
        """A copy of what backward passes have added up for a member, by PEFT's names."""
        return {key: x.clone() for key, x in self._views(self.gradients_G_P[member]).items()}

    def replace(self, member: int, adapter: Mapping[str, Tensor]) -> None:
        """Put other factors in a member's place. Raises ValueError unless they have its shape."""
        factors = self._views(self.factors_G_P[member])
        wanted = {key: tuple(factor.shape) for key, factor in factors.items()}
        given = {key: tuple(tensor.shape) for key, tensor in adapter.items()}
        if given != wanted:
            odd = sorted(dict(wanted.items() ^ given.items()))[:3]
            raise ValueError(
                f"wanted the factors of all modules in the population's shape, found others in "
                f"{', '.join(odd)}; evolve adapters of one shape only"
            )
        for key, factor in factors.items():
            factor.copy_(adapter[key])

    def save(self, member: int, folder: Path) -> None:
        """Write a member as PEFT reads it: `adapter_model.safetensors` and its configuration."""
        folder.mkdir(parents=True, exist_ok=True)
        config = LoraConfig(
            r=self._rank,
            lora_alpha=self._alpha,  # pyright: ignore[reportArgumentType]  # a float does as well
            base_model_name_or_path=self.model.name_or_path,
            task_type="CAUSAL_LM",
            inference_mode=True,
        )
        config.target_modules = self._targets  # a list: a set would be written in any order
        config.save_pretrained(str(folder))
        save_file(self.adapter(member), folder / "adapter_model.safetensors", {"format": "pt"})

    def _pass(self, rows: list[Row], temperature: float) -> Tensor:
        """Log-probabilities (S) of the rows' completions, one row behind the other."""
        width = max(len(row.prompt) + len(row.completion) for row in rows) - 1
        ids: list[int] = []
        heads: list[int] = []  # the places that predict a completion's token
        tokens: list[int] = []
        for row in rows:
            read = [*row.prompt, *row.completion[:-1]]
            first = len(ids) + len(row.prompt) - 1
            heads += range(first, first + len(row.completion))
            tokens += row.completion
            ids += read + [0] * (width - len(read))  # any token: nothing sees it
        self._now.tokens, self._now.spans = len(ids), list(_spans(rows, width, self.base))
        device = self.factors_G_P.device
        heads_S = torch.tensor(heads, device=device)

        def narrowed(head: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (inputs[0].flatten(0, -2)[heads_S],)  # (B, W, D) to (S, D)

        hook = self._head.register_forward_pre_hook(narrowed)
        try:
            ids_B_W = torch.tensor(ids, device=device).view(len(rows), width)
            logits_S_V = self.model(input_ids=ids_B_W, use_cache=False).logits
        finally:
            hook.remove()
            self._now.tokens, self._now.spans = 0, ()
        scores_S_V = logits_S_V.to(self.factors_G_P.dtype) / temperature
        tokens_S = torch.tensor(tokens, device=device)
        return scores_S_V.log_softmax(-1).gather(1, tokens_S[:, None])[:, 0]

    def _views(self, numbers_P: Tensor) -> dict[str, Tensor]:
        """Views of a member's numbers, by PEFT's names."""
        return {key: numbers_P[place].view(shape) for key, (place, shape) in self._places.items()}

    def _draw(self, member: int, seed: int) -> None:
        dice = torch.Generator().manual_seed(seed)
        for key, factor in self._views(self.factors_G_P[member]).items():
            if key.endswith(A):
                drawn_R_I = torch.empty(factor.shape)  # on the CPU: the same on any device
                nn.init.kaiming_uniform_(drawn_R_I, a=math.sqrt(5), generator=dice)
                factor.copy_(drawn_R_I)

    def _check(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if not row.prompt or not row.completion or not 0 <= row.member <= self.base:
                raise ValueError(
                    "wanted rows of at least one token of prompt and of completion, of a member "
                    f"from 0 to {self.count - 1} or {self.base}, the base, found {len(row.prompt)} "
                    f"and {len(row.completion)} tokens, of member {row.member}"
                )


def _head(model: PreTrainedModel) -> nn.Module:
    head = model.get_output_embeddings()
    if head is None:
        raise ValueError(
            f"wanted a causal language model, found a {type(model).__name__} without an output "
            "head; load it with AutoModelForCausalLM"
        )
    return head


def _targeted(model: PreTrainedModel, names: Sequence[str]) -> dict[str, nn.Linear]:
    """The linear modules whose last name is one of these."""
    found = {
        name: module
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in names and isinstance(module, nn.Linear)
    }
    missing = sorted(set(names) - {name.rpartition(".")[2] for name in found})
    if missing or not found:
        raise ValueError(
            f"wanted target modules that are linear, found none named {missing or list(names)}; "
            "look at the names in the base model"
        )
    if _head(model) in found.values():
        raise ValueError(
            f"wanted target modules below the output head, found it among {list(names)}; it sees "
            "completions only, not whole rows"
        )
    return found


def _passes(rows: Sequence[Row]) -> Iterator[list[int]]:
    """The numbers of rows that go through the model together: of like length, by member."""
    lengths = [len(row.prompt) + len(row.completion) for row in rows]
    chosen: list[int] = []
    for number in sorted(range(len(rows)), key=lambda n: lengths[n]):
        if chosen and (len(chosen) + 1) * lengths[number] > PASS_TOKENS:
            yield sorted(chosen, key=lambda n: rows[n].member)
            chosen = []
        chosen.append(number)
    if chosen:
        yield sorted(chosen, key=lambda n: rows[n].member)


def _spans(rows: Sequence[Row], width: int, base: int) -> Iterator[Span]:
    """Which tokens are whose; `rows` are sorted by member."""
    start = 0
    for member, its in groupby(rows, key=lambda row: row.member):
        stop = start + sum(width for _ in its)
        if member != base:
            yield Span(member, start, stop)
        start = stop
