"""Influence scores of questions on pocket against what is known: true influence, and topics."""

import statistics
from typing import Any

from tests.benchmarks._pocket import Arm, Line, trials

SEEDS = (601, 602, 603)
TOTAL = 300_000  # sampled tokens of a run: few steps, of many questions each
MANY = 10**6  # rollouts that tokens run out before
TOPICS = ("integers", "bits")
WIDE: dict[str, Any] = {"DOCUMENTS": 24, "PROBE_EVERY": 1, "PROBED": 24, "WARM_UP": 10**6}

ALL = Arm("all domains", WIDE, MANY, "infuser", TOTAL)
NARROW = WIDE | {"TARGET_DOMAINS": list(TOPICS)}
SOME = Arm("two domains", NARROW, MANY, "infuser", TOTAL)
RAW = Arm("two domains, cosine", NARROW | {"SCORE": "cosine"}, MANY, "infuser", TOTAL)

WHAT = (
    f"INFUSER's scores on pocket, {len(SEEDS)} runs of {TOTAL:,} sampled tokens with a fixed "
    "generator and 192 questions a step: Spearman's correlation of scores with the change of the "
    "log-likelihood of fresh target answers after a step on one question alone, as a mean over "
    "steps; and mean scores by the topic of the document. The "
    f"target is all five domains, or {' and '.join(TOPICS)} alone: then documents about the others "
    "are off topic."
)


def run() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for arm, lines in trials((ALL, SOME, RAW), SEEDS).items():
        found = _all(lines, "probe/rank_correlation")
        figures[f"{arm}, rank correlation with true influence"] = _interval(found)
        for domain in ("integers", "bits", "strings", "lists", "booleans"):
            found = _all(lines, f"score_by_topic/{domain}")
            figures[f"{arm}, score of {domain}"] = _interval(found)
        figures[f"{arm}, reliability of the target's gradient"] = _interval(
            _all(lines, "target/reliability")
        )
        figures[f"{arm}, rank correlation with the variance of attempts"] = _interval(
            _all(lines, "score/with_variance")
        )
    return figures


def _all(lines: list[Line], metric: str) -> list[float]:
    return [step[metric] for line in lines for step in line.steps if metric in step]


def _interval(found: list[float]) -> str:
    """The mean over parts of runs, and twice its standard error over them."""
    error = statistics.stdev(found) / len(found) ** 0.5
    return f"{statistics.fmean(found):.3f} ± {2 * error:.3f} ({len(found)} parts)"
