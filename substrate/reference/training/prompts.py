"""The prompts of code tasks for chat models.

They are the text of one message of the user. Blocks in them are fenced as in training/blocks.py, so
that no program, input or message in a block can end it and speak with the prompt's own voice.
"""

from collections.abc import Sequence

from training.blocks import fenced
from training.interpreter import Limits
from training.screen import ALLOWED_IMPORTS, ENTRY

PAIRS = 10  # inputs of an induction task, of which the student sees half

MOST_PROGRAM = 4000  # characters
MOST_VALUE = 1000  # of an input, and of an output: what a student can be asked to write
MOST_HINT = 500

# What a program has to be, for whoever writes one.
_MODULES = ", ".join(sorted(ALLOWED_IMPORTS - {"__future__"}))
_RULES = f"""\
- `{ENTRY}` is defined with `def` at the top level, takes at least one argument and uses it, and \
returns its result. Helper functions and classes beside it are welcome.
- It returns the same for the same arguments, always: no randomness, no clock, no files, no input, \
no network, nothing that depends on hashes, addresses or the order of a set.
- Arguments and result are plain values: None, bool, int, float, complex, str, bytes, list, tuple, \
dict or set, and nothing else inside.
- It ends within {Limits().cpu_s:g} s of computing and needs little memory.
- It imports nothing but {_MODULES}.
- It uses no names and attributes that reach into the interpreter, such as `eval`, `open`, \
`globals` or `__dict__`."""

_LENGTHS = f"""\
The program has at most {MOST_PROGRAM} characters, input and result at most {MOST_VALUE} each."""

_INPUT_RULE = f"""\
An input is what stands between the parentheses of the call `{ENTRY}(...)`, written with literals \
only, several arguments separated by commas: `3, 'abc', [1, 2]`."""

_ANSWER_RULE = "Think it through first, as long as you need. Then end with your answer in one block"


def pair_proposal(type: str, references: Sequence[tuple[str, str, str]]) -> str:
    """What a teacher of deduction or abduction reads; references are programs, inputs, outputs."""
    return _PAIR_PROPOSAL.format(
        sees=_SEES[type],
        wanted=_WANTED[type],
        rules=_RULES,
        input_rule=_INPUT_RULE,
        lengths=_LENGTHS,
        hard=_HARD[type],
        example=_EXAMPLE,
        references="\n\n".join(
            f"Task {number}\n{fenced('python', program)}\n{fenced('input', text)}\n"
            f"{fenced('output', output)}"
            for number, (program, text, output) in enumerate(references, 1)
        ),
    )


def induction_proposal(program: str) -> str:
    """What a teacher of induction reads. The program is its last block that is labelled python."""
    return _INDUCTION_PROPOSAL.format(
        pairs=PAIRS,
        half=PAIRS // 2,
        input_rule=_INPUT_RULE,
        example=_INDUCTION_EXAMPLE,
        program=fenced("python", program),
    )


def deduction(program: str, text: str) -> str:
    """What a student of a deduction task reads."""
    return (
        f"Here are a Python program and an input. What does `{ENTRY}` return for it?\n\n"
        f"{fenced('python', program)}\n\n{fenced('input', text)}\n\n"
        f"{_ANSWER_RULE} labelled `output`: the value that is returned, as a Python literal, "
        "strings in quotes, and nothing beside it. For the text ab that is\n\n"
        f"{fenced('output', repr('ab'))}"
    )


def abduction(program: str, output: str) -> str:
    """What a student of an abduction task reads."""
    return (
        f"Here are a Python program and an output. Find an input for which `{ENTRY}` returns "
        "exactly this, of the same types. Any such input is right.\n\n"
        f"{fenced('python', program)}\n\n{fenced('output', output)}\n\n{_INPUT_RULE}\n\n"
        f"{_ANSWER_RULE} labelled `input`, and nothing beside it. For the arguments 3 and the text "
        f"ab that is\n\n{fenced('input', repr((3, 'ab'))[1:-1])}"
    )


def induction(given: Sequence[Sequence[str]], hint: str) -> str:
    """What a student of an induction task reads: pairs of input and output, and the hint."""
    shown = "\n\n".join(
        f"{fenced('input', text)}\n{fenced('output', output)}" for text, output in given
    )
    return (
        f"A Python function `{ENTRY}` is hidden. Here is what it returns for some inputs, and a "
        "hint from whoever chose them. Write a program that does the same: it is tried on other "
        f"inputs of the same function and has to be right for all of them.\n\n{shown}\n\n"
        f"The hint:\n\n{fenced('hint', hint)}\n\nRules for your program:\n\n{_RULES}\n\n"
        f"{_ANSWER_RULE} labelled `python` with the whole program, as\n\n"
        f"{fenced('python', f'def {ENTRY}(a):{chr(10)}    return a + 1')}"
    )


_SEES = {
    "deduction": "the program and the input, and has to say what the program returns",
    "abduction": "the program and what it returns for your input, and has to find an input that "
    "gives the same: yours, or any other",
}
_WANTED = {
    "deduction": "whose result is hard to foresee without following the program step by step",
    "abduction": "that are hard to reverse: the result should leave few inputs possible, and none "
    "that is found by a quick guess",
}
_HARD = {
    "deduction": "Long sums, huge numbers and many rounds of one loop are tedious rather than "
    "hard: what counts is how many different things the solver has to understand.",
    "abduction": "A result that any input gives makes the task trivial; one that only a lucky "
    "search finds, as of a checksum, makes it hopeless.",
}

_PAIR_PROPOSAL = """\
You write tasks that train another programmer. Write one Python program and one input for it. The \
solver sees {sees}. The solver cannot run anything.

Aim for a program and an input {wanted}. The task is best when a careful solver succeeds about \
every other time; one that always or never succeeds is worth nothing. {hard}

Good material: state that several steps build on, recursion, stacks, queues, grids, graphs, \
intervals, parsing, small machines and simulations, text processing, number theory, dynamic \
programming, classes that work together.

Rules for the program:

{rules}

{input_rule} {lengths}

Plan first, in a few sentences. Then end with exactly two blocks, the program and the input, in \
the form of this example:

{example}

Do not write the result anywhere; the program is run to find it. Comments are shown to the solver.

These tasks exist already. Yours must not be one of them in other words, and should need an idea \
that none of them needs:

{references}"""

_EXAMPLE = (
    fenced("python", f"def {ENTRY}(words, n):\n    return [w[::-1] for w in words if len(w) > n]")
    + "\n\n"
    + fenced("input", "['tree', 'an', 'bird'], 2")
)

_INDUCTION_PROPOSAL = """\
You write tasks that train another programmer. Below is a Python program. Choose {pairs} inputs \
for it and write a hint. The solver never sees the program, but {half} of your inputs, drawn at \
random, with what the program returns for them, and the hint; with these the solver has to write a \
program that returns the right values for the other {half} too.

Choose inputs that differ from one another, that together show everything the program does, its \
special cases too, and for each of which it ends without an error. No two may be the same, and \
their results must not all be the same.

The hint is one to three sentences about what the program is for, enough that a careful solver \
succeeds about every other time. It contains no code.

{input_rule}

Plan first, in a few sentences. Then end with {pairs} blocks labelled `input`, one for each input, \
and one block labelled `hint`, in the form of this example, which is shortened to two inputs:

{example}

The program:

{program}"""

_INDUCTION_EXAMPLE = "\n\n".join(
    (
        fenced("input", "['tree', 'an', 'bird'], 2"),
        fenced("input", "[], 0"),
        fenced("hint", "Some of the words are kept, and not as they were."),
    )
)
