"""Evolution of one role: who is replaced, by a child of whom, and what the child starts with."""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from training.diversity import kinship
from training.factors import Adapter
from training.operators import Operators, child_of, draw_birth
from training.ratings import Rating, in_grace, inherited, lower_bound, replacement

FOUNDER = "founder"  # in the place of an operator: of those who were there from the start


@dataclass
class Role:
    """The members of one role, numbered from 0: where they stand in the population, their ratings,
    and when and by which operator they were born.
    """

    name: str
    places: list[int]  # of its members in the population
    ratings: list[Rating] = field(default_factory=list)
    born: list[int] = field(default_factory=list)  # evolution event of a member's birth; 0: founder
    born_at: list[int] = field(default_factory=list)  # the step of it
    born_by: list[str] = field(default_factory=list)  # the operator, or FOUNDER

    @classmethod
    def of(cls, kept: dict[str, Any]) -> "Role":
        """The role of which `dataclasses.asdict` made this."""
        ratings = [Rating(**rating) for rating in kept["ratings"]]
        return cls(**{**kept, "ratings": ratings})

    def __post_init__(self) -> None:
        self.ratings = self.ratings or [Rating()] * len(self.places)
        self.born = self.born or [0] * len(self.places)
        self.born_at = self.born_at or [0] * len(self.places)
        self.born_by = self.born_by or [FOUNDER] * len(self.places)


@dataclass(frozen=True)
class Evolution:
    """How a role evolves."""

    operators: Operators
    culled: float  # share of a role that is replaced at an event
    crossover_share: float  # of children with two parents, where two are there
    grace: int  # events that a newcomer is spared at
    fresh_ratings: bool  # newcomers start with the prior; or inherit their parents' rating
    lone: bool  # a role's only member is replaced by its own mutation; or it is left alone


def evolve(
    role: Role,
    how: Evolution,
    *,
    event: int,
    step: int,
    dice: random.Random,
    adapter: Callable[[int], Adapter],
    replace: Callable[[int, dict[str, Tensor]], None],
) -> list[dict[str, Any]]:
    """One event, numbered from 1: the members with the lowest bounds are replaced by children of
    the others. `adapter` gives a member of the population, `replace` puts a child in its place.

    Returns a record of each birth, enough to make the child again from its parents, with how it
    lies to them, and with what it replaced: that member's operator, its age in steps, and how far
    its bound was below the lowest of those that stay.
    """
    if len(role.places) == 1 and not how.lone:
        return []
    chosen = replacement(
        role.ratings, in_grace(role.born, event, grace=how.grace), share=how.culled
    )
    if not chosen.culled:
        return []
    # All parents are those of before the event: no child becomes a parent at its own birth.
    parents = {number: adapter(role.places[number]) for number in chosen.pool}
    members = [parents.get(number, {}) for number in range(len(role.places))]
    bounds = [lower_bound(rating) for rating in role.ratings]
    lowest = min(bounds[number] for number in chosen.pool)
    births: list[dict[str, Any]] = []
    for number in chosen.culled:
        birth = draw_birth(how.operators, chosen.pool, dice, crossover_share=how.crossover_share)
        child = child_of(how.operators, birth, members)
        replace(role.places[number], child)
        births.append(
            {
                "role": role.name,
                "member": number,
                "operator": birth.operator,
                "parents": list(birth.parents),
                "seed": birth.seed,
                **asdict(kinship(child, [members[parent] for parent in birth.parents])),
                "replaced": role.born_by[number],
                "died_after": step - role.born_at[number],
                "below": lowest - bounds[number],
            }
        )
    for record in births:
        number = record["member"]
        of_parents = [role.ratings[parent] for parent in record["parents"]]
        role.ratings[number] = Rating() if how.fresh_ratings else inherited(of_parents)
        role.born[number], role.born_at[number] = event, step
        role.born_by[number] = record["operator"]
    return births


def rated(ratings: Sequence[Rating]) -> list[list[float]]:
    """Ratings as JSON has them."""
    return [[rating.mean, rating.deviation] for rating in ratings]
