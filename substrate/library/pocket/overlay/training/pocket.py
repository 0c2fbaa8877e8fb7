"""The pocket world: problems about pocket programs, in six formats, and their strict rewards.

| format | the prompt shows | the completion is |
| --- | --- | --- |
| deduce | a program, an input | the trace: each line copied, and after `#` the value behind it |
| choose | the same, four outputs | the trace, then the letter of the output |
| abduce | a program, an output | the trace backwards, with the values before each line, an input |
| induce | pairs of input and output | a program |
| propose | a domain | a declared depth, a program, an input |
| ask | a document of definitions | the same, definitions quoted above the program, then a key |

A problem to be solved is a row `{"domain", "prompt", "answer", "format", "depth"}`, all JSON. In
`deduce` and `choose` the program may be a composition of definitions that are quoted above it; its
trace shows under each call the line that it stands for.

`reward` is 1 or 0. A right result with a wrong trace is worth nothing: in deep programs it is luck.
The proposer's side is `read_proposal` and `read_question`: they accept what is sound, of the
declared depth and on no held-out side, and nothing else.
"""

import random
from collections.abc import Mapping
from typing import Any

from training.programs import (
    DEEPEST,
    DOMAINS,
    HELD_OUT,
    NAMES,
    TRAINING,
    BadProgram,
    Program,
    Value,
    definitions_source,
    draw_composition,
    draw_line,
    draw_problem,
    draw_value,
    in_domain,
    is_sound,
    read_definitions,
    read_program,
    read_value,
    run,
    side,
    source,
    spell,
)
from training.vocabulary import CHOICES, KEY

FORMATS = ("deduce", "choose", "abduce", "induce")  # those that `reward` judges
Problem = dict[str, Any]

SHOWN_PAIRS = 4  # of an induction problem
HIDDEN_PAIRS = 8  # on which an induced program is judged


def reward(problem: Mapping[str, Any], completion: str) -> float:
    """1.0 when the completion solves the problem, with a true trace where one is asked for; else 0.

    The completion is the text up to the end-of-sequence token. Line breaks around it are ignored.
    Raises ValueError for a problem of an unknown format or without a sound program.
    """
    prompt, text = str(problem["prompt"]), "\n" + completion.strip("\n").rstrip()
    for marker in ("<deduce>", "<choose>"):
        if prompt.startswith(marker):
            return float(text == problem["answer"])
    if prompt.startswith("<abduce>"):
        return float(_abduces(prompt.removeprefix("<abduce>"), text))
    if prompt.startswith("<induce>"):
        return float(_induces(problem, text))
    raise ValueError(f"wanted a prompt of one of {FORMATS}, found {prompt[:20]!r}")


# Problems to be solved


def deduce(program: Program, value: Value) -> Problem:
    """What does the program return on this input?"""
    prompt = f"<deduce>{_question(program, value)}"
    return _problem("deduce", program, prompt, trace(program, value))


def choose(program: Program, value: Value, dice: random.Random) -> Problem:
    """Which of four outputs does the program return on this input?"""
    options = [run(program, value)[-1], *_distractors(program, value, dice)]
    order = dice.sample(options, len(options))
    listed = "".join(
        f"#{spell(program.domain, option)}{letter}"
        for letter, option in zip(CHOICES, order, strict=True)
    )
    prompt = f"<choose>{_question(program, value)}{listed}"
    answer = trace(program, value) + CHOICES[order.index(options[0])]
    return _problem("choose", program, prompt, answer)


def abduce(program: Program, value: Value) -> Problem:
    """On which input does the program return this output? Any true answer counts."""
    output = spell(program.domain, run(program, value)[-1])
    prompt = f"<abduce>{source(program)}#{output}"
    return _problem("abduce", program, prompt, backward_trace(program, value))


def induce(program: Program, dice: random.Random) -> Problem | None:
    """Which program makes these pairs? None when the program runs on too few inputs.

    Any program counts that agrees with the answer on fresh inputs.
    """
    inputs = _inputs(program, SHOWN_PAIRS, dice)
    if len(inputs) < SHOWN_PAIRS or any(side(program, value) != TRAINING for value in inputs):
        return None
    pairs = "".join(
        f"\nf({spell(program.domain, value)})#{spell(program.domain, run(program, value)[-1])}"
        for value in inputs
    )
    return _problem("induce", program, f"<induce>{pairs}", source(program))


def trace(program: Program, value: Value) -> str:
    """The forward trace: each line, for a call the line it stands for too, `#` and the value."""
    values = [spell(program.domain, value) for value in run(program, value)]
    steps = zip(program.lines, program.inlined, values[1:], strict=True)
    body = "".join(
        f"\n {line}#{after}" if line == inlined else f"\n {line}\n {inlined}#{after}"
        for line, inlined, after in steps
    )
    return f"{body}\n return x#{values[-1]}"


def backward_trace(program: Program, value: Value) -> str:
    """The lines from the last to the first, each with the value before it; then the input."""
    values = [spell(program.domain, value) for value in run(program, value)]
    steps = zip(program.inlined[::-1], values[-2::-1], strict=True)
    return "".join(f"\n {line}#{before}" for line, before in steps) + f"\nf({values[0]})"


def read_question(text: str) -> tuple[Program, Value]:
    """Program and input of a text `source, f(input)`. Raises BadProgram."""
    code, call, rest = text.partition("\nf(")
    if not call or not rest.endswith(")"):
        raise BadProgram(f"wanted a program and f(input), found {text!r}")
    domain, value = read_value(rest.removesuffix(")"))
    return read_program(code, domain), value


# The proposer


def propose(program: Program, value: Value) -> Problem:
    """Write a problem of this domain. `answer` is one of very many."""
    answer = f"{program.depth:02d}{_question(program, value)}"
    return _problem("propose", program, f"<propose>{program.domain}", answer)


def read_proposal(domain: str, completion: str) -> tuple[Program, Value] | None:
    """The problem that a proposer wrote; None when it is not a valid one.

    Valid: the domain asked for, as deep as declared, sound, on no held-out side.
    """
    try:
        program, value = read_question(completion[2:].rstrip())
    except BadProgram:
        return None
    valid = (
        program.domain == domain
        and not program.definitions
        and completion[:2] == f"{program.depth:02d}"
        and program.depth <= DEEPEST
        and is_sound(program, value)
        and side(program, value) not in HELD_OUT
    )
    return (program, value) if valid else None


# Documents


def draw_document(
    dice: random.Random, domain: str, count: int, strangers: int = 0
) -> tuple[tuple[str, str], ...]:
    """Definitions (name, line): `count` of the domain, and some of another one, in any order."""
    other = dice.choice([name for name in DOMAINS if name != domain])
    lines: list[str] = []
    for topic, wanted in ((domain, count), (other, count + strangers)):
        while len(lines) < wanted:
            line = draw_line(dice, topic)
            if line not in lines:
                lines.append(line)
    dice.shuffle(lines)
    return tuple(zip(dice.sample(NAMES, len(lines)), lines, strict=True))


def ask(document: tuple[tuple[str, str], ...], program: Program, value: Value) -> Problem:
    """Write a question about this document, and its key. `answer` is one of very many."""
    question = f"{program.depth:02d}{_question(program, value)}"
    prompt = f"<ask>{definitions_source(document)}"
    return _problem("ask", program, prompt, f"{question}{KEY}{trace(program, value)}")


def read_asked(prompt: str, completion: str) -> tuple[Program, Value, str] | None:
    """Program, input and key that were written about the document of an `ask` prompt; None when
    the question is not valid.

    Valid: calls only, whose definitions are quoted from the document, all of them used, as deep as
    declared, sound, on no held-out side. The key, a trace, is not looked at: it is the writer's
    own answer, right when it equals `trace(program, value)`.
    """
    question, _, key = completion.partition(KEY)
    try:
        program, value = read_question(question[2:])
        document, _ = read_definitions(prompt.removeprefix("<ask>"))
    except BadProgram:
        return None
    called = {f"x={name}(x)" for name, _ in program.definitions}
    valid = (
        set(program.definitions) <= set(document)
        and set(program.lines) == called
        and completion[:2] == f"{program.depth:02d}"
        and program.depth <= DEEPEST
        and is_sound(program, value)
        and side(program, value) not in HELD_OUT
    )
    return (program, value, key.rstrip()) if valid else None


def draw_asked(
    dice: random.Random, domain: str, depth: int, wanted: str = TRAINING
) -> tuple[tuple[tuple[str, str], ...], Program, Value]:
    """A document, and a composition of its definitions with an input, on the wanted side."""
    while True:
        document = draw_document(dice, domain, dice.randint(3, 6), dice.randint(0, 2))
        drawn = draw_composition(dice, domain, depth, document, wanted)
        if drawn is not None:
            return document, *drawn


def draw(
    dice: random.Random, format: str, domain: str, depth: int, wanted: str = TRAINING
) -> Problem:
    """A problem of the wanted side in any of the six formats; `induce` on the training one only."""
    if format == "ask":
        return ask(*draw_asked(dice, domain, depth, wanted))
    while True:
        program, value = draw_problem(dice, domain, depth, wanted)
        if format == "induce":
            problem = induce(program, dice)
            if problem is not None:
                return problem
        elif format == "choose":
            return choose(program, value, dice)
        else:
            return {"deduce": deduce, "abduce": abduce, "propose": propose}[format](program, value)


def _problem(format: str, program: Program, prompt: str, answer: str) -> Problem:
    return {
        "domain": program.domain,
        "format": format,
        "depth": program.depth,
        "prompt": prompt,
        "answer": answer,
    }


def _question(program: Program, value: Value) -> str:
    return f"{source(program)}\nf({spell(program.domain, value)})"


def _distractors(program: Program, value: Value, dice: random.Random) -> list[Value]:
    """Three wrong outputs: one step short, a step left out or two swapped, other inputs' ones."""
    domain, lines = program.domain, program.inlined
    right = run(program, value)
    wrong: list[Value] = []
    swaps = [[*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]] for i in range(len(lines) - 1)]
    skips = [[*lines[:i], *lines[i + 1 :]] for i in range(len(lines))]
    near = [right[-2]]
    for other in dice.sample(swaps, len(swaps)) + dice.sample(skips, len(skips)):
        try:
            near.append(run(Program(domain, tuple(other)), value)[-1])
        except BadProgram:
            continue
    while True:
        candidate = near.pop(0) if near else draw_value(dice, domain)
        if candidate != right[-1] and candidate not in wrong and in_domain(domain, candidate):
            wrong.append(candidate)
            if len(wrong) == len(CHOICES) - 1:
                return wrong


def _inputs(program: Program, count: int, dice: random.Random) -> list[Value]:
    """Distinct inputs on which the program runs: `count`, or fewer where tries find no more."""
    found: list[Value] = []
    for _ in range(10 * count):
        value = draw_value(dice, program.domain)
        if value in found:
            continue
        try:
            run(program, value)
        except BadProgram:
            continue
        found.append(value)
        if len(found) == count:
            break
    return found


def _abduces(prompt: str, text: str) -> bool:
    code, _, output = prompt.rpartition("#")
    domain, wanted = read_value(output)
    program = read_program(code, domain)
    _, _, call = text.rpartition("\nf(")
    try:
        found_domain, value = read_value(call.removesuffix(")"))
        if found_domain != domain or text != backward_trace(program, value):
            return False
        return run(program, value)[-1] == wanted
    except BadProgram:  # no value, or one on which the program does not run
        return False


def _induces(problem: Mapping[str, Any], text: str) -> bool:
    true = read_program(problem["answer"], problem["domain"])
    pairs = [line.split(")#") for line in problem["prompt"].split("\nf(")[1:]]
    inputs = [read_value(shown)[1] for shown, _ in pairs]
    # The seed is the problem itself: every completion is judged on the same hidden inputs.
    inputs += _inputs(true, HIDDEN_PAIRS, random.Random(problem["prompt"]))
    outputs = [run(true, value)[-1] for value in inputs]
    try:
        found = read_program(text, problem["domain"])
        if found.depth > DEEPEST:
            return False
        return all(
            run(found, value)[-1] == output for value, output in zip(inputs, outputs, strict=True)
        )
    except BadProgram:  # no program, or one that does not run on every input
        return False
