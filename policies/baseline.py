"""The baseline: what a substrate's unmodified recipe scores, and how far its runs lie apart.

From the calibration's K runs on fresh seeds: mean m and standard deviation s with K - 1 degrees of
freedom. One more such run lies below m + t s sqrt(1 + 1/K) with probability 1 - LEVEL, where t is
the quantile of Student's t (G. J. Hahn, "Factors for calculating two-sided prediction intervals",
J. Am. Stat. Assoc. 64, 1969, one-sided): a degenerate probe above that beats the baseline, and what
it beats measures nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtrit

from policies.report import SetScore
from policies.tables import Calibration

Direction = Literal["maximise", "minimise"]
Which = Literal["dev", "external"]

LEVEL = 0.05  # chance that one more run of the recipe itself would count as beating the baseline


@dataclass(frozen=True)
class Baseline:
    """The unmodified recipe's scores on one set, in one metric version."""

    n: int  # runs
    mean: float
    sigma: float | None  # standard deviation of one run; None for a single run
    low: float
    high: float


def baseline(scores: Sequence[float]) -> Baseline | None:
    """The baseline of some scores; None where there are none."""
    if not scores:
        return None
    n, mean = len(scores), math.fsum(scores) / len(scores)
    squares = math.fsum((score - mean) ** 2 for score in scores)
    sigma = math.sqrt(squares / (n - 1)) if n > 1 else None
    return Baseline(n, mean, sigma, min(scores), max(scores))


def set_baseline(rows: Sequence[Calibration], which: Which) -> Baseline | None:
    """The baseline on one set of a snapshot, recipe and budget, from its calibration's rows."""
    runs = filter(is_run, rows)
    return baseline([score.value for row in runs if (score := score_of(row, which))])


def is_run(row: Calibration) -> bool:
    """Whether a row is a run of the recipe, and not a degenerate probe."""
    return row.probe == "recipe"


def score_of(row: Calibration, which: Which) -> SetScore | None:
    text = row.dev if which == "dev" else row.external
    return SetScore.model_validate_json(text) if text else None


def faults(rows: Sequence[Calibration], direction: Direction) -> list[str]:
    """What is wrong with a calibration, each by the name of its rule; [] where nothing is.

    `no-baseline`: fewer than two runs have a score. `probe-beats-baseline`: a degenerate probe does
    better than one more run of the recipe should. `probe-unmeasured`: it could not be scored.
    """
    base = set_baseline(rows, "dev")
    if base is None or base.sigma is None:
        found = f"found {base.n if base else 0} scored runs of the recipe"
        return [f"no-baseline: wanted at least two, {found}; see why the others failed"]
    sign = 1 if direction == "maximise" else -1
    limit = base.mean + sign * margin(base.n, base.sigma)
    said = []
    for row in rows:
        score = score_of(row, "dev")
        if is_run(row) or row.outcome == "no_change":  # refused unscored: it cannot beat anything
            continue
        if score is None:
            said.append(f"probe-unmeasured: {row.probe}: {row.outcome}: {row.reason}")
        elif sign * (score.value - limit) > 0:
            said.append(
                f"probe-beats-baseline: {row.probe}: scores {score.value:.4f} on dev, where the "
                f"recipe averages {base.mean:.4f} and {limit:.4f} is the limit of chance; the "
                "metric rewards what is no training: correct the problems or the evaluation"
            )
    return said


def margin(n: int, sigma: float) -> float:
    """How far beyond the mean of n runs one more may lie, by chance, with probability 1 - LEVEL."""
    return float(stdtrit(n - 1, 1 - LEVEL)) * sigma * math.sqrt(1 + 1 / n)
