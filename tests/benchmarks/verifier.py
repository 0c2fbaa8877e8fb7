"""How many programs the executor judges a second, at both levels, and what it withstands."""

import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).resolve().parents[2] / "substrate" / "reference"
PROGRAMS = int(os.environ.get("PROGRAMS", "2000"))  # judged for each figure
FRESH_PROGRAMS = 200
HOSTILE_PROGRAMS = int(os.environ.get("HOSTILE", "10000"))  # half at each level
CALLERS = 8
TOGETHER = 8  # inputs a program

WHAT = (
    "Full verdicts (screen, two interpreters, canonical comparison) of five plain programs by "
    f"{CALLERS} threads that call at once, at each level of isolation, against a fresh `python -I` "
    "for each program in the same run; CPU time of all processes; programs of 0.3 CPU seconds by "
    "8 callers; random hostile programs, half of them without a screen, half at each level."
)

# Five shapes of program, each with an input.
TEMPLATES = (
    ("def f(x):\n    return [x * 2, str(x)]", "21"),
    (
        "def f(text, limit=3):\n    counts = {}\n    for word in text.lower().split():\n"
        "        word = word.strip('.,')\n        counts[word] = counts.get(word, 0) + len(word)\n"
        "    best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]\n"
        "    return {'best': best, 'total': sum(n for _, n in best)}",
        "'The quick brown fox jumps. The lazy dog sleeps.'",
    ),
    (
        "class Stack:\n    def __init__(self):\n        self.items = []\n"
        "    def push(self, v):\n        self.items.append(v)\n        return self\n"
        "def f(n):\n    s = Stack()\n    for i in range(n):\n        s.push(i * i)\n"
        "    return s.items",
        "12",
    ),
    (
        "import math\nfrom collections import Counter\ndef f(s):\n"
        "    return dict(Counter(s)), math.gcd(12, 18)",
        "'hello'",
    ),
    (
        "def f(n):\n    sieve = [True] * (n + 1)\n    for i in range(2, int(n ** 0.5) + 1):\n"
        "        if sieve[i]:\n            sieve[i * i :: i] = [False] * len(sieve[i * i :: i])\n"
        "    return [i for i in range(2, n + 1) if sieve[i]]",
        "100",
    ),
)
SLOW = "def f(n):\n    t = 0\n    for i in range(n):\n        t += i & 3\n    return t"


def run() -> dict[str, Any]:
    sys.path.insert(0, str(REFERENCE))
    from training.executor import Executor
    from training.interpreter import Limits
    from training.isolation import Isolation

    figures: dict[str, Any] = {}
    fresh = _rate(_fresh, FRESH_PROGRAMS, len(os.sched_getaffinity(0)))
    figures["fresh `python -I`, programs/s"] = fresh
    level: Isolation
    for level in ("bubblewrap", "landlock"):
        with Executor(isolation=level) as executor:

            def judge(n: int, executor: Executor = executor) -> None:
                program, text = TEMPLATES[n % 5]
                assert executor.run(program, [text])[0].kind == "ok"

            def judge_many(n: int, executor: Executor = executor) -> None:
                program, text = TEMPLATES[n % 5]
                verdicts = executor.run(program, [text] * TOGETHER)
                assert all(verdict.kind == "ok" for verdict in verdicts)

            def predict(n: int, executor: Executor = executor) -> None:
                assert executor.check_output(*TEMPLATES[0], "[42, '21']").kind == "correct"

            _rate(judge, 100, CALLERS)
            before = _cpu_seconds()
            verdicts = _rate(judge, PROGRAMS, CALLERS)
            cpu_ms = 1000 * (_cpu_seconds() - before) / PROGRAMS
            inputs = TOGETHER * _rate(judge_many, PROGRAMS // 2, CALLERS)
            outputs = _rate(predict, PROGRAMS // 2, CALLERS)
        figures |= {
            f"{level}: verdicts/s": verdicts,
            f"{level}: times a fresh `python -I`": verdicts / fresh,
            f"{level}: CPU of a verdict, ms": cpu_ms,
            f"{level}: verdicts/s that two idle cores have CPU for": 2000 / cpu_ms,
            f"{level}: program-inputs/s, {TOGETHER} together": inputs,
            f"{level}: program-inputs, times a fresh `python -I`": inputs / fresh,
            f"{level}: predicted outputs/s": outputs,
        }
        figures[f"{level}: false time-outs of 40"] = _false_timeouts(level)

    for level in ("bubblewrap", "landlock"):
        figures |= _hostile(level, HOSTILE_PROGRAMS // 2, Limits(cpu_s=0.1, memory_mb=128))
    return figures


def _rate(work: Callable[[int], None], count: int, callers: int) -> float:
    """How often a second `work` is done, by so many threads."""
    with ThreadPoolExecutor(callers) as pool:
        started = time.monotonic()
        list(pool.map(work, range(count)))
        return count / (time.monotonic() - started)


def _fresh(n: int) -> None:
    program, text = TEMPLATES[n % 5]
    code = f"{program}\nprint(repr(f({text})))"
    subprocess.run([sys.executable, "-I", "-c", code], stdout=subprocess.DEVNULL, check=True)


def _false_timeouts(level: Any) -> int:
    """Of 40 programs of about 0.3 CPU seconds, by eight callers at once under a limit of 1 s."""
    from training.executor import Executor
    from training.interpreter import Limits

    started = time.process_time()
    names: dict[str, Any] = {}
    exec(SLOW, names)
    names["f"](1_000_000)
    loops = int(0.3e6 / (time.process_time() - started))
    with (
        Executor(isolation=level, limits=Limits(cpu_s=1.0)) as executor,
        ThreadPoolExecutor(CALLERS) as pool,
    ):
        verdicts = list(pool.map(lambda _: executor.run(SLOW, [str(loops)])[0], range(40)))
    return sum(verdict.kind != "ok" for verdict in verdicts)


def _hostile(level: Any, count: int, limits: Any) -> dict[str, Any]:
    from tests.reference.hostile import random_program
    from training.executor import Executor

    numbers = random.Random(count)
    kinds: Counter[str] = Counter()
    spoiled = 0
    processes = len(_below())
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        marker = str(Path(folder) / "marker")
        with (
            Executor(isolation=level, limits=limits) as screened,
            Executor(isolation=level, limits=limits, screen=False) as unscreened,
        ):
            judges = (screened, unscreened)
            programs = [random_program(numbers, marker) for _ in range(count)]

            def judge(program: str, judge: Executor) -> tuple[str, bool]:
                kind = judge.run(program, ["1"])[0].kind
                after = judge.run("def f(x):\n    return [x]", ["1"])[0].value
                return kind, after is not None and after.text == "[1]"

            def judge_all(some: Sequence[str]) -> None:
                nonlocal spoiled
                with ThreadPoolExecutor(4) as pool:
                    for kind, sound in pool.map(judge, some, itertools.cycle(judges)):
                        kinds[kind] += 1
                        spoiled += not sound

            started = time.monotonic()
            judge_all(programs[: count // 2])
            settled, own = _memory_mb(_below()), _memory_mb([os.getpid()])
            judge_all(programs[count // 2 :])
            seconds = time.monotonic() - started
            grown = _memory_mb(_below()) - settled, _memory_mb([os.getpid()]) - own
        files = len(os.listdir(folder))
    time.sleep(1.0)
    return {
        f"{level}: hostile programs": count,
        f"{level}: hostile programs/s": count / seconds,
        f"{level}: verdicts of these": dict(kinds.most_common()),
        f"{level}: plain programs spoiled after them": spoiled,
        f"{level}: processes left": len(_below()) - processes,
        f"{level}: files left": files,
        f"{level}: memory of all interpreters half-way, MB": settled,
        f"{level}: grown by the end, MB": grown[0],
        f"{level}: trainer grown by the end, MB": grown[1],
    }


def _below() -> list[int]:
    """Every process below this one."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(_stat(int(folder.name))[1])
        except OSError:
            continue
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _cpu_seconds() -> float:
    """User and system time of this process and all below, with those that they waited for."""
    ticks = 0
    for pid in [os.getpid(), *_below()]:
        ticks += sum(map(int, _stat(pid)[11 : 13 if pid == os.getpid() else 15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _memory_mb(pids: Sequence[int]) -> float:
    """Proportional memory of processes, MiB: what they share counts once."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024
