"""The promptbook for chat models and Python: what teachers and students read, and what their texts
are worth. A world with prompts of its own lays a file of the same interface over this one.

    with Promptbook() as book:
        prompt = book.proposal_prompt("deduction", dice, archive)
        found = book.read_proposals("deduction", [prompt], [completion], seed)
        grades = book.judge([task], [attempt])  # an attempt is a completion of task.prompt

Prompts are the plain text of one message of the user: who samples puts them into the tokenizer's
chat template, where it has one. What a model wrote is read from blocks (training/blocks.py); of a
label the last block counts, of induction's inputs the last ten. Nothing else is an answer, and what
is none is never guessed at.

A proposal is valid when its program runs in the jail (training/executor.py), the same in every
interpreter, and

- the program defines `f` at the top level with `def`, which reads an argument, and has MOST_PROGRAM
  characters at most (training/prompts.py); helper functions and classes are welcome;
- the input has an argument and, like what is returned, is a literal of MOST_VALUE at most;
- of induction, ten inputs are all different, their outputs are not all one, and the hint has no
  code. Which half of the pairs is hidden is drawn, not chosen by who wrote them.

Gold is what the interpreters returned. Inputs are shown as Python spells them, programs as they
were written, with their comments: stripping those hurt Absolute Zero (arXiv 2505.03335).
"""

import os
import random
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from training import prompts
from training.archive import Archive
from training.attempts import grade, read_answer
from training.codetasks import TYPES, Task
from training.executor import Executor
from training.first_programs import FIRST_PROGRAMS
from training.isolation import Isolation
from training.proposals import (
    REASONS,
    Invalid,
    induction_task,
    pair_task,
    read_induction,
    read_pair,
)

__all__ = ["REASONS", "TYPES", "Promptbook"]

REFERENCES = 6  # tasks that a teacher of deduction or abduction is shown: Absolute Zero's
MOST_PROMPT = 16_000  # characters of a teacher's prompt: about 4,500 tokens
# Whose programs teachers start from.
SOURCES = {
    "deduction": ("deduction",),
    "abduction": ("abduction",),
    "induction": ("deduction", "abduction"),
}


class Promptbook:
    """Prompts and verdicts. It owns an executor, which ends with the block that it is opened in.

    `reserved` are texts that the tokenizer takes for signs of its own (its `all_special_tokens`): a
    task that would smuggle one into a prompt is invalid. `isolation` and `lanes` are the
    executor's. Raises NoIsolation if there is none.
    """

    def __init__(
        self,
        *,
        reserved: Sequence[str] = (),
        isolation: Isolation | None = None,
        lanes: int | None = None,
    ) -> None:
        lanes = lanes or len(os.sched_getaffinity(0))
        self._reserved = [text for text in reserved if text]
        self._executor = Executor(isolation=isolation, lanes=lanes)
        self._callers = ThreadPoolExecutor(lanes)
        self._first: list[Task] = []

    def __enter__(self) -> "Promptbook":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the executor's processes."""
        self._callers.shutdown(cancel_futures=True)
        self._executor.close()

    def first_tasks(self) -> list[Task]:
        """Tasks of every type about FIRST_PROGRAMS, for who has no others yet."""
        if not self._first:
            dice = random.Random(0)
            for first in FIRST_PROGRAMS:
                for type in ("deduction", "abduction"):
                    task = pair_task(self._executor, type, first.program, first.inputs[0])
                    self._first.append(task)
                self._first.append(
                    induction_task(self._executor, first.program, first.inputs, first.hint, dice)
                )
        return list(self._first)

    def proposal_prompt(self, type: str, dice: random.Random, archive: Archive) -> str:
        """What a teacher of this type reads: tasks drawn from the archive as references, or for
        induction one of its programs. First tasks stand in while it has too few.
        """
        count = 1 if type == "induction" else REFERENCES
        found = archive.references(count, dice, SOURCES[type])
        if len(found) < count:
            known = {task.behaviour for task in found}
            first = [
                task
                for task in self.first_tasks()
                if task.type in SOURCES[type] and task.behaviour not in known
            ]
            found += dice.sample(first, min(count - len(found), len(first)))
        if type == "induction":
            return prompts.induction_proposal(found[0].program)
        shown = [(task.program, task.detail["input"], task.detail["output"]) for task in found]
        while len(prompt := prompts.pair_proposal(type, shown)) > MOST_PROMPT and len(shown) > 1:
            shown.pop()
        return prompt

    def read_proposals(
        self, type: str, prompts: Sequence[str], completions: Sequence[str], seed: int
    ) -> list[Task | str]:
        """For each completion its task, or why it is none, one of REASONS.

        The seed draws which pairs of induction are hidden. Raises NoVerdict (training/settled.py)
        when the machine, not the program, is at fault.
        """

        def read(number: int, prompt: str, completion: str) -> Task | str:
            try:
                if type == "induction":
                    dice = random.Random(f"{seed} {number}")
                    task = read_induction(self._executor, prompt, completion, dice)
                else:
                    task = read_pair(self._executor, type, completion)
                return "reserved" if self._is_reserved(task) else task
            except Invalid as invalid:
                return invalid.reason

        if len(prompts) != len(completions):
            raise ValueError(
                f"wanted a completion for each of {len(prompts)} prompts, found {len(completions)}"
            )
        return list(self._callers.map(read, range(len(prompts)), prompts, completions))

    def judge(self, tasks: Sequence[Task], completions: Sequence[str]) -> list[str]:
        """Whether each completion is "right", "wrong" or "malformed" as an attempt at its task.

        Equal answers to one task are judged once. Raises NoVerdict.
        """
        asked: dict[int, Task] = {}
        answers: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        grades = ["malformed"] * len(tasks)
        for number, (task, completion) in enumerate(zip(tasks, completions, strict=True)):
            answer = read_answer(task, completion)
            if answer is not None:
                asked[id(task)] = task
                answers[id(task)][answer].append(number)
        jobs: list[tuple[Task, list[str]]] = []
        for key, task in asked.items():
            texts = list(answers[key])
            # Answers that are programs have nothing in common that could be done once.
            jobs += [(task, [t]) for t in texts] if task.type == "induction" else [(task, texts)]
        found = self._callers.map(lambda job: grade(self._executor, *job), jobs)
        for (task, texts), of_texts in zip(jobs, found, strict=True):
            for text, one in zip(texts, of_texts, strict=True):
                for number in answers[id(task)][text]:
                    grades[number] = one
        return grades

    def _is_reserved(self, task: Task) -> bool:
        shown = [task.prompt, task.program, *map(str, task.detail.values())]
        return any(text in part for text in self._reserved for part in shown)
