"""Proposals: a teacher's completion made a task, or the reason why it is none."""

import random
import re
from collections.abc import Sequence
from typing import Any

from training import prompts
from training.blocks import Block, read_blocks, said
from training.canonical import Value
from training.codetasks import Task, behaviour
from training.complexity import Complexity, measure
from training.executor import Executor
from training.literals import Call, read_arguments
from training.neighbours import neighbours, spelled
from training.prompts import MOST_HINT, MOST_PROGRAM, MOST_VALUE, PAIRS
from training.settled import settled
from training.shapes import shape
from training.steps import counting
from training.syntax import (
    TooDeep,
    entry_of,
    read_tree,
    reads_its_arguments,
    unwarned,
    without_texts,
)
from training.verdict import Kind, Verdict

MOST_COMPLETION = 100_000  # characters

# Why a proposal is no task.
REASONS = (
    "malformed",  # a block is missing
    "too_long",  # the completion, the program, an input or the hint
    "syntax_error",
    "too_deep",  # a syntax tree deeper than training/syntax.py has them
    "no_entry_point",  # no plain `def f` at the top level
    "banned",  # by the screen, in the program's text or as it ran
    "reserved",  # a text that a tokenizer takes for one of its own signs
    "bad_input",  # not literal arguments, or none at all
    "same_input",  # of induction, twice
    "bad_hint",  # empty, with control characters, or with code
    "exception",  # or an exit
    "timeout",
    "memory_limit",
    "output_limit",  # MOST_VALUE, or the executor's own
    "unserializable_output",  # no value, or one that no literal writes
    "nondeterministic",
    "violation",  # of the jail, or of the way that it is spoken with
    "constant",  # no argument is read, or all of induction's outputs are one
)

# What a verdict on a run says of the proposal.
REASON_OF: dict[Kind, str] = {
    "exception": "exception",
    "exit": "exception",
    "timeout": "timeout",
    "memory_limit": "memory_limit",
    "output_limit": "output_limit",
    "unserializable_output": "unserializable_output",
    "nondeterministic": "nondeterministic",
    "banned_import": "banned",
    "banned_construct": "banned",
    "syntax_error": "syntax_error",
    "no_entry_point": "no_entry_point",
    "bad_input": "bad_input",
    "sandbox_violation": "violation",
    "crash": "violation",
    "abnormal_exit": "violation",
    "protocol_violation": "violation",
    "too_long": "too_long",
}

# Types of values by the first byte of their canonical form.
_TYPES = {
    **{"N": "None", "T": "bool", "F": "bool", "i": "int", "-": "int", "d": "float"},
    **{"c": "complex", "s": "str", "b": "bytes", "l": "list", "t": "tuple", "m": "dict"},
    "e": "set",
}

# What a program may come to on a neighbour, and still be looked at on the next: no limit was met.
_HARMLESS: tuple[Kind, ...] = ("ok", "exception", "exit", "unserializable_output")

_CODE = re.compile(r"\bdef\s+\w+\s*\(|\blambda\b[^.\n]*:|```")


class Invalid(Exception):
    """This proposal is no task; `reason` is one of REASONS."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def read_pair(executor: Executor, type: str, completion: str) -> Task:
    """The deduction or abduction task of a completion. Raises Invalid."""
    blocks = _blocks(completion)
    program, text = _last(blocks, "python", 1)[0], _last(blocks, "input", 1)[0]
    return pair_task(executor, type, program, text)


def read_induction(executor: Executor, prompt: str, completion: str, dice: random.Random) -> Task:
    """The induction task of a completion, about the last program in the prompt. Raises Invalid."""
    program = _last(read_blocks(prompt), "python", 1)[0]
    blocks = _blocks(completion)
    inputs, hint = _last(blocks, "input", PAIRS), _last(blocks, "hint", 1)[0]
    return induction_task(executor, program, inputs, hint, dice)


def pair_task(executor: Executor, type: str, program: str, text: str) -> Task:
    """The task of what a program does on one input. Raises Invalid."""
    (call,), (given,), (output,) = _run(executor, program, [text])
    does, steps = _look_closer(executor, program, call)
    if type == "deduction":
        prompt = prompts.deduction(program, given)
    else:
        prompt = prompts.abduction(program, output.text)
    return _task(
        type,
        prompt,
        program,
        {"input": given, "output": output.text},
        [given.encode(), output.canonical, *does],
        steps,
        [output],
    )


def induction_task(
    executor: Executor, program: str, inputs: Sequence[str], hint: str, dice: random.Random
) -> Task:
    """The task of what a program does on PAIRS inputs; `dice` say which the student sees.

    Raises Invalid.
    """
    hint = hint.strip()
    if len(hint) > MOST_HINT:
        raise Invalid("too_long")
    if not hint or _CODE.search(hint) or not all(c.isprintable() or c == "\n" for c in hint):
        raise Invalid("bad_hint")
    _, given, outputs = _run(executor, program, inputs)
    if len(set(given)) < len(given):
        raise Invalid("same_input")
    if len({output.canonical for output in outputs}) == 1:
        raise Invalid("constant")
    pairs = [[text, output.text] for text, output in zip(given, outputs, strict=True)]
    order = dice.sample(range(len(pairs)), len(pairs))
    shown = [pairs[n] for n in order[: len(pairs) // 2]]
    hidden = [pairs[n] for n in order[len(pairs) // 2 :]]
    does = sorted(
        text.encode() + b"\0" + output.canonical
        for text, output in zip(given, outputs, strict=True)
    )
    return _task(
        "induction",
        prompts.induction(shown, hint),
        program,
        {"hint": hint, "given": shown, "hidden": hidden},
        does,
        _steps(executor, program, given),
        outputs,
    )


def _blocks(completion: str) -> list[Block]:
    if len(completion) > MOST_COMPLETION:
        raise Invalid("too_long")
    return read_blocks(said(completion))


def _last(blocks: Sequence[Block], label: str, count: int) -> list[str]:
    """The texts of the last blocks of a label. Raises Invalid if there are fewer."""
    texts = [block.text for block in blocks if block.label == label]
    if len(texts) < count:
        raise Invalid("malformed")
    return texts[-count:]


def _run(
    executor: Executor, program: str, texts: Sequence[str]
) -> tuple[list[Call], list[str], list[Value]]:
    """The arguments of each input, as values and spelled, and the outputs. Raises Invalid."""
    if len(program) > MOST_PROGRAM or any(len(text) > MOST_VALUE for text in texts):
        raise Invalid("too_long")
    verdicts = settled(lambda: _until(executor, program, texts, "ok"))
    outputs = []
    for verdict in verdicts:
        if verdict.value is None:
            raise Invalid(REASON_OF[verdict.kind])
        if not verdict.value.is_literal:
            raise Invalid("unserializable_output")
        if len(verdict.value.text) > MOST_VALUE:
            raise Invalid("output_limit")
        outputs.append(verdict.value)
    _check_program(program)
    with unwarned():
        calls = [read_arguments(text) for text in texts]
    if any(call == ((), {}) for call in calls):
        raise Invalid("bad_input")
    given = [spelled(call) for call in calls]
    if any(len(text) > MOST_VALUE for text in given):
        raise Invalid("too_long")
    return calls, given, outputs


def _until(executor: Executor, program: str, texts: Sequence[str], *passed: Kind) -> list[Verdict]:
    """Verdicts up to the first that is none of those to pass: the others are not worth their
    time.
    """
    verdicts = []
    for verdict in executor.run_each(program, texts):
        verdicts.append(verdict)
        if verdict.kind not in passed:
            break
    return verdicts


def _check_program(program: str) -> None:
    """Raise Invalid for a program that runs and is no task all the same."""
    try:
        entry = entry_of(read_tree(program))
    except TooDeep:
        raise Invalid("too_deep") from None
    if entry is None:
        raise Invalid("no_entry_point")
    if not reads_its_arguments(entry):
        raise Invalid("constant")


def _look_closer(executor: Executor, program: str, call: Call) -> tuple[list[bytes], int | None]:
    """What the program does on the neighbours of an input; the steps that it takes on it."""
    texts = [spelled(neighbour) for neighbour in neighbours(call)]
    counter = counting(program)
    if counter is not None:
        texts.insert(0, f"{spelled(call)}, {counter.keyword}=True")
        program = counter.source
    found = settled(lambda: _until(executor, program, texts, *_HARMLESS))
    steps = None if counter is None else _count(found.pop(0))
    return [_outcome(one) for one in found], steps


def _steps(executor: Executor, program: str, inputs: Sequence[str]) -> int | None:
    """The steps that a program takes on that input where it takes most."""
    counter = counting(program)
    if counter is None:
        return None
    texts = [f"{text}, {counter.keyword}=True" for text in inputs]
    found = settled(lambda: _until(executor, counter.source, texts, "ok"))
    counts = [_count(one) for one in found]
    return max((count for count in counts if count is not None), default=None)


def _count(verdict: Verdict) -> int | None:
    # A program that guessed the counter's name may have put anything there.
    if verdict.value is None or not verdict.value.text.isdecimal():
        return None
    return int(verdict.value.text)


def _outcome(verdict: Verdict) -> bytes:
    """A value, or that there was none: how exactly a program fails is a matter of its spelling."""
    return b"=" + verdict.value.canonical if verdict.value is not None else b"none"


def _task(
    type: str,
    prompt: str,
    program: str,
    detail: dict[str, Any],
    does: list[bytes],
    steps: int | None,
    outputs: Sequence[Value],
) -> Task:
    tree = without_texts(program)
    complexity: Complexity = measure(tree, steps)
    types = sorted({_TYPES[chr(output.canonical[0])] for output in outputs})
    return Task(
        type=type,
        prompt=prompt,
        program=program,
        detail=detail,
        shape=shape(tree),
        behaviour=behaviour(type, does),
        complexity=complexity,
        returns="|".join(types),
    )
