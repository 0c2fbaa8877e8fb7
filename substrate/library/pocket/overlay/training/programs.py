"""Pocket programs: real Python functions of one argument, one operation a line, and what they do.

    def f(x):
     x=x+7
     x=x*2
     return x

A domain is a small set of values and the operations that stay in it. Programs and values have one
spelling each; `run` is the interpreter that every reward goes back to. A line may also call a
definition that is quoted above the program (`x=ka(x)`), which stands for that definition's line.

A problem is a program and an input. It is `sound` when no value occurs twice on the way: then no
line is without effect and no two lines cancel, so its depth (its number of lines) is honest. Which
side a problem belongs to is a hash of its inlined lines and its input (`side`), so that sets drawn
from different sides cannot share a problem, whatever names its definitions bear. Pretraining may
use the training side; RL and proposals that and the fresh side; nobody learns from a held-out one
but from the target set, once it is handed out. What is held out is the problem, not its parts: a
few lines of one may stand, with the same values, within a longer program of another side.
"""

import ast
import hashlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DOMAINS = ("integers", "strings", "lists", "booleans", "bits")
DEEPEST = 16  # lines of a program
HELD_OUT = ("target", "dev", "external", "lockbox")  # sides of one in 32 problems each
FRESH = "fresh"  # one in eight: not for pretraining, so that a base model can be measured there
TRAINING = "training"  # all others
NAMES = ("ka", "ki", "ku", "lo", "lu", "mi", "mo", "nu", "pi", "po", "ri", "ro")

Value = Any  # int, str, list[int] or list[bool], by domain

_DIGITS = "123456789"
_LETTERS = "abcde"
_ON_SEQUENCES = (
    ("x=x[::-1]",),
    ("x=x[1:]+x[:1]",),
    ("x=x[-1:]+x[:-1]",),
    ("x=x[1:]",),
    ("x=x[:-1]",),
    ("x=x+x[:1]",),
    ("x=x[-1:]+x",),
)

# Lines by domain and kind. A kind is drawn first, then a line of it.
OPERATIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "integers": (
        tuple(f"x=x+{k}" for k in _DIGITS),
        tuple(f"x=x-{k}" for k in _DIGITS),
        ("x=x*2",),
        ("x=x//2",),
        ("x=99-x",),
        ("x=x%10*10+x//10",),
    ),
    "strings": (
        *_ON_SEQUENCES,
        ("x=''.join(sorted(x))",),
        tuple(f"x='{c}'+x" for c in _LETTERS),
        tuple(f"x=x+'{c}'" for c in _LETTERS),
        tuple(f"x=x.replace('{c}','{d}')" for c in _LETTERS for d in _LETTERS if c != d),
    ),
    "lists": (
        *_ON_SEQUENCES,
        ("x=sorted(x)",),
        tuple(f"x=[{k}]+x" for k in _DIGITS),
        tuple(f"x=x+[{k}]" for k in _DIGITS),
        ("x=[v+1 for v in x]",),
        ("x=[v-1 for v in x]",),
        ("x=[9-v for v in x]",),
    ),
    "booleans": (
        *_ON_SEQUENCES,
        ("x=sorted(x)",),
        ("x=[not v for v in x]",),
        ("x=x+[not x[0]]",),
        ("x=[v!=x[0] for v in x]",),
        ("x=[v or x[-1] for v in x]",),
    ),
    "bits": (
        tuple(f"x=x^{k}" for k in _DIGITS),
        tuple(f"x=x|{k}" for k in _DIGITS),
        tuple(f"x=x&{k}" for k in _DIGITS),
        ("x=31-x",),
        ("x=x>>1",),
        ("x=x*2%32",),
        ("x=x*2%32+x//16",),
    ),
}

# The lines are ours, so `eval` sees no text of a model: what a model writes is looked up here.
_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    line: eval(f"lambda x: {line.removeprefix('x=')}")
    for kinds in OPERATIONS.values()
    for kind in kinds
    for line in kind
}
_LINES = {domain: {line for kind in kinds for line in kind} for domain, kinds in OPERATIONS.items()}
_LITERALS = {
    "integers": re.compile(r"0|[1-9][0-9]?"),
    "strings": re.compile(r"'[a-e]{2,5}'"),
    "lists": re.compile(r"\[[0-9](,[0-9]){1,3}\]"),
    "booleans": re.compile(r"\[(True|False)(,(True|False)){1,4}\]"),
    "bits": re.compile(r"0b[01]{5}"),
}
_CALL = re.compile(r"x=([a-z]{2})\(x\)")
_DEFINITION = re.compile(r"\ndef ([a-z]{2})\(x\):\n (x=[^\n]+)\n return x")
_FUNCTION = re.compile(r"\ndef f\(x\):((?:\n x=[^\n]+)+)\n return x")


class BadProgram(ValueError):
    """A text that is no pocket program or value, or a program that leaves its domain."""


@dataclass(frozen=True)
class Program:
    """The lines of `f`, and the definitions (name, line) that they may call, in quoted order."""

    domain: str
    lines: tuple[str, ...]
    definitions: tuple[tuple[str, str], ...] = ()

    @property
    def depth(self) -> int:
        return len(self.lines)

    @property
    def inlined(self) -> tuple[str, ...]:
        """The lines with each call replaced by what it stands for."""
        if not self.definitions:
            return self.lines
        bodies = {f"x={name}(x)": body for name, body in self.definitions}
        return tuple(bodies.get(line, line) for line in self.lines)


def run(program: Program, value: Value) -> list[Value]:
    """The values before the first line and after each: depth + 1 of them.

    Raises BadProgram when a line is not the domain's, or a value leaves the domain.
    """
    values = [value]
    for line in program.inlined:
        if line not in _LINES[program.domain]:
            raise BadProgram(f"wanted a line of {program.domain}, found {line!r}")
        value = _FUNCTIONS[line](value)
        if not in_domain(program.domain, value):
            raise BadProgram(f"wanted a value of {program.domain}, found {value!r} after {line!r}")
        values.append(value)
    return values


def in_domain(domain: str, value: Value) -> bool:
    """Whether a value of the right type is small enough."""
    if domain == "integers":
        return 0 <= value <= 99
    if domain == "bits":
        return 0 <= value <= 31
    if domain == "lists":
        return 2 <= len(value) <= 4 and all(0 <= item <= 9 for item in value)
    return 2 <= len(value) <= 5


def is_sound(program: Program, value: Value) -> bool:
    """Whether the program runs on this input and no value occurs twice on the way."""
    try:
        values = run(program, value)
    except BadProgram:
        return False
    return all(value not in values[:index] for index, value in enumerate(values))


def side(program: Program, value: Value) -> str:
    """Whom this problem belongs to: one of HELD_OUT, FRESH or TRAINING."""
    text = "\n".join((*program.inlined, spell(program.domain, value)))
    slot = hashlib.sha256(text.encode()).digest()[0] % 32
    if slot < len(HELD_OUT):
        return HELD_OUT[slot]
    return FRESH if 16 <= slot < 16 + len(HELD_OUT) else TRAINING


def spell(domain: str, value: Value) -> str:
    """The one spelling of a value: a Python literal without spaces."""
    if domain == "strings":
        return f"'{value}'"
    if domain == "bits":
        return f"0b{value:05b}"
    if domain == "integers":
        return str(value)
    return f"[{','.join(map(str, value))}]"


def read_value(text: str) -> tuple[str, Value]:
    """Domain and value of a spelling. Raises BadProgram."""
    for domain, pattern in _LITERALS.items():
        if pattern.fullmatch(text):
            return domain, ast.literal_eval(text)
    raise BadProgram(f"wanted the literal of a value, found {text!r}")


def source(program: Program) -> str:
    """The program as Python, definitions first. It starts with a line break."""
    body = "".join(f"\n {line}" for line in program.lines)
    return f"{definitions_source(program.definitions)}\ndef f(x):{body}\n return x"


def definitions_source(definitions: tuple[tuple[str, str], ...]) -> str:
    """Definitions (name, line) as Python."""
    return "".join(f"\ndef {name}(x):\n {line}\n return x" for name, line in definitions)


def read_program(text: str, domain: str) -> Program:
    """The program of that source, to the letter. Raises BadProgram."""
    definitions, rest = read_definitions(text)
    match = _FUNCTION.fullmatch(rest)
    if match is None:
        raise BadProgram(f"wanted the source of a program, found {text!r}")
    lines = tuple(match[1].removeprefix("\n ").split("\n "))
    callable_names = {name for name, _ in definitions}
    known = _LINES[domain]
    for line in lines:
        call = _CALL.fullmatch(line)
        if line not in known and (call is None or call[1] not in callable_names):
            raise BadProgram(f"wanted a line of {domain} or a call, found {line!r}")
    return Program(domain, lines, definitions)


def read_definitions(text: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """The definitions (name, line) at the start of a text, and what is left of it."""
    definitions = []
    while match := _DEFINITION.match(text):
        definitions.append((match[1], match[2]))
        text = text[match.end() :]
    if len(dict(definitions)) < len(definitions):
        raise BadProgram("wanted one definition for each name, found two")
    return tuple(definitions), text


def draw_value(dice: random.Random, domain: str) -> Value:
    """A value of the domain; lengths are equally likely."""
    if domain == "integers":
        return dice.randrange(100)
    if domain == "bits":
        return dice.randrange(32)
    length = dice.randint(2, 4 if domain == "lists" else 5)
    if domain == "strings":
        return "".join(dice.choice(_LETTERS) for _ in range(length))
    if domain == "lists":
        return [dice.randrange(10) for _ in range(length)]
    return [dice.random() < 0.5 for _ in range(length)]


def draw_line(dice: random.Random, domain: str) -> str:
    """A line of the domain; kinds are equally likely."""
    return dice.choice(dice.choice(OPERATIONS[domain]))


def draw_problem(
    dice: random.Random, domain: str, depth: int, wanted: str = TRAINING
) -> tuple[Program, Value]:
    """A sound problem of that depth on the wanted side."""
    while True:
        value = draw_value(dice, domain)
        lines = extend(dice, domain, value, depth, lambda: draw_line(dice, domain))
        if lines is not None:
            program = Program(domain, lines)
            if side(program, value) == wanted:
                return program, value


def draw_composition(
    dice: random.Random,
    domain: str,
    depth: int,
    definitions: tuple[tuple[str, str], ...],
    wanted: str = TRAINING,
) -> tuple[Program, Value] | None:
    """A sound problem that calls these definitions only; None when few tries find none.

    The program quotes the definitions that it calls, in the order in which they are given.
    """
    usable = [(name, line) for name, line in definitions if line in _LINES[domain]]
    if not usable:
        return None
    names = {line: name for name, line in usable}
    for _ in range(8):
        value = draw_value(dice, domain)
        lines = extend(dice, domain, value, depth, lambda: dice.choice(usable)[1])
        if lines is not None and side(Program(domain, lines), value) == wanted:
            calls = tuple(f"x={names[line]}(x)" for line in lines)
            quoted = tuple(pair for pair in definitions if pair[1] in lines)
            return Program(domain, calls, quoted), value
    return None


def extend(
    dice: random.Random, domain: str, value: Value, depth: int, draw: Callable[[], str]
) -> tuple[str, ...] | None:
    """Lines from `draw` that make a sound path of that depth from the value; None when stuck."""
    seen, lines = [value], []
    for _ in range(12 * depth):
        line = draw()
        after = _FUNCTIONS[line](value)
        if in_domain(domain, after) and after not in seen:
            value = after
            seen.append(after)
            lines.append(line)
            if len(lines) == depth:
                return tuple(lines)
    return None
