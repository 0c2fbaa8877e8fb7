"""The executor: every verdict, at both levels of isolation, whatever a program tries."""

import ast
import contextlib
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import training.cases
from tests.reference.hostile import Case, made_cases, random_program, read_cases
from training.canonical import Malformed, Value, decode, encode
from training.executor import Executor, check_case
from training.interpreter import Limits
from training.isolation import Isolation, NoIsolation, bubblewrap, why_not

REFERENCE = Path(__file__).resolve().parents[2] / "substrate" / "reference"
EXAMPLES = Path(__file__).parent.parent / "data" / "verifier-programs.json"
SYSTEM_PYTHON = Path("/usr/bin/python3")
ESCAPE = Path("/tmp/seedbed-escape")  # which the programs of jail.txt try to make
IDENTITY = "def f(x):\n    return x\n"
QUICK = Limits(cpu_s=0.2, memory_mb=128)  # half the cases want the limit reached

SCREENED = [*read_cases("controls"), *read_cases("screened"), *made_cases()]
UNSCREENED = read_cases("jail")


@pytest.fixture(
    scope="module", params=["bubblewrap", pytest.param("landlock", marks=pytest.mark.slow)]
)
def level(request: pytest.FixtureRequest) -> Isolation:
    if (reason := why_not(request.param)) is not None:
        pytest.skip(f"{request.param}: {reason}")
    return request.param


@pytest.fixture(
    scope="module", params=["bubblewrap", pytest.param("landlock", marks=pytest.mark.slow)]
)
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if (reason := why_not(request.param)) is not None:
        pytest.skip(f"{request.param}: {reason}")
    with Executor(isolation=request.param, limits=QUICK, lanes=1) as executor:
        yield executor


@pytest.fixture(
    scope="module", params=["landlock", pytest.param("bubblewrap", marks=pytest.mark.slow)]
)
def bare(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """An executor without a screen. What holds without bubblewrap holds with it all the more."""
    if (reason := why_not(request.param)) is not None:
        pytest.skip(f"{request.param}: {reason}")
    with Executor(isolation=request.param, limits=QUICK, lanes=1, screen=False) as bare:
        yield bare


def verdict_of(executor: Executor, program: str, text: str = "1") -> tuple[str, str | None]:
    """The kind, and the value's text or the error."""
    verdict = executor.run(program, [text])[0]
    return verdict.kind, verdict.value.text if verdict.value else verdict.error


def value_of(executor: Executor, text: str) -> Value:
    value = executor.read(text).value
    assert value is not None
    return value


def check(executor: Executor, case: Case) -> None:
    kind, says = verdict_of(executor, case.program, case.input)
    assert kind in case.kinds, says
    if case.says and kind == case.kinds[0]:
        assert says == case.says
    # The same interpreters are as good as before.
    assert verdict_of(executor, "def f(x):\n    return len(x), x", "[[2], 'a']") == (
        "ok",
        "(2, [[2], 'a'])",
    )


# --- one by one


@pytest.mark.parametrize("case", SCREENED, ids=lambda case: case.name)
def test_a_screened_program_gets_its_verdict(executor: Executor, case: Case) -> None:
    check(executor, case)


@pytest.mark.parametrize("case", UNSCREENED, ids=lambda case: case.name)
def test_the_jail_alone_holds_a_program(bare: Executor, case: Case) -> None:
    check(bare, case)
    assert not ESCAPE.exists()


@pytest.mark.parametrize("case", json.loads(EXAMPLES.read_text()), ids=lambda case: case["name"])
def test_an_example_gets_its_verdict_five_times_in_a_row(
    executor: Executor, case: dict[str, Any]
) -> None:
    with contextlib.ExitStack() as stack:
        judge = executor
        if case["layer"] == "os":
            bare = Executor(isolation=executor.isolation, limits=QUICK, lanes=1, screen=False)
            judge = stack.enter_context(bare)
        for _ in range(5):
            verdict = check_case(judge, case)
            assert verdict.kind in (case["expected"], *case.get("also_accept", ()))
            if "value" in case:
                assert verdict.value is not None and verdict.value.text == case["value"]
            if verdict.kind == "exception":
                assert verdict.error == case["error"]
            assert verdict_of(judge, IDENTITY, "[1]") == ("ok", "[1]")


# --- answers


@pytest.mark.parametrize(
    ("returns", "answer", "kind"),
    [
        ("x + 1", "2", "correct"),
        ("x + 1", " 2 ", "correct"),
        ("x + 1", "3", "wrong"),
        ("x + 1", "True", "wrong"),
        ("x == 1", "1", "wrong"),
        ("x == 1", "True", "correct"),
        ("x * 1.0", "1", "wrong"),
        ("x * 1.0", "1.0", "correct"),
        ("x * 1.0", "1e0", "correct"),
        ("-0.0", "0.0", "wrong"),
        ("-0.0", "-0.0", "correct"),
        ("1e999", "1e999", "correct"),
        ("[x]", "(1,)", "wrong"),
        ("(x, 2)", "1, 2", "correct"),
        ("(x, 2)", "[1, 2]", "wrong"),
        ("(x, 2)", "(1, 2,)", "correct"),
        ("'a'", "b'a'", "wrong"),
        ("'a'", "'a' ''", "correct"),
        ("'a'", "a", "bad_answer"),
        ("{'a': [x], 'b': {}}", "{'b': {}, 'a': [1]}", "correct"),
        ("{'a': 1, 'b': 2}", "{'a': 1}", "wrong"),
        ("{1: 'a'}", "{True: 'a'}", "wrong"),
        ("[{'a': 1, 'b': 2}]", "[{'b': 2, 'a': 1}]", "correct"),
        ("{3, 1, 2}", "{1, 2, 3}", "correct"),
        ("{3, 1, 2}", "{1, 2, 2, 3}", "correct"),
        ("set()", "set()", "correct"),
        ("set()", "{}", "wrong"),
        ("frozenset([1])", "{1}", "wrong"),
        ("frozenset([1])", "frozenset([1])", "bad_answer"),
        ("float('nan')", "nan", "bad_answer"),
        ("None", "None", "correct"),
        ("None", "", "bad_answer"),
        ("None", "null", "bad_answer"),
        ("2j", "1j + 1j", "bad_answer"),
        ("1 + 2j", "1 + 2j", "correct"),
        ("2", "1 + 1", "bad_answer"),
        ("2", "(lambda: 2)()", "bad_answer"),
        ("2", "f(1)", "bad_answer"),
        ("2", "[2][0]", "bad_answer"),
        ("2", "2 if True else 3", "bad_answer"),
        ("2", "2\n2", "bad_answer"),
        ("2", "2 # or anything", "correct"),
        ("2", "__import__('os').system('true') or 2", "bad_answer"),
        ("2", "exec('x = 2')", "bad_answer"),
        ("2", "[...]", "bad_answer"),
        ("2", "9" * 5000, "bad_answer"),
        ("2", "[" * 5000 + "]" * 5000, "bad_answer"),
        ("2", "-" * 60000 + "2", "bad_answer"),
        ("2", "'" + "a" * 70000 + "'", "bad_answer"),
        ("2", "2\0", "bad_answer"),
        ("2", "'\ud800'", "bad_answer"),
        ("1 / 0", "2", "exception"),
        ("[i for i in {'a', 'b', 'c', 'd', 'e'}]", "['a', 'b', 'c', 'd', 'e']", "nondeterministic"),
    ],
)
def test_a_predicted_output_is_compared_by_exact_type_and_value(
    executor: Executor, returns: str, answer: str, kind: str
) -> None:
    program = f"def f(x):\n    return {returns}"
    assert executor.check_output(program, "1", answer).kind == kind


def test_a_predicted_output_of_an_input_that_is_none_is_bad_input(executor: Executor) -> None:
    assert executor.check_output(IDENTITY, "y", "1").kind == "bad_input"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("-3", "correct"),
        ("3", "correct"),
        ("x=3", "correct"),
        ("3.0", "wrong"),  # 9.0 is another value
        ("2", "wrong"),
        ("3) or (True", "bad_answer"),
        ("3)\n(True", "bad_answer"),
        ("3, *[print('True')][:0]", "bad_answer"),
        ("3 if 1 else 2", "bad_answer"),
        ("*[3]", "bad_answer"),
        ("**{'x': 3}", "bad_answer"),
        ("type('A', (), {'__mul__': lambda s, o: 9})()", "bad_answer"),
        ("(y := 3)", "bad_answer"),
        ("", "exception"),  # f() lacks an argument
        ("'a'", "exception"),
        ("3, 4", "exception"),
    ],
)
def test_any_predicted_input_with_the_same_output_is_right(
    executor: Executor, answer: str, kind: str
) -> None:
    gold = executor.run("def f(x):\n    return x * x", ["-3"])[0].value
    assert gold is not None
    assert executor.check_input("def f(x):\n    return x * x", gold, answer).kind == kind


def test_an_induced_program_has_to_return_every_hidden_value(executor: Executor) -> None:
    pairs = [(str(n), value_of(executor, str(n * n))) for n in range(-3, 4)]
    assert executor.check_program("def f(x):\n    return x ** 2", pairs).kind == "correct"
    wrong_for_one = "def f(x):\n    return x ** 2 if x < 3 else 8"
    assert executor.check_program(wrong_for_one, pairs).kind == "wrong"
    raises_for_one = "def f(x):\n    return 0 // x + x ** 2"
    assert executor.check_program(raises_for_one, pairs).kind == "exception"
    assert executor.check_program("def g(x): pass", pairs).kind == "no_entry_point"
    equals_everything = (
        "class A(int):\n    def __eq__(self, o):\n        return True\n    __hash__ = None\n"
        "def f(x):\n    return A(x)"
    )
    assert executor.check_program(equals_everything, pairs).kind == "unserializable_output"
    with pytest.raises(ValueError, match="at least one pair"):
        executor.check_program(IDENTITY, [])


def test_an_induced_program_is_given_up_at_the_first_pair_that_is_wrong(
    executor: Executor,
) -> None:
    pairs = [(str(n), value_of(executor, "0")) for n in range(40)]
    before = cpu_seconds_below()
    assert executor.check_program("def f(x):\n    while True: pass", pairs).kind == "timeout"
    # Once for all together and once for the first, in two interpreters; not forty times.
    assert cpu_seconds_below() - before < 10 * QUICK.cpu_s


def test_gold_values_are_nowhere_in_the_programs_process(bare: Executor) -> None:
    # The program looks for the text in every object and every frame of its interpreter.
    search = (
        "import gc, sys\ndef f(x):\n    word = ''.join(reversed('dlog-terces'))\n    found = []\n"
        "    pending, seen = [sys.modules, *gc.get_objects()], set()\n"
        "    frame = sys._getframe()\n    while frame:\n"
        "        pending += [frame.f_locals, frame.f_globals]\n        frame = frame.f_back\n"
        "    while pending:\n        o = pending.pop()\n        if id(o) in seen or o is word:\n"
        "            continue\n        seen.add(id(o))\n"
        "        if type(o) in (str, bytes, bytearray) and len(o) < 10 ** 6:\n"
        "            text = o if type(o) is str else bytes(o).decode('latin-1')\n"
        "            if word in text:\n                found.append(type(o).__name__)\n"
        "        pending += gc.get_referents(o)\n    return found\n"
    )
    with Executor(
        isolation=bare.isolation, screen=False, lanes=1, limits=Limits(cpu_s=8.0, wall_s=60.0)
    ) as patient:
        pairs = [("1", value_of(patient, "'secret-gold'"))]
        verdict = patient.check_program(search, pairs)
        assert (verdict.kind, verdict.value and verdict.value.text) == ("wrong", "[]")
        predicted = patient.check_output(search, "1", "'secret-gold'")
        assert (predicted.kind, predicted.value and predicted.value.text) == ("wrong", "[]")
        # It would find an input, which is its to see.
        kind, found = verdict_of(patient, search, "'secret-gold'")
        assert kind == "ok" and found is not None and "str" in found


def test_a_program_recurses_as_deep_as_in_a_fresh_process(executor: Executor) -> None:
    program = (
        "def g(n):\n    try:\n        return g(n + 1)\n    except RecursionError:\n"
        "        return n\ndef f(x):\n    return g(0)\n"
    )
    fresh = subprocess.run(
        [sys.executable, "-I", "-c", program + "print(f(1))"],
        stdout=subprocess.PIPE,
        check=True,
    )
    verdicts = executor.run(program, ["1", "2"])
    depths = [int(v.value.text) for v in verdicts if v.value]
    assert len(depths) == 2
    assert all(abs(depth - int(fresh.stdout)) <= 2 for depth in depths)


# --- batches


def test_inputs_that_are_given_together_get_the_verdicts_of_single_runs(
    executor: Executor,
) -> None:
    program = (
        "def f(x):\n    if x == 3: raise KeyError\n    if x == 4: return object()\n"
        "    if x == 5: raise SystemExit\n    return 10 // x"
    )
    texts = ["1", "0", "2", "y", "3", "4", "5", "10"]
    verdicts = executor.run(program, texts)
    kinds = [verdict.kind for verdict in verdicts]
    assert kinds == [
        *("ok", "exception", "ok", "bad_input"),
        *("exception", "unserializable_output", "exit", "ok"),
    ]
    assert [verdict.error for verdict in verdicts][:2] == [None, "ZeroDivisionError"]
    assert kinds == [executor.run(program, [text])[0].kind for text in texts]


@pytest.mark.parametrize(
    "last",
    [
        "while True: pass",
        "kept.append(bytearray(10**9))",
        "print('x' * 10**7)",
        "getattr(f, '__' + 'code__')",
    ],
)
def test_one_bad_input_spoils_no_other_of_its_batch(executor: Executor, last: str) -> None:
    program = f"kept = []\ndef f(x):\n    if x == 2:\n        {last}\n    return x"
    kinds = [verdict.kind for verdict in executor.run(program, ["1", "2", "3"])]
    assert kinds[0] == kinds[2] == "ok"
    assert kinds[1] in ("timeout", "memory_limit", "output_limit", "banned_construct")


def test_state_that_a_program_carries_from_call_to_call_does_not_show(executor: Executor) -> None:
    counts = "calls = []\ndef f(x):\n    calls.append(x)\n    return len(calls)"
    assert [v.value and v.value.text for v in executor.run(counts, ["5"] * 7)] == ["1"] * 7
    remembers = "first = []\ndef f(x):\n    first.append(x)\n    return first[0]"
    values = [v.value and v.value.text for v in executor.run(remembers, ["1", "2", "3"])]
    assert values == ["1", "2", "3"]
    # In both orders another input comes before the second.
    switches = (
        "extra = 0\ndef f(x):\n    global extra\n    if x <= 0: extra = 100\n    return x + extra"
    )
    values = [v.value and v.value.text for v in executor.run(switches, ["0", "2", "-1"])]
    assert values == ["100", "2", "99"]
    # An object of the library's is the same for all of them.
    keeps = (
        "import json\ndef f(x):\n    json.calls = getattr(json, 'calls', 0) + 1\n"
        "    return json.calls"
    )
    assert [v.value and v.value.text for v in executor.run(keeps, ["5"] * 3)] == ["1"] * 3


@pytest.mark.parametrize(
    "kept", ["kept = {}", "import json\nkept = json.kept = getattr(json, 'kept', {})"]
)
def test_memory_that_one_input_takes_is_there_for_the_next(executor: Executor, kept: str) -> None:
    program = f"{kept}\ndef f(x):\n    kept[x] = [0] * 6_000_000\n    return x"
    verdicts = executor.run(program, ["1", "2", "3", "4"])
    assert [v.value and v.value.text for v in verdicts] == ["1", "2", "3", "4"]


def test_no_inputs_have_no_verdicts_and_many_have_many(executor: Executor) -> None:
    assert executor.run(IDENTITY, []) == []
    verdicts = executor.run(IDENTITY, [str(n) for n in range(200)])
    assert [v.value and v.value.text for v in verdicts] == [str(n) for n in range(200)]


def test_a_source_over_its_cap_is_too_long_for_each_input(executor: Executor) -> None:
    verdicts = executor.run(IDENTITY + "#" * 70000, ["1", "2"])
    assert [verdict.kind for verdict in verdicts] == ["too_long", "too_long"]


# --- one run says nothing about another


def test_a_channel_forged_by_a_program_reaches_its_own_value_and_no_further(
    bare: Executor,
) -> None:
    # Without a screen the code that runs a program is a frame away. What it reports is its own
    # affair: it is compared with a value that it does not know.
    forger = (
        "import sys\ndef f(x):\n    frame = sys._getframe()\n"
        "    while 'self' not in frame.f_locals:\n        frame = frame.f_back\n"
        "    frame.f_locals['self'].send([('ok', b'T')], 0)\n"
    )
    assert verdict_of(bare, forger) == ("ok", "True")
    twice = forger[: forger.rindex("    frame.f_locals")] + (
        "    message = frame.f_globals['join']([('ok', b'T')])\n"
        "    import os\n    os.write(3, frame.f_locals['self'].nonce + message)\n    return 1\n"
    )
    assert verdict_of(bare, twice)[0] == "protocol_violation"
    claims_more = forger.replace("'ok', b'T'", "'correct', b'T'")
    assert verdict_of(bare, claims_more)[0] == "protocol_violation"
    nonsense = forger.replace("b'T'", "b'm\\x00\\x00\\x00\\x01T'")
    assert verdict_of(bare, nonsense)[0] == "protocol_violation"
    assert verdict_of(bare, IDENTITY) == ("ok", "1")


class Interrupted(Exception):
    pass


def test_a_call_that_is_interrupted_spoils_no_other(level: Isolation) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    known = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Executor(isolation=level, limits=Limits(cpu_s=20.0), lanes=1) as executor:
            executor.run(IDENTITY, ["1"])
            main_thread = threading.get_ident()
            later = threading.Timer(0.2, signal.pthread_kill, (main_thread, signal.SIGUSR1))
            later.start()
            with pytest.raises(Interrupted):
                executor.run("def f(x):\n    while True: pass", ["1"])
            for n in range(3):
                assert verdict_of(executor, IDENTITY, f"[{n}]") == ("ok", f"[{n}]")
    finally:
        signal.signal(signal.SIGUSR1, known)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_verdict_does_not_depend_on_what_ran_before(data: st.DataObject) -> None:
    known = [case for case in [*SCREENED, *read_cases("screened")] if len(case.kinds) == 1]
    cases = data.draw(st.lists(st.sampled_from(known), min_size=2, max_size=6))
    executor = shared()
    verdicts = [verdict_of(executor, case.program, case.input)[0] for case in cases]
    assert verdicts == [case.kinds[0] for case in cases]


# --- values


LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=20)
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers() | st.booleans(), inner, max_size=4)
        | st.sets(st.text(max_size=5) | st.integers() | st.tuples(st.integers()), max_size=4)
    ),
    max_leaves=20,
)
ANY_VALUES = LITERALS | st.floats() | st.complex_numbers() | st.frozensets(st.integers())


def as_text(value: object) -> str:
    """A literal for the value: repr, but for infinity, which has no name of its own."""
    if isinstance(value, float):
        return repr(value).replace("inf", "1e999")
    if isinstance(value, list):
        return f"[{', '.join(map(as_text, value))}]"
    if isinstance(value, tuple):
        return f"({''.join(as_text(item) + ', ' for item in value)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{as_text(k)}: {as_text(v)}' for k, v in value.items())}}}"
    return repr(value)


def same(left: object, right: object) -> bool:
    """Equal by exact type and value, by another road than canonical bytes."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float) and isinstance(right, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = zip(sorted(left, key=repr), sorted(right, key=repr), strict=True)
        return len(left) == len(right) and all(
            same(a, b) and same(left[a], right[b]) for a, b in pairs
        )
    if isinstance(left, set) and isinstance(right, set):
        return left == right and sorted(map(repr, left)) == sorted(map(repr, right))
    return left == right


@settings(max_examples=60, deadline=None)
@given(LITERALS)
def test_a_literal_comes_back_exactly_as_it_went_in(value: object) -> None:
    verdict = shared().run(IDENTITY, [as_text(value)])[0]
    assert verdict.kind == "ok" and verdict.value is not None
    assert same(ast.literal_eval(verdict.value.text), value)
    assert verdict.value.is_literal
    assert shared().check_output(IDENTITY, as_text(value), verdict.value.text).kind == "correct"


@settings(max_examples=300, deadline=None)
@given(ANY_VALUES, ANY_VALUES)
def test_canonical_bytes_are_equal_exactly_when_values_are(left: object, right: object) -> None:
    first, second = decode(encode(left)), decode(encode(right))
    if not (first.is_literal and second.is_literal):
        return
    assert (first.canonical == second.canonical) == same(left, right)
    assert same(ast.literal_eval(first.text), left)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | ANY_VALUES.map(encode), st.integers(0, 60), st.integers(0, 255))
def test_bytes_that_no_value_has_are_malformed_and_nothing_worse(
    raw: bytes, place: int, byte: int
) -> None:
    damaged = raw[:place] + bytes([byte]) + raw[place + 1 :]
    try:
        value = decode(damaged)
    except Malformed:
        return
    if value.is_literal:
        assert decode(encode(ast.literal_eval(value.text))).canonical == value.canonical


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (None, b"N"),
        (True, b"T"),
        (1, b"i\0\0\0\1\1"),
        (-258, b"-\0\0\0\2\1\2"),
        (0, b"i\0\0\0\0"),
        (1.0, b"d\x3f\xf0\0\0\0\0\0\0"),
        ("é", b"s\0\0\0\2\xc3\xa9"),
        (b"a", b"b\0\0\0\1a"),
        ([None, (False,)], b"l\0\0\0\2Nt\0\0\0\1F"),
        ({2: None, 1: None}, b"m\0\0\0\2i\0\0\0\1\2Ni\0\0\0\1\1N"),
        ({2, 1}, b"e\0\0\0\2i\0\0\0\1\1i\0\0\0\1\2"),
        (frozenset(), b"z\0\0\0\0"),
    ],
)
def test_the_canonical_form_is_as_written_down(value: object, raw: bytes) -> None:
    assert encode(value) == raw


@pytest.mark.parametrize(
    "raw",
    [
        b"e\0\0\0\2NN",
        b"e\0\0\0\2Ti\0\0\0\1\1",  # {True, 1}
        b"z\0\0\0\2Fd\0\0\0\0\0\0\0\0",  # {False, 0.0}
        b"e\0\0\0\2c\x3f\xf0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0d\x3f\xf0\0\0\0\0\0\0",  # {1-0j, 1.0}
        b"m\0\0\0\2s\0\0\0\1aNs\0\0\0\1aT",
        b"e\0\0\0\2t\0\0\0\1Tt\0\0\0\1i\0\0\0\1\1",  # {(True,), (1,)}
        b"e\0\0\0\2i\0\0\0\1\2i\0\0\0\1\1",  # out of order
        b"e\0\0\0\1l\0\0\0\0",
        b"e\0\0\0\1t\0\0\0\1l\0\0\0\0",
    ],
)  # fmt: skip
def test_keys_and_elements_that_python_takes_for_one_are_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode(raw)


def test_a_set_may_hold_more_than_one_nan() -> None:
    assert decode(encode({float("nan"), float("nan")})).text == "{nan, nan}"


def test_the_order_of_a_dict_is_in_its_text_and_not_in_its_canonical_bytes() -> None:
    ab, ba = decode(encode([{"a": 1, "b": 2}])), decode(encode([{"b": 2, "a": 1}]))
    assert (ab.text, ba.text) == ("[{'a': 1, 'b': 2}]", "[{'b': 2, 'a': 1}]")
    assert ab.canonical == ba.canonical


# --- the machine


def test_eight_callers_at_once_get_their_own_verdicts_and_no_false_time_outs(
    level: Isolation,
) -> None:
    # Each uses most of its CPU time, and eight share two cores.
    program = (
        "def f(x):\n    t = 0\n    for i in range(1_000_000):\n        t += i & x\n    return t, x"
    )
    with (
        Executor(isolation=level, limits=Limits(cpu_s=0.6), lanes=2) as executor,
        ThreadPoolExecutor(8) as callers,
    ):
        verdicts = list(callers.map(lambda n: executor.run(program, [str(n)])[0], range(16)))
    expected = [sum(i & n for i in range(1_000_000)) for n in (0, 1, 3)]
    assert [v.kind for v in verdicts] == ["ok"] * 16
    values = [ast.literal_eval(v.value.text) for v in verdicts if v.value]
    assert [n for _, n in values] == list(range(16))
    assert [values[n][0] for n in (0, 1, 3)] == expected


def test_interpreters_that_are_killed_are_replaced_and_nothing_is_lost(level: Isolation) -> None:
    program = "def f(x):\n    return sum(range(50_000)), x"
    numbers = random.Random(0)
    with Executor(isolation=level, lanes=2) as executor, ThreadPoolExecutor(4) as callers:
        values, killed = [], 0
        for verdict in callers.map(lambda n: executor.run(program, [str(n)])[0], range(120)):
            values.append(verdict.value and verdict.value.text)
            if len(values) % 8 == 0 and (below := descendants()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(numbers.choice(below), signal.SIGKILL)
                    killed += 1
    assert killed > 0
    assert values == [f"(1249975000, {n})" for n in range(120)]


@pytest.mark.parametrize(("starts", "kind"), [(2, "ok"), (10**9, "infrastructure")])
def test_an_interpreter_that_is_killed_while_it_starts_says_nothing_about_the_program(
    level: Isolation, starts: int, kind: str
) -> None:
    others = {*descendants()}
    with Executor(isolation=level, lanes=1) as executor:
        done = threading.Event()

        def kill_some() -> None:
            killed: set[int] = set()
            while not done.is_set() and len(killed) < starts:
                starting = {*descendants()} - others - killed
                for pid in sorted(starting)[: starts - len(killed)]:
                    killed.add(pid)
                    # Its group as well: of a bwrap that dies alone, the half inside may live on.
                    for kill in (os.killpg, os.kill):
                        with contextlib.suppress(ProcessLookupError):
                            kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_some)
        killer.start()
        try:
            assert executor.run(IDENTITY, ["1"])[0].kind == kind
        finally:
            done.set()
            killer.join()
        assert verdict_of(executor, IDENTITY) == ("ok", "1")


@pytest.mark.parametrize("state", ["ignored", "blocked"])
def test_a_signal_that_the_trainer_does_not_want_ends_a_program_all_the_same(
    level: Isolation, state: str
) -> None:
    signals = (signal.SIGPROF, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM)
    known = {number: signal.getsignal(number) for number in signals}
    try:
        if state == "blocked":
            signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        else:
            for number in signals:
                signal.signal(number, signal.SIG_IGN)
        limits = Limits(cpu_s=0.2, wall_s=10.0)
        with Executor(isolation=level, limits=limits, lanes=1) as executor:
            assert verdict_of(executor, "def f(x):\n    while True: pass")[0] == "timeout"
            assert verdict_of(executor, "def f(x): print('x' * 10**7)")[0] == "output_limit"
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        for number, handler in known.items():
            signal.signal(number, handler)


def test_a_source_that_hangs_the_parser_ends_one_interpreter_and_is_a_time_out(
    level: Isolation,
) -> None:
    # With a limit of 5 ms thousands of honest statements hang it.
    with Executor(isolation=level, limits=Limits(cpu_s=0.005), lanes=1) as executor:
        assert verdict_of(executor, "x=1;" * 2000 + "\n" + IDENTITY)[0] == "timeout"
        assert executor.read("[" + "0, " * 15000 + "]").kind == "bad_answer"
        assert verdict_of(executor, "def f(x)")[0] == "syntax_error"


@pytest.mark.parametrize(("stopped", "kind"), [(1, "ok"), (1000, "infrastructure")])
def test_a_program_that_gets_no_time_is_run_again_alone_and_says_nothing_in_the_end(
    level: Isolation, stopped: int, kind: str
) -> None:
    program = "def f(x):\n    return sum(i & 3 for i in range(1_500_000))"
    limits = Limits(cpu_s=0.9, wall_s=1.0)
    with Executor(isolation=level, limits=limits, lanes=1) as executor:
        executor.run(IDENTITY, ["1"])
        known = set(descendants())
        done = threading.Event()

        def stop_some() -> None:
            left = stopped
            while not done.is_set():
                for pid in sorted(set(descendants()) - known)[:left]:
                    known.add(pid)
                    left -= 1
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)

        stopper = threading.Thread(target=stop_some)
        stopper.start()
        try:
            assert executor.run(program, ["1"])[0].kind == kind
        finally:
            done.set()
            stopper.join()
        assert verdict_of(executor, IDENTITY) == ("ok", "1")


def test_an_executor_that_is_closed_has_left_no_process(level: Isolation) -> None:
    before = descendants()
    with Executor(isolation=level, lanes=1) as executor:
        executor.run(IDENTITY, ["1"])
        assert len(descendants()) > len(before)
    assert descendants() == before
    with pytest.raises(RuntimeError, match="found one that is closed"):
        executor.run(IDENTITY, ["1"])
    assert descendants() == before


def test_a_fork_of_the_trainer_neither_uses_nor_ends_its_interpreters(level: Isolation) -> None:
    with Executor(isolation=level, lanes=1) as executor:
        executor.run(IDENTITY, ["1"])
        before = descendants()
        reading, writing = os.pipe()
        fork = os.fork()
        if fork == 0:
            try:
                executor.run(IDENTITY, ["2"])
            except RuntimeError as error:
                os.write(writing, str(error).encode())
            executor.close()
            os._exit(0)
        os.waitpid(fork, 0)
        os.close(writing)
        with open(reading, encoding="utf-8") as said:
            assert f"found one of {os.getpid()}, of which this is a fork" in said.read()
        assert descendants() == before
        assert verdict_of(executor, IDENTITY, "[3]") == ("ok", "[3]")


def test_a_trainer_that_is_killed_leaves_no_process(level: Isolation) -> None:
    # Not even while a fork of it lives on, as a loader of data may.
    code = (
        "import os, time\nfrom training.executor import Executor\n"
        f"executor = Executor(isolation={level!r}, lanes=1)\n"
        "executor.run('def f(x): return x', ['1'])\n"
        "fork = os.fork()\nif fork == 0:\n    time.sleep(100)\n"
        "print(fork, flush=True)\n"
        "executor.run('def f(x):\\n    while True: pass', ['1'])\n"
    )
    trainer = subprocess.Popen(
        [sys.executable, "-c", code], cwd=REFERENCE, stdout=subprocess.PIPE, env=clean()
    )
    with trainer:
        assert trainer.stdout is not None
        fork = int(trainer.stdout.readline())
        below = set(descendants(trainer.pid)) - {fork}
        assert below
        trainer.kill()
        try:
            deadline = time.monotonic() + 20
            while any(map(is_alive, below)) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert not any(map(is_alive, below))
            assert is_alive(fork)
        finally:
            os.kill(fork, signal.SIGKILL)


def test_many_requests_outlive_the_interpreter_that_answers_them(executor: Executor) -> None:
    texts = [f"[{n}]" for n in range(30)]
    for _ in range(75):  # more than one interpreter answers before it is replaced
        assert len(executor.run(IDENTITY, texts)) == 30


@pytest.mark.parametrize("rounds", [20, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_random_hostile_programs_leave_no_process_no_file_and_a_sound_executor(
    level: Isolation, rounds: int, tmp_path: Path
) -> None:
    numbers = random.Random(rounds)
    tmp_path.chmod(0o777)
    before = descendants()
    limits = Limits(cpu_s=0.1, memory_mb=128)
    with (
        Executor(isolation=level, limits=limits, lanes=1) as screened,
        Executor(isolation=level, limits=limits, lanes=1, screen=False) as unscreened,
    ):
        for number in range(rounds):
            judge = (screened, unscreened)[number % 2]
            kind, _ = verdict_of(judge, random_program(numbers, str(tmp_path / "marker")))
            assert kind not in ("infrastructure", "bad_input", "too_long", "correct", "wrong")
            assert verdict_of(judge, IDENTITY, f"[{number}]") == ("ok", f"[{number}]")
    assert descendants() == before
    assert list(tmp_path.iterdir()) == []


# --- levels


def test_the_best_level_is_bubblewrap_where_it_works(level: Isolation) -> None:
    with Executor(lanes=1) as executor:
        best = "bubblewrap" if why_not("bubblewrap") is None else "landlock"
        assert executor.isolation == best


@pytest.mark.parametrize("user", ["0", pytest.param("65534", marks=pytest.mark.slow)])
def test_inside_a_jail_without_user_namespaces_the_executor_stands_on_landlock(user: str) -> None:
    need("bubblewrap")
    need("landlock")
    run = subprocess.run(
        [
            *(str(bubblewrap()), "--unshare-user", "--unshare-pid", "--disable-userns"),
            *("--uid", user, "--gid", user, "--ro-bind", "/", "/", "--dev", "/dev"),
            *("--proc", "/proc", "--chdir", str(REFERENCE), "--"),
            *(sys.executable, "-c", JUDGE, str(EXAMPLES)),
        ],
        env=clean(),
        capture_output=True,
        text=True,
        check=True,
    )
    level, *rows = run.stdout.splitlines()
    assert level == "landlock"
    assert_examples(rows)


@pytest.mark.skipif(os.getuid() != 0, reason="wanted root, to become another user")
@pytest.mark.parametrize("level", ["bubblewrap", pytest.param("landlock", marks=pytest.mark.slow)])
def test_an_ordinary_user_gets_the_same_verdicts(level: Isolation) -> None:
    need(level)
    python = next((p for p in (Path(sys.executable), SYSTEM_PYTHON) if usable_by_nobody(p)), None)
    if python is None:
        pytest.skip("wanted a Python of 3.11 or newer that every user can run, found none")
    path = bubblewrap()
    assert path is not None
    run = subprocess.run(
        [str(python), "-c", JUDGE, str(EXAMPLES), level],
        cwd=REFERENCE,
        env=clean() | {"PYTHONPATH": str(Path(path).parents[2])},
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=True,
    )
    found, *rows = run.stdout.splitlines()
    assert found == level
    assert_examples(rows)


def test_below_landlock_and_seccomp_an_executor_is_refused_unless_it_is_asked_for() -> None:
    # A seccomp filter that fails Landlock's first call, as an old container runtime has.
    code = (
        "import errno, sys\nfrom training import confine\nconfine.forbid_privileges()\n"
        "confine.CALLS['landlock'] = (444, 444)\n"
        "rules = [confine.Rule(call, confine.errno_action(errno.ENOSYS)) for call in "
        "('landlock', 'unshare')]\n"
        "rules += [confine.Rule('clone', confine.errno_action(errno.EPERM), 0, (0x10000000,), "
        "0x10000000)]\n"
        "confine.install_filter(confine.assemble(rules, confine.ALLOW))\n"
        "from training.executor import *\n"
        "try:\n    Executor()\nexcept NoIsolation as error:\n    print(error)\n"
        "with Executor(isolation='limits', lanes=1) as executor:\n"
        "    print(executor.isolation, executor.run('def f(x):\\n    return x', ['1'])[0].kind)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REFERENCE,
        env=clean(),
        capture_output=True,
        text=True,
        check=True,
    )
    refused, allowed = run.stdout.splitlines()
    assert "wanted bubblewrap or Landlock and seccomp, found neither" in refused
    assert "isolation='limits' by name" in refused
    assert allowed == "limits ok"


def test_a_level_that_is_asked_for_and_not_there_is_refused(tmp_path: Path) -> None:
    code = (
        "from training.executor import *\n"
        "try:\n    Executor(isolation='bubblewrap')\nexcept NoIsolation as error:\n"
        "    print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-S", "-c", code],  # without site-packages
        cwd=REFERENCE,
        env=clean() | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "wanted isolation 'bubblewrap', found that no bwrap" in run.stdout


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NoIsolation, match="no such level, only bubblewrap, landlock, limits"):
        Executor(isolation="bubblewarp")  # pyright: ignore[reportArgumentType]


def test_limits_that_leave_nothing_to_run_with_are_refused() -> None:
    with pytest.raises(ValueError, match="memory_mb >= 64"):
        Limits(memory_mb=8)
    with pytest.raises(ValueError, match="cpu_s < wall_s"):
        Limits(cpu_s=90.0)


# --- the command


def command(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "training.executor", *arguments],
        cwd=REFERENCE,
        env=clean(),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_judges_every_case_of_a_file_in_its_order() -> None:
    run = command("check", str(EXAMPLES))
    assert run.returncode == 0
    assert run.stderr.startswith("isolation: ")
    assert_examples(run.stdout.splitlines())


def test_the_command_reads_json_lines_and_switches_the_screen_off(tmp_path: Path) -> None:
    cases = [
        {"name": "a", "program": "import sys\ndef f(x):\n    return sys.maxsize > x", "input": "1"},
        {"name": "b", "task": "predict_program", "program": IDENTITY, "pairs": [["1", "1"]]},
        {"task": "predict_input", "program": IDENTITY, "gold": "y", "answer": "1"},
        {"task": "predict_input", "program": IDENTITY, "input": "(1)", "answer": "1"},
    ]
    file = tmp_path / "cases.jsonl"
    file.write_text("\n".join(map(json.dumps, cases)) + "\n")
    rows = [json.loads(line) for line in command("check", str(file)).stdout.splitlines()]
    assert [row["verdict"] for row in rows] == [
        *("banned_import", "correct", "bad_input", "correct"),
    ]
    assert list(rows[0]) == ["name", "verdict", "value", "error", "cpu_s"]
    assert [row["name"] for row in rows] == ["a", "b", "2", "3"]
    bare = command("check", str(file), "--no-screen").stdout.splitlines()
    assert json.loads(bare[0])["verdict"] == "ok"
    assert json.loads(bare[0])["value"] == "True"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at least one case"),
        ("[]", "at least one case"),
        ("[1]", "wanted case 0 to be an object"),
        ('{"program": "x"}', "wanted a text as 'input' of case 0"),
        ('{"program": "x", "input": "1", "task": "fly"}', "wanted a task of"),
        ('{"program": "x", "input": "1", "task": ["run"]}', "wanted a task of"),
        ('{"program": "x", "task": "predict_program", "pairs": [1]}', "wanted pairs"),
        ('{"program": "x", "input": "1"}\n{', "wanted JSON in line 2"),
        ("[{", "Expecting"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_a_file_without_cases_is_refused_with_its_reason(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "cases").write_text(text)
    with pytest.raises(ValueError, match=re.escape(said)):
        training.cases.read_cases(tmp_path / "cases")


def test_json_lines_may_hold_what_ends_a_line_elsewhere(tmp_path: Path) -> None:
    cases = [{"program": IDENTITY, "input": f"'{mark}'"} for mark in "\u2028\x85"]
    lines = "\ufeff" + "\r\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (tmp_path / "cases").write_bytes(lines.encode())
    read = training.cases.read_cases(tmp_path / "cases")
    assert [case["input"] for case in read] == ["'\u2028'", "'\x85'"]


@pytest.mark.parametrize(("name", "said"), [("none", "No such file"), ("binary", "can't decode")])
def test_the_command_refuses_what_it_cannot_read(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    run = command("check", str(tmp_path / name))
    assert (run.returncode, run.stdout) == (2, "")
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_the_command_ends_quietly_when_nobody_reads_on(tmp_path: Path) -> None:
    file = tmp_path / "cases"
    file.write_text(json.dumps({"program": IDENTITY, "input": "1"}))
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as nobody:
        run = subprocess.run(
            [sys.executable, "-m", "training.executor", "check", str(file)],
            cwd=REFERENCE,
            env=clean(),
            stdout=nobody,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert run.returncode == 1
    assert "Traceback" not in run.stderr and "BrokenPipe" not in run.stderr


# --- what the tests ask of the machine

_shared: list[Executor] = []


def shared() -> Executor:
    """One executor for the property tests, whose examples are too many for one each."""
    if not _shared:
        _shared.append(Executor(limits=QUICK, lanes=1))
    return _shared[0]


@pytest.fixture(scope="module", autouse=True)
def close_shared() -> Iterator[None]:
    yield
    while _shared:
        _shared.pop().close()


def need(level: Isolation) -> None:
    if (reason := why_not(level)) is not None:
        pytest.skip(f"{level}: {reason}")


def clean() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}


def assert_examples(lines: list[str]) -> None:
    cases = {case["name"]: case for case in json.loads(EXAMPLES.read_text())}
    rows = [json.loads(line) for line in lines]
    assert [row["name"] for row in rows] == list(cases)
    for row in rows:
        case = cases[row["name"]]
        assert row["verdict"] in (case["expected"], *case.get("also_accept", ())), row
        assert row["value"] == case.get("value", row["value"])


# Prints the level and the verdicts on a file of cases, for a Python elsewhere.
JUDGE = """
import json, sys
from pathlib import Path
from training.cases import read_cases
from training.executor import Executor, check_case
from training.interpreter import Limits
most = Limits(cpu_s=0.2)
level = sys.argv[2] if sys.argv[2:] else None
with Executor(isolation=level, limits=most, lanes=1) as screened, Executor(
    isolation=level, limits=most, lanes=1, screen=False
) as bare:
    print(screened.isolation)
    for case in read_cases(Path(sys.argv[1])):
        verdict = check_case(bare if case["layer"] == "os" else screened, case)
        value = verdict.value and verdict.value.text
        print(json.dumps({"name": case["name"], "verdict": verdict.kind, "value": value}))
"""


def descendants(root: int = 0) -> list[int]:
    """Every living process below `root` (default: this one), sorted."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(folder.name)] = int(fields[1])
    found = [root or os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return sorted(found[1:])


def cpu_seconds_below() -> float:
    """Of every process below this one, and those that they waited for."""
    ticks = 0
    for pid in descendants():
        ticks += sum(
            map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15])
        )
    return ticks / os.sysconf("SC_CLK_TCK")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("X", "Z")


READABLE = "import sys; assert sys.version_info >= (3, 11); [*map(open, sys.argv[1:])]"


def usable_by_nobody(python: Path) -> bool:
    if not python.exists():
        return False
    try:
        run = subprocess.run(
            [str(python), "-c", READABLE, str(EXAMPLES), str(REFERENCE / "training/executor.py")],
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            check=False,
        )
    except PermissionError:
        return False
    return run.returncode == 0
