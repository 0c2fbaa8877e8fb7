"""How far a measured gradient, and the scores against it, can be trusted, and how many target
questions are needed for that.

Reliability is the share of signal in a measurement: that of its squared length, or of its variance,
which a second measurement on other questions or other answers would find again. Scores against a
gradient of reliability R shrink by about sqrt(R); their order stays.

Shapes are suffixes: Q questions.
"""

import math

from torch import Tensor

WANTED = 0.8  # of the target gradient: so many questions are asked that it has this reliability
# Ours: below, the order of the scores is noise more than anything else.
LOWEST_GRADIENT = 0.3
LOWEST_SCORES = 0.3
GROWTH = 2.0  # by which the number of target questions changes at most from one time to the next


def spearman_brown(agreement: float) -> float:
    """The reliability of a whole from the agreement of its halves, a cosine or a correlation c:
    2 c / (1 + c) (Spearman and Brown, British Journal of Psychology 3, 1910).

    -infinity for halves that are opposite.
    """
    return 2 * agreement / (1 + agreement) if agreement > -1 else -math.inf


def gradient_reliability(lengths_Q: Tensor, length: float) -> float:
    """The reliability of a sum of gradients, from the lengths of the Q and that of their sum.

    It is the mean over all splits into halves a and b of 4 <a, b> / |a + b|^2, which is what
    Spearman-Brown makes of the halves' cosine where they are of equal length: coefficient alpha
    (Cronbach, Psychometrika 16, 1951). Unlike one split it depends on no dice, and needs no
    gradient but the sum. Questions without a gradient may be left out or not: that hardly matters.
    About 0, or below, for noise; 0 where there are fewer than 2 questions or no gradient at all.
    """
    count = len(lengths_Q)
    if count < 2 or length == 0:
        return 0.0
    noise = lengths_Q.double().square().sum().item() / length**2
    return count / (count - 1) * (1 - noise)


def score_reliability(first_Q: Tensor, second_Q: Tensor) -> float:
    """The reliability of scores from those of two halves of each question's completions.

    Leave out questions of which a half has equal rewards: its score is 0 whatever the question.
    Each half's advantages have to be centred on its own mean, or the halves share their noise.
    The halves are correlated, and Spearman-Brown makes that of a half that of the whole. 0 where
    there are fewer than 3 questions, or where all scores of a half are equal.
    """
    first_Q, second_Q = first_Q.double(), second_Q.double()
    if len(first_Q) < 3:
        return 0.0
    first_Q, second_Q = first_Q - first_Q.mean(), second_Q - second_Q.mean()
    spread = first_Q.norm() * second_Q.norm()
    return spearman_brown((first_Q @ second_Q / spread).item()) if spread > 0 else 0.0


def next_target_count(
    count: int, reliability: float, *, smallest: int, largest: int, wanted: float = WANTED
) -> int:
    """How many target questions to ask next time, after `count` had this reliability.

    The odds R / (1 - R) are proportional to the number of questions, whose noise is independent.
    One estimate is noisy itself, so that the number changes by `GROWTH` at most.
    """
    factor = GROWTH
    if reliability >= 1:
        factor = 1 / GROWTH
    elif reliability > 0:
        odds = wanted / (1 - wanted) * (1 - reliability) / reliability
        factor = min(max(odds, 1 / GROWTH), GROWTH)
    return min(max(math.ceil(count * factor - 1e-9), smallest), largest)


def why_unreliable(gradient: float, scores: float | None = None) -> str | None:
    """Why scores are too noisy to train a generator on; None: they are not.

    Takes the reliability of the target gradient, and that of the scores where it was measured.
    """
    for what, found, lowest in (
        ("the target gradient", gradient, LOWEST_GRADIENT),
        ("the scores", scores, LOWEST_SCORES),
    ):
        # Written so that NaN is unreliable.
        if found is not None and not found >= lowest:
            return f"wanted a reliability of {what} of {lowest} or more, found {found:.2f}"
    return None
