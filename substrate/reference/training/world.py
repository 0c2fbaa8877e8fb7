"""The world: what a completion is worth. A substrate with rules of its own lays a file over this.

Recipes that learn from rewards and the evaluation that scores adapters ask this one function:
evaluation always the snapshot's, a recipe its fork's own copy.
"""

from collections.abc import Mapping
from typing import Any


def reward(problem: Mapping[str, Any], completion: str) -> float:
    """1.0 when the completion is the problem's answer, else 0.0.

    The completion is the text up to the end-of-sequence token. Runs of white space count as one
    space, those at both ends as none.
    """
    return float(completion.split() == str(problem["answer"]).split())
