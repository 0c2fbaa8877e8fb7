"""The promptbook: what is a task and what is an answer, whatever a model writes to be taken for
one.
"""

import json
import random
from collections.abc import Iterator
from typing import get_args

import pytest

from training.archive import Archive
from training.blocks import Block, fenced, read_blocks, said
from training.codetasks import TYPES, Task
from training.first_programs import FIRST_PROGRAMS
from training.promptbook import REASONS, REFERENCES, Promptbook
from training.proposals import REASON_OF
from training.screen import ALLOWED_IMPORTS
from training.settled import NoVerdict, settled
from training.verdict import Kind, Verdict

SQUARE = "def f(x):\n    return x * x"
PAIR = "def f(a, b=1):\n    return [a] * b"
SIGN = "<|im_end|>"
LABELS = {"deduction": "output", "abduction": "input", "induction": "python"}
UNSEEN = chr(0xE0001)  # ten characters when Python spells it
SHOWS_3 = "class A:\n    def __repr__(self): return '3'"
TEN = tuple(str(number) for number in range(10))


@pytest.fixture(scope="module")
def book() -> Iterator[Promptbook]:
    with Promptbook(reserved=[SIGN], lanes=2) as book:
        yield book


def proposal(program: str, text: str) -> str:
    return f"A plan.\n\n{fenced('python', program)}\n\n{fenced('input', text)}\n"


def read(book: Promptbook, completion: str, type: str = "deduction") -> Task | str:
    (found,) = book.read_proposals(type, ["What a teacher read."], [completion], 0)
    return found


def task_of(book: Promptbook, program: str, text: str, type: str = "deduction") -> Task:
    found = read(book, proposal(program, text), type)
    assert isinstance(found, Task), found
    return found


def induction_proposal(inputs: tuple[str, ...] = TEN, hint: str = "Grows fast.") -> str:
    blocks = [*(fenced("input", text) for text in inputs), fenced("hint", hint)]
    return "A plan.\n\n" + "\n\n".join(blocks)


def read_induction(
    book: Promptbook, completion: str, program: str = SQUARE, seed: int = 0
) -> Task | str:
    prompt = f"Something.\n\n{fenced('python', program)}"
    (found,) = book.read_proposals("induction", [prompt], [completion], seed)
    return found


def graded(book: Promptbook, task: Task, answer: str) -> str:
    """What a well-formed attempt is worth that gives this answer."""
    (grade,) = book.judge([task], [f"Hm.\n\n{fenced(LABELS[task.type], answer)}"])
    return grade


# --- blocks


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("```python\nx = 1\n```", [Block("python", "x = 1")]),
        ("```python\nx = 1\n\n```\n", [Block("python", "x = 1\n")]),
        ("``` Python title\nx\n```", [Block("python", "x")]),
        ("```\nx\n```", [Block("", "x")]),
        ("```input\n```", [Block("input", "")]),
        ("```a\n1\n```\n```b\n2\n```", [Block("a", "1"), Block("b", "2")]),
        ("```a\r\n1\r\n2\r\n```\r\n", [Block("a", "1\n2")]),
        # A longer fence holds shorter ones, and a shorter one does not end it.
        ("````a\n```b\n1\n```\n````", [Block("a", "```b\n1\n```")]),
        ("```a\n1\n`````", [Block("a", "1")]),
        ("```a\n1\n```  ", [Block("a", "1")]),
        # What is no end of a block is part of it.
        ("```a\n1\n``\n ```\n```b\n```", [Block("a", "1\n``\n ```\n```b")]),
        # What is no block.
        ("```a\n1", []),
        ("```a\n1\n```b", []),
        (" ```a\n1\n ```", []),
        ("``a\n1\n``", []),
        ("~~~a\n1\n~~~", []),
        ("text ```a\n1\n```", []),
        ("```a`b\n1", []),
        ("```python x = 1```", []),
        # Only a line's end ends a line.
        ("```a\n1\x0b```\u2028```\n```", [Block("a", "1\x0b```\u2028```")]),
    ],
)  # fmt: skip
def test_blocks_are_read_as_they_are_fenced(text: str, blocks: list[Block]) -> None:
    assert read_blocks(text) == blocks


@pytest.mark.parametrize(
    "text", ["", "x", "```", "a\n```python\n1\n```\n````\n", "`` ` ```` x", "\n\n"]
)
def test_what_is_fenced_is_read_back_whatever_it_holds(text: str) -> None:
    found = read_blocks(f"before\n{fenced('python', text)}\nafter")
    assert found == [Block("python", text)]


@pytest.mark.parametrize(
    ("completion", "rest"),
    [
        ("answer", "answer"),
        ("<think>draft</think>answer", "answer"),
        ("draft</think>answer", "answer"),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>draft", ""),
    ],
)
def test_what_is_thought_is_not_said(completion: str, rest: str) -> None:
    assert said(completion) == rest


# --- prompts


@pytest.mark.parametrize("type", TYPES)
def test_an_empty_archive_has_prompts_of_first_tasks(book: Promptbook, type: str) -> None:
    prompt = book.proposal_prompt(type, random.Random(0), Archive(10))
    programs = [
        first.program for first in FIRST_PROGRAMS if fenced("python", first.program) in prompt
    ]
    assert len(programs) == (1 if type == "induction" else REFERENCES)
    if type != "induction":
        assert all(name in prompt for name in ALLOWED_IMPORTS - {"__future__"})


def test_a_prompt_shows_tasks_of_the_archive_with_inputs_and_outputs(book: Promptbook) -> None:
    archive = Archive(20)
    tasks = [task_of(book, f"def f(x):\n    return x + {n}00", "7") for n in range(1, 8)]
    for task in tasks:
        archive.add(task)
    prompts = [book.proposal_prompt("deduction", random.Random(n), archive) for n in range(20)]
    for prompt in prompts:
        shown = [n for n in range(1, 8) if f"return x + {n}00" in prompt]
        assert len(shown) == REFERENCES
        assert all(fenced("output", str(7 + 100 * n)) in prompt for n in shown)
        assert all(first.program not in prompt for first in FIRST_PROGRAMS)
    assert len(set(prompts)) == 20
    assert prompts[3] == book.proposal_prompt("deduction", random.Random(3), archive)


def test_a_prompt_with_few_tasks_is_filled_up_with_others(book: Promptbook) -> None:
    archive = Archive(20)
    archive.add(task_of(book, SQUARE, "12"))
    archive.add(book.first_tasks()[0])
    prompt = book.proposal_prompt("deduction", random.Random(0), archive)
    assert prompt.count("Task ") == REFERENCES
    assert SQUARE in prompt
    assert prompt.count(fenced("python", FIRST_PROGRAMS[0].program)) == 1


def test_a_prompt_of_long_programs_shows_fewer_of_them(book: Promptbook) -> None:
    archive = Archive(20)
    for n in range(6):
        archive.add(task_of(book, f"def f(x):\n    # {'x' * 3900}\n    return x + {n}", "7"))
    prompt = book.proposal_prompt("deduction", random.Random(0), archive)
    assert 10_000 < len(prompt) <= 16_000


def test_induction_asks_about_a_program_of_another_type(book: Promptbook) -> None:
    archive = Archive(20)
    archive.add(task_of(book, SQUARE, "12", "abduction"))
    prompt = book.proposal_prompt("induction", random.Random(0), archive)
    assert read_blocks(prompt)[-1] == Block("python", SQUARE)
    (task,) = book.read_proposals("induction", [prompt], [induction_proposal()], 0)
    assert isinstance(task, Task)
    assert task.program == SQUARE


# --- valid proposals


def test_a_deduction_task_shows_the_program_and_the_input_and_not_the_output(
    book: Promptbook,
) -> None:
    task = task_of(book, SQUARE, " 0x6F ,")
    assert task.type == "deduction"
    assert task.program == SQUARE
    assert task.detail == {"input": "111", "output": "12321"}
    assert task.returns == "int"
    assert (task.complexity.steps, task.complexity.lines) == (1, 2)
    assert fenced("python", SQUARE) in task.prompt and fenced("input", "111") in task.prompt
    assert "12321" not in task.prompt


def test_an_abduction_task_shows_the_program_and_the_output_and_not_the_input(
    book: Promptbook,
) -> None:
    task = task_of(book, SQUARE, "111", "abduction")
    assert fenced("output", "12321") in task.prompt
    assert "111" not in task.prompt.replace("12321", "")


def test_an_induction_task_shows_half_of_the_pairs_and_not_the_program(book: Promptbook) -> None:
    inputs = tuple(str(number) for number in range(1000, 1010))
    task = read_induction(book, induction_proposal(inputs))
    assert isinstance(task, Task)
    given, hidden = task.detail["given"], task.detail["hidden"]
    pairs = [[text, str(int(text) ** 2)] for text in inputs]
    assert sorted(given + hidden) == pairs
    assert len(given) == len(hidden) == 5
    for text, output in given:
        assert f"{fenced('input', text)}\n{fenced('output', output)}" in task.prompt
    assert not any(fenced("input", text) in task.prompt for text, _ in hidden)
    assert not any(fenced("output", output) in task.prompt for _, output in hidden)
    assert "x * x" not in task.prompt
    assert fenced("hint", "Grows fast.") in task.prompt


def test_which_pairs_are_hidden_is_drawn_and_not_their_order(book: Promptbook) -> None:
    halves = []
    for seed in range(12):
        task = read_induction(book, induction_proposal(), seed=seed)
        again = read_induction(book, induction_proposal(), seed=seed)
        assert isinstance(task, Task) and task == again
        halves.append(frozenset(text for text, _ in task.detail["hidden"]))
    assert len(set(halves)) > 8
    assert all(any(text in half for half in halves) for text in TEN)


def test_proposals_of_a_batch_are_read_in_order_and_draw_halves_of_their_own(
    book: Promptbook,
) -> None:
    completions = [proposal(f"def f(x):\n    return {n} / x", str(n % 2)) for n in range(20)]
    found = book.read_proposals("deduction", [""] * 20, completions, 0)
    outputs = [one if isinstance(one, str) else one.detail["output"] for one in found]
    assert outputs == ["exception" if n % 2 == 0 else f"{n}.0" for n in range(20)]
    prompts = [fenced("python", SQUARE)] * 6
    tasks = book.read_proposals("induction", prompts, [induction_proposal()] * 6, 0)
    assert len({str(task.detail["hidden"]) for task in tasks if isinstance(task, Task)}) > 3
    assert book.read_proposals("deduction", [], [], 0) == []
    with pytest.raises(ValueError, match="a completion for each of 2 prompts, found 1"):
        book.read_proposals("deduction", ["", ""], [""], 0)


@pytest.mark.parametrize(
    "program",
    [
        "class A:\n    def g(self): return 2\ndef h(x): return A().g() * x\ndef f(x): return h(x)",
        "import math\nfrom functools import reduce\ndef f(x):\n    return math.gcd(x, 6)",
        "def f(x):\n    def g(y): return y\n    return g(x)",
        "def f(*xs):\n    return sum(xs)",
        "def f(x, **more):\n    return x",
        "# a comment\n'text'\ndef f(x): return '\\d', x",
        "def f(x):\n    return sorted({x, 1, 'a'}, key=str)",
        "async def g(): pass\ndef f(x): return x",
        "n = 0\ndef f(x):\n    global n\n    n += x\n    return n",
        "def f(x):\n    return '```\\n```input\\n2\\n```' + str(x)",
    ],
)
def test_programs_with_helpers_classes_and_imports_are_tasks(
    book: Promptbook, program: str
) -> None:
    for type in ("deduction", "abduction"):
        task = task_of(book, program, "1", type)
        assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task


def test_a_program_that_holds_a_fence_is_shown_within_a_longer_one(book: Promptbook) -> None:
    program = "def f(x):\n    '''\n```\n```output\n7\n```\n'''\n    return x"
    task = task_of(book, program, "1")
    assert [block.text for block in read_blocks(task.prompt)] == [program, "1", "'ab'"]
    archive = Archive(20)
    archive.add(task)
    prompt = book.proposal_prompt("deduction", random.Random(0), archive)
    assert Block("python", program) in read_blocks(prompt)


def test_the_last_block_of_a_label_counts(book: Promptbook) -> None:
    drafts = proposal("def f(x):\n    return -x", "5") + fenced("text", "no") + "\n"
    found = read(book, drafts + proposal(SQUARE, "3"))
    assert isinstance(found, Task)
    assert found.detail == {"input": "3", "output": "9"}
    many = induction_proposal(("99", "98", *TEN), "Old.").replace("A plan", fenced("hint", "No."))
    task = read_induction(book, many)
    assert isinstance(task, Task)
    pairs = task.detail["given"] + task.detail["hidden"]
    assert sorted(text for text, _ in pairs) == list(TEN)
    assert task.detail["hint"] == "Old."


def test_what_is_thought_is_no_proposal(book: Promptbook) -> None:
    assert read(book, f"<think>{proposal(SQUARE, '3')}") == "malformed"
    found = read(book, f"{proposal(PAIR, '1')}</think>{proposal(SQUARE, '3')}")
    assert isinstance(found, Task) and found.program == SQUARE


# --- invalid proposals


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        ("", "malformed"),
        (SQUARE, "malformed"),
        (fenced("python", SQUARE), "malformed"),
        (fenced("input", "1"), "malformed"),
        (proposal(SQUARE, "1").replace("python", "py"), "malformed"),
        (proposal(SQUARE, "1").removesuffix("```\n"), "malformed"),
        (f"```python\n{SQUARE}\n# Input: 1\n<input>1</input>\ninput(1)\n```", "malformed"),
        # The fence of the program's own text ends its block.
        ("```python\ns = '''\n```\n" + proposal("def f(x:", "1"), "syntax_error"),
        ("x" * 1_000_000, "too_long"),
        ("```" * 350_000, "too_long"),
        ("```python\n" * 9000, "malformed"),
        (proposal(SQUARE + "\n#" + "x" * 4000, "1"), "too_long"),
        (proposal(SQUARE, "1" * 1001), "too_long"),
        (proposal("def f(x):\n    return len(x)", f"'{UNSEEN * 200}'"), "too_long"),
        (proposal("def f(x:", "1"), "syntax_error"),
        (proposal(SQUARE + "\0", "1"), "syntax_error"),
        (proposal(SQUARE + "\n# \ud800", "1"), "syntax_error"),
        (proposal("def f(x):\n    return " + "-" * 62 + "x", "1"), "too_deep"),
        (proposal("def g(x):\n    return x", "1"), "no_entry_point"),
        (proposal("f = lambda x: x", "1"), "no_entry_point"),
        (proposal("if True:\n    def f(x):\n        return x", "1"), "no_entry_point"),
        (proposal("class f:\n    def __init__(self, x): pass", "1"), "unserializable_output"),
        (proposal("import os\n" + SQUARE, "1"), "banned"),
        (proposal("from os import path\n" + SQUARE, "1"), "banned"),
        (proposal("import random\ndef f(x):\n    return random.random()", "1"), "banned"),
        (proposal("def f(x):\n    return __import__('random').random()", "1"), "banned"),
        (proposal("def f(x):\n    return open('/etc/passwd').read()", "1"), "banned"),
        (proposal("def f(x):\n    return eval('x')", "1"), "banned"),
        (proposal("def f(x):\n    return getattr(f, '__co' + 'de__') and x", "1"), "banned"),
        (proposal(f"def f(x):\n    return '{SIGN}' + x", "'a'"), "reserved"),
        (proposal(f"def f(x):\n    return x # {SIGN}", "'a'"), "reserved"),
        (proposal("def f(x):\n    return x", f"'{SIGN}'"), "reserved"),
        (proposal("def f(x):\n    return '<|im' + x", "'_end|>'"), "reserved"),
        (proposal(SQUARE, "y"), "bad_input"),
        (proposal(SQUARE, "1) or (2"), "bad_input"),
        (proposal(SQUARE, "1)\n(2"), "bad_input"),
        (proposal(SQUARE, "*[1]"), "bad_input"),
        (proposal(SQUARE, "2 ** 3"), "bad_input"),
        (proposal(SQUARE, "f(1)"), "bad_input"),
        (proposal(SQUARE, "1\0"), "bad_input"),
        (proposal("def f(x=1):\n    return x", ""), "bad_input"),
        (proposal(SQUARE, ""), "exception"),
        (proposal(SQUARE, "1, 2"), "exception"),
        (proposal(SQUARE, "'a'"), "exception"),
        (proposal("def f(x):\n    raise StopIteration", "1"), "exception"),
        (proposal("class Odd(Exception): pass\ndef f(x):\n    raise Odd", "1"), "exception"),
        (proposal("class ok(BaseException): pass\ndef f(x):\n    raise ok", "1"), "exception"),
        (proposal("def f(x):\n    raise SystemExit(x)", "1"), "exception"),
        (proposal("def f(x):\n    while True: pass", "1"), "timeout"),
        (proposal("def f(x):\n    return len([0] * 10 ** 9)", "1"), "memory_limit"),
        (proposal("def f(x):\n    return [0] * 10 ** 6", "1"), "output_limit"),
        (proposal("def f(x):\n    return 'a' * 999 * x", "1"), "output_limit"),
        (proposal("def f(x):\n    print('a' * 10 ** 7)\n    return x", "1"), "output_limit"),
        (proposal("def f(x):\n    return object()", "1"), "unserializable_output"),
        (proposal(f"{SHOWS_3}\ndef f(x):\n    return A()", "1"), "unserializable_output"),
        (proposal("def f(x):\n    return float('nan') * x", "1"), "unserializable_output"),
        (proposal("def f(x):\n    return frozenset([x])", "1"), "unserializable_output"),
        (proposal("def f(x):\n    return (y for y in x)", "[1]"), "unserializable_output"),
        (proposal("def f(x):\n    return 1 << 9000", "1"), "unserializable_output"),
        (proposal("def f(x):\n    return id(x)", "'a'"), "nondeterministic"),
        (proposal("def f(x):\n    return hash(x)", "'a'"), "nondeterministic"),
        (proposal("def f(x):\n    return list(set(x))", "'abcdefgh'"), "nondeterministic"),
        (proposal("def f(x):\n    return [1][hash(x) % 2]", "'abc'"), "nondeterministic"),
        (proposal("def f(x):\n    return 5", "1"), "constant"),
        (proposal("def f():\n    return 5", ""), "constant"),
        (proposal("def f(x):\n    x = 5\n    return 1", "1"), "constant"),
    ],
)  # fmt: skip
def test_an_invalid_proposal_is_refused_for_its_reason(
    book: Promptbook, completion: str, reason: str
) -> None:
    assert reason in REASONS
    assert read(book, completion) == reason
    assert isinstance(read(book, proposal(SQUARE, "3")), Task)


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        (induction_proposal(TEN[:9]), "malformed"),
        (induction_proposal().replace("hint", "message"), "malformed"),
        (induction_proposal((*TEN[:9], "y")), "bad_input"),
        (induction_proposal((*TEN[:9], "'a'")), "exception"),
        (induction_proposal((*TEN[:9], "0")), "same_input"),
        (induction_proposal((*TEN[:9], " 0x0, # other")), "same_input"),
        (induction_proposal((*TEN[:9], "1" * 1001)), "too_long"),
        (induction_proposal((*TEN[:9], "0.0")), Task),
        (induction_proposal(hint=""), "bad_hint"),
        (induction_proposal(hint=" \n "), "bad_hint"),
        (induction_proposal(hint="a" * 501), "too_long"),
        (induction_proposal(hint=SQUARE), "bad_hint"),
        (induction_proposal(hint="It is lambda x: x * x."), "bad_hint"),
        (induction_proposal(hint="See:\n```python\nx * x\n```"), "bad_hint"),
        (induction_proposal(hint="a\0b"), "bad_hint"),
        (induction_proposal(hint="a\ud800b"), "bad_hint"),
        (induction_proposal(hint="a\u202eb"), "bad_hint"),
        (induction_proposal(hint=f"a{SIGN}b"), "reserved"),
        (induction_proposal(hint="Two\nlines, of growth (fast): it returns more."), Task),
    ],
)
def test_an_induction_proposal_is_refused_for_its_reason(
    book: Promptbook, completion: str, reason: str | type[Task]
) -> None:
    found = read_induction(book, completion)
    assert isinstance(found, Task) if reason is Task else found == reason


def test_inputs_that_all_give_one_output_are_no_induction_task(book: Promptbook) -> None:
    assert read_induction(book, induction_proposal(), "def f(x):\n    return x < 99") == "constant"
    found = read_induction(book, induction_proposal(), "def f(x):\n    return x < 9")
    assert isinstance(found, Task) and found.returns == "bool"


def test_every_verdict_on_a_run_is_a_reason() -> None:
    none = {"ok", "correct", "wrong", "bad_answer", "infrastructure"}
    assert set(REASON_OF) == set(get_args(Kind)) - none
    assert set(REASON_OF.values()) <= set(REASONS)
    assert len(set(REASONS)) == len(REASONS)


# --- when two tasks are one


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ("def f(y):\n    return y * y", "7"),
        ("def f(x) :\n\n    # squared\n    return(x*x)", "7"),
        ("def f(x):\n    return x ** 2", " 7 # seven"),
        ("def g(x): return x\ndef f(x):\n    n = g(x)\n    return n * g(n)", "0b111"),
    ],
)
def test_the_same_function_on_the_same_input_is_the_same_task(
    book: Promptbook, other: str, text: str
) -> None:
    for type in ("deduction", "abduction"):
        one = task_of(book, SQUARE, "7", type)
        assert task_of(book, other, text, type).behaviour == one.behaviour


def test_another_function_with_the_same_output_is_another_task(book: Promptbook) -> None:
    even = task_of(book, "def f(x):\n    return x % 2 == 0", "6")
    third = task_of(book, "def f(x):\n    return x % 3 == 0", "6")
    assert even.detail == third.detail == {"input": "6", "output": "True"}
    assert even.behaviour != third.behaviour


def test_another_input_is_another_task_of_the_same_shape(book: Promptbook) -> None:
    one, other = task_of(book, SQUARE, "7"), task_of(book, SQUARE, "8")
    assert one.behaviour != other.behaviour
    assert one.shape == other.shape
    assert task_of(book, SQUARE, "7", "abduction").behaviour != one.behaviour


def test_two_inputs_of_one_output_are_one_task_of_abduction(book: Promptbook) -> None:
    archive = Archive(10)
    assert archive.add(task_of(book, SQUARE, "7", "abduction"))
    assert not archive.add(task_of(book, SQUARE, "-7", "abduction"))
    assert archive.add(task_of(book, SQUARE, "7"))
    assert archive.add(task_of(book, SQUARE, "-7"))


def test_the_same_pairs_in_another_order_are_the_same_induction_task(book: Promptbook) -> None:
    one = read_induction(book, induction_proposal(), seed=1)
    other = read_induction(
        book, induction_proposal(TEN[::-1], "Other."), "def f(n):\n    return n ** 2", seed=2
    )
    third = read_induction(book, induction_proposal((*TEN[:9], "10")))
    assert isinstance(one, Task) and isinstance(other, Task) and isinstance(third, Task)
    assert one.behaviour == other.behaviour != third.behaviour


def test_a_program_that_fails_on_neighbours_is_a_task_and_how_it_fails_is_no_difference(
    book: Promptbook,
) -> None:
    one = task_of(book, "def f(x):\n    return [7][x - 3]", "3")
    other = task_of(book, "def f(x):\n    return {2: 7, 3: 7}[x]", "3")
    assert one.behaviour == other.behaviour


def test_a_program_that_never_ends_on_a_neighbour_is_a_task(book: Promptbook) -> None:
    task = task_of(book, "def f(x):\n    while x % 2: pass\n    return x", "8")
    assert task.complexity.steps == 2


def test_a_program_that_guesses_the_counter_only_spoils_its_own_steps(book: Promptbook) -> None:
    # An identifier is normalized, the text that is searched for a free name is not.
    program = "def f(x):\n    global \uff53teps_count\n    \uff53teps_count = ['!']\n    return x"
    assert task_of(book, program, "8").complexity.steps is None


# --- attempts


@pytest.mark.parametrize(
    ("program", "text", "answer", "grade"),
    [
        (SQUARE, "3", "9", "right"),
        (SQUARE, "3", " 9 # nine\n", "right"),
        (SQUARE, "3", "9.0", "wrong"),
        (SQUARE, "3", "8", "wrong"),
        (SQUARE, "1", "True", "wrong"),
        (SQUARE, "3", "nine", "malformed"),
        (SQUARE, "3", "", "malformed"),
        (SQUARE, "3", "3 * 3", "malformed"),
        (SQUARE, "3", "9) or (True", "malformed"),
        (SQUARE, "3", "8)\n(True", "malformed"),
        (SQUARE, "3", "9, *[print('True')][:0]", "malformed"),
        (SQUARE, "3", "type('A', (), {'__eq__': lambda s, o: True})()", "malformed"),
        (SQUARE, "3", "f(3)", "malformed"),
        (SQUARE, "3", "__import__('os').system('true') or 9", "malformed"),
        (SQUARE, "3", "9\0", "malformed"),
        (SQUARE, "3", "'\ud800'", "malformed"),
        (SQUARE, "3", "9" * 70_000, "malformed"),
        (SQUARE, "3", "[" * 20_000, "malformed"),
        ("def f(x):\n    return {x: [x], 'a': {2, 1}}", "1", "{'a': {1, 2}, 1: [1]}", "right"),
        ("def f(x):\n    return x, 'a'", "1", "1, 'a'", "right"),
        ("def f(x):\n    return [x, 'a']", "1", "(1, 'a')", "wrong"),
        ("def f(x):\n    return x", "'\\ud800'", "'\\ud800'", "right"),
        ("def f(x):\n    return x", "1e999", "1e999", "right"),
    ],
)
def test_a_deduction_is_right_when_type_and_value_are(
    book: Promptbook, program: str, text: str, answer: str, grade: str
) -> None:
    assert graded(book, task_of(book, program, text), answer) == grade


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        ("3", "right"),
        ("-3", "right"),
        ("x=3", "right"),
        ("3.0", "wrong"),
        ("4", "wrong"),
        ("'a'", "wrong"),
        ("", "wrong"),
        ("3, 3", "wrong"),
        ("three", "malformed"),
        ("3) or (True", "malformed"),
        ("3)\n(True", "malformed"),
        ("3, *[print('True')][:0]", "malformed"),
        ("type('A', (), {'__mul__': lambda s, o: 9})()", "malformed"),
        ("(y := 3)", "malformed"),
        ("**{'x': 3}", "malformed"),
        ("3\0", "malformed"),
    ],
)
def test_an_abduction_is_right_when_the_output_is_the_same(
    book: Promptbook, answer: str, grade: str
) -> None:
    assert graded(book, task_of(book, SQUARE, "3", "abduction"), answer) == grade


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        (SQUARE, "right"),
        ("def f(n):\n    return sum(2 * k + 1 for k in range(n))", "right"),
        ("class A:\n    def g(self, x): return x ** 2\ndef f(x): return A().g(x)", "right"),
        ("def f(x):\n    return x", "wrong"),
        ("def f(x):\n    return x * x * 1.0", "wrong"),
        ("def f(x):\n    return x * x if x != 4 else 0", "wrong"),
        ("def f(x):\n    raise StopIteration", "wrong"),
        ("def f(x):\n    raise SystemExit(0)", "wrong"),
        ("def f(x):\n    print(x * x)", "wrong"),
        ("def f(x):\n    return id(object())", "wrong"),
        ("class A(int):\n    def __eq__(s, o): return True\ndef f(x): return A(x)", "wrong"),
        ("class A:\n    def __eq__(s, o): return True\ndef f(x): return A()", "wrong"),
        ("import os\ndef f(x):\n    return x * x", "wrong"),
        ("def f(x):\n    return open('/proc/self/cmdline').read()", "wrong"),
        ("def g(x):\n    return x * x", "malformed"),
        ("def f(x):\n    return x *", "malformed"),
        ("", "malformed"),
        ("x" * 70_000, "malformed"),
        (SQUARE + "\0", "malformed"),
    ],
)
def test_an_induction_is_right_when_every_hidden_pair_is(
    book: Promptbook, answer: str, grade: str
) -> None:
    task = read_induction(book, induction_proposal(), seed=1)
    assert isinstance(task, Task)
    assert ["4", "16"] in task.detail["hidden"]  # which one of the answers has wrong
    assert graded(book, task, answer) == grade


def test_who_learns_the_given_pairs_by_heart_is_wrong(book: Promptbook) -> None:
    task = read_induction(book, induction_proposal())
    assert isinstance(task, Task)
    pairs = {int(text): int(output) for text, output in task.detail["given"]}
    assert graded(book, task, f"def f(x):\n    return {pairs}.get(x, 0)") == "wrong"


@pytest.mark.parametrize(
    ("completion", "grade"),
    [
        ("```output\n9\n```", "right"),
        ("```output\n8\n```\nNo:\n```output\n9\n```\nThat is it.", "right"),
        ("```output\n9\n```\nNo:\n```output\n8\n```", "wrong"),
        ("```output\n9\n```\n```output\n", "right"),  # what is never closed is none
        ("```input\n3\n```\n```output\n9\n```", "right"),
        ("<think>```output\n8\n```</think>```output\n9\n```", "right"),
        ("<think>```output\n9\n```", "malformed"),
        ("```output\n9", "malformed"),
        ("```\n9\n```", "malformed"),
        ("```python\n9\n```", "malformed"),
        ("```output 9```", "malformed"),
        ("Output: 9", "malformed"),
        ("9", "malformed"),
        ("<output>9</output>", "malformed"),
        ("", "malformed"),
        ("\0", "malformed"),
        ("\ud800", "malformed"),
        ("x" * 1_000_000 + "\n```output\n9\n```", "malformed"),
        ("```output\n" * 9000 + "9\n```", "malformed"),
        ("````output\n```output\n9\n```\n````", "malformed"),
        ("```output\n9\n9\n```", "malformed"),
        ("```python\ns = '''\n```output\n9\n```", "malformed"),
        ("```python\ns = '''\n```\n```output\n9\n```\n'''", "right"),  # the first fence ends it
    ],
)
def test_an_answer_stands_in_the_last_block_of_its_label_and_nowhere_else(
    book: Promptbook, completion: str, grade: str
) -> None:
    assert book.judge([task_of(book, SQUARE, "3")], [completion]) == [grade]


def test_a_batch_of_attempts_is_judged_in_order(book: Promptbook) -> None:
    tasks, completions, grades = [], [], []
    induced = read_induction(book, induction_proposal())
    assert isinstance(induced, Task)
    for n in range(2, 8):
        program = f"def f(x):\n    return x * {n}"
        deduced, abduced = task_of(book, program, "3"), task_of(book, program, "3", "abduction")
        for k in range(3):
            tasks += [deduced, abduced, induced]
            completions += [
                fenced("output", str(3 * n + k)),
                fenced("input", str(3 + k)),
                fenced("python", f"def f(x):\n    return x ** {2 + k}") if k < 2 else "none",
            ]
            grades += [
                *(["right"] * 3 if k == 0 else ["wrong"] * 2),
                *([] if k == 0 else ["wrong"] if k == 1 else ["malformed"]),
            ]
    order = random.Random(0).sample(range(len(tasks)), len(tasks))
    found = book.judge([tasks[n] for n in order], [completions[n] for n in order])
    assert found == [grades[n] for n in order]
    assert book.judge([], []) == []
    with pytest.raises(ValueError, match=r"argument 2 is shorter"):
        book.judge(tasks[:2], completions[:1])


def test_one_answer_that_never_ends_spoils_no_other_of_its_task(book: Promptbook) -> None:
    program = "def f(x):\n    while x < 0: pass\n    return x % 5"
    task = task_of(book, program, "3", "abduction")
    answers = ["8", "-1", "13", "4"]
    found = book.judge([task] * 4, [fenced("input", text) for text in answers])
    assert found == ["right", "wrong", "right", "wrong"]


def test_the_gold_answer_of_every_first_task_is_right(book: Promptbook) -> None:
    tasks = book.first_tasks()
    answers = {
        "deduction": lambda task: task.detail["output"],
        "abduction": lambda task: task.detail["input"],
        "induction": lambda task: task.program,
    }
    completions = [fenced(LABELS[task.type], answers[task.type](task)) for task in tasks]
    assert book.judge(tasks, completions) == ["right"] * len(FIRST_PROGRAMS) * len(TYPES)
    assert len({task.behaviour for task in tasks}) == len(tasks)


# --- the machine


def test_a_verdict_that_says_nothing_is_asked_for_again_and_never_counted() -> None:
    asked = []

    def ask() -> list[Verdict]:
        asked.append(1)
        kind = "infrastructure" if len(asked) < 3 else "ok"
        return [Verdict("wrong"), Verdict(kind)]

    assert [verdict.kind for verdict in settled(ask)] == ["wrong", "ok"]
    with pytest.raises(NoVerdict, match="wanted a verdict on a program, found none in 3 attempts"):
        settled(lambda: [Verdict("infrastructure", error="no answer from the jail")])
