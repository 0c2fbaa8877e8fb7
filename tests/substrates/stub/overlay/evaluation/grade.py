"""The stub's labels: a problem is solved when its difficulty is below the model's margin on it.

A problem with a `recall` is solved by heart where that is below the model's recall.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any


def grade(problems: Sequence[Mapping[str, Any]], answers: Sequence[str]) -> list[float]:
    """1.0 for each problem that is solved, 0.0 for each that is not."""
    return [_is_solved(*pair) for pair in zip(problems, answers, strict=True)]


def _is_solved(problem: Mapping[str, Any], answer: str) -> float:
    try:
        margin, recall = map(float, json.loads(answer))
    except (TypeError, ValueError):
        return 0.0  # what is no answer of this model's solves nothing
    return float(problem["difficulty"] < margin or problem.get("recall", math.inf) < recall)
