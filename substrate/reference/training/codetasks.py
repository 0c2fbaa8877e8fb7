"""Code tasks: what teachers write for students, in the three types of Absolute Zero (Zhao et al.,
arXiv 2505.03335) about a program, an input and its output.

| type | a student reads | and answers |
| --- | --- | --- |
| deduction | a program, an input | the output |
| abduction | a program, an output | an input that has it, any |
| induction | some pairs of input and output, a message | a program that has the other pairs too |

When two tasks are one: `behaviour` has a task's type, its input, and what its program does there
and on the input's neighbours (training/neighbours.py); of an induction task its pairs, in any
order. A program that is spelled otherwise, and does the same, makes no new task. The same program
on another input does, with the same `shape` (training/shapes.py).
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from training.complexity import Complexity

TYPES = ("deduction", "abduction", "induction")


@dataclass(frozen=True)
class Task:
    """A valid task."""

    type: str  # of TYPES
    prompt: str  # what a student reads
    program: str  # Python source
    detail: Mapping[str, Any]  # what judging needs, as JSON has it; no student sees it
    shape: str  # of the program
    behaviour: str
    complexity: Complexity
    returns: str  # the type of what the program returns, such as `int`
    domain: str = ""  # of the program, in a world that has domains

    def to_json(self) -> dict[str, Any]:
        """All of it in plain dicts."""
        return {**vars(self), "detail": dict(self.detail), "complexity": asdict(self.complexity)}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> "Task":
        """The task whose `to_json` this is. Raises TypeError for what is none."""
        return Task(**{**found, "complexity": Complexity(**found["complexity"])})


def behaviour(type: str, does: Iterable[bytes]) -> str:
    """A hash, 32 hex digits, of a task's type and of what its program does, piece by piece."""
    digest = hashlib.sha256(type.encode())
    for piece in does:
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.hexdigest()[:32]
