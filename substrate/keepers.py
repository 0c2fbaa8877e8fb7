"""Keepers as their controller sees them: forked by a warm mother, talked to by a socket."""

import asyncio
import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

# By module, so that its byte code is kept; behind the standard library, so that nothing hides it.
_MOTHER = "import sys; sys.path.append(sys.argv[1]); from substrate.mother import main; main()"
_ROOT = Path(__file__).resolve().parent.parent
PATIENCE_SECONDS = 30.0  # what a keeper may need beyond its program's time on a loaded machine
_LOCK = threading.Lock()  # jails are started from many threads
_mothers: dict[int, tuple[subprocess.Popen[bytes], socket.socket]] = {}  # one, by our process id


class KeeperLost(RuntimeError):
    """The keeper was killed or stopped, by the kernel or by what it kept: nothing is known."""


class Keeper:
    """One keeper, which knows that its controller lives until that hangs up or is gone."""

    def __init__(
        self,
        pid: int,
        talk: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        status: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.is_gone = False
        self.returncode: int | None = None  # None also where its mother died before it
        self._pid = pid
        self._reader, self._writer = talk
        self._status, self._status_writer = status

    async def converse(self, orders: bytes) -> bytes:
        """Give it its orders and wait for its answer; empty if it died without one."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(orders)
            await self._writer.drain()
        with contextlib.suppress(ConnectionError):  # it died with orders unread
            if answer := await self._reader.read():
                self.is_gone = True  # all but: there is nothing left for it to do
                return answer
        return await self.wait()

    def hang_up(self) -> None:
        """Order it to kill its tree and to end."""
        self._writer.write_eof()

    async def wait(self) -> bytes:
        """Wait until it is gone, and return what it had still to say."""
        said = b""
        with contextlib.suppress(ConnectionError):  # it died with orders unread
            said = await self._reader.read()
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            how = int.from_bytes(await self._status.readexactly(4), "big")
            self.returncode = os.waitstatus_to_exitcode(how)
        self.is_gone = True
        return said

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it is gone."""
        if not self.is_gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def close(self) -> None:
        """Let go of it, once it is gone or given up."""
        self._writer.close()
        self._status_writer.close()


async def start_keeper(log: int) -> Keeper:
    """Start a keeper whose stderr is `log`. Raises OSError, and KeeperLost without a mother."""
    talk, its_talk = socket.socketpair()
    status, its_status = socket.socketpair()
    try:
        with its_talk, its_status:
            _ask([its_talk.fileno(), log, its_status.fileno()])
        told, status_writer = await asyncio.open_unix_connection(sock=status)
        async with asyncio.timeout(PATIENCE_SECONDS):
            pid = int.from_bytes(await told.readexactly(4), "big")
        reader, writer = await asyncio.open_unix_connection(sock=talk)
    except BaseException as error:
        talk.close()
        status.close()
        if isinstance(error, asyncio.IncompleteReadError | TimeoutError):
            with _LOCK:
                _let_go()  # the next has another
            raise KeeperLost(
                "wanted a keeper, found its mother killed or stopped; run again"
            ) from error
        raise
    return Keeper(pid, (reader, writer), (told, status_writer))


def _ask(descriptors: list[int]) -> None:
    with _LOCK:
        for is_last in (False, True):
            _, requests = _mothers.get(os.getpid()) or _new_mother()
            try:
                socket.send_fds(requests, [b"k"], descriptors)
                return
            except ConnectionError:  # somebody killed her
                _let_go()
                if is_last:
                    raise


def _new_mother() -> tuple[subprocess.Popen[bytes], socket.socket]:
    _mothers.clear()  # after a fork it is our parent's
    requests, hers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with hers:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", "-c", _MOTHER, str(_ROOT)],
            stdin=hers.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},  # the program could read its keeper's in /proc
            start_new_session=True,
        )
    _mothers[os.getpid()] = process, requests
    return process, requests


@atexit.register
def _let_go() -> None:
    """End our mother of keepers. The keepers go on without her."""
    mother = _mothers.pop(os.getpid(), None)
    if mother is not None:
        process, requests = mother
        requests.close()
        process.kill()  # she may have been stopped
        process.wait()
