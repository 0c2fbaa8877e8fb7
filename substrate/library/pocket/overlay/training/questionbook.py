"""The questionbook of pocket: documents of definitions, questions that compose them, their keys.

A generator reads definitions and writes a program that calls some of them, with an input. Most
prompts ask for a depth and for some definitions, by the beginning of the generator's own answer,
since the base hardly ever declares a depth beyond what it can solve, and then calls what it has not
quoted: the depth of a question that was solved sometimes.

The solver is shown the question inlined, as a `deduce` problem: with definitions quoted, the base
solves depths up to 4 always and 5 never, so that nothing could be learnt there.

Who has composed a question knows its parts, and that is what a generator has before a solver here:
it is asked for its key in parts of PART lines, each from the value that it gave for the one before.
As a whole it could answer only what the solver soon can.

A question has to run, and to call what the document defines. It need not be as deep as it says, nor
use all that it quotes, nor may it be asked for that no value occurs twice on the way, as problems
of the sets are: of the deep ones of the untrained base that would leave one in five.

The key is taken for true as it is; what the interpreter says of it is a fact for metrics. Each part
has to look like a solution, though: a trace that copies the lines, whatever its values. So has an
attempt, which is right when it ends in the key's value: most wrong answers leave a line out.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from training.programs import (
    DEEPEST,
    DOMAINS,
    HELD_OUT,
    OPERATIONS,
    BadProgram,
    Program,
    Value,
    definitions_source,
    in_domain,
    read_definitions,
    read_value,
    run,
    side,
    spell,
)
from training.vocabulary import KEY

from training import pocket
from training.passage import Passage
from training.questions import Question, Reason

# How many definitions of a document's domain and of another one there are, by kind, and how often.
# A thin document has one line to repeat: hardly any question about it can be deep.
KINDS = {"rich": ((5, 6), (0, 0)), "mixed": ((3, 4), (2, 2)), "thin": ((1, 1), (2, 3))}
SHARES = {"rich": 0.5, "mixed": 0.25, "thin": 0.25}
ASKED = 0.9  # share of the documents for which a depth is asked for
QUOTED = (2, 3)  # definitions that such a prompt goes on with: more are not all used
FIRST = 5  # the depth that is asked for while no question was solved sometimes
_LINES = {topic: {line for kind in OPERATIONS[topic] for line in kind} for topic in DOMAINS}
PART = 3  # lines: the untrained base answers so many without a mistake
DECLARED = 2  # characters of a depth
_ASK, _PROPOSE = "<ask>", "<propose>"
_DEDUCE = "<deduce>"


class Questionbook:
    """Documents and verdicts. It owns nothing that would have to be closed."""

    parts = -(-DEEPEST // PART)  # of a key, at most
    documents: Mapping[str, Any] = {}  # what was found: nothing has to be read

    def __init__(self, count: Callable[[str], int]) -> None:
        """`count`, a text's tokens, matters where documents are given."""

    def __enter__(self) -> "Questionbook":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def take(
        self, number: int, dice: random.Random, drawn: int, near: Sequence[Question]
    ) -> list[Passage]:
        """Documents that nobody has seen. `near` are questions that were solved sometimes; `drawn`,
        the number of documents before these, matters where documents are given.
        """
        passages = []
        for _ in range(number):
            topic = dice.choice(DOMAINS)
            (kind,) = dice.choices([*SHARES], [*SHARES.values()])
            own, strangers = (dice.randint(*bounds) for bounds in KINDS[kind])
            document = pocket.draw_document(dice, topic, own, strangers)
            definitions = definitions_source(document)
            prompt = f"{_ASK}{definitions}"
            if dice.random() < ASKED:
                depth = _program(dice.choice(near)).depth if near else FIRST
                prompt += f"{depth:02d}"
                apt = [pair for pair in document if pair[1] in _LINES[topic]]
                some = dice.sample(apt, min(dice.choice(QUOTED), len(apt)))
                prompt += (
                    definitions_source(tuple(p for p in document if p in some)) + "\ndef f(x):"
                )
            passages.append(Passage(definitions, prompt, kind, topic, end=KEY))
        return passages

    def take_examples(
        self, number: int, dice: random.Random, examples: Sequence[Mapping[str, Any]]
    ) -> list[Passage]:
        """Problems instead of documents: what is to be written begins with their depth and the
        first half of their lines.
        """
        passages = []
        for example in dice.choices(examples, k=number):
            program, _ = pocket.read_question(example["prompt"].removeprefix(_DEDUCE))
            lines = program.inlined[: program.depth // 2]
            prompt = f"{_PROPOSE}{program.domain}{program.depth:02d}\ndef f(x):"
            prompt += "".join(f"\n {line}" for line in lines)
            passages.append(Passage(example["id"], prompt, "example", program.domain))
        return passages

    def read(
        self, passages: Sequence[Passage], completions: Sequence[str]
    ) -> list[Question | Reason]:
        """For each completion the question, whose key is still empty, or why it is none."""
        found: list[Question | Reason] = []
        for passage, text in zip(passages, completions, strict=True):
            if passage.kind == "example":
                start = passage.prompt.removeprefix(f"{_PROPOSE}{passage.topic}")
                problem = _proposed(start + text)
            else:
                start = passage.prompt.removeprefix(_ASK).removeprefix(passage.id)
                problem = _asked(passage.id, start + text)
            if problem is None:
                found.append("malformed")
            else:
                shown = pocket.deduce(*problem)["prompt"]
                found.append(Question("free", shown, shown, (), None, "", "", passage.id))
        return found

    def key_prompt(self, question: Question, parts: Sequence[str]) -> str | None:
        """What the generator reads to answer the next part of its question, after its answers to
        the parts before; None where there is no further part, or an answer was none.
        """
        rest = _rest(question, parts)
        return None if rest is None or not rest[0].lines else pocket.deduce(*_part(rest))["prompt"]

    def with_key(self, question: Question, parts: Sequence[str]) -> Question | Reason:
        """The question with the value that the last part ends in; "no_solution" for a bad part."""
        rest = _rest(question, parts)
        if rest is None:
            return "no_solution"
        program, value = rest
        return replace(question, reference=spell(program.domain, value), solution="".join(parts))

    def judge(self, questions: Sequence[Question], completions: Sequence[str]) -> list[str]:
        """Whether each completion is "right", "wrong" or "malformed", by its question's key."""
        programs = [_program(question) for question in questions]
        values = [_value(*pair) for pair in zip(programs, completions, strict=True)]
        references = [question.reference for question in questions]
        return [_grade(*pair) for pair in zip(values, references, strict=True)]

    def vote(self, question: Question, completions: Sequence[str]) -> list[str]:
        """The same for completions about one question, by the answer that most of them give; of
        answers given equally often, the first.
        """
        program = _program(question)
        values = [_value(program, completion) for completion in completions]
        counts = Counter(value for value in values if value is not None)
        most = max(counts, key=lambda value: counts[value]) if counts else None
        return [_grade(value, most) for value in values]

    def facts(self, question: Question) -> dict[str, Any]:
        """What is true of a question, for metrics: its domain and depth, and whether its key is
        right.
        """
        program = _program(question)
        problem = pocket.deduce(program, pocket.read_question(_shown(question))[1])
        right = problem["answer"].rpartition("#")[2] == question.reference
        return {"topic": program.domain, "depth": program.depth, "key_right": right}


def _asked(document: str, text: str) -> tuple[Program, Value] | None:
    """The program, inlined, and the input that a text asks about; None for no valid question."""
    try:
        program, value = pocket.read_question(text.partition(KEY)[0][DECLARED:])
        known, _ = read_definitions(document)
    except BadProgram:
        return None
    calls = {f"x={name}(x)" for name, _ in program.definitions}
    if not (set(program.definitions) <= set(known) and set(program.lines) <= calls):
        return None
    inlined = Program(program.domain, program.inlined)
    return (inlined, value) if _is_question(text, inlined, value) else None


def _proposed(text: str) -> tuple[Program, Value] | None:
    """The same without a document: nothing is called."""
    try:
        program, value = pocket.read_question(text.rstrip()[DECLARED:])
    except BadProgram:
        return None
    if program.definitions or not _is_question(text, program, value):
        return None
    return program, value


def _is_question(text: str, program: Program, value: Value) -> bool:
    """Whether a program runs, with a depth declared before it, and is on no held-out side."""
    try:
        run(program, value)
    except BadProgram:
        return False
    declared = text[:DECLARED].isdigit() and program.depth <= DEEPEST
    return declared and side(program, value) not in HELD_OUT


def _shown(question: Question) -> str:
    return question.prompt.removeprefix(_DEDUCE)


def _program(question: Question) -> Program:
    return pocket.read_question(_shown(question))[0]


def _rest(question: Question, parts: Sequence[str]) -> tuple[Program, Value] | None:
    """The lines of a question that these answers have not come to, and the value before them."""
    rest, value = pocket.read_question(_shown(question))
    for text in parts:
        part, _ = _part((rest, value))
        found = _value(part, text)
        if found is None:
            return None
        try:
            domain, value = read_value(found)
        except BadProgram:
            return None
        if domain != rest.domain or not in_domain(domain, value):
            return None
        rest = replace(rest, lines=rest.lines[PART:])
    return rest, value


def _part(rest: tuple[Program, Value]) -> tuple[Program, Value]:
    program, value = rest
    return replace(program, lines=program.lines[:PART]), value


def _value(program: Program, text: str) -> str | None:
    """The value that a trace of the program ends in; None for another text."""
    *lines, last = ("\n" + text.strip("\n").rstrip()).split("\n ")[1:] or [""]
    copied = [line.rpartition("#")[0] for line in lines]
    result, _, value = last.partition("#")
    formed = result == "return x" and value and copied == [*program.lines]
    return value if formed else None


def _grade(value: str | None, reference: str | None) -> str:
    if value is None:
        return "malformed"
    return "right" if value == reference else "wrong"
