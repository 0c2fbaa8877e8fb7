"""What a question is worth to who wrote it: INFUSER's influence, and the rewards it is set against.

Each is a function of the grades of the attempts at a question and of its influence score, which is
0 where the attempts are all alike.
"""

import math
import random
from collections.abc import Callable, Sequence

Worth = Callable[[Sequence[str], float, random.Random], float]


def influence(grades: Sequence[str], score: float, dice: random.Random) -> float:
    """The score itself."""
    return score


def chance(grades: Sequence[str], score: float, dice: random.Random) -> float:
    """Drawn, whatever the question: what is left of a method when its reward says nothing."""
    return dice.random()


def variance(grades: Sequence[str], score: float, dice: random.Random) -> float:
    """exp(-(v - 1/4)^2 / 0.02), v being the variance of the attempts' 0 or 1: the reward of SPICE
    (Liu et al., arXiv 2510.24684) as INFUSER's authors have it.
    """
    rate = _rate(grades)
    return math.exp(-((rate * (1 - rate) - 0.25) ** 2) / 0.02)


def difficulty(grades: Sequence[str], score: float, dice: random.Random) -> float:
    """1 - 2 |p - 1/2|, p being the share of right attempts: R-Zero's (Huang et al., arXiv
    2508.05004), there with the majority's answer for the right one.
    """
    return 1 - 2 * abs(_rate(grades) - 0.5)


def _rate(grades: Sequence[str]) -> float:
    return list(grades).count("right") / len(grades)


WORTHS: dict[str, Worth] = {
    "influence": influence,
    "chance": chance,
    "variance": variance,
    "difficulty": difficulty,
}
