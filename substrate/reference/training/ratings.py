"""Ratings of the members of two roles that play against each other: TrueSkill, who meets whom, and
who is replaced.

TrueSkill is Herbrich, Minka and Graepel, NIPS 2006, for two players, in closed form. Ratings are
relative: what one role gains in a match the other loses, so they measure no progress.

What PopuLoRA (arXiv 2605.16727) leaves open was settled here; each such choice says so.
"""

import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import NormalDist

# TrueSkill's own constants.
MEAN = 25.0
DEVIATION = 25 / 3
BETA = 25 / 6  # standard deviation of one performance about a player's skill
TAU = 25 / 300  # by which a skill drifts from match to match
DRAW_SHARE = 0.1  # of matches, between equals
CONFIDENCE = 3.0  # deviations below the mean at which a member is ranked
# How evolution replaces members, as a reading of the paper has it, not checked against it.
CULLED = 0.25  # share of a role that is replaced at once
# Ours: a fresh rating's wide deviation would have newcomers culled before they are known.
GRACE = 1  # evolution events that a newcomer cannot be culled at
NEWCOMER = DEVIATION / 4  # least deviation of a newcomer that inherits its parents' rating
EQUAL = 1e-9  # solve rates closer than this are a draw

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Rating:
    mean: float = MEAN
    deviation: float = DEVIATION


@dataclass(frozen=True)
class Replacement:
    """What becomes of one role at an evolution event, as indices of its members."""

    culled: tuple[int, ...]  # from the lowest bound up
    pool: tuple[int, ...]  # who may be a parent, from the least fit to the fittest


def win_probability(player: Rating, opponent: Rating) -> float:
    """The probability that the player wins, if there were no draws."""
    spread = math.sqrt(player.deviation**2 + opponent.deviation**2 + 2 * BETA**2)
    return _below((player.mean - opponent.mean) / spread)


def after_win(winner: Rating, loser: Rating) -> tuple[Rating, Rating]:
    """Both ratings after the first has beaten the second."""
    spread, margin = _spread_and_margin(winner, loser)
    surprise = (winner.mean - loser.mean) / spread - margin
    shift = _hazard(surprise)
    shrink = shift * (shift + surprise)
    return _moved(winner, shift, shrink, spread), _moved(loser, -shift, shrink, spread)


def after_draw(one: Rating, other: Rating) -> tuple[Rating, Rating]:
    """Both ratings after a draw."""
    spread, margin = _spread_and_margin(one, other)
    gap = (one.mean - other.mean) / spread
    upper, lower = margin - abs(gap), -margin - abs(gap)
    mass = _below(upper) - _below(lower)
    if mass > 0:
        shift = (_NORMAL.pdf(lower) - _NORMAL.pdf(upper)) / mass
        edges = upper * _NORMAL.pdf(upper) - lower * _NORMAL.pdf(lower)
        shrink = shift**2 + edges / mass
    else:  # so far apart that all of the mass is at the upper edge
        shift, shrink = upper, 1.0
    shift = math.copysign(shift, -gap) if gap else 0.0
    return _moved(one, shift, shrink, spread), _moved(other, -shift, shrink, spread)


def after_match(
    teacher: Rating, student: Rating, solve_rate: float | None, expected: float
) -> tuple[Rating, Rating]:
    """The teacher's and the student's rating after the student solved this share of the teacher's
    tasks. Above `expected` the student wins, below it the teacher does. None is a teacher without a
    valid task: the student wins.

    With `expected = win_probability(student, teacher)`, a rating is a forecast of the solve rate,
    the default of this project and one reading of the paper; with 0.5, another reading, pairs
    drift apart until they no longer meet.
    """
    won_by = winner(solve_rate, expected)
    if won_by == "student":
        student, teacher = after_win(student, teacher)
    elif won_by == "teacher":
        teacher, student = after_win(teacher, student)
    else:
        teacher, student = after_draw(teacher, student)
    return teacher, student


def winner(solve_rate: float | None, expected: float) -> str:
    """Which role wins a match, see `after_match`: "teacher" or "student", or "draw"."""
    if solve_rate is None or solve_rate > expected + EQUAL:
        return "student"
    return "teacher" if solve_rate < expected - EQUAL else "draw"


def match_weights(
    teacher: Rating, students: Sequence[Rating], *, power: float = 1.0
) -> list[float]:
    """For each student, p (1 - p) to this power, p the student's chance to win: the more even the
    match the likelier, prioritized fictitious self-play (Vinyals et al., Nature 575, 2019). Weights
    of fresh ratings hardly differ, a power above 1 sharpens them. 0 draws all alike.
    """
    chances = [win_probability(student, teacher) for student in students]
    return [(chance * (1 - chance)) ** power for chance in chances]


def draw_matches(
    teachers: Sequence[Rating],
    students: Sequence[Rating],
    dice: random.Random,
    *,
    power: float = 1.0,
) -> list[int]:
    """For each teacher a student, by the weights of their match; nobody is drawn twice before all
    were drawn once. Teachers draw in random order, so that none always takes what others left.
    """
    drawn = [0] * len(teachers)
    free: list[int] = []
    for number in dice.sample(range(len(teachers)), len(teachers)):
        free = free or list(range(len(students)))
        weights = match_weights(teachers[number], [students[s] for s in free], power=power)
        # Weights of players far apart may all be too small for a float.
        student = dice.choices(free, weights if sum(weights) > 0 else None)[0]
        free.remove(student)
        drawn[number] = student
    return drawn


def lower_bound(rating: Rating) -> float:
    """The skill that a member has in all likelihood: what it is ranked by."""
    return rating.mean - CONFIDENCE * rating.deviation


def in_grace(born: Sequence[int], event: int, *, grace: int = GRACE) -> set[int]:
    """The members that are too young to be culled at an evolution event: those born at one of the
    `grace` events before it. Events count from 1; 0 is a founder, who has no grace.
    """
    return {number for number, at in enumerate(born) if at > 0 and event - at <= grace}


def replacement(
    ratings: Sequence[Rating], spared: Collection[int] = (), *, share: float = CULLED
) -> Replacement:
    """Who of a role is replaced: max(1, floor(share N)), at most N - 1, of those with the lowest
    bounds, but none that is spared; the others are the pool of parents, the spared among them. A
    lone member that is not spared is both: its mutation replaces it.
    """
    ranked = sorted(range(len(ratings)), key=lambda number: lower_bound(ratings[number]))
    candidates = [number for number in ranked if number not in spared]
    if len(ratings) == 1:
        return Replacement(tuple(candidates), tuple(ranked))
    wanted = min(max(1, math.floor(share * len(ratings) + EQUAL)), len(ratings) - 1)
    culled = candidates[:wanted]
    return Replacement(tuple(culled), tuple(n for n in ranked if n not in culled))


def inherited(parents: Sequence[Rating]) -> Rating:
    """A newcomer's rating from its parents': their mean, and the widest of their deviations, or
    NEWCOMER where that is wider. As published, a newcomer has a fresh rating, `Rating()`, whose
    mean is wrong once the roles have drifted apart, and whose deviation has it culled next.
    """
    mean = sum(parent.mean for parent in parents) / len(parents)
    return Rating(mean, max(NEWCOMER, *(parent.deviation for parent in parents)))


def _spread_and_margin(one: Rating, other: Rating) -> tuple[float, float]:
    """The deviation of the difference of two performances, and the half-width of a draw in it."""
    variances = sum(rating.deviation**2 + TAU**2 for rating in (one, other))
    spread = math.sqrt(variances + 2 * BETA**2)
    return spread, _NORMAL.inv_cdf((DRAW_SHARE + 1) / 2) * math.sqrt(2) * BETA / spread


def _moved(rating: Rating, shift: float, shrink: float, spread: float) -> Rating:
    variance = rating.deviation**2 + TAU**2
    return Rating(
        rating.mean + variance / spread * shift,
        math.sqrt(variance * (1 - variance / spread**2 * shrink)),
    )


def _hazard(x: float) -> float:
    """pdf / cdf of the standard normal; -x, its limit, where the cdf is too small for a float."""
    below = _below(x)
    return _NORMAL.pdf(x) / below if below > 0 else -x


def _below(x: float) -> float:
    """The standard normal's cdf, accurate far below 0, where NormalDist's is 0."""
    return math.erfc(-x / math.sqrt(2)) / 2
