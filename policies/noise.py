"""Noise: how far two runs of one recipe lie apart by chance, and what a difference must exceed.

Pure functions of scores. Standard deviations are pooled over groups, a group being the runs of one
recipe; differences are held against Student's t (W. S. Gosset, Biometrika 6, 1908).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy.special import ndtr, ndtri, stdtr, stdtrit

from policies.policy import NoiseModel
from policies.report import SetScore

LEVEL = 0.05  # chance of one false "better" in a round in which nothing helps; the same for worse


@dataclass(frozen=True)
class Deviation:
    """A standard deviation, and the degrees of freedom behind it."""

    sigma: float
    degrees: int


def pooled(groups: Iterable[Sequence[float]], *, problems: int) -> Deviation | None:
    """The standard deviation about each group's own mean; None where no group has two values.

    sigma^2 = sum over groups of (value - group mean)^2 / degrees, degrees = values - groups. No
    score over n problems is known better than to its own rounding, 1 / n wide.
    """
    repeated = [group for group in groups if len(group) > 1]
    degrees = sum(len(group) - 1 for group in repeated)
    if not degrees:
        return None
    squares = math.fsum(_squares(group) for group in repeated)
    return Deviation(max(math.sqrt(squares / degrees), 1 / (problems * math.sqrt(12))), degrees)


def moderated(found: Deviation | None, prior: float, degrees: int) -> Deviation:
    """`found` with a prior standard deviation, which counts as `degrees` degrees of freedom.

    The moderated variance of G. K. Smyth (Stat. Appl. Genet. Mol. Biol. 3, 2004, article 3), but
    that what was found to be larger than the prior stands as found.
    """
    if found is None:
        return Deviation(prior, degrees)
    if found.sigma >= prior:
        return found
    whole = degrees + found.degrees
    squares = degrees * prior**2 + found.degrees * found.sigma**2
    return Deviation(math.sqrt(squares / whole), whole)


def binomial_error(score: SetScore) -> float | None:
    """Standard error of a proportion over its problems; None for a score outside [0, 1]."""
    return binomial_deviation(score.value, score.n)


def binomial_deviation(value: float, n: int) -> float | None:
    """sqrt(p (1 - p) / n), None outside [0, 1].

    One success and one failure are added to p, so that 0 and 1 have an error too.
    """
    if not 0 <= value <= 1:
        return None
    share = (value * n + 1) / (n + 2)
    return math.sqrt(share * (1 - share) / n)


def threshold(
    noise: NoiseModel,
    *,
    standing: int,
    comparisons: int,
    runs: int = 1,
    level: float = LEVEL,
) -> float | None:
    """The effect that the mean of `runs` runs must exceed to count as better, or worse.

    It is q sigma sqrt(1 / runs + 1 / standing), where `standing` counts the runs of the standing
    recipe and q is exceeded by chance with probability level / comparisons. None where the noise
    or the standing recipe's score is unknown.
    """
    if noise.sigma is None or standing == 0:
        return None
    bar = quantile(noise.degrees, level / max(1, comparisons))
    return bar * noise.sigma * math.sqrt(1 / runs + 1 / standing)


def quantile(degrees: float, tail: float) -> float:
    """What Student's t with `degrees` exceeds with probability `tail`; 0 degrees: the normal's."""
    return -float(stdtrit(degrees, tail)) if degrees else -float(ndtri(tail))


def chance(degrees: float, statistic: float) -> float:
    """The probability with which Student's t exceeds `statistic`; 0 degrees: the normal's."""
    return float(stdtr(degrees, -statistic)) if degrees else float(ndtr(-statistic))


def best_of(count: int, rank: int) -> float:
    """How far the `rank`-th best of `count` standard normal values lies above their mean.

    G. Blom's approximation (Statistical Estimates and Transformed Beta-Variables, 1958).
    """
    return float(ndtri((count - rank + 0.625) / (count + 0.25)))


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
