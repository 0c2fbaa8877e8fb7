"""The end's numbers: what fresh runs of a candidate say against those of what it began from.

The difference of the means of two groups of runs, with Student's interval at 1 - LEVEL from the
standard deviation pooled over both (W. S. Gosset, Biometrika 6, 1908). Nothing that chose the
candidate is among the runs, so that there is nothing to correct for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtrit

from policies.baseline import baseline

Direction = Literal["maximise", "minimise"]

LEVEL = 0.05
RULE = (
    "The candidate is the standing recipe of the newest policy: only what the campaign promoted "
    "counts. It and the recipe that the campaign began with are run on the same number of fresh "
    "seeds. It is confirmed where its external score is better beyond chance. The adapter of its "
    "first evaluated run is exported; the lockbox is opened once, after all of this, for that "
    "adapter and the other recipe's first, and decides nothing."
)


@dataclass(frozen=True)
class Effect:
    """How much better the candidate is; positive is better, whichever way the metric goes."""

    runs: tuple[int, int]  # of the candidate, of the baseline
    means: tuple[float, float]
    effect: float
    low: float  # interval at 1 - LEVEL
    high: float

    @property
    def is_confirmed(self) -> bool:
        return self.low > 0


def effect(
    candidate: Sequence[float], base: Sequence[float], *, direction: Direction, problems: int
) -> Effect | None:
    """The effect of the candidate; None where either has no run or both together have no spread.

    No score over n problems is known better than to its own rounding, 1 / n wide: sigma is at least
    1 / (n sqrt(12)).
    """
    one, two = baseline(candidate), baseline(base)
    degrees = len(candidate) + len(base) - 2
    if one is None or two is None or degrees < 1:
        return None
    squares = math.fsum(
        (found.n - 1) * found.sigma**2 for found in (one, two) if found.sigma is not None
    )
    sigma = max(math.sqrt(squares / degrees), 1 / (problems * math.sqrt(12)))
    width = float(stdtrit(degrees, 1 - LEVEL / 2)) * sigma * math.sqrt(1 / one.n + 1 / two.n)
    better = (one.mean - two.mean) * (1 if direction == "maximise" else -1)
    return Effect((one.n, two.n), (one.mean, two.mean), better, better - width, better + width)
