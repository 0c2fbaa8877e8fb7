"""What answers are worth: the side of the evaluation that knows the labels and sees no model.

The host's scorer imports it from the pristine snapshot. An evaluation with rules of its own, beside
those of `training/world.py`, has a `grade.py` of its own, which no answer may break: whatever a
model writes is worth something.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from training import world


def grade(problems: Sequence[Mapping[str, Any]], answers: Sequence[str]) -> list[float]:
    """The value of each problem's answer."""
    return [
        world.reward(problem, answer) for problem, answer in zip(problems, answers, strict=True)
    ]
