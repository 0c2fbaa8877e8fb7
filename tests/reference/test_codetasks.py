"""Code tasks: when two are one, and what a program's complexity is, by hand."""

import ast
import json
import math
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from training.canonical import decode, encode
from training.codetasks import Task, behaviour
from training.complexity import Complexity, measure
from training.first_programs import FIRST_PROGRAMS
from training.literals import read_arguments
from training.neighbours import neighbours, spelled
from training.shapes import shape
from training.steps import counting
from training.syntax import TooDeep, depth_of, read_tree, without_texts


def shape_of(program: str) -> str:
    return shape(without_texts(program))


def complexity_of(program: str) -> Complexity:
    return measure(without_texts(program))


def call(program: str, text: str, **named: Any) -> Any:
    """What a program of this file, which may be trusted, returns."""
    names: dict[str, Any] = {}
    exec(program, names)
    return eval(f"f({text})", {**names, **named})


def steps_of(program: str, text: str) -> int:
    counter = counting(program)
    assert counter is not None
    assert call(counter.source, text) == call(program, text)
    return call(counter.source, f"{text}, {counter.keyword}=True")


# --- shapes

ADDER = "def f(x):\n    return x + 1\n"
SHELF = """
class Shelf:
    width = 3
    def __init__(self, room):
        self.room = room
        self.books = []
    def put(self, book):
        self.books.append(book)
        return len(self.books) < self.room * Shelf.width
def f(books, room):
    shelf = Shelf(room)
    return [shelf.put(book) for book in books if book]
"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ADDER, "def f(y):\n    return y + 1"),
        (ADDER, '"""Adds."""\ndef f ( x ) :\n\n    """One."""\n    # more\n    return (x)+1;'),
        (ADDER, "def f(x: int) -> int:\n    'text'\n    pass\n    return x + 0x1"),
        ("def f(x):\n    y = x\n    return y", "def f(x):\n    y: int = x\n    return y"),
        ("def f(x):\n    if x: return 1", "def f(x):\n    if x: return 1\n    else: pass"),
        # Names of different scopes are different names, whatever they are called.
        (
            "def g(a): return a\ndef f(a): return g(a)",
            "def g(a): return a\ndef f(b): return g(b)",
        ),
        (
            "def f(x): return [x for x in x] + [x]",
            "def f(x): return [y for y in x] + [x]",
        ),
        ("def f(x):\n    return (lambda x: x)(x)", "def f(x):\n    return (lambda y: y)(x)"),
        (
            "def f(x):\n    try: return x[0]\n    except IndexError as e: return str(e)",
            "def f(a):\n    try: return a[0]\n    except IndexError as b: return str(b)",
        ),
        (
            "n = 0\ndef f(x):\n    global n\n    n += x\n    return n",
            "m = 0\ndef f(x):\n    global m\n    m += x\n    return m",
        ),
        (
            "def f(x):\n    def g():\n        nonlocal x\n        x += 1\n    g()\n    return x",
            "def f(z):\n    def y():\n        nonlocal z\n        z += 1\n    y()\n    return z",
        ),
        (
            "def f(x):\n match x:\n  case [a, *b]: return a\n  case {'k': v, **w}: return w",
            "def f(q):\n match q:\n  case [r, *s]: return r\n  case {'k': t, **u}: return u",
        ),
        ("def f(x): return [(y := x), y]", "def f(a): return [(b := a), b]"),
        (
            "def f(x): return [y for z in x if (y := z)], y",
            "def f(x): return [a for b in x if (a := b)], a",
        ),
        (
            "def g(size=1): return size\ndef f(x): return g(size=x)",
            "def g(n=1): return n\ndef f(x): return g(n=x)",
        ),
        (
            SHELF,
            SHELF.replace("room", "space").replace("books", "items").replace("Shelf", "Row")
            .replace("put", "add").replace("width", "wide"),
        ),
        ("def f(x): return x\nf2 = f", "def f(x): return x\ng2 = f"),
    ],
)  # fmt: skip
def test_programs_that_differ_by_names_and_layout_have_one_shape(one: str, other: str) -> None:
    assert shape_of(one) == shape_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ADDER, "def f(x):\n    return x + 2"),
        (ADDER, "def f(x):\n    return x + 1.0"),
        (ADDER, "def f(x):\n    return x + True"),
        (ADDER, "def f(x):\n    return 1 + x"),
        (ADDER, "def f(x, y):\n    return x + 1"),
        (ADDER, "def f(x=1):\n    return x + 1"),
        (ADDER, "async def f(x):\n    return x + 1"),
        ("def f(x, y): return x - y", "def f(x, y): return y - x"),
        ("def f(x): return len(x)", "def f(x): return sum(x)"),
        ("def f(x): return x.upper()", "def f(x): return x.lower()"),
        ("def f(x): return sorted(x, key=len)", "def f(x): return sorted(x, default=len)"),
        ("import math\ndef f(x): return math.sin(x)", "import math\ndef f(x): return math.cos(x)"),
        ("def f(x): return 'a'", "def f(x): return 'b'"),
        ("def f(x): return 'a'", "def f(x): return b'a'"),
        # Same letters, other bindings.
        ("def f(x): return [y for y in x]", "def f(x): return [x for y in x]"),
        (
            "def f(x):\n n = 1\n def g():\n  n = 2\n g()\n return n",
            "def f(x):\n n = 1\n def g():\n  nonlocal n\n  n = 2\n g()\n return n",
        ),
        (
            "def g(a=1, b=2): return a - b\ndef f(x): return g(a=x)",
            "def g(a=1, b=2): return a - b\ndef f(x): return g(b=x)",
        ),
        (SHELF, SHELF.replace("self.room * ", "self.width * ")),
        (SHELF, SHELF.replace(".append(", ".remove(")),
    ],
)  # fmt: skip
def test_programs_that_do_other_things_have_other_shapes(one: str, other: str) -> None:
    assert shape_of(one) != shape_of(other)


def test_no_first_program_has_the_shape_of_another_and_all_keep_theirs_when_written_anew() -> None:
    programs = [first.program for first in FIRST_PROGRAMS]
    assert len({shape_of(program) for program in programs}) == len(programs)
    for program in programs:
        assert shape_of(ast.unparse(ast.parse(program))) == shape_of(program)


def test_a_shape_is_the_same_in_every_process() -> None:
    # A literal: hash seeds, versions and machines must not matter to a resumed archive.
    assert shape_of(ADDER) == "f38ca3f380e9c1d8f766c22f9c59721d"


def test_integers_too_long_for_python_to_write_are_constants_like_others() -> None:
    program = f"def f(x):\n    return x ^ 0x{'f' * 3900}"
    assert len(str(10)) == 2 and sys.get_int_max_str_digits() < 3900 * math.log10(16)
    assert shape_of(program) != shape_of(program[:-1])
    assert complexity_of(program).nodes == 9
    assert counting(program) is None


def test_a_tree_that_is_too_deep_is_refused_and_a_deep_one_is_not() -> None:
    deepest = "def f(x):\n    return " + "-" * 60 + "x"  # Module, FunctionDef, Return, Name: 64
    assert depth_of(read_tree(deepest)) == 64
    assert len(shape_of(deepest)) == 32
    assert counting(deepest) is not None
    with pytest.raises(TooDeep, match="at most 64 nodes from root to leaf, found 65"):
        read_tree(deepest.replace("return ", "return -"))


def test_texts_that_python_warns_of_are_read_without_a_word() -> None:
    assert shape_of("def f(x):\n    return '\\d' + x") == shape_of(
        "def f(x):\n    return '\\\\d'+x"
    )


# --- complexity


def test_the_complexity_of_one_line_is_that_worked_out_by_hand() -> None:
    # Module, FunctionDef, arguments, arg x, Return, BinOp, Name x, Add, Constant 1: 9 nodes;
    # Module, FunctionDef, Return, BinOp, Name: 5 deep.
    # Operators: FunctionDef, Return, Add (3 of 3). Operands: f, x, x, 1 (3 of 4).
    # V = 7 log2 6, D = 3/2 * 4/3 = 2.
    found = complexity_of('def f(x):\n    """Not counted."""\n    # nor this\n    return x + 1')
    volume = 7 * math.log2(6)
    assert (found.depth, found.nodes, found.cyclomatic) == (5, 9, 1)
    assert (found.lines, found.variables, found.steps) == (2, 1, None)
    assert found.halstead_volume == pytest.approx(volume)
    assert found.halstead_effort == pytest.approx(2 * volume)


def test_the_complexity_of_branches_and_loops_is_that_worked_out_by_hand() -> None:
    program = (
        "def f(a, b):\n"
        "    n = 0\n"
        "    for v in a:\n"  # +1
        "        if v > b and v < 9 or not v:\n"  # +1, and +1, or +1
        "            n += 1\n"
        "        elif v == b:\n"  # +1
        "            n -= 1 if b else 2\n"  # +1
        "    while n > 5:\n"  # +1
        "        n //= 2\n"
        "    return [n for n in a if n]\n"  # +1, if +1
    )
    found = complexity_of(program)
    assert (found.cyclomatic, found.lines, found.variables) == (10, 10, 4)  # a, b, n, v
    # Module, FunctionDef, For, If, BoolOp or, BoolOp and, Compare, Name.
    assert found.depth == 8
    # Operators: FunctionDef, Assign, For, 2 If, 2 Gt, And, Lt, Or, Not, 3 AugAssign, Add, Eq, Sub,
    # IfExp, While, FloorDiv, Return, ListComp, comprehension: 23, of which 19 are different.
    # Operands by line: f a b, n 0, v a, v b v 9 v, n 1, v b, n 1 b 2, n 5, n 2, n n a n: 28, of
    # which f, a, b, n, v, 0, 9, 1, 2, 5 are different: 10.
    assert found.halstead_volume == pytest.approx((23 + 28) * math.log2(19 + 10))
    assert found.halstead_effort == pytest.approx(19 / 2 * 28 / 10 * found.halstead_volume)


@pytest.mark.parametrize(
    ("body", "cyclomatic"),
    [
        ("return x", 1),
        ("assert x\n    return x", 2),
        ("try: return 1\n    except KeyError: return 2\n    except IndexError: return 3", 3),
        ("match x:\n     case 1: return 1\n     case [2, *_]: return 2\n     case _: return 3", 3),
        ("match x:\n        case _ if x: return 1", 2),
        ("return x and x and x", 3),
        ("return [a for b in x for a in b if a if b]", 5),
        ("while x: pass\n    else: return 1", 2),
        ("with x: return 1", 1),
        ("return lambda: 1 if x else 2", 2),
    ],
)  # fmt: skip
def test_cyclomatic_complexity_counts_every_decision(body: str, cyclomatic: int) -> None:
    assert complexity_of(f"def f(x):\n    {body}").cyclomatic == cyclomatic


@pytest.mark.parametrize(
    ("body", "cognitive"),
    [
        ("return x", 0),
        ("if x: return 1", 1),
        ("if x: return 1\n    else: return 2", 1 + 1),
        ("if x: return 1\n    elif x > 2: return 2\n    else: return 3", 1 + 1 + 1),
        # for, if in it, while in that: each one deeper.
        ("for i in x:\n        if i:\n            while i: i -= 1", 1 + 2 + 3),
        ("return x and x and x", 1),
        ("return x and x or x", 2),
        ("return 1 if x else 2 if x > 3 else 4", 1 + 2),
        ("return [a for a in x if a]", 1 + 1),
        ("try: pass\n    except KeyError:\n        if x: pass", 1 + 2),
        ("match x:\n        case 1: return 1\n        case _: return 2", 1),
        ("def g(y):\n        if y: return 1\n    return g", 2),
        ("return lambda y: 1 if y else 2", 2),
    ],
)
def test_cognitive_complexity_is_dearer_the_deeper_a_break_is(body: str, cognitive: int) -> None:
    assert complexity_of(f"def f(x):\n    {body}").cognitive == cognitive


@pytest.mark.parametrize(
    ("body", "variables"),
    [
        ("return x", 1),
        ("y = z = x\n    y = 2\n    return len(y)", 3),
        ("def g(a, *b, c=1, **d): return a\n    return g", 5),
        ("for i, (j, k) in x: pass", 4),
        ("try: pass\n    except KeyError as e: pass", 2),
        ("match x:\n        case [a, *b] | {'k': a, **b} as c: return 1", 4),
        ("import math\n    class A: size = 3\n    return math", 2),
        ("x.y = x[0] = 1", 1),
    ],
)
def test_variables_are_the_names_that_values_are_bound_to(body: str, variables: int) -> None:
    assert complexity_of(f"def f(x):\n    {body}").variables == variables


def test_a_program_of_nothing_has_no_halstead_volume() -> None:
    assert complexity_of("") == Complexity(1, 1, 1, 0, 0, 0, 0.0, 0.0)


# --- steps


@pytest.mark.parametrize(
    ("program", "text", "steps"),
    [
        ("def f(x):\n    return x", "1", 1),
        ("def f(x):\n    '''text'''\n    y = x; return y", "1", 3),
        # for, and twice if and n += 1; n = 0 and return.
        (
            "def f(x):\n n = 0\n for v in x:\n  if v:\n   n += 1\n return n",
            "[1, 0, 2]",
            1 + 1 + 3 + 2 + 1,
        ),
        ("def f(x):\n    while x:\n        x -= 1\n    return x", "3", 1 + 3 + 1),
        ("def f(x):\n    if x > 1: return 1\n    elif x: return 2\n    else: return 3", "1", 3),
        ("def f(x):\n    return [a + b for a in x for b in x]", "[1, 2]", 1 + 2 + 4),
        ("def f(x):\n    return sorted(x, key=lambda v: -v)", "[1, 2, 3]", 1 + 3),
        ("def f(x):\n    return sum(range(x))", "1000", 1),
        # 5 calls of two statements each.
        ("def f(x):\n    if x < 2: return 1\n    return f(x - 1) + f(x - 2)", "3", 5 * 2),
        # What stands outside of functions is not of the call.
        ("t = []\nfor i in range(9):\n    t.append(i)\ndef f(x):\n    return t[x]", "1", 1),
        ("def g(x):\n    yield x\n    yield x\ndef f(x):\n    return list(g(x))", "1", 3),
        ("def f(x):\n    try: return x[9]\n    except IndexError: return 0", "[]", 3),
        ("from __future__ import annotations\ndef f(steps):\n    return steps", "1", 1),
        ("'text'\nfrom __future__ import annotations\ndef f(x):\n    return x", "1", 1),
        ("def f(f):\n    return f", "1", 1),
    ],
)
def test_steps_are_those_counted_by_hand(program: str, text: str, steps: int) -> None:
    assert steps_of(program, text) == steps


def test_a_counting_program_does_what_the_program_does() -> None:
    for first in FIRST_PROGRAMS:
        for text in first.inputs:
            assert steps_of(first.program, text) > 0


def test_a_counting_program_recurses_as_deep_as_the_program() -> None:
    depth = sys.getrecursionlimit() - 200
    assert steps_of("def f(x):\n    return 0 if x == 0 else f(x - 1)", str(depth)) == depth + 1


def test_every_call_from_outside_counts_from_zero() -> None:
    counter = counting("def f(x):\n    return x")
    assert counter is not None
    names: dict[str, Any] = {}
    exec(counter.source, names)
    assert [names["f"](0, **{counter.keyword: True}) for _ in range(3)] == [1, 1, 1]


# --- neighbours


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("9", ["8", "7", "6", "5"]),
        ("0", ["1", "2", "3", "4"]),
        ("-2", ["-1", "-4", "-5", "-6"]),
        ("1.5", ["0.5", "3.5", "4.5", "5.5"]),
        ("True", ["False", "True", "False", "True"]),
        ("None", ["None"] * 4),
        ("'aBc'", ["'aB'", "'cBa'", "'Bc'", "'AbC'"]),
        ("''", ["''"] * 4),
        ("[1, 5]", ["[1]", "[5, 1]", "[5]", "[2, 4]"]),
        ("(1, 'x')", ["(1,)", "('x', 1)", "('x',)", "(2, '')"]),
        ("{'a': 1, 'b': 2}", ["{'a': 1}", "{'a': 2, 'b': 1}", "{'b': 2}", "{'a': 3, 'b': 4}"]),
        ("{1, 2}", ["{2}", "{1}", "{1, 2}", "{1, 2}"]),
        ("3, x='ab'", ["2, x='a'", "1, x='ba'", "6, x='b'", "7, x='AB'"]),
        ("b'ab'", ["b'a'", "b'ba'", "b'b'", "b'AB'"]),
    ],
)
def test_the_neighbours_of_an_input_are_those_that_the_rule_gives(
    text: str, moved: list[str]
) -> None:
    found = [spelled(neighbour) for neighbour in neighbours(read_arguments(text))]
    assert found == moved


def test_an_input_is_spelled_one_way_whatever_way_it_was_written() -> None:
    for text in ("1, 'a', k=[2]", ' 1 ,"a",k = [ 2, ] # text', "0x1, 'a', k=[2,]"):
        assert spelled(read_arguments(text)) == "1, 'a', k=[2]"
    assert read_arguments(spelled(read_arguments("1, x='\\ud800'"))) == ((1,), {"x": "\ud800"})


# --- tasks


def task(**changes: Any) -> Task:
    found: Mapping[str, Any] = {
        "type": "deduction",
        "prompt": "What?",
        "program": ADDER,
        "detail": {"input": "1", "output": "2"},
        "shape": shape_of(ADDER),
        "behaviour": behaviour("deduction", [b"1", b"2"]),
        "complexity": complexity_of(ADDER),
        "returns": "int",
    }
    return Task(**{**found, **changes})


def test_a_task_comes_back_from_json_as_it_was() -> None:
    for one in (task(), task(domain="integers", detail={"given": [["1", "2"]], "hint": "é\n"})):
        assert Task.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_behaviour_depends_on_type_and_pieces_and_on_where_a_piece_ends() -> None:
    hashes = {
        behaviour("deduction", [b"a", b"b"]),
        behaviour("abduction", [b"a", b"b"]),
        behaviour("deduction", [b"b", b"a"]),
        behaviour("deduction", [b"ab"]),
        behaviour("deduction", [b"ab", b""]),
    }
    assert len(hashes) == 5
    assert all(len(one) == 32 for one in hashes)


def test_values_are_spelled_as_the_jail_spells_them() -> None:
    for value in ({"b": 1, "a": [2.5]}, {3, 1}, (1,), "ß\n", float("inf"), -0.0, 2**100, b"\0"):
        assert spelled(((value,), {})) == decode(encode(value)).text
