"""Mutations: a child of one LoRA adapter, for weight-space evolution as in PopuLoRA (arXiv
2605.16727).

Each takes a PEFT state dict and a seed, and returns a new state dict of the same shape; maths is
float32, the dtype stays the parent's. The same seed gives the same child on the same kind of
device. There are two of each kind.

`published_...` follow the published formulas and constants, with what was found wrong in them:
rotations that are none, slots that never learn again, adapters with B = 0 destroyed, noise that
depends on how B A is factored (its gauge: (B R) (R^-1 A) is the same update), norms that grow.

The others change one factor and leave the other to the bit, so that every slot still learns and
the proportion of A to B stays; they scale noise by the update B A, whatever its gauge; no module's
||B A|| grows. Where B A = 0, as in a fresh adapter, they perturb A alone.

Shapes are suffixes, see `training/factors.py`.
"""

import math
import random
from collections.abc import Callable

import torch
from torch import Tensor

from training.factors import (
    TOLERANCE,
    A,
    Adapter,
    B,
    Pair,
    Update,
    fresh_rows,
    like,
    modules,
    norm,
    rebuilt,
    spectrum,
    update_of,
)

# Constants of the published operators, as `populora` 0.4.5 on PyPI has them.
SPECTRAL = 0.1  # of log singular values, and of the rotation of their vectors
SELECTED = 0.33  # share of the modules that the layer-selective mutation changes
SELECTIVE_NOISE = 0.1  # standard deviation over that of the tensor
MASKED = 0.3  # share of the singular values that are set to 0
NOISE = 0.15  # standard deviation over that of the tensor, in all modules
NEFTUNE_ALPHA = 10.0  # noise within alpha / sqrt(numel): NEFTune (Jain et al., arXiv 2310.05914)
# Ours, where the published constant has no equivalent.
NEFTUNE_NOISE = 0.1  # ||change of B A|| over ||B A||

ROUNDING = 1e-9  # so that 0.29 * 100, which is 28.999999999999996, counts as 29


def copy_parent(parent: Adapter, seed: int) -> dict[str, Tensor]:
    """The control: an exact copy."""
    return {key: tensor.detach().clone() for key, tensor in parent.items()}


def spectral(
    parent: Adapter, seed: int, *, epsilon: float = SPECTRAL, rotation: float = SPECTRAL
) -> dict[str, Tensor]:
    """M1: singular values times exp(epsilon z), singular vectors rotated, each with noise of its
    own. Changes B.

    The rotation is Cayley's, (I - K/2)^-1 (I + K/2), which is exactly orthogonal. K is skew, its
    entries of size rotation / sqrt(2 R): the angle does not grow with the rank.
    """
    dice = torch.Generator().manual_seed(seed)

    def change(pair: Pair) -> Pair:
        update = update_of(pair)
        found = spectrum(update)
        count = len(found.values_K)
        if count == 0:
            return _stirred(pair, epsilon, dice)
        values_K = found.values_K * (epsilon * _normal(dice, count)).exp()
        values_K = values_K * (found.values_K.norm() / values_K.norm()).clamp(max=1)
        angle = rotation / math.sqrt(count)
        left_K_K, right_K_K = (_cayley(angle * _skew(dice, count)) for _ in range(2))
        turned_K_K = left_K_K / found.values_K[:, None] @ (values_K[:, None] * right_K_K.T)
        # B (I + left (turned - I) right): the rest of B A, rounding errors, stays as it is.
        step_R_R = found.left_R_K @ (turned_K_K - torch.eye(count).double()) @ found.right_K_R
        return pair[0], pair[1] + pair[1] @ like(step_R_R, pair[1])

    return rebuilt(change, parent)


def published_spectral(
    parent: Adapter, seed: int, *, epsilon: float = SPECTRAL
) -> dict[str, Tensor]:
    """M1 as published: vectors times I + epsilon K with K = (M - M^T) / 2, singular values split
    evenly, as square roots, between A and B.
    """
    dice = torch.Generator().manual_seed(seed)

    def change(pair: Pair) -> Pair:
        found = spectrum(update_of(pair))
        count = len(found.values_K)
        roots_K = (found.values_K * (epsilon * _normal(dice, count)).exp()).sqrt()
        unit_K_K = torch.eye(count).double()
        left_K_K, right_K_K = (unit_K_K + epsilon * _skew(dice, count) for _ in range(2))
        return _split(
            pair,
            found.left_R_K / found.values_K @ (left_K_K * roots_K),
            (right_K_K * roots_K).T @ found.right_K_R,
        )

    return rebuilt(change, parent)


def layer_gaussian(
    parent: Adapter, seed: int, *, epsilon: float = SELECTIVE_NOISE, share: float = SELECTED
) -> dict[str, Tensor]:
    """M2: `gaussian` in max(1, floor(share L)) of the L modules."""
    return _in_some(gaussian, parent, seed, epsilon, share)


def published_layer_gaussian(
    parent: Adapter, seed: int, *, epsilon: float = SELECTIVE_NOISE, share: float = SELECTED
) -> dict[str, Tensor]:
    """M2 as published: `published_gaussian` in max(1, floor(share L)) of the L modules."""
    return _in_some(published_gaussian, parent, seed, epsilon, share)


def masking(parent: Adapter, seed: int, *, share: float = MASKED) -> dict[str, Tensor]:
    """M3: ceil(share R) singular values, drawn at random, become 0. Changes B.

    A keeps all of its rows, so that the lost directions can grow back. Where B A = 0, as many rows
    of A are drawn anew.
    """
    dice = random.Random(seed)
    row_dice = torch.Generator().manual_seed(seed)

    def change(pair: Pair) -> Pair:
        update = update_of(pair)
        found = spectrum(update)
        lost = _drawn(len(pair[0]), share, dice)
        if len(found.values_K) == 0:
            a_R_I = pair[0].clone()
            a_R_I[lost] = fresh_rows(len(lost), update, row_dice)
            return a_R_I, pair[1]
        lost = [slot for slot in lost if slot < len(found.values_K)]
        step_R_R = found.left_R_K[:, lost] @ found.right_K_R[lost]
        return pair[0], pair[1] - pair[1] @ like(step_R_R, pair[1])

    return rebuilt(change, parent)


def published_masking(parent: Adapter, seed: int, *, share: float = MASKED) -> dict[str, Tensor]:
    """M3 as published: singular values are split evenly between A and B, so that a masked one
    leaves a row and a column of zeros.
    """
    dice = random.Random(seed)

    def change(pair: Pair) -> Pair:
        found = spectrum(update_of(pair))
        lost = _drawn(len(pair[0]), share, dice)
        kept = [slot for slot in range(len(found.values_K)) if slot not in lost]
        roots_K = found.values_K[kept].sqrt()
        return _split(
            pair, found.left_R_K[:, kept] / roots_K, roots_K[:, None] * found.right_K_R[kept]
        )

    return rebuilt(change, parent)


def gaussian(parent: Adapter, seed: int, *, epsilon: float = NOISE) -> dict[str, Tensor]:
    """M4: noise on every module. Changes B: B A gets normal noise with ||noise|| =
    epsilon ||B A|| on average, in the row space of A and alike in all of its directions.
    """
    dice = _generator(parent, seed)

    def change(pair: Pair) -> Pair:
        update = update_of(pair)
        if norm(update) == 0:
            return _stirred(pair, epsilon, dice)
        noise_O_R = torch.randn(pair[1].shape, generator=dice, device=pair[1].device)
        step_R_R, scale = _noise(epsilon, update, update.gram_a_R_R, noise_O_R.T, pair[1].T)
        return pair[0], pair[1].addmm(noise_O_R, step_R_R, beta=scale, alpha=scale)

    return rebuilt(change, parent)


def published_gaussian(parent: Adapter, seed: int, *, epsilon: float = NOISE) -> dict[str, Tensor]:
    """M4 as published: normal noise of epsilon times the tensor's standard deviation, on A and on
    B. Where B = 0 that leaves B alone.
    """
    dice = _generator(parent, seed)

    def change(pair: Pair) -> Pair:
        a_R_I, b_O_R = (
            torch.randn(w.shape, generator=dice, device=w.device).mul_(epsilon * w.std()).add_(w)
            for w in pair
        )
        return a_R_I, b_O_R

    return rebuilt(change, parent)


def neftune(parent: Adapter, seed: int, *, epsilon: float = NEFTUNE_NOISE) -> dict[str, Tensor]:
    """M5: `gaussian`'s mirror image with uniform noise, as NEFTune's is. Changes A, in the column
    space of B.
    """
    dice = _generator(parent, seed)

    def change(pair: Pair) -> Pair:
        update = update_of(pair)
        if norm(update) == 0:
            return _stirred(pair, epsilon, dice)
        noise_R_I = torch.rand(pair[0].shape, generator=dice, device=pair[0].device)
        noise_R_I = noise_R_I.sub_(0.5).mul_(math.sqrt(12))  # of standard deviation 1
        step_R_R, scale = _noise(epsilon, update, update.gram_b_R_R, noise_R_I, pair[0])
        return pair[0].addmm(step_R_R, noise_R_I, beta=scale, alpha=scale), pair[1]

    return rebuilt(change, parent)


def published_neftune(
    parent: Adapter, seed: int, *, alpha: float = NEFTUNE_ALPHA
) -> dict[str, Tensor]:
    """M5 as published: noise on A, uniform within alpha / sqrt(numel of A) whatever A's size."""
    dice = _generator(parent, seed)

    def change(pair: Pair) -> Pair:
        noise_R_I = torch.rand(pair[0].shape, generator=dice, device=pair[0].device)
        bound = alpha / math.sqrt(pair[0].numel())
        return noise_R_I.mul_(2 * bound).sub_(bound).add_(pair[0]), pair[1]

    return rebuilt(change, parent)


def _in_some(
    operator: Callable[..., dict[str, Tensor]],
    parent: Adapter,
    seed: int,
    epsilon: float,
    share: float,
) -> dict[str, Tensor]:
    """The operator on a share of the modules, a copy of the others."""
    names = modules(parent)
    count = max(1, math.floor(share * len(names) + ROUNDING))
    chosen = set(random.Random(seed).sample(names, count))
    part = {key: parent[key] for key in parent if key.removesuffix(A).removesuffix(B) in chosen}
    changed = operator(part, seed, epsilon=epsilon)
    return {
        key: changed[key] if key in changed else tensor.detach().clone()
        for key, tensor in parent.items()
    }


def _split(pair: Pair, left_R_K: Tensor, right_K_R: Tensor) -> Pair:
    """B left and right A, with zeros in the slots past K."""
    kept = len(right_K_R)
    a_R_I, b_O_R = torch.zeros_like(pair[0]), torch.zeros_like(pair[1])
    a_R_I[:kept] = like(right_K_R, pair[0]) @ pair[0]
    b_O_R[:, :kept] = pair[1] @ like(left_R_K, pair[1])
    return a_R_I, b_O_R


def _stirred(pair: Pair, epsilon: float, dice: torch.Generator) -> Pair:
    """Noise on A alone: what is left to mutate where B A = 0."""
    a_R_I, b_O_R = pair
    noise_R_I = torch.randn(a_R_I.shape, generator=dice, device=dice.device).to(a_R_I.device)
    return (a_R_I + epsilon * a_R_I.std() * noise_R_I) / math.sqrt(1 + epsilon**2), b_O_R


def _noise(
    epsilon: float, update: Update, gram_R_R: Tensor, noise_R_X: Tensor, factor_R_X: Tensor
) -> tuple[Tensor, float]:
    """What to multiply noise with before it is added to a factor, so that B A gets noise of
    epsilon times its norm, alike in all directions of the other factor, whose Gram this is; and
    what to multiply the sum with, so that B A does not grow.
    """
    squares_R, turns_R_R = torch.linalg.eigh(gram_R_R)
    alive = squares_R > TOLERANCE**2 * squares_R[-1]
    roots_K, turns_R_K = squares_R[alive].sqrt(), turns_R_R[:, alive]
    size = norm(update)
    length = epsilon * size / noise_R_X.numel() ** 0.5
    # With W the inverse root of the Gram, || F + c W N ||^2 in the Gram's metric, term by term.
    overlap_R_R = (factor_R_X @ noise_R_X.T).to("cpu", torch.float64)
    cross = ((turns_R_K * roots_K) @ turns_R_K.T * overlap_R_R).sum().item()
    square = noise_R_X.norm().item() ** 2 * len(roots_K) / len(squares_R)
    grown = (size**2 + 2 * length * cross + length**2 * square) ** 0.5
    step_R_R = like(length * (turns_R_K / roots_K) @ turns_R_K.T, noise_R_X)
    return step_R_R, min(1.0, size / grown)


def _drawn(rank: int, share: float, dice: random.Random) -> list[int]:
    return dice.sample(range(rank), math.ceil(share * rank - ROUNDING))


def _skew(dice: torch.Generator, size: int) -> Tensor:
    """(M - M^T) / 2 of a matrix of normal numbers."""
    normal = _normal(dice, size, size)
    return (normal - normal.T) / 2


def _cayley(skew: Tensor) -> Tensor:
    unit = torch.eye(len(skew)).double()
    return torch.linalg.solve(unit - skew / 2, unit + skew / 2)


def _normal(dice: torch.Generator, *shape: int) -> Tensor:
    """Normal numbers for a small matrix: on the CPU, the same for every device."""
    return torch.randn(shape, generator=dice, dtype=torch.float64)


def _generator(parent: Adapter, seed: int) -> torch.Generator:
    """For numbers as many as a factor has, drawn where the factor is."""
    device = parent[modules(parent)[0] + A].device
    return torch.Generator(device).manual_seed(seed)
