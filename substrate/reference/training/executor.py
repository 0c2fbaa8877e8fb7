"""The executor: runs model-written programs in a jail and says what they, or answers, are worth.

    with Executor() as executor:
        verdicts = executor.run("def f(x):\\n    return x + 1", ["1", "2"])
        verdict = executor.check_input(program, gold=verdicts[0].value, answer="1")

A program defines a function `f`; an input is the text of its arguments, `1, 'a'`; an answer is the
text of a value. Every verdict comes from two warm interpreters with different hash seeds and
address layouts, in jails of their own (training/isolation.py has the levels), each of which forks
once for the program (training/zygote.py). Programs that touch sets, `id` or `hash` are run in four,
because two orders of a small set are often alike. What is equal to what, training/canonical.py
says.

The verdict on (program, input) is that of a fresh process. Inputs that are given together run in
one process, each in a module that is loaded anew, forwards in one interpreter and backwards in the
other; if anything differs, or it does not end well, each of them is run afresh.

What it protects from: a program cannot read or write a file, open a socket, start or signal a
process, outlast its limits, leave anything behind for the next program, see the gold value, or have
any code of its own run, or compared, in the trainer. Texts of models are parsed in the jail alone.
Determinism is tested, not assumed, and a machine under load costs time and no verdict: CPU time is
what is limited, and what says nothing about the program is `infrastructure`.

What it does not protect from: a hole in the kernel. The screen is policy and no boundary: who knows
CPython well gets past it. A program that does, and finds its way to the code that runs it, can
choose what value it reports, and can read the clock; gold is elsewhere, so that earns nothing by
itself. Two interpreters that agree by chance pass for determinism, and so does a program that
depends on what is the same in both, as the Python release or the memory limit. So does one that
keeps a note for its next input in an object of the library, unless that input is the first or last
of those that are given together.

As a command, run in `substrate/reference`: `python -m training.executor check FILE` prints a JSON
object for each case of a file (a JSON list, or JSON Lines).
"""

import argparse
import contextlib
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

from training.canonical import Value
from training.cases import read_cases
from training.interpreter import Interpreter, Limits, Reply, ask
from training.isolation import Isolation, NoIsolation, best_isolation, why_not
from training.literals import MOST_CHARACTERS
from training.reading import read_answer, read_texts
from training.screen import MOST_SOURCE_BYTES
from training.verdict import Verdict, agree, read_run

SEEDS = (1, 2, 3, 4)  # of hashes: the two interpreters of a lane, and its two for doubtful cases
READER_SEED = 5
MOST_TOGETHER = 64  # inputs that one process runs
_MAY_BE_OTHERS_FAULT = ("nondeterministic", "memory_limit")  # of what ran before in the process


@dataclass(frozen=True)
class _Lane:
    reader: Interpreter
    runners: tuple[Interpreter, ...]  # one for each of SEEDS


class Executor:
    """Lanes of interpreters. All calls may come from any number of threads at once.

    `isolation` is the best level here unless named; `limits` of one run are for every call; a lane
    (default: one per CPU) judges one program at a time; `screen=False` is for the tests of the
    jail. A call that is interrupted by an exception spoils no other.

    Raises NoIsolation if the level is not to be had, and at each call if an interpreter does not
    start any more; RuntimeError when used after `close`, or in a fork of the process that made it.
    """

    def __init__(
        self,
        *,
        isolation: Isolation | None = None,
        limits: Limits | None = None,
        lanes: int | None = None,
        screen: bool = True,
    ) -> None:
        self.isolation: Isolation = isolation or best_isolation()
        if (reason := why_not(self.isolation)) is not None:
            raise NoIsolation(
                f"wanted isolation {self.isolation!r}, found that {reason}; see to it"
            )
        limits = limits or Limits()
        self._lanes: queue.Queue[_Lane] = queue.LifoQueue()
        self._all_lanes: list[_Lane] = []
        for _ in range(lanes or len(os.sched_getaffinity(0))):
            reader, *runners = (
                Interpreter(seed, self.isolation, limits, screen=screen)
                for seed in (READER_SEED, *SEEDS)
            )
            self._all_lanes.append(_Lane(reader, tuple(runners)))
            self._lanes.put(self._all_lanes[-1])
        self._one_alone = threading.Lock()
        self._process = os.getpid()
        self._closed = False

    def __enter__(self) -> "Executor":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every interpreter, for good. Call it when no other call is under way."""
        self._closed = True
        for lane in self._all_lanes:
            for interpreter in (lane.reader, *lane.runners):
                interpreter.stop()

    def run(self, program: str, inputs: Sequence[str]) -> list[Verdict]:
        """The verdict on the program for each input, in their order."""
        return list(self.run_each(program, inputs))

    def run_each(self, program: str, inputs: Sequence[str]) -> Iterator[Verdict]:
        """The same, one by one: who stops at a bad verdict saves most of the other inputs' time."""
        for start in range(0, len(inputs), MOST_TOGETHER):
            some = inputs[start : start + MOST_TOGETHER]
            yield from self._judge(program, some) or (self._judge_one(program, t) for t in some)

    def check_output(self, program: str, input: str, answer: str) -> Verdict:
        """Whether `answer` is the value that the program returns for `input`."""
        predicted = self.read(answer)
        if predicted.value is None:
            return predicted
        return _compared(self._judge_one(program, input), predicted.value)

    def check_input(self, program: str, gold: Value, answer: str) -> Verdict:
        """Whether the program returns `gold` for the input `answer`: any such input is right."""
        verdict = self._judge_one(program, answer)
        if verdict.kind == "bad_input":
            return Verdict("bad_answer", None, verdict.error, verdict.cpu_s)
        return _compared(verdict, gold)

    def check_program(self, program: str, pairs: Sequence[tuple[str, Value]]) -> Verdict:
        """Whether the program returns the value of every (input, value) pair.

        The verdict is that on the first pair for which it does not. Raises ValueError for no pair.
        """
        verdict = None
        found = self.run_each(program, [text for text, _ in pairs])
        for one, (_, gold) in zip(found, pairs, strict=True):
            verdict = _compared(one, gold)
            if verdict.kind != "correct":
                return verdict
        if verdict is None:
            raise ValueError("wanted at least one pair to check a program on, found none")
        return verdict

    def read(self, text: str) -> Verdict:
        """`ok` with the value that `text` is the literal of, or `bad_answer`."""
        if len(text) > MOST_CHARACTERS:
            return Verdict("bad_answer", error=f"more than {MOST_CHARACTERS} characters")
        with self._lane() as lane:
            return read_answer(lane.reader, text)

    def _judge_one(self, program: str, text: str) -> Verdict:
        verdicts = self._judge(program, [text])
        assert verdicts is not None
        return verdicts[0]

    def _judge(self, program: str, texts: Sequence[str]) -> list[Verdict] | None:
        """Verdicts from one process for each interpreter; None if one by one they may be others."""
        size = len(program) if program.isascii() else len(program.encode("utf-8", "surrogatepass"))
        if size > MOST_SOURCE_BYTES:
            reason = f"{size} bytes of source, at most {MOST_SOURCE_BYTES}"
            return [Verdict("too_long", error=reason)] * len(texts)
        if any(len(text) > MOST_CHARACTERS for text in texts):
            if len(texts) > 1:
                return None
            return [Verdict("bad_input", error=f"more than {MOST_CHARACTERS} characters")]
        with self._lane() as lane:
            verdicts = _verdicts(lane, program, texts)
        if verdicts is None or all(verdict.kind != "infrastructure" for verdict in verdicts):
            return verdicts
        with self._whole_machine() as lane:
            return _verdicts(lane, program, texts)

    @contextlib.contextmanager
    def _lane(self) -> Iterator[_Lane]:
        if self._closed:
            raise RuntimeError("wanted an open executor, found one that is closed; make another")
        if self._process != os.getpid():
            raise RuntimeError(
                f"wanted an executor of this process, {os.getpid()}, found one of "
                f"{self._process}, of which this is a fork; make another here"
            )
        lane = self._lanes.get()
        try:
            yield lane
        finally:
            self._lanes.put(lane)

    @contextlib.contextmanager
    def _whole_machine(self) -> Iterator[_Lane]:
        """A lane while no other is in use."""
        with self._one_alone, contextlib.ExitStack() as stack:
            lanes = [stack.enter_context(self._lane()) for _ in self._all_lanes]
            yield lanes[0]


def _verdicts(lane: _Lane, program: str, texts: Sequence[str]) -> list[Verdict] | None:
    reading = read_texts(lane.reader, program, texts)
    if reading.refusal is not None:
        return [reading.refusal] * len(texts)
    calls = [call for call in reading.calls if isinstance(call, bytes)]
    verdicts: list[Verdict] | None = []
    if calls:
        verdicts = _run(lane.runners, reading.code, calls, doubtful=reading.doubtful)
    if verdicts is None:
        return None
    found = iter(verdicts)
    return [call if isinstance(call, Verdict) else next(found) for call in reading.calls]


def _run(
    runners: Sequence[Interpreter], code: bytes, calls: list[bytes], *, doubtful: bool
) -> list[Verdict] | None:
    """The verdicts of two interpreters, or of all if it is doubtful whether two are enough."""
    questions = [
        (runner, ("run", len(calls), number % 2 == 1, code, calls))
        for number, runner in enumerate(runners)
    ]
    replies = ask(questions[:2])
    verdicts = _combined(replies, len(calls))
    if (
        replies is None
        or verdicts is None
        or not doubtful
        or all(verdict.kind != "ok" for verdict in verdicts)
    ):
        return verdicts
    more = ask(questions[2:])
    return _combined(None if more is None else replies + more, len(calls))


def _combined(replies: list[Reply] | None, count: int) -> list[Verdict] | None:
    if replies is None:
        return [Verdict("infrastructure", error="no answer from the jail")] * count
    runs = [read_run(reply, count) for reply in replies]
    whole = [run for run in runs if run is not None]
    if len(whole) < len(runs):
        return None
    verdicts = [agree(list(of_one_input)) for of_one_input in zip(*whole, strict=True)]
    if count > 1 and any(verdict.kind in _MAY_BE_OTHERS_FAULT for verdict in verdicts):
        return None
    return verdicts


def _compared(verdict: Verdict, gold: Value) -> Verdict:
    """A verdict on a run as one on an answer. What is not a value is neither right nor wrong."""
    if verdict.value is None:
        return verdict
    kind = "correct" if verdict.value.canonical == gold.canonical else "wrong"
    return Verdict(kind, verdict.value, None, verdict.cpu_s)


def main(arguments: Sequence[str]) -> None:
    """The command. Exit code 2 for a file that holds no cases, 3 without isolation."""
    parser = argparse.ArgumentParser(prog="python -m training.executor", description=_HELP)
    check = parser.add_subparsers(required=True).add_parser("check", help="judge a file of cases")
    check.add_argument("file", type=Path, metavar="FILE")
    check.add_argument("--no-screen", action="store_true", help="no static screen, for any case")
    check.add_argument("--isolation", choices=get_args(Isolation), help="default: the best here")
    orders = parser.parse_args(arguments)
    try:
        cases = read_cases(orders.file)
    except (OSError, ValueError) as error:
        print(f"{orders.file}: {error}", file=sys.stderr)
        sys.exit(2)
    try:
        _check_cases(cases, isolation=orders.isolation, screen=not orders.no_screen)
    except NoIsolation as error:
        print(error, file=sys.stderr)
        sys.exit(3)
    except BrokenPipeError:  # who reads has seen enough, and nothing more can be written at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def check_case(executor: Executor, case: dict[str, Any]) -> Verdict:
    """The verdict on a case of training/cases.py. A gold text that is no literal is `bad_input`."""
    match case["task"]:
        case "run":
            return executor.run(case["program"], [case["input"]])[0]
        case "predict_output":
            return executor.check_output(case["program"], case["input"], case["answer"])
        case "predict_input":
            if "gold" in case:
                gold = executor.read(case["gold"])
                if gold.value is None:
                    return Verdict("bad_input", error=f"gold: {gold.error}")
            else:
                gold = executor.run(case["program"], [case["input"]])[0]
                if gold.value is None:
                    return gold
            return executor.check_input(case["program"], gold.value, case["answer"])
        case _:
            pairs = []
            for text, gold_text in case["pairs"]:
                gold = executor.read(gold_text)
                if gold.value is None:
                    return Verdict("bad_input", error=f"gold: {gold.error}")
                pairs.append((text, gold.value))
            return executor.check_program(case["program"], pairs)


def _check_cases(
    cases: Sequence[dict[str, Any]], *, isolation: Isolation | None, screen: bool
) -> None:
    # Cases of the layer `os` are about the jail alone.
    screens = [screen and case.get("layer") != "os" for case in cases]
    with contextlib.ExitStack() as stack:
        executors = {
            screen: stack.enter_context(Executor(isolation=isolation, screen=screen))
            for screen in set(screens)
        }
        print(f"isolation: {executors[screens[0]].isolation}", file=sys.stderr)
        callers = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        stack.callback(callers.shutdown, cancel_futures=True)
        judge = [executors[screen] for screen in screens]
        for case, verdict in zip(cases, callers.map(check_case, judge, cases), strict=True):
            row = {
                "name": case["name"],
                "verdict": verdict.kind,
                "value": verdict.value and verdict.value.text,
                "error": verdict.error,
                "cpu_s": round(verdict.cpu_s, 6),
            }
            print(json.dumps(row), flush=True)


_HELP = """Judge model-written programs and answers. A case is a JSON object: `name`; `task` (run,
the default; predict_output; predict_input; predict_program); `program`; `input`; `answer`; `gold`,
the known value of predict_input (else the one for `input`); `pairs`, [[input, value], ...] of
predict_program. A case whose `layer` is `os` is run without the static screen. Printed for each, in
order: name, verdict, value, error, cpu_s.
"""


if __name__ == "__main__":
    main(sys.argv[1:])
