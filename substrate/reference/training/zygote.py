"""The zygote: a warm interpreter inside the jail that forks once for each program.

`training/interpreter.py` starts it by its path, with its settings in one argument, and talks to it
over the socket on descriptor 0 in frames, four bytes of length and as much content: a request is a
tuple, marshalled, a reply a HEADER and a message (training/messages.py). A zygote either reads or
runs. What reads parses programs, inputs and answers, and compiles; what runs gets the compiled
code, and forks, and its fork unpacks and runs it with next to no privileges
(training/privileges.py). So nothing of a program is ever in a process that the next one is forked
from, and hardly a page of memory is touched between two forks.

A program's process leaves one message of values, never a verdict: the trainer compares. It ends by
`_exit` right after, so no finalizer has the last word. Code that is not held by the screen can
forge its own message, and nothing else.
"""

import builtins
import codecs
import gc
import importlib
import json
import marshal
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

if __name__ == "__main__":  # started by its path: the neighbours are found from there
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from training.canonical import MOST_BYTES, NotAValue, encode
from training.guards import guarded_builtins, leave
from training.literals import NotALiteral, read_arguments, read_value
from training.messages import HEADER, Result, join, split
from training.privileges import RESULT, confine_program, confine_zygote, program_filter
from training.screen import ALLOWED_IMPORTS, ENTRY, Refused, read_program

CONTROL = 10  # descriptor of the socket
SHORT = 8192  # characters of a request that are parsed here and not in a process of their own
RESULT_BYTES = MOST_BYTES + 400  # of one result of a run, at most
READING_BYTES = 32 << 20  # of a reading, at most

# A marshalled request: the nonce of its reply; what to do; whether to be careful.
Request = tuple[Any, ...]  # ("read", message) or ("run", results, backwards, code, calls)

# Exit codes of a forked process beside 0.
CUT_SHORT, OUT_OF_MEMORY, UNFIT = 72, 71, 70

# For programs that no screen holds: what they might try has to be there to be tried.
DANGEROUS_MODULES = (
    *("asyncio", "builtins", "code", "concurrent.futures.thread", "ctypes.util", "datetime"),
    *("faulthandler", "fcntl", "gc", "hashlib", "importlib.util", "inspect", "io", "linecache"),
    *("logging", "marshal", "mmap", "multiprocessing", "os", "pathlib", "pickle", "platform"),
    *("queue", "random", "resource", "secrets", "select", "shutil", "signal", "socket", "sqlite3"),
    *("subprocess", "sys", "tempfile", "threading", "time", "traceback", "types", "urllib.request"),
    *("uuid", "weakref", "_posixsubprocess", "_thread"),
)
CODECS = ("ascii", "latin_1", "iso8859_1", "utf_8", "utf_8_sig", "utf_16", "utf_16_le", "utf_16_be")
CODECS += ("utf_32", "utf_32_le", "utf_32_be", "cp1252", "hex_codec", "rot_13", "base64_codec")
CODECS += ("unicode_escape", "raw_unicode_escape", "punycode", "idna")

# Held here, so that a program that replaces them in their modules finds its own end all the same.
_write, _exit, _load = os.write, os._exit, marshal.loads


class Zygote:
    """What a zygote keeps from one request to the next: its settings and nothing of a program."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.cpu_s: float = settings["cpu_s"]
        self.wall_s: float = settings["wall_s"]
        self.screen: bool = settings["screen"]
        self.filter = program_filter()
        self.guarded = guarded_builtins(self.end) if self.screen else None
        self.nonce = b""  # of the request at hand
        self.results = 0  # that a run has to have

    def serve(self) -> None:
        """Answer requests until the trainer is gone."""
        while (frame := _read_frame()) is not None:
            _write_frame(self.answer(*_load(frame)))

    def answer(self, nonce: bytes, request: Request, careful: bool) -> bytes:
        """How the process ended that did what was asked, and its message."""
        self.nonce = nonce
        if request[0] == "run":
            _, self.results, backwards, code, calls = request
            most = len(nonce) + self.results * RESULT_BYTES
            return self.fork(lambda: self.run(code, calls, backwards=backwards), most)
        _, message = request
        if careful or len(message) > SHORT:
            return self.fork(lambda: self.read(message), READING_BYTES)
        # The parser is C code: should it hang, the timer ends this zygote, and the trainer asks
        # the next one to be careful.
        signal.setitimer(signal.ITIMER_PROF, self.cpu_s)
        try:
            results = self.read(message)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return HEADER.pack(0, 0.0, False, False) + nonce + join(results)

    def read(self, message: bytes) -> list[Result]:
        """Each text of a message, read as what its kind says.

        The rest after a program that is refused is not read.
        """
        results: list[Result] = []
        for kind, data in split(message):
            text = data.decode("utf-8", "surrogatepass")
            try:
                if kind == "program":
                    reading = read_program(text, screen=self.screen)
                    found = "doubtful" if reading.doubtful else "ok"
                    results.append((found, marshal.dumps(reading.code)))
                elif kind == "input":
                    results.append(("ok", marshal.dumps(read_arguments(text))))
                else:
                    results.append(("ok", encode(read_value(text))))
            except NotALiteral as error:
                refusal = "bad_input" if kind == "input" else "bad_answer"
                results.append((refusal, str(error).encode("utf-8", "replace")))
            except Refused as refused:
                return [(refused.kind, str(refused).encode("utf-8", "replace"))]
        return results

    def run(self, code: bytes, calls: list[bytes], *, backwards: bool) -> list[Result]:
        """In a fork: run the entry on each input, every time of a module that was loaded anew."""
        # The entry recurses as deep as in a process of its own, where it is the second frame.
        sys.setrecursionlimit(sys.getrecursionlimit() + _depth() + 1)
        module = _load(code)
        results: list[Result] = [("", b"")] * len(calls)
        order = range(len(calls))
        for number in reversed(order) if backwards else order:
            names = self.fresh_names()
            results[number] = _attempt(lambda names=names: exec(module, names))
            if results[number][0] == "ok":
                results[number] = _call(names.get(ENTRY), calls[number])
            if len(calls) > 1:
                names.clear()  # or what it holds would be missing in the memory of the next
        return results

    def fresh_names(self) -> dict[str, Any]:
        """The namespace of a module that is the program, with built-ins of its own."""
        program = ModuleType("program")
        names = vars(program)
        if self.guarded is None:
            # Its own copy: ours are not what it changes.
            copied = ModuleType("builtins")
            vars(copied).update(vars(builtins), exit=leave, quit=leave)
            sys.modules["builtins"] = copied
            names["__builtins__"] = vars(copied)
        else:
            names["__builtins__"] = dict(self.guarded)
        sys.modules["program"] = sys.modules["__main__"] = program
        return names

    def fork(self, work: Callable[[], list[Result]], most: int) -> bytes:
        """Have a process of its own do the work, and wait for its end."""
        if os.lseek(1, 0, os.SEEK_CUR) > 0:  # the last one wrote something
            os.ftruncate(1, 0)
            os.lseek(1, 0, os.SEEK_SET)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            self.become_program(reading, writing, work)
        os.close(writing)
        try:
            return _watch(pid, reading, self.wall_s, most)
        finally:
            os.close(reading)

    def become_program(
        self, reading: int, writing: int, work: Callable[[], list[Result]]
    ) -> NoReturn:
        """In a fork: confine it, do the work, send the results, end."""
        try:
            os.close(CONTROL)
            os.close(reading)
            if writing != RESULT:
                os.dup2(writing, RESULT)
                os.close(writing)
            confine_program(self.filter, self.cpu_s)
            gc.enable()
        except BaseException:
            # No fault of the program: it does not run here, and the trainer starts another zygote.
            try:
                os.kill(os.getppid(), signal.SIGTERM)
            finally:
                _exit(UNFIT)
        try:
            self.send(work(), 0)
        except MemoryError:
            _exit(OUT_OF_MEMORY)
        except BaseException:
            _exit(UNFIT)

    def end(self, kind: str, reason: str) -> NoReturn:
        """In a fork: its end in the middle of a run, with one verdict for every input."""
        self.send([(kind, reason.encode("utf-8", "replace"))] * self.results, CUT_SHORT)

    def send(self, results: list[Result], code: int) -> NoReturn:
        left = memoryview(self.nonce + join(results))
        while left:
            left = left[_write(RESULT, left) :]
        _exit(code)


def main() -> None:
    """Warm up, give up every privilege, say what a probe came to, and serve."""
    settings = json.loads(sys.argv[1])
    os.dup2(0, CONTROL, inheritable=False)
    scratch = os.memfd_create("scratch")
    for descriptor in (0, 1, 2):
        os.dup2(scratch, descriptor)
    os.close(scratch)
    os.environ.clear()  # the hash seed, which differs from one interpreter to the next
    for name in CODECS:
        codecs.lookup(name)
    register, os.register_at_fork = os.register_at_fork, lambda **hooks: None
    importlib.import_module("random")  # would seed itself anew in every process, for nobody
    os.register_at_fork = register
    if not settings["screen"]:
        for name in (*sorted(ALLOWED_IMPORTS), *DANGEROUS_MODULES):
            importlib.import_module(name)
    zygote = Zygote(settings)
    sys.path.clear()
    del sys.argv[1:]
    ballast = _ballast(settings["seed"])
    confine_zygote(settings["isolation"], settings["memory_mb"])
    gc.collect()
    gc.freeze()
    gc.disable()
    _write_frame(zygote.fork(_probe, 0))
    zygote.serve()
    del ballast


def _probe() -> list[Result]:
    """Try what no program may. Where the jail holds, this dies of SIGSYS in the last line."""
    try:
        os.open("/", os.O_RDONLY)
    except PermissionError:
        os.fork()
    return []


def _ballast(seed: int) -> list[bytes]:
    """Objects of every small size, in numbers that go by the seed.

    They shift what is allocated after them, so that two interpreters differ in their addresses even
    where the kernel does not randomize those, and in the low bits, which it never does.
    """
    sizes = range(1, 480, 16)
    return [bytes(size) for size in sizes for _ in range((seed * 37 + size * seed) % 61)]


def _call(entry: Any, arguments: bytes) -> Result:
    if not callable(entry):
        return "no_entry_point", b"the entry is not a function"

    def call() -> Any:
        positional, named = _load(arguments)
        return entry(*positional, **named)

    return _attempt(call)


def _depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def _attempt(call: Callable[[], Any]) -> Result:
    """What a piece of the program comes to, whatever it does: no clause here asks it anything."""
    try:
        return "ok", encode(call())
    except NotAValue as error:
        return error.kind, str(error).encode()
    except SystemExit:
        return "exit", b"SystemExit"
    except MemoryError:
        return "memory_limit", b"MemoryError"
    except BaseException as error:
        # The name that the class has, not the one that its metaclass claims; of a plain str.
        name = type.__dict__["__name__"].__get__(type(error))
        return "exception", str.encode(str.__getitem__(name, slice(100)), "utf-8", "replace")


def _watch(pid: int, reading: int, wall_s: float, most_bytes: int) -> bytes:
    """Wait for a program's end, or bring it about when its time or its message is too long."""
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    poller.register(CONTROL, 0)  # for its end alone: the trainer is gone
    deadline = time.monotonic() + wall_s
    message = bytearray()
    late = flooded = False
    while len(message) <= most_bytes:
        ready = poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
        late = not ready
        if late or ready[0][0] == CONTROL:
            os.kill(pid, signal.SIGKILL)
            break
        data = os.read(reading, 1 << 18)
        if not data:
            break
        message += data
    else:
        flooded = True
        os.kill(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    cpu_s = used.ru_utime + used.ru_stime
    header = HEADER.pack(os.waitstatus_to_exitcode(status), cpu_s, late, flooded)
    return header if flooded else header + message


def _read_frame() -> bytes | None:
    head = _read_exactly(4)
    return None if head is None else _read_exactly(int.from_bytes(head, "big"))


def _read_exactly(count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        more = os.read(CONTROL, count - len(data))
        if not more:
            return None
        data += more
    return bytes(data)


def _write_frame(content: bytes) -> None:
    left = memoryview(len(content).to_bytes(4, "big") + content)
    while left:
        left = left[os.write(CONTROL, left) :]


if __name__ == "__main__":
    main()
