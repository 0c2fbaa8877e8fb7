"""An interpreter: one zygote in its jail, as the trainer sees it."""

import contextlib
import json
import marshal
import os
import secrets
import select
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training.isolation import Isolation, NoIsolation, zygote_command
from training.messages import HEADER

START_SECONDS = 60.0  # that a zygote may need on a loaded machine
PATIENCE_SECONDS = 30.0  # beyond the wall time of a program
MOST_REQUESTS = 5000  # of one zygote, so that what it may leak stays small
ATTEMPTS = 3  # at a reply from an interpreter that ends meanwhile
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)  # exit codes; the second is bwrap's for its child
NONCE_BYTES = 16


Request = tuple[Any, ...]  # what training/zygote.py is asked to do, in plain values


class Lost(Exception):
    """The zygote ended, or does not answer. Nothing is known about the program."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one run of a program may use. Raises ValueError where that is nothing."""

    cpu_s: float = 1.0  # user and system time together; then `timeout`
    wall_s: float = 60.0  # no program waits, so only a starved machine needs it: `infrastructure`
    memory_mb: int = 256  # MiB of address space, the warm interpreter included

    def __post_init__(self) -> None:
        if not 0 < self.cpu_s < self.wall_s or self.memory_mb < 64:
            raise ValueError(
                f"wanted 0 < cpu_s < wall_s and memory_mb >= 64, found {self}; set them so"
            )


@dataclass(frozen=True)
class Reply:
    """How a program's process ended and the message that it left."""

    status: int  # exit code, or the negative number of the signal that ended it
    cpu_s: float
    late: bool  # it was ended because its wall time was over
    flooded: bool  # it was ended because it wrote more than any message has
    message: bytes  # without its nonce, if that was there
    honest: bool  # it was


class Interpreter:
    """One zygote. Not for two threads at once: its owner hands it from one to the next."""

    def __init__(self, seed: int, isolation: Isolation, limits: Limits, *, screen: bool) -> None:
        self.seed = seed
        self.isolation: Isolation = isolation
        self.limits = limits
        self.screen = screen
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._requests = 0
        self._nonce = b""
        _all.add(self)

    def start(self) -> None:
        """Start the zygote and wait until it is warm.

        It ends when its socket closes, with this process at the latest. Raises NoIsolation if it
        does not start, and Lost if somebody, as the kernel short of memory, killed it meanwhile.
        """
        settings = {
            "seed": self.seed,
            "screen": self.screen,
            "isolation": self.isolation,
            "cpu_s": self.limits.cpu_s,
            "wall_s": self.limits.wall_s,
            "memory_mb": self.limits.memory_mb,
        }
        self._socket, theirs = socket.socketpair()
        self._requests = 0
        with theirs:
            self._process = subprocess.Popen(
                zygote_command(self.isolation, json.dumps(settings)),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={"PYTHONHASHSEED": str(self.seed)},
                start_new_session=True,  # so that one signal reaches all of it
            )
        try:
            self._await_start()
            probe = self._reply()
            self._socket.settimeout(self.limits.wall_s + PATIENCE_SECONDS)
        except Lost:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            killed = self._process.returncode in KILLED
            said = self.stop().strip()[-400:].decode("utf-8", "replace") or "it said nothing"
            if killed:
                raise
            raise NoIsolation(
                f"wanted an interpreter at isolation {self.isolation!r}, found that it does not "
                f"start: {said}; ask for another level, or see to that"
            ) from None
        if probe.status != -signal.SIGSYS and self.isolation != "limits":
            self.stop()
            raise NoIsolation(
                f"wanted a jail in which no file opens and no process forks, found that a probe "
                f"ended with {probe.status}; ask for another level, or see to that"
            )

    def send(self, request: Request, *, careful: bool) -> None:
        """Hand over a request; `receive` takes the reply. Raises Lost, and NoIsolation."""
        if self._socket is None or self._requests >= MOST_REQUESTS:
            self.stop()
            self.start()
        assert self._socket is not None
        self._requests += 1
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        content = marshal.dumps((self._nonce, request, careful))
        try:
            self._socket.sendall(len(content).to_bytes(4, "big") + content)
        except OSError as error:
            raise Lost(str(error)) from error

    def receive(self) -> Reply:
        """The reply to the request sent last. Raises Lost."""
        return self._reply()

    def stop(self) -> bytes:
        """End the zygote and every process below it. Returns what was said on stderr."""
        said = b""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except PermissionError:
                self._process.kill()
            self._process.wait()
            assert self._process.stderr is not None
            with self._process.stderr as stderr:
                os.set_blocking(stderr.fileno(), False)
                said = stderr.read() or b""
            self._process = None
        return said

    def forget(self) -> None:
        """Leave the zygote to the process that this one was forked from."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._process = None

    def _await_start(self) -> None:
        """Wait until the zygote speaks, or raise Lost once there is no hope of that."""
        assert self._socket is not None and self._process is not None
        self._socket.settimeout(START_SECONDS)
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        deadline = time.monotonic() + START_SECONDS
        while not poller.poll(200):
            # Of a bwrap that is killed while it makes the jail a half lives on, and waits.
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Lost("it does not start")

    def _reply(self) -> Reply:
        frame = self._receive()
        if len(frame) < HEADER.size:
            raise Lost("an odd reply")
        status, cpu_s, late, flooded = HEADER.unpack_from(frame)
        message = frame[HEADER.size :]
        honest = message[:NONCE_BYTES] == self._nonce
        return Reply(
            status, cpu_s, late, flooded, message[NONCE_BYTES:] if honest else message, honest
        )

    def _receive(self) -> bytes:
        assert self._socket is not None
        data = bytearray()
        wanted = 4
        while len(data) < wanted:
            try:
                more = self._socket.recv(1 << 20)
            except OSError as error:
                raise Lost(str(error)) from error
            if not more:
                raise Lost("it ended")
            data += more
            if wanted == 4 and len(data) >= 4:
                wanted += int.from_bytes(data[:4], "big")
        if len(data) > wanted:
            raise Lost("it said more than it was asked")
        return bytes(data[4:])


Question = tuple[Interpreter, Request]


def ask(questions: Sequence[Question], *, careful: bool = False) -> list[Reply] | None:
    """The replies of several interpreters at once; None if one is not to be had.

    An interpreter that is lost is started anew and asked again, carefully: it may be the question
    that ended it. Raises NoIsolation if it does not start any more.
    """
    replies: dict[int, Reply] = {}
    try:
        for attempt in range(ATTEMPTS):
            sent = []
            for number, (interpreter, request) in enumerate(questions):
                if number in replies:
                    continue
                try:
                    interpreter.send(request, careful=careful or attempt > 0)
                    sent.append(number)
                except Lost:
                    interpreter.stop()
            for number in sent:
                try:
                    replies[number] = questions[number][0].receive()
                except Lost:
                    questions[number][0].stop()
            if len(replies) == len(questions):
                return [replies[number] for number in range(len(questions))]
    except BaseException:
        # Interrupted: a reply that nobody took would be taken for that to the next question.
        for interpreter, _ in questions:
            interpreter.stop()
        raise
    return None


_all: weakref.WeakSet[Interpreter] = weakref.WeakSet()


def _forget_all() -> None:
    for interpreter in _all:
        interpreter.forget()


# A fork of this process would talk to the zygotes in between, end them when it is done with them,
# and keep them alive when this process is gone.
os.register_at_fork(after_in_child=_forget_all)
