"""The frontier of a target set: which of its problems are solved sometimes, as far as was seen.

A problem that all attempts solve, or none, has no gradient. Which ones have one changes as a solver
learns, and is alike for problems of one domain and depth: counts by these, old ones fading, say
where to ask. So the target's gradient is that of the problems that can be learnt now.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

Problem = Mapping[str, Any]
Kind = tuple[str, int]

FADING = 0.95  # what is left of a count from one step to the next
PRIOR = 0.5  # problems that a depth's share over all domains counts for, and 1/2 for a depth
SHARPNESS = 3  # power of the shares that kinds are drawn by: most kinds are dead, and long


class Frontier:
    def __init__(self, problems: Sequence[Problem], domains: Sequence[str] = ()) -> None:
        """Of these domains only, where some are named. Raises ValueError where none is left."""
        self._problems: dict[Kind, list[Problem]] = {}
        for problem in problems:
            if not domains or problem["domain"] in domains:
                self._problems.setdefault(_kind(problem), []).append(problem)
        if not self._problems:
            raise ValueError(
                f"wanted target problems of {list(domains) or 'any domain'}, found none; name "
                "domains that the target set has"
            )
        self._kinds = sorted(self._problems)
        self._counts = {kind: [0.0, 0.0] for kind in self._kinds}  # asked, solved sometimes

    def draw(self, number: int, dice: random.Random) -> list[Problem]:
        """Problems, of each kind the more, the likelier they are to be solved sometimes."""
        of_depth: dict[int, list[float]] = {}
        for (_, depth), count in self._counts.items():
            total = of_depth.setdefault(depth, [0.0, 0.0])
            total[0] += count[0]
            total[1] += count[1]
        weights = []
        for (_, depth), (asked, some) in self._counts.items():
            prior = _share(*of_depth[depth], prior=0.5)
            weights.append(_share(asked, some, prior=prior) ** SHARPNESS)
        kinds = dice.choices(self._kinds, weights, k=number)
        return [dice.choice(self._problems[kind]) for kind in kinds]

    def note(self, problems: Sequence[Problem], sometimes: Sequence[bool]) -> None:
        """What came of a step's problems."""
        for count in self._counts.values():
            count[0] *= FADING
            count[1] *= FADING
        for problem, some in zip(problems, sometimes, strict=True):
            count = self._counts[_kind(problem)]
            count[0] += 1
            count[1] += some

    def state(self) -> list[list[float]]:
        """All that `restore` needs, for JSON."""
        return [list(count) for count in self._counts.values()]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        """Go on where a frontier of the same problems was."""
        self._counts = {k: list(count) for k, count in zip(self._kinds, state, strict=True)}


def _share(asked: float, some: float, prior: float) -> float:
    return (some + PRIOR * prior) / (asked + PRIOR)


def _kind(problem: Problem) -> Kind:
    return problem["domain"], problem.get("depth", 1)
