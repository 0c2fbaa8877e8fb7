"""Programs that try to fool or harm the verifier, and plain ones that it has to accept.

`tests/data/programs/*.txt` holds them one by one: `=== name`, the right verdicts (with the value
or the exception's class where there is one), the input, `---`, the program. Those of `jail.txt` are
run without a screen. `random_program` puts new ones together from such pieces.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random

PROGRAMS = Path(__file__).parent.parent / "data" / "programs"


@dataclass(frozen=True)
class Case:
    name: str
    program: str
    input: str
    kinds: tuple[str, ...]  # each of them is right; which comes may depend on the machine
    says: str = ""  # the value's text or the error, where that is known


def read_cases(file: str) -> list[Case]:
    """The cases of a file of `tests/data/programs`."""
    cases = []
    for block in (PROGRAMS / f"{file}.txt").read_text(encoding="utf-8").split("=== ")[1:]:
        head, program = block.split("\n---\n", 1)
        name, expected, text = head.split("\n")
        kinds, _, says = expected.partition(" ")
        cases.append(Case(name, program.rstrip() + "\n", text, tuple(kinds.split("|")), says))
    return cases


def made_cases() -> list[Case]:
    """Cases that are better made than written: large, deeply nested, or of odd characters."""
    entry = "\ndef f(x):\n    return x\n"

    def refused(name: str, program: str, *kinds: str) -> Case:
        return Case(name, program, "1", kinds or ("syntax_error",))

    def accepted(name: str, program: str, text: str = "1", says: str = "1") -> Case:
        return Case(name, program, text, ("ok",), says)

    def bad_input(name: str, text: str) -> Case:
        return Case(name, entry, text, ("bad_input",))

    branches = "if 0: pass\n" + "elif 0: pass\n" * 4000
    too_many = "".join(f"{' ' * depth}for a in b:\n" for depth in range(30))
    blocks = "".join(" " * depth + "def g():\n" for depth in range(95)) + " " * 95 + "pass"
    return [
        accepted("windows_line_ends", "def f(x):\r\n\tif x:\r\n\t\treturn x\r\n"),
        accepted("form_feed", "\f" + entry),
        accepted("largest_int", entry, str((1 << 8192) - 1), str((1 << 8192) - 1)),
        accepted("sixty_deep", entry, "[" * 60 + "]" * 60, "[" * 60 + "]" * 60),
        accepted("largest_text", entry, repr("x" * 65531), repr("x" * 65531)),
        accepted("largest_source", entry + "#" * (65536 - len(entry))),
        accepted("input_line_continued", entry, "1 \\"),
        accepted("ninety_parentheses", "y = " + "(" * 90 + "1" + ")" * 90 + entry),
        accepted("hundreds_of_lines", "def g(x):\n" + "    x += 1\n" * 2000 + entry),
        accepted("nested_definitions", blocks + entry),
        accepted("thousands_of_statements", "x=1;" * 5000 + entry),
        refused("source_one_byte_too_long", entry + "#" * (65537 - len(entry)), "too_long"),
        refused("source_too_long_in_utf_8", entry + "#" + "é" * 32760, "too_long"),
        refused("source_of_a_megabyte", "x=" + "(" * 10**6, "too_long"),
        refused("empty_source", "", "no_entry_point"),
        refused("null_character", "x = 1\0" + entry),
        refused("byte_order_mark_inside", entry + "\ufeff"),
        refused("lone_surrogate_in_source", "x = '\ud800'" + entry),
        refused("a_thousand_parentheses", "(" * 1000 + ")" * 1000 + entry),
        refused("parentheses_left_open", "(" * 150 + entry),
        refused("brackets_left_open", "[{(" * 60 + entry),
        refused("signs_without_end", "-" * 60000 + "1" + entry),
        refused("signs_by_the_thousand", "-" * 5000 + "1" + entry, "syntax_error", "ok"),
        refused("attributes_by_the_thousand", "y = x" + ".a" * 20000 + entry),
        refused("sum_of_thousands", "y = " + "+".join("1" * 20000) + entry),
        refused("calls_of_calls", "y = x" + "()" * 20000 + entry),
        refused("lambdas_in_lambdas", "y = " + "lambda: " * 5000 + "1" + entry),
        refused("thousands_of_branches", branches + entry, "syntax_error", "ok"),
        refused("too_many_blocks", too_many + " " * 30 + "pass" + entry),
        refused("int_of_5000_digits", "y = " + "9" * 5000 + entry),
        refused("deep_with", "with " + "(a, " * 60 + ")" * 60 + ": pass" + entry, "exception"),
        refused("constants_folded", "y = (1,) * 1000" + " * 1000" * 10 + entry, "memory_limit"),
        refused("shift_left_to_run_time", "y = 1 << 60 << 10**12" + entry, "memory_limit"),
        bad_input("input_too_deep", "[" * 61 + "]" * 61),
        bad_input("input_deeper_than_the_parser", "-" * 60000 + "1"),
        bad_input("input_too_long", "1," * 40000),
        bad_input("input_of_too_many_parts", "[" + "0," * 20001 + "]"),
        bad_input("input_int_too_large", str(1 << 8192)),
        bad_input("input_null_character", "'a'\0"),
        bad_input("input_lone_surrogate", "'\ud800'"),
        bad_input("input_new_statement", "1)\nimport os\n(2"),
        bad_input("input_starts_a_text", "'''"),
    ]  # fmt: skip


# --- random programs

_MODULES = (
    *("builtins", "ctypes", "gc", "importlib", "io", "itertools", "math", "mmap", "os", "pickle"),
    *("random", "re", "resource", "select", "shutil", "signal", "socket", "subprocess", "sys"),
    *("tempfile", "threading", "time", "weakref"),
)
_ACTS = (
    "os.fork()",
    "os.kill(os.getppid(), {n})",
    "os.kill(os.getpid(), {n})",
    "os.killpg(0, {n})",
    "os.system('touch {marker}')",
    "subprocess.Popen(['/bin/sh', '-c', 'sleep 1000'])",
    "threading.Thread(target=print).start()",
    "os.execv('/bin/sh', ['sh'])",
    "socket.socket()",
    "socket.socketpair()",
    "open('{marker}', 'w').write('x')",
    "os.open('{marker}', os.O_CREAT | os.O_WRONLY)",
    "os.mkdir('{marker}')",
    "tempfile.mkdtemp(prefix='{marker}')",
    "shutil.rmtree('{marker}')",
    "os.listdir('/proc')",
    "os._exit({n})",
    "os.abort()",
    "sys.exit({n})",
    "raise BaseException('x' * {n})",
    "raise type('X', (Exception,), {{}})()",
    "raise MemoryError",
    "os.write({n}, b'ok' * {n})",
    "os.write(3, bytes(range({n})))",
    "os.close({n})",
    "os.closerange(0, {n})",
    "os.dup2(1, {n})",
    "sys.stdout.write('x' * {n}000)",
    "print('x' * {n}0000)",
    "kept.append(bytearray({n}00000))",
    "kept.append([kept] * {n}0000)",
    "kept.extend(range({n}0000))",
    "ctypes.string_at({n})",
    "ctypes.memset(id(kept), {n}, 64)",
    "ctypes.CDLL(None).syscall({n}, 0, 0, 0)",
    "ctypes.CDLL(None).vfork()",
    "mmap.mmap(-1, {n} << 20)",
    "signal.setitimer(signal.ITIMER_PROF, 0)",
    "signal.signal({n} % 64 + 1, signal.SIG_IGN)",
    "signal.alarm({n})",
    "signal.raise_signal({n} % 64 + 1)",
    "time.sleep({n})",
    "threading.Lock().acquire() and threading.Lock().acquire()",
    "select.select([0], [], [], {n})",
    "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "sys.setrecursionlimit({n}000)",
    "sys.settrace(lambda *a: 1 / 0)",
    "setattr(builtins, 'len', f)",
    "setattr(os, '_exit', print)",
    "[o.clear() for o in gc.get_objects() if type(o) is dict and len(o) == {n}]",
    "sys.modules.clear()",
    "re.match('(a+)+$', 'a' * {n} + 'b')",
    "10 ** (10 ** {n})",
    "sum(range(10 ** {n}))",
    "f(x)",
    "pickle.loads(b'cos\\nsystem\\n(S\"touch {marker}\"\\ntR.')",
    "weakref.finalize(f, time.sleep, {n})",
    "[0] * 10 ** {n}",
    "'x' * 10 ** {n}",
    "().__class__.__base__.__subclasses__()[{n}]()",
    "eval('(' * {n})",
    "exec('x = ' + '[' * {n} + ']' * {n})",
    "sys._getframe().f_back.f_locals.clear()",
    "[frame.f_locals for frame in sys._current_frames().values()]",
)
_WRAPS = (
    "{act}",
    "{act}\n{act}",
    "try:\n    {act}\nexcept BaseException:\n    pass",
    "while True:\n    {act}",
    "while True:\n    try:\n        {act}\n    except BaseException:\n        pass",
    "for _ in range({n}):\n    {act}",
    "class A:\n    def __del__(self):\n        {act}\nkept.append(A())",
    "class A:\n    def __del__(self):\n        {act}\nA()",
    "def g():\n    {act}\n    yield 1\nkept.append(next(g()))",
    "def h():\n    {act}\nh()",
    "try:\n    {act}\nfinally:\n    f(x)",
)
_VALUES = (
    *("x", "kept", "[kept]", "{1: kept}", "f", "object()", "id(kept)", "{'a', 'b', 'c'}", "1j"),
    *("list({'a', 'b', 'c'})", "'x' * {n}0000", "[[]] * {n}000", "10 ** {n}0", "float('nan')"),
    *(
        "(i for i in kept)",
        "type('S', (str,), {})('a')",
        "lambda: 0",
        "hash('a')",
        "b'\\xff' * {n}",
    ),
)


def random_program(random: Random, marker: str) -> str:
    """A program of random hostile pieces. `marker` is a path that none of them may ever make."""

    def fill(text: str) -> str:
        number = str(random.choice((0, 1, 2, 3, 5, 9, 10, 15, 31, 40, 64, 100, 255)))
        return text.replace("{n}", number).replace("{marker}", marker).replace("{{}}", "{}")

    def indented(text: str, spaces: int) -> str:
        return text.replace("\n", "\n" + " " * spaces)

    def block(spaces: int) -> str:
        wrap = random.choice(_WRAPS)
        act = fill(random.choice(_ACTS))
        return " " * spaces + indented(fill(wrap.replace("{act}", act)), spaces) + "\n"

    draw = random.random()
    if draw < 0.1:  # damaged
        case = random.choice(read_cases(random.choice(("controls", "screened", "jail"))))
        text = list(case.program)
        for _ in range(random.randrange(1, 6)):
            place = random.randrange(len(text))
            text[place] = random.choice((*"()[]{}:'\"\\\n .,=_f*\0é", "lambda ", "yield ", ""))
        return "".join(text)
    if draw < 0.15:  # noise
        return "".join(
            random.choice("()[]{}:'\"\\\n .,=_fx1*-\0") for _ in range(random.randrange(3000))
        )
    modules = sorted(random.sample(_MODULES, random.choice((0, 0, len(_MODULES)))))
    source = "".join(f"import {name}\n" for name in modules) + "kept = []\n"
    if random.random() < 0.15:
        source += block(0)
    source += "def f(x=1):\n"
    for _ in range(random.choice((1, 1, 2, 3))):
        source += block(4)
    return source + "    return " + fill(random.choice(_VALUES)) + "\n"
