"""A comparison of two arms: the difference of their means, with Student's interval.

Where both have values of the same seeds, two at least, the differences within seeds are what is
averaged (W. S. Gosset, Biometrika 6, 1908). Else the variances are not taken to be equal (B. L.
Welch, Biometrika 34, 1947, with F. E. Satterthwaite's degrees of freedom). Without two values on
each side there is a difference and no interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal

from scipy.special import stdtrit

LEVEL = 0.05

Seed = tuple[int, ...]  # of a campaign, or of one run of it


@dataclass(frozen=True)
class Difference:
    """How far two arms lie apart. What could not be said is None."""

    means: tuple[float | None, float | None]
    n: tuple[int, int]
    difference: float | None  # of the first from the second
    low: float | None  # interval at 1 - LEVEL
    high: float | None
    way: Literal["paired", "unpaired", "none"]

    @property
    def is_resolved(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def compare(one: Mapping[Seed, float], other: Mapping[Seed, float]) -> Difference:
    """The difference of two arms, each with a value for each of its seeds."""
    first, second = list(one.values()), list(other.values())
    means = (fmean(first) if first else None, fmean(second) if second else None)
    n = (len(first), len(second))
    both = sorted(one.keys() & other.keys())
    if len(both) >= 2:
        apart = [one[seed] - other[seed] for seed in both]
        mean, error = fmean(apart), math.sqrt(variance(apart) / len(apart))
        width = _quantile(len(apart) - 1) * error
        return Difference(means, n, mean, mean - width, mean + width, "paired")
    if means[0] is None or means[1] is None:
        return Difference(means, n, None, None, None, "none")
    mean = means[0] - means[1]
    if min(n) < 2:
        return Difference(means, n, mean, None, None, "none")
    parts = [variance(first) / n[0], variance(second) / n[1]]
    width = _quantile(_degrees(parts, n)) * math.sqrt(sum(parts))
    return Difference(means, n, mean, mean - width, mean + width, "unpaired")


def _degrees(parts: Sequence[float], n: Sequence[int]) -> float:
    if not any(parts):
        return sum(n) - 2.0
    squares = sum(part**2 / (size - 1) for part, size in zip(parts, n, strict=True))
    return sum(parts) ** 2 / squares


def _quantile(degrees: float) -> float:
    return float(stdtrit(degrees, 1 - LEVEL / 2))
