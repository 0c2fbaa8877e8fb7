"""How different the members of a role are: cosines, principal angles, stable ranks and norms of
their updates dW = B A, all from the factors, without building dW.

Members are PEFT state dicts of one shape. Nothing here depends on how an update is factored (its
gauge), nor on the dtype of the factors but for their own rounding: what is small is float64.
Norms are those of B A: with the adapter's scale alpha / rank, which no state dict tells, they are
that many times as large. The rest does not depend on the scale.

Shapes are suffixes: M members, R rank, K <= R singular values, O outputs of a module.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from training.factors import A, Adapter, B, Update, alike, like, part_of, spectrum, update_of


@dataclass(frozen=True)
class Diversity:
    """Of the members of one role, in numbers that JSON has: None is a number that nobody has."""

    cosine: float | None  # mean over the pairs of members that both have an update
    angle: float | None  # degrees, mean over these pairs, modules and their principal angles
    stable_rank: float | None  # mean over members and modules that have an update
    norm: float  # mean over members


@dataclass(frozen=True)
class Kinship:
    """How a child's update lies to those of its parents, in their order."""

    cosines: list[float]  # NaN where the child or the parent has no update
    norm: float  # the child's
    parents_norms: list[float]


def diversity(members: Sequence[Adapter]) -> Diversity:
    """The numbers of a role. Raises ValueError unless the members are plain LoRA of one shape and
    finite.
    """
    inner_M_M = torch.zeros(len(members), len(members), dtype=torch.float64)
    ranks: list[float] = []
    angles: list[Tensor] = []
    for _, update in _stacked(members):
        inner_M_M += _inner(update)
        parts = [part_of(update, number) for number in range(len(members))]
        ranks += [rank for rank in map(_stable_rank, parts) if not math.isnan(rank)]
        spaces = [_column_space(part) for part in parts]
        angles += [_angles(one, other) for one, other in combinations(spaces, 2)]
    angles_N = torch.cat(angles) if angles else torch.zeros(0)
    cosines_M_M = _cosines(inner_M_M)
    apart = cosines_M_M[*torch.triu_indices(len(members), len(members), 1)]
    apart = apart[~apart.isnan()]
    return Diversity(
        cosine=apart.mean().item() if len(apart) else None,
        angle=angles_N.mean().item() if len(angles_N) else None,
        stable_rank=sum(ranks) / len(ranks) if ranks else None,
        norm=_lengths(inner_M_M).mean().item(),
    )


def kinship(child: Adapter, parents: Sequence[Adapter]) -> Kinship:
    """A child beside its parents. Raises what `diversity` raises."""
    inner_M_M = _inner_products([child, *parents])
    norm, *parents_norms = _lengths(inner_M_M).tolist()
    return Kinship(_cosines(inner_M_M)[0, 1:].tolist(), norm, parents_norms)


def cosines(members: Sequence[Adapter]) -> Tensor:
    """The cosine of each pair's updates, (M, M), each update being the dW of all modules in one
    row. NaN in the row and column of a member without an update, as before its first step. Raises
    what `diversity` raises.
    """
    return _cosines(_inner_products(members))


def norms(members: Sequence[Adapter]) -> Tensor:
    """The Frobenius norm of each member's update, all modules together, (M,). Raises what
    `diversity` raises.
    """
    return _lengths(_inner_products(members))


def stable_ranks(member: Adapter) -> dict[str, float]:
    """For each module, the squared Frobenius norm of dW over its squared spectral norm (Rudelson
    and Vershynin, JACM 2007): between 1 and the rank, how many directions carry it. NaN where
    there is no update.
    """
    return {name: _stable_rank(update) for name, update in _stacked([member])}


def principal_angles(one: Adapter, other: Adapter) -> dict[str, Tensor]:
    """For each module the principal angles between the column spaces of both members' dW, in
    degrees from the smallest up: 0 for each direction that both have, 90 for one that the other
    has nothing of. As many as the smaller of both ranks. Raises what `diversity` raises.

    Cosines tell no small angle, so those come from sines (Björck and Golub, Math. Comp. 27, 1973).
    """
    return {
        name: _angles(*(_column_space(part_of(update, number)) for number in (0, 1)))
        for name, update in _stacked([one, other])
    }


def _stacked(members: Sequence[Adapter]) -> Iterator[tuple[str, Update]]:
    """Each module's name, with the updates of all members side by side."""
    for name in alike(*members):
        pairs = [(member[name + A].detach(), member[name + B].detach()) for member in members]
        yield name, update_of(*pairs)


def _inner(update: Update) -> Tensor:
    """The inner products of the updates of M members, (M, M): <B1 A1, B2 A2> is the sum of
    B1^T B2 times A1 A2^T, entry by entry.
    """
    count = len(update.pairs)
    products = update.gram_a_R_R * update.gram_b_R_R
    return products.view(count, -1, count, products.shape[1] // count).sum(dim=(1, 3))


def _inner_products(members: Sequence[Adapter]) -> Tensor:
    """Those of the updates of all modules in one row, (M, M)."""
    return torch.stack([_inner(update) for _, update in _stacked(members)]).sum(dim=0)


def _lengths(inner_M_M: Tensor) -> Tensor:
    return inner_M_M.diagonal().clamp(min=0).sqrt()


def _cosines(inner_M_M: Tensor) -> Tensor:
    lengths_M = _lengths(inner_M_M)
    return (inner_M_M / lengths_M / lengths_M[:, None]).clamp(-1, 1)


def _stable_rank(update: Update) -> float:
    squares_K = spectrum(update).values_K.square()
    return (squares_K.sum() / squares_K[0]).item() if len(squares_K) else math.nan


def _column_space(update: Update) -> Tensor:
    """An orthonormal basis of the column space of B A, (O, K)."""
    _, b_O_R = update.pairs[0]
    return torch.linalg.qr(b_O_R.double() @ like(spectrum(update).left_R_K, b_O_R.double())).Q


def _angles(one_O_K: Tensor, other_O_K: Tensor) -> Tensor:
    if one_O_K.shape[1] < other_O_K.shape[1]:
        one_O_K, other_O_K = other_O_K, one_O_K
    shared = one_O_K.T @ other_O_K
    cosines_K = torch.linalg.svdvals(shared).clamp(max=1)
    sines_K = torch.linalg.svdvals(other_O_K - one_O_K @ shared).flip(0).clamp(max=1)
    angles_K = torch.where(cosines_K**2 < 0.5, cosines_K.acos(), sines_K.asin())
    return angles_K.rad2deg().cpu()
