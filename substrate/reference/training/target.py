"""The target of influence: problems with answers, the solver's last attempts at them, and their
gradient.

Attempts of earlier steps are remembered: they are part of the gradient at the weights of now, with
importance weights. So many problems are asked in a step that the gradient is reliable.
"""

import random
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from torch import Tensor

from training.frontier import Frontier, Problem
from training.influence import target_gradient
from training.mirror import Mirror
from training.posed import Posed
from training.reliability import gradient_reliability, next_target_count


class Target:
    def __init__(
        self,
        problems: Sequence[Problem],
        domains: Sequence[str],
        *,
        fewest: int,
        most: int,
        remembered: int,
    ) -> None:
        """Of the problems of these domains, all if there are none, `fewest` to `most` are asked in
        a step; `remembered` are part of the gradient. Raises ValueError where no problem is left.
        """
        self._frontier = Frontier(problems, domains)
        self._fewest, self._most, self._limit = fewest, most, remembered
        self._count = fewest
        self._remembered: list[Posed] = []  # that were solved sometimes

    @property
    def count(self) -> int:
        """How many problems the next gradient needs."""
        return self._count

    def draw(self, number: int, dice: random.Random) -> list[Problem]:
        return self._frontier.draw(number, dice)

    def note(self, problems: Sequence[Problem], posed: Sequence[Posed]) -> None:
        """What came of a step's problems."""
        self._frontier.note(problems, [one.sometimes for one in posed])
        fresh = [one for one in posed if one.sometimes]
        self._remembered = [*self._remembered, *fresh][-self._limit :]

    def told(
        self, problems: Sequence[Problem], posed: Sequence[Posed], reliability: float | None
    ) -> dict[str, Any]:
        """Metrics of a step's problems and of the gradient's reliability."""
        return {
            "problems": len(problems),
            "sometimes": sum(one.sometimes for one in posed),
            "reward": fmean(r for one in posed for r in one.rewards) if posed else None,
            "depth": fmean(p.get("depth", 1) for p in problems) if problems else None,
            "reliability": reliability,
        }

    def gradient(self, mirror: Mirror, normaliser: float) -> tuple[dict[str, Tensor], float]:
        """The gradient at the weights that the mirror shows, and its reliability, by which `count`
        changes.
        """
        found = target_gradient(
            mirror.model,
            mirror.batches(
                [answer for n, one in enumerate(self._remembered) for answer in one.answers(n)],
                normaliser=normaliser,
            ),
            questions=len(self._remembered),
        )
        reliability = gradient_reliability(found.lengths_Q, found.length)
        self._count = next_target_count(
            self._count, reliability, smallest=self._fewest, largest=self._most
        )
        return found.gradient, reliability

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, for JSON."""
        return {
            "frontier": self._frontier.state(),
            "count": self._count,
            "remembered": [asdict(posed) for posed in self._remembered],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where a target of the same problems was."""
        self._frontier.restore(state["frontier"])
        self._count = state["count"]
        self._remembered = [Posed.of(kept) for kept in state["remembered"]]
