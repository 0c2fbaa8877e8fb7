"""The promptbook of pocket: tasks as short as its model was taught to read and write them.

A teacher is shown a domain and writes a depth, a program and an input, whatever the type of the
task. Its model was taught no references; what it can be asked for is a depth, by the beginning of
its own answer. Most prompts ask for one: that of a task which students solve sometimes, or
one more. The base itself hardly ever declares a depth beyond what it can solve.

What a student is shown is the type's own format, see `training/pocket.py`. Attempts are judged
strictly, by their whole trace: an answer that is right by luck is worth nothing.

Pocket's own interpreter runs the programs, which are a closed set of lines: no jail is needed.
"""

import functools
import random
import re
from collections.abc import Sequence
from types import TracebackType

from training.programs import DEEPEST, DOMAINS, Program, Value, run, source, spell

from training import pocket
from training.archive import Archive
from training.codetasks import TYPES, Task, behaviour
from training.complexity import Complexity, measure
from training.shapes import shape
from training.syntax import without_texts

__all__ = ["REASONS", "TYPES", "Promptbook"]

PROPOSE = "<propose>"
ASKED = 0.75  # share of the prompts that ask for a depth
INVALID = "invalid"  # no proposal, an unsound one, or one that is held out: to this world the same
FEW_INPUTS = "few_inputs"  # runs on too few inputs to be induced
REASONS = (INVALID, FEW_INPUTS)

# What an attempt at each type looks like, whatever it says.
_FORMS = {
    "deduction": re.compile(r"(\n x=[^\n]+)*\n return x#\S+"),
    "abduction": re.compile(r"(\n x=[^\n]+)*\nf\(\S+\)"),
    "induction": re.compile(r"\ndef f\(x\):(\n x=[^\n]+)+\n return x"),
}
_ASKED_FOR = re.compile(r"([a-z]+)([0-9]{2}|)")
_RETURNS = {"integers": "int", "bits": "int", "strings": "str", "lists": "list", "booleans": "list"}


class Promptbook:
    """Reads and judges. It is opened and closed as that of other worlds, and holds nothing."""

    def __init__(self, *, reserved: Sequence[str] = ()) -> None:
        """`reserved` texts are none that pocket's proposals could hold."""

    def __enter__(self) -> "Promptbook":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def proposal_prompt(self, type: str, dice: random.Random, archive: Archive) -> str:
        """What a teacher reads: a domain, and the depth that it is asked for, if it is."""
        prompt = f"{PROPOSE}{dice.choice(DOMAINS)}"
        if dice.random() < ASKED:
            # While no task is solved sometimes, any will do.
            near = archive.replay(1, dice, (type,)) or archive.references(1, dice, (type,))
            if near:
                depth = near[0].detail["depth"] + dice.randint(0, 1)
                prompt += f"{min(depth, DEEPEST):02d}"
        return prompt

    def read_proposals(
        self, type: str, prompts: Sequence[str], completions: Sequence[str], seed: int
    ) -> list[Task | str]:
        """For each completion its task, or why it is none, one of REASONS."""
        found: list[Task | str] = []
        for number, (prompt, text) in enumerate(zip(prompts, completions, strict=True)):
            asked = _ASKED_FOR.fullmatch(prompt.removeprefix(PROPOSE))
            if asked is None:
                raise ValueError(f"wanted a prompt of this promptbook, found {prompt!r}")
            read = pocket.read_proposal(asked[1], asked[2] + text)
            dice = random.Random(f"{seed} {number}")
            found.append(INVALID if read is None else _task(type, *read, dice))
        return found

    def judge(self, tasks: Sequence[Task], completions: Sequence[str]) -> list[str]:
        """Whether each completion is "right", "wrong" or "malformed" as an attempt at its task."""
        grades = []
        for task, completion in zip(tasks, completions, strict=True):
            if pocket.reward(task.detail, completion):
                grades.append("right")
            else:
                text = "\n" + completion.strip("\n").rstrip()
                formed = _FORMS[task.type].fullmatch(text)
                grades.append("wrong" if formed else "malformed")
        return grades


def _task(type: str, program: Program, value: Value, dice: random.Random) -> Task | str:
    if type == "deduction":
        problem = pocket.deduce(program, value)
    elif type == "abduction":
        problem = pocket.abduce(program, value)
    else:
        problem = pocket.induce(program, dice)
        if problem is None:
            return FEW_INPUTS
    code = source(program).strip("\n")
    values = [spell(program.domain, each) for each in run(program, value)]
    hashed, complexity = _described(code)
    return Task(
        type=type,
        prompt=problem["prompt"],
        program=code,
        detail=problem,
        shape=hashed,
        # The whole path: two programs that take it are one, spelled in two ways.
        behaviour=behaviour(type, [each.encode() for each in values]),
        complexity=complexity,
        returns=_RETURNS[program.domain],
        domain=program.domain,
    )


@functools.lru_cache(maxsize=4096)
def _described(code: str) -> tuple[str, Complexity]:
    """Shape and complexity of a program, whose steps are its lines: no two do nothing."""
    tree = without_texts(code)
    return shape(tree), measure(tree, steps=code.count("\n x="))
