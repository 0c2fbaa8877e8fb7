"""LoRA factors and their product B A, without building it: singular values, norms, truncation.

An update is B A, (O, I), times the scale alpha / rank, which nothing here touches. All that its
singular values need are the Gram matrices A A^T and B^T B, which are as small as the rank: with
A A^T = P P^T, A = P V^T has orthonormal V, and the squared singular values of B A are the
eigenvalues of P^T B^T B P. Grams are taken in float64, so that squaring costs no accuracy that
float32 factors have; what is as long as I or O stays in float32.

Shapes are suffixes: R rows of A and columns of B (the rank, or twice that where two updates stand
side by side), I inputs and O outputs of a module, K singular values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

A, B = ".lora_A.weight", ".lora_B.weight"  # how PEFT's keys end
TOLERANCE = 1e-6  # singular values below this share of the largest are rounding errors
CHUNK = 2048  # columns whose inner products are taken at once: what fits a core's cache
FRESH_ROW = 3**-0.5  # length of a row of A as PEFT draws it: uniform within 1 / sqrt(inputs)

Adapter = Mapping[str, Tensor]  # PEFT's state dict: for each module A (R, I) and B (O, R)
Pair = tuple[Tensor, Tensor]  # A and B of one module


@dataclass(frozen=True)
class Update:
    """A module's B A, or the sum of several: then A are one above the other, B side by side, and R
    counts the rows of all. Grams are float64 and on the CPU, where small matrices are fastest.
    """

    pairs: tuple[Pair, ...]
    gram_a_R_R: Tensor
    gram_b_R_R: Tensor


@dataclass(frozen=True)
class Spectrum:
    """The singular value decomposition U S V^T of an update, in coordinates of its factors:
    U S = B @ left and V^T = right @ A. Rounding errors are left out: K <= R.
    """

    left_R_K: Tensor
    values_K: Tensor  # descending
    right_K_R: Tensor


def modules(adapter: Adapter) -> list[str]:
    """The names of the modules that an adapter is for, in its own order.

    Raises ValueError unless it is plain LoRA with an A and a B of one rank for each: no DoRA, no
    embeddings, no modules saved whole.
    """
    names = [key.removesuffix(A) for key in adapter if key.endswith(A)]
    wanted = {name + end for name in names for end in (A, B)}
    if not names or wanted != adapter.keys():
        odd = sorted(wanted ^ adapter.keys())[:3]
        raise ValueError(
            f"wanted keys that end in {A} and {B}, in pairs, found {odd or 'none'} out of place; "
            "operators are for plain LoRA on linear modules"
        )
    for name in names:
        a, b = adapter[name + A].shape, adapter[name + B].shape
        if len(a) != 2 or len(b) != 2 or a[0] != b[1]:
            raise ValueError(
                f"wanted A (rank, inputs) and B (outputs, rank) of one rank, found {tuple(a)} and "
                f"{tuple(b)} in {name}"
            )
    return names


def alike(*parents: Adapter) -> list[str]:
    """The names of the parents' modules. Raises ValueError where the parents differ in modules,
    rank or shapes, besides what `modules` raises. That their alpha is the same, which no state
    dict tells, is for the caller to see to.
    """
    shapes = [{key: tuple(tensor.shape) for key, tensor in p.items()} for p in parents]
    for other in shapes[1:]:
        odd = sorted(dict(shapes[0].items() ^ other.items()))[:3]
        if odd:
            raise ValueError(
                "wanted parents of the same modules, rank and shapes, found others in "
                f"{', '.join(odd)}; evolve adapters of one shape only"
            )
    return modules(parents[0])


@torch.no_grad()
def rebuilt(change: Callable[..., Pair], *parents: Adapter) -> dict[str, Tensor]:
    """A child of the parents' shape and of the first one's dtypes, which shares no memory with
    them. `change` gets each module's (A, B) of each parent, in float32, and returns the child's.

    Raises what `alike` raises.
    """
    child: dict[str, Tensor] = {}
    for name in alike(*parents):
        pairs = [(parent[name + A].float(), parent[name + B].float()) for parent in parents]
        for end, factor in zip((A, B), change(*pairs), strict=True):
            child[name + end] = factor.to(
                parents[0][name + end].dtype, copy=True, memory_format=torch.contiguous_format
            )
    return {key: child[key] for key in parents[0]}


def update_of(*pairs: Pair) -> Update:
    """The update of one pair, or the sum of several. Raises ValueError unless all is finite."""
    update = Update(pairs, _gram([a for a, _ in pairs], 1), _gram([b for _, b in pairs], 0))
    if not (update.gram_a_R_R.isfinite().all() and update.gram_b_R_R.isfinite().all()):
        raise ValueError("wanted finite factors, found NaN or infinity; leave this parent out")
    return update


def part_of(update: Update, number: int) -> Update:
    """One of the updates that were summed."""
    start = sum(len(a) for a, _ in update.pairs[:number])
    rows = slice(start, start + len(update.pairs[number][0]))
    return Update(
        (update.pairs[number],), update.gram_a_R_R[rows, rows], update.gram_b_R_R[rows, rows]
    )


def spectrum(update: Update, middle_R_R: Tensor | None = None) -> Spectrum:
    """Singular values and vectors of B A, or of B M A with a middle M in float64."""
    squares_R, turns_R_R = torch.linalg.eigh(update.gram_a_R_R)
    alive = squares_R > TOLERANCE**2 * squares_R[-1]
    roots_K, turns_R_K = squares_R[alive].sqrt(), turns_R_R[:, alive]
    left_R_K = turns_R_K * roots_K  # P, in A = P V^T
    if middle_R_R is not None:
        left_R_K = middle_R_R @ left_R_K
    squares_K, turns_K_K = torch.linalg.eigh(left_R_K.T @ update.gram_b_R_R @ left_R_K)
    values_K, turns_K_K = squares_K.flip(0).clamp(min=0).sqrt(), turns_K_K.flip(1)
    alive = values_K > TOLERANCE * values_K[:1].sum()
    turns_K_K = turns_K_K[:, alive]
    return Spectrum(
        left_R_K=left_R_K @ turns_K_K,
        values_K=values_K[alive],
        right_K_R=(turns_R_K / roots_K @ turns_K_K).T,
    )


def norm(update: Update) -> float:
    """The Frobenius norm of B A."""
    return (update.gram_a_R_R * update.gram_b_R_R).sum().clamp(min=0).sqrt().item()


def truncated(
    update: Update, middle_R_R: Tensor, *, rank: int, largest: float, dice: torch.Generator
) -> Pair:
    """The (A, B) of this rank whose product is nearest to B M A (Eckart and Young, 1936), scaled
    down to the norm `largest` where it is above.

    A's rows are orthogonal and as long as the rows of the given A are on average, so that A and B
    keep the proportion that training gave them. Slots without a singular value start as LoRA does,
    a random row of A and a column of zeros in B: with zeros in both, no gradient would reach them.
    """
    found = spectrum(update, middle_R_R)
    kept = min(rank, len(found.values_K))
    length = _row_length(update)
    scale = min(1.0, largest / found.values_K[:kept].norm().item()) if kept else 1.0
    a_R_I = update.pairs[0][0].new_zeros(rank, update.pairs[0][0].shape[1])
    b_O_R = update.pairs[0][1].new_zeros(update.pairs[0][1].shape[0], rank)
    right_K_R = like(found.right_K_R[:kept] * length, a_R_I)
    left_R_K = like(found.left_R_K[:, :kept] * (scale / length), b_O_R)
    start = 0
    for a, b in update.pairs:
        rows = slice(start, start + len(a))
        a_R_I[:kept].addmm_(right_K_R[:, rows], a)
        b_O_R[:, :kept].addmm_(b, left_R_K[rows])
        start += len(a)
    a_R_I[kept:] = fresh_rows(rank - kept, update, dice)
    return a_R_I, b_O_R


def like(small: Tensor, factor: Tensor) -> Tensor:
    """A small matrix with a factor's dtype, on its device."""
    return small.to(factor.device, factor.dtype)


def fresh_rows(count: int, update: Update, dice: torch.Generator) -> Tensor:
    """Random rows for A, (count, I), as long as its rows are on average."""
    a_R_I = update.pairs[0][0]
    rows = torch.randn(count, a_R_I.shape[1], generator=dice)
    rows *= _row_length(update) / rows.norm(dim=1, keepdim=True)
    return rows.to(a_R_I.device)


def _row_length(update: Update) -> float:
    return (update.gram_a_R_R.trace() / len(update.gram_a_R_R)).sqrt().item() or FRESH_ROW


def _gram(factors: Sequence[Tensor], long: int) -> Tensor:
    """The inner products (R, R) of all that is `long` in the factors: the dimension of I or O."""
    count = sum(factor.shape[1 - long] for factor in factors)
    gram = torch.zeros(count, count, dtype=torch.float64, device=factors[0].device)
    for parts in zip(*(factor.split(CHUNK, dim=long) for factor in factors), strict=True):
        exact = [part.double() for part in parts]
        whole = torch.cat(exact, dim=1 - long) if len(exact) > 1 else exact[0]
        rows = whole if long == 1 else whole.T
        gram.addmm_(rows, rows.T)
    return gram.cpu()
