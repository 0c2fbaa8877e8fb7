"""Crossovers: a child of two LoRA adapters, for weight-space evolution as in PopuLoRA (arXiv
2605.16727).

Each takes two PEFT state dicts of one shape, the fitter parent second, and a seed; returns a new
state dict of that shape; maths is float32, the dtype stays the first parent's. There are two of
each kind.

`published_...` follow the published formulas and constants, with what was found wrong in them:
they mix A with A and B with B, which depends on how each parent's B A is factored (its gauge) and
yields cross terms B1 A2 that nobody trained; dropping entries of both factors, or going past a
parent in both, makes norms grow; subspace mixing takes the second parent's least part.

The others mix the updates B A themselves: both parents side by side are an update of twice the
rank, a small matrix between them says how to mix, and the nearest update of the old rank is the
child, with slots that no parent fills ready to learn. No module's ||B A|| exceeds the larger of
its parents'.

Shapes are suffixes, see `training/factors.py`.
"""

import random
from collections.abc import Callable

import torch
from torch import Tensor

from training.factors import (
    A,
    Adapter,
    B,
    Pair,
    Update,
    alike,
    like,
    norm,
    part_of,
    rebuilt,
    spectrum,
    truncated,
    update_of,
)

# Constants of the published operators, as `populora` 0.4.5 on PyPI has them.
DROPPED = 0.7  # share of the entries that DARE drops
ETA = (1.0, 1.5)  # range of the extrapolation: 1 is the fitter parent
# Ours, where the published constant does not serve.
COMPONENTS_DROPPED = (
    0.5  # of both parents' singular values: about as many stay as the rank has room
)


def modular(first: Adapter, second: Adapter, seed: int) -> dict[str, Tensor]:
    """X2: each module is one parent's, drawn at random. Published and ours: nothing is mixed."""
    dice = random.Random(seed)
    chosen = {name: dice.choice((first, second)) for name in alike(first, second)}
    keys = [(key, key.removesuffix(A).removesuffix(B)) for key in first]
    return {key: chosen[name][key].detach().to(first[key].dtype, copy=True) for key, name in keys}


def linear_0_5(first: Adapter, second: Adapter, seed: int) -> dict[str, Tensor]:
    """The control: the mean of both updates."""

    def middle(both: Update) -> Tensor:
        return torch.eye(len(both.gram_a_R_R)).double() / 2

    return _mixed(middle, first, second, seed)


def published_linear_0_5(first: Adapter, second: Adapter, seed: int) -> dict[str, Tensor]:
    """The control as published: the mean of both A and of both B."""

    def change(one: Pair, two: Pair) -> Pair:
        return one[0].lerp(two[0], 0.5), one[1].lerp(two[1], 0.5)

    return rebuilt(change, first, second)


def dare(
    first: Adapter, second: Adapter, seed: int, *, dropped: float = COMPONENTS_DROPPED
) -> dict[str, Tensor]:
    """X1: each parent loses a share of its singular values, drawn at random, and what stays is
    divided by the share that stays; the child is the mean.

    What one parent loses the other keeps, up to a share of a half: at a half, the child of equal
    parents is a copy. At any share it is the mean of its parents on average. DARE itself (Yu et
    al., arXiv 2311.03099) drops entries of the update, which leaves a matrix of full rank:
    three quarters of it would be lost in truncation.
    """
    dice = torch.Generator().manual_seed(seed)

    def middle(both: Update) -> Tensor:
        chance_R = torch.rand(len(both.pairs[0][0]), generator=dice)
        halves = []
        for number, stays_R in enumerate((chance_R >= dropped, chance_R < 1 - dropped)):
            found = spectrum(part_of(both, number))
            stays_K = stays_R[: len(found.values_K)]
            halves.append(found.left_R_K[:, stays_K] @ found.right_K_R[stays_K])
        return torch.block_diag(*halves) / (2 * (1 - dropped))

    return _mixed(middle, first, second, seed)


def published_dare(
    first: Adapter, second: Adapter, seed: int, *, dropped: float = DROPPED
) -> dict[str, Tensor]:
    """X1 as published: each parent's entries of A and of B are dropped at random, the others
    divided by the share that stays; the child is the mean of the factors.
    """
    device = first[alike(first, second)[0] + A].device
    dice = torch.Generator(device).manual_seed(seed)

    def sparse(factor: Tensor) -> Tensor:
        stay = torch.rand(factor.shape, generator=dice, device=device) >= dropped
        return stay.float().mul_(factor)

    def change(one: Pair, two: Pair) -> Pair:
        a_R_I, b_O_R = (
            (sparse(a_factor).add_(sparse(its_mate))).mul_(0.5 / (1 - dropped))
            for a_factor, its_mate in zip(one, two, strict=True)
        )
        return a_R_I, b_O_R

    return rebuilt(change, first, second)


def subspace(first: Adapter, second: Adapter, seed: int) -> dict[str, Tensor]:
    """X3: the k largest singular values of the first parent and the R - k largest of the second,
    with their vectors; k is drawn from 1 to R - 1 for each module. Raises ValueError where R is 1.
    """
    dice = random.Random(seed)

    def middle(both: Update) -> Tensor:
        rank = len(both.pairs[0][0])
        cut = _cut(rank, dice)
        halves = []
        for number, count in enumerate((cut, rank - cut)):
            found = spectrum(part_of(both, number))
            halves.append(found.left_R_K[:, :count] @ found.right_K_R[:count])
        return torch.block_diag(*halves)

    return _mixed(middle, first, second, seed)


def published_subspace(first: Adapter, second: Adapter, seed: int) -> dict[str, Tensor]:
    """X3 as published: the k largest singular values of the first parent and those past the k
    largest of the second, split evenly, as square roots, between A and B. Raises ValueError where
    R is 1.
    """
    dice = random.Random(seed)

    def change(one: Pair, two: Pair) -> Pair:
        cut = _cut(len(one[0]), dice)
        a_R_I, b_O_R = torch.zeros_like(one[0]), torch.zeros_like(one[1])
        for (a, b), part in ((one, slice(0, cut)), (two, slice(cut, None))):
            found = spectrum(update_of((a, b)))
            roots_K = found.values_K[part].sqrt()
            slots = slice(part.start, part.start + len(roots_K))
            a_R_I[slots] = like(roots_K[:, None] * found.right_K_R[part], a) @ a
            b_O_R[:, slots] = b @ like(found.left_R_K[:, part] / roots_K, b)
        return a_R_I, b_O_R

    return rebuilt(change, first, second)


def extrapolation(
    first: Adapter, second: Adapter, seed: int, *, eta: tuple[float, float] = ETA
) -> dict[str, Tensor]:
    """X4: from the first parent's update through the second's, the fitter's, and past it: first +
    eta (second - first), with one eta for the child, drawn uniformly from its range.
    """
    step = random.Random(seed).uniform(*eta)

    def middle(both: Update) -> Tensor:
        weights = torch.tensor([1 - step, step], dtype=torch.float64)
        return weights.repeat_interleave(len(both.pairs[0][0])).diag()

    return _mixed(middle, first, second, seed)


def published_extrapolation(
    first: Adapter, second: Adapter, seed: int, *, eta: tuple[float, float] = ETA
) -> dict[str, Tensor]:
    """X4 as published: A and B each go from the first parent's through the second's and past it."""
    step = random.Random(seed).uniform(*eta)

    def change(one: Pair, two: Pair) -> Pair:
        return one[0].lerp(two[0], step), one[1].lerp(two[1], step)

    return rebuilt(change, first, second)


def _mixed(
    middle: Callable[[Update], Tensor], first: Adapter, second: Adapter, seed: int
) -> dict[str, Tensor]:
    """The child whose update is nearest to [B1 B2] M [A1; A2], for the middle M of each module, and
    no larger than the larger parent's.
    """
    dice = torch.Generator().manual_seed(seed)  # for rows of A where no parent fills a slot

    def change(one: Pair, two: Pair) -> Pair:
        both = update_of(one, two)
        largest = max(norm(part_of(both, number)) for number in range(2))
        return truncated(both, middle(both), rank=len(one[0]), largest=largest, dice=dice)

    return rebuilt(change, first, second)


def _cut(rank: int, dice: random.Random) -> int:
    if rank < 2:
        raise ValueError(f"wanted a rank of 2 or more to mix subspaces, found {rank}")
    return dice.randrange(1, rank)
