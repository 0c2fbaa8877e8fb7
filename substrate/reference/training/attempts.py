"""Attempts: a student's completions at a task, each right, wrong or malformed.

An attempt is malformed when no answer can be read from it: the block is missing, or holds no
literal, or no program that defines `f`. Whatever else an answer does, it is right or wrong.
"""

from collections.abc import Sequence

from training.blocks import read_blocks, said
from training.canonical import Value, decode, encode
from training.codetasks import Task
from training.executor import Executor
from training.literals import read_value
from training.proposals import MOST_COMPLETION
from training.settled import settled
from training.verdict import Kind, Verdict

ANSWERS = {"deduction": "output", "abduction": "input", "induction": "python"}  # labels of blocks

_MALFORMED: tuple[Kind, ...] = (
    *("bad_answer", "bad_input", "syntax_error", "no_entry_point", "too_long"),
)


def read_answer(task: Task, completion: str) -> str | None:
    """The text of the last block that an answer stands in; None where there is none."""
    if len(completion) > MOST_COMPLETION:
        return None
    label = ANSWERS[task.type]
    texts = [block.text for block in read_blocks(said(completion)) if block.label == label]
    return texts[-1] if texts else None


def grade(executor: Executor, task: Task, answers: Sequence[str]) -> list[str]:
    """What each answer at one task is worth: right, wrong or malformed."""
    if task.type == "induction":
        pairs = [(text, value_of(output)) for text, output in task.detail["hidden"]]
        return [
            _word(_only(settled(lambda a=answer: [executor.check_program(a, pairs)])))
            for answer in answers
        ]
    gold = value_of(task.detail["output"])
    if task.type == "deduction":
        verdicts = settled(lambda: [executor.read(answer) for answer in answers])
    else:
        # Together, so that the program is screened once for all of them.
        verdicts = settled(lambda: executor.run(task.program, answers))
    return [_word(_compared(verdict, gold)) for verdict in verdicts]


def value_of(text: str) -> Value:
    """The value of a literal of our own writing."""
    return decode(encode(read_value(text)))


def _compared(verdict: Verdict, gold: Value) -> Verdict:
    if verdict.value is None:
        return verdict
    return Verdict("correct" if verdict.value.canonical == gold.canonical else "wrong")


def _word(verdict: Verdict) -> str:
    if verdict.kind == "correct":
        return "right"
    return "malformed" if verdict.kind in _MALFORMED else "wrong"


def _only(verdicts: list[Verdict]) -> Verdict:
    (verdict,) = verdicts
    return verdict
