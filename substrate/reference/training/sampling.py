"""Sampling from small language models: a batched decoder for Llama- and Qwen3-shaped ones.

    weights = pack(model, adapters=["teacher", "student"])
    completions = sample(weights, prompts, adapter_of=[0, 0, 1], end=tokenizer.eos_token_id, ...)

What it saves against `transformers` generate, for models so small that the overhead counts:

- a prompt that occurs several times (a group's) is read once;
- keys and values lie in tensors of their final length, prompts padded on the left, so that a step
  writes one column; rows that have finished are dropped from them;
- rows of several LoRA adapters share each step: attention does not see the adapter, the product
  with a base's weight is one for all rows, and the factors' are one product of equal groups. A
  lone adapter is merged into the base instead;
- the three projections of attention are one product, and gate and up are one.

Greedy decoding gives the tokens that `transformers` generate gives.

Shapes are suffixes: B rows, P rows with those of each adapter filled up to as many as the others
have, T tokens of a row, L columns of the cache, N = B * T or P * T, D hidden size, H heads, K heads
of keys and values, E head size, G adapters, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from training.weights import Layer, Projection, Weights

DROP = 1 / 8  # share of the rows that must be dropped at least, since that copies the cache


@dataclass(frozen=True)
class Completion:
    """What was sampled for one prompt."""

    tokens: list[int]  # with the end token, where there is one
    logprobs: list[float]  # of these tokens, at the sampling temperature
    ended: bool  # False: cut off at max_tokens


@dataclass(frozen=True)
class _Groups:
    """The rows of each adapter in use, which stand together."""

    adapters: list[int]
    fill_P: Tensor | None  # which rows make groups of the same size, some of them twice
    back_B: Tensor | None  # where each row then is; both None: sizes are the same

    def filled(self, x_B: Tensor) -> Tensor:
        return x_B if self.fill_P is None else x_B[self.fill_P]

    def rows(self, x_P: Tensor) -> Tensor:
        return x_P if self.back_B is None else x_P[self.back_B]


@torch.inference_mode()
def sample(
    weights: Weights,
    prompts: Sequence[Sequence[int]],
    *,
    end: int,
    max_tokens: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    adapter_of: Sequence[int] | None = None,
) -> list[Completion]:
    """One completion for each prompt (token ids), in their order; `end` ends a completion.

    `adapter_of` says which of the packed adapters answers each prompt, `weights.adapters` being the
    base itself; None: the first, everywhere.
    Temperature 0 is greedy decoding, whose log-probabilities are those at temperature 1. Otherwise
    a token is drawn by inverting the distribution function at a uniform number: `generator` (on the
    CPU) gives each prompt its max_tokens numbers, prompt after prompt, so that one call for several
    adapters samples what one call after another with the same generator does.

    Raises ValueError for an empty prompt, an adapter that was not packed, or a temperature above 0
    without a generator.
    """
    adapter_of = [0] * len(prompts) if adapter_of is None else adapter_of
    _check_orders(weights, prompts, temperature, generator, adapter_of)
    if not prompts:
        return []
    device = weights.embedding_V_D.device
    noise_B_T = torch.zeros(len(prompts), max_tokens)
    if temperature > 0:
        noise_B_T = torch.rand(len(prompts), max_tokens, generator=generator)
    noise_B_T = noise_B_T.to(device)

    # Each different prompt of an adapter is read once. Rows of one adapter stand together.
    asked = [(adapter, tuple(prompt)) for adapter, prompt in zip(adapter_of, prompts, strict=True)]
    distinct = sorted(set(asked))
    number = {pair: index for index, pair in enumerate(distinct)}
    order = sorted(range(len(asked)), key=lambda row: number[asked[row]])
    width = max(len(prompt) for _, prompt in distinct)
    groups = _groups([adapter for adapter, _ in distinct], device)
    layers = [layer.of(groups.adapters) for layer in weights.layers]
    hidden_U_D, read, padding_U = _read(weights, layers, distinct, width, groups)

    source_B = torch.tensor([number[asked[row]] for row in order], device=device)
    cache = _empty_cache(weights, len(order), width + max_tokens)
    for long, short in zip(cache, read, strict=True):
        long[:, :, :width] = short[source_B]
    hidden_B_D, padding_B = hidden_U_D[source_B], padding_U[source_B]
    rows_B = torch.tensor(order, device=device)  # where each row stands in `prompts`
    owners = [adapter_of[row] for row in order]
    groups = _groups(owners, device)
    alive_B = torch.ones_like(rows_B, dtype=torch.bool)
    cosine_L_E, sine_L_E = _rotations(weights, width + max_tokens)
    columns_L = torch.arange(width + max_tokens, device=device)
    mask_B_L = _mask(columns_L >= padding_B[:, None], hidden_B_D.dtype)
    tokens_B_T = torch.full_like(noise_B_T, end, dtype=torch.long)
    logprobs_B_T = torch.zeros_like(noise_B_T)

    for step in range(max_tokens):
        scores_B_V = _norm(hidden_B_D, weights.norm_D, weights.epsilon) @ weights.head_D_V
        picked_B, logprob_B = _pick(scores_B_V.float(), temperature, noise_B_T[rows_B, step])
        tokens_B_T[rows_B, step] = picked_B
        logprobs_B_T[rows_B, step] = logprob_B
        alive_B = alive_B & (picked_B != end)
        alive = int(alive_B.sum())
        if alive == 0 or step == max_tokens - 1:
            break

        column = width + step
        if alive <= (1 - DROP) * len(alive_B):
            kept_B = alive_B.nonzero()[:, 0]
            cache = [_keep_rows(tensor, kept_B, column) for tensor in cache]
            rows_B, picked_B, padding_B = rows_B[kept_B], picked_B[kept_B], padding_B[kept_B]
            mask_B_L, alive_B = mask_B_L[kept_B], alive_B[kept_B]
            owners = [owners[row] for row in kept_B.tolist()]
            if len(set(owners)) < len(groups.adapters):
                layers = [layer.of(sorted(set(owners))) for layer in weights.layers]
            groups = _groups(owners, device)

        hidden_B_D = _forward(
            weights,
            layers,
            weights.embedding_V_D[picked_B],
            cosine_L_E[column - padding_B],
            sine_L_E[column - padding_B],
            cache,
            column,
            mask_B_L[:, None, : column + 1],
            groups,
        )
    return [
        _completion(tokens, logprobs, end)
        for tokens, logprobs in zip(tokens_B_T.tolist(), logprobs_B_T.tolist(), strict=True)
    ]


def _read(
    weights: Weights,
    layers: list[Layer],
    prompts: list[tuple[int, tuple[int, ...]]],
    width: int,
    groups: _Groups,
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Read prompts (adapter, token ids), padded on the left to this width.

    Returns the hidden states (B, D) behind their last tokens, the cache, and the padding (B).
    """
    device = weights.embedding_V_D.device
    padded = [(0,) * (width - len(prompt)) + prompt for _, prompt in prompts]
    ids_B_T = torch.tensor(padded, device=device)
    padding_B = torch.tensor([width - len(prompt) for _, prompt in prompts], device=device)
    columns_T = torch.arange(width, device=device)
    past_T_L = columns_T <= columns_T[:, None]
    seen_B_T_L = past_T_L & (columns_T >= padding_B[:, None, None])
    position_N = (columns_T - padding_B[:, None]).clamp(min=0).flatten()
    cosine_L_E, sine_L_E = _rotations(weights, width)
    cache = _empty_cache(weights, len(prompts), width)
    hidden_N_D = _forward(
        weights,
        layers,
        weights.embedding_V_D[ids_B_T.flatten()],
        cosine_L_E[position_N],
        sine_L_E[position_N],
        cache,
        0,
        _mask(seen_B_T_L, weights.embedding_V_D.dtype),
        groups,
    )
    return hidden_N_D.view(len(prompts), width, -1)[:, -1], cache, padding_B


def _forward(
    weights: Weights,
    layers: list[Layer],
    hidden_N_D: Tensor,
    cosine_N_E: Tensor,
    sine_N_E: Tensor,
    cache: list[Tensor],
    column: int,
    mask_B_T_L: Tensor,
    groups: _Groups,
) -> Tensor:
    """All layers for T tokens a row, whose keys and values go into the cache from `column` on.

    The cache has keys and values of each layer in turn, (B, K, L, E). Hidden states in and out;
    between, all but attention has its rows filled up to groups of the same size.
    """
    heads, key_heads, size = weights.heads, weights.key_heads, weights.head_size
    rows, tokens, length = mask_B_T_L.shape
    queries = heads // key_heads * tokens  # of one row and one head of keys
    # One mask for each row and head of keys; where there is one token, heads of queries share it.
    shared = heads // key_heads if tokens > 1 else 1
    mask = mask_B_T_L[:, None, None].expand(-1, key_heads, shared, -1, -1)
    mask = mask.reshape(rows * key_heads, shared * tokens, length)
    cosine, sine = cosine_N_E[:, None], sine_N_E[:, None]
    hidden_N_D = groups.filled(hidden_N_D.view(rows, tokens, -1)).flatten(0, 1)

    for layer, keys, values in zip(layers, cache[::2], cache[1::2], strict=True):
        normed_N_D = _norm(hidden_N_D, layer.attention_norm_D, weights.epsilon)
        qkv = _project(normed_N_D, layer.qkv, groups)
        qkv = groups.rows(qkv.view(-1, tokens, qkv.shape[1])).view(rows * tokens, -1, size)
        qk, v = qkv[:, : heads + key_heads], qkv[:, heads + key_heads :]
        if layer.qk_norm_H_E is not None:
            qk = F.rms_norm(qk, (size,), None, weights.epsilon) * layer.qk_norm_H_E
        qk = qk * cosine + _rotate_half(qk) * sine
        q, k = qk[:, :heads], qk[:, heads:]
        last = column + tokens
        keys[:, :, column:last] = k.view(rows, tokens, key_heads, size).transpose(1, 2)
        values[:, :, column:last] = v.view(rows, tokens, key_heads, size).transpose(1, 2)

        q = q.reshape(rows, tokens, heads, size).transpose(1, 2)
        q = q.reshape(rows * key_heads, queries, size)
        k, v = keys.flatten(0, 1)[:, :last], values.flatten(0, 1)[:, :last]
        scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=size**-0.5)
        mixed = torch.bmm(scores.softmax(-1), v).view(rows, heads, tokens, size)
        mixed_B_T_O = mixed.transpose(1, 2).reshape(rows, tokens, heads * size)
        mixed_N_O = groups.filled(mixed_B_T_O).flatten(0, 1)
        hidden_N_D = hidden_N_D + _project(mixed_N_O, layer.output, groups)

        normed_N_D = _norm(hidden_N_D, layer.mlp_norm_D, weights.epsilon)
        gate, up = _project(normed_N_D, layer.gate_up, groups).chunk(2, dim=-1)
        hidden_N_D = hidden_N_D + _project(F.silu(gate) * up, layer.down, groups)
    return groups.rows(hidden_N_D.view(-1, tokens, hidden_N_D.shape[1])).flatten(0, 1)


def _project(input_N_I: Tensor, projection: Projection, groups: _Groups) -> Tensor:
    """Each row times the base's weight, and its own adapter's part on top."""
    output_N_O = input_N_I @ projection.weight_I_O
    adapted = len(projection.a_G_I_R)
    if adapted:  # the base has no part, and is the last group
        shape = (len(groups.adapters), len(input_N_I) // len(groups.adapters), -1)
        reduced = torch.bmm(input_N_I.view(shape)[:adapted], projection.a_G_I_R)
        output_N_O.view(shape)[:adapted].baddbmm_(reduced, projection.b_G_R_O)
    return output_N_O


def _pick(scores_B_V: Tensor, temperature: float, noise_B: Tensor) -> tuple[Tensor, Tensor]:
    """A token for each row, and its log-probability."""
    logprobs_B_V = (scores_B_V / (temperature or 1.0)).log_softmax(-1)
    if temperature == 0:
        picked_B = scores_B_V.argmax(-1)
    else:
        below_B_V = logprobs_B_V.exp().cumsum(-1)
        # The sum is 1 only up to rounding. A token of probability 0 is never drawn: its interval
        # is empty.
        threshold_B_1 = noise_B[:, None] * below_B_V[:, -1:]
        picked_B = torch.searchsorted(below_B_V, threshold_B_1, right=True)[:, 0]
        picked_B = picked_B.clamp(max=below_B_V.shape[1] - 1)
    return picked_B, logprobs_B_V.gather(1, picked_B[:, None])[:, 0]


def _completion(tokens: list[int], logprobs: list[float], end: int) -> Completion:
    ended = end in tokens
    length = tokens.index(end) + 1 if ended else len(tokens)
    return Completion(tokens[:length], logprobs[:length], ended)


def _check_orders(
    weights: Weights,
    prompts: Sequence[Sequence[int]],
    temperature: float,
    generator: torch.Generator | None,
    adapter_of: Sequence[int],
) -> None:
    if not all(prompts):
        raise ValueError("wanted at least one token in each prompt, found an empty prompt")
    if len(adapter_of) != len(prompts) or not all(0 <= g <= weights.adapters for g in adapter_of):
        raise ValueError(
            f"wanted an adapter from 0 to {weights.adapters} for each of {len(prompts)} "
            f"prompts, found {list(adapter_of)[:8]}; pack more adapters or name others"
        )
    if temperature < 0 or (temperature > 0 and generator is None):
        raise ValueError(
            f"wanted temperature 0, or one above it and a generator, found {temperature} and "
            f"{generator}; seed a torch.Generator"
        )


def _groups(owners: list[int], device: torch.device) -> _Groups:
    """`owners`, whose each row is, are sorted."""
    adapters = sorted(set(owners))
    counts = [owners.count(adapter) for adapter in adapters]
    most = max(counts)
    if min(counts) == most:
        return _Groups(adapters, None, None)
    fill: list[int] = []
    back: list[int] = []
    for count in counts:
        first = len(back)
        back += range(len(fill), len(fill) + count)
        fill += [*range(first, first + count), *[first] * (most - count)]
    return _Groups(adapters, torch.tensor(fill, device=device), torch.tensor(back, device=device))


def _empty_cache(weights: Weights, rows: int, length: int) -> list[Tensor]:
    shape = (rows, weights.key_heads, length, weights.head_size)
    # Zeros, since what the mask hides is multiplied by 0, and 0 times NaN is NaN.
    return [weights.embedding_V_D.new_zeros(shape) for _ in range(2 * len(weights.layers))]


def _keep_rows(cache: Tensor, kept_B: Tensor, length: int) -> Tensor:
    """The rows to keep, moved to the front of the same memory; `length` columns are in use."""
    cache[: len(kept_B), :, :length] = cache[kept_B, :, :length]
    return cache[: len(kept_B)]


def _rotations(weights: Weights, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions 0 to length - 1, each (L, E)."""
    positions = torch.arange(length, device=weights.embedding_V_D.device)
    cosine, sine = weights.rotary(weights.embedding_V_D, positions[None])
    return cosine[0], sine[0]


def _rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def _norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, epsilon)


def _mask(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """To be added to attention's scores: 0 where it sees, elsewhere so low that exp makes it 0.

    Not minus infinity: a position of padding sees nothing, and softmax would make NaN of it.
    """
    hidden = torch.finfo(dtype).min / 2
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, hidden)
