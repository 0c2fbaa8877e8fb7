"""The operators of weight-space evolution, and how a child's operator and parents are drawn.

A recipe names one of the `SETS`; what each operator does, and what is wrong in the published ones,
is in `training/mutations.py` and `training/crossovers.py`. PopuLoRA (arXiv 2605.16727) has four of
each and two controls, which any operator should beat under the same training afterwards.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from training import crossovers, mutations
from training.factors import Adapter

Mutation = Callable[[Adapter, int], dict[str, Tensor]]  # of a parent, with a seed
Crossover = Callable[[Adapter, Adapter, int], dict[str, Tensor]]  # the fitter parent second

# Whether a child has one parent or two, where two are there: the value of a reading of the paper,
# which was not checked against it.
CROSSOVER_SHARE = 0.5


@dataclass(frozen=True)
class Operators:
    mutations: Mapping[str, Mutation]
    crossovers: Mapping[str, Crossover]


DEFAULT = Operators(
    mutations={
        "spectral": mutations.spectral,
        "layer_gaussian": mutations.layer_gaussian,
        "masking": mutations.masking,
        "gaussian": mutations.gaussian,
    },
    crossovers={
        "dare": crossovers.dare,
        "modular": crossovers.modular,
        "subspace": crossovers.subspace,
        "extrapolation": crossovers.extrapolation,
    },
)

# Of the fourth mutation there are two accounts: noise on all tensors, or NEFTune's. `neftune` and
# `published_neftune` are the latter; no set has it.
PUBLISHED = Operators(
    mutations={
        "spectral": mutations.published_spectral,
        "layer_gaussian": mutations.published_layer_gaussian,
        "masking": mutations.published_masking,
        "gaussian": mutations.published_gaussian,
    },
    crossovers={
        "dare": crossovers.published_dare,
        "modular": crossovers.modular,
        "subspace": crossovers.published_subspace,
        "extrapolation": crossovers.published_extrapolation,
    },
)

CONTROLS = Operators(
    mutations={"copy_parent": mutations.copy_parent},
    crossovers={"linear_0_5": crossovers.linear_0_5},
)

SETS = {"default": DEFAULT, "published": PUBLISHED, "controls": CONTROLS}


@dataclass(frozen=True)
class Birth:
    """How a child comes to be: enough to make it again from its parents, and to log."""

    operator: str
    parents: tuple[int, ...]  # one or two members, the fitter one last
    seed: int


def draw_birth(
    operators: Operators,
    pool: Sequence[int],
    dice: random.Random,
    *,
    crossover_share: float = CROSSOVER_SHARE,
) -> Birth:
    """A child's parents, out of a pool sorted from the least fit to the fittest, and its operator,
    each drawn uniformly. A set without mutations or without crossovers always draws the other; a
    pool of one has no crossover. Raises ValueError where nothing is left to draw.
    """
    kinds = [
        (operators.crossovers, 2, crossover_share if operators.mutations else 1.0),
        (operators.mutations, 1, 1 - crossover_share if operators.crossovers else 1.0),
    ]
    possible = [kind for kind in kinds if kind[0] and len(pool) >= kind[1]]
    if not possible:
        raise ValueError(
            f"wanted operators and parents for them, found {len(operators.mutations)} mutations, "
            f"{len(operators.crossovers)} crossovers and a pool of {len(pool)}"
        )
    names, count, _ = dice.choices(possible, [share for *_, share in possible])[0]
    operator = dice.choice(sorted(names))
    places = sorted(dice.sample(range(len(pool)), count))
    return Birth(operator, tuple(pool[place] for place in places), dice.getrandbits(63))


def child_of(operators: Operators, birth: Birth, members: Sequence[Adapter]) -> dict[str, Tensor]:
    """The child that a birth describes."""
    parents = [members[number] for number in birth.parents]
    if len(parents) == 1:
        return operators.mutations[birth.operator](parents[0], birth.seed)
    return operators.crossovers[birth.operator](parents[0], parents[1], birth.seed)
