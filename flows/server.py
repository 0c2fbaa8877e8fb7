"""The Prefect server that a campaign is seen through: the one that is there, or a temporary one.

A temporary server is Prefect's own, in a child process, on the same SQLite file under
`prefect_home` as the standing server of `seedbed up`: what a campaign published is there to be read
later. It watches its parent: when that ends, however it ends, the server ends too. `python -m
flows.server` is that child.
"""

import asyncio
import fcntl
import os
import runpy
import secrets
import select
import signal
import socket
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
    temporary_settings,
)

from flows.settings import Settings
from flows.standing_file import read_standing

HOST = "127.0.0.1"
# A first start migrates an empty database: 10 s alone, a minute where tests share the processors.
START_SECONDS = 120.0
STOP_SECONDS = 5.0  # after SIGTERM; a server that is not stuck takes a fraction of one
_POLL_SECONDS = 0.05
_LEASES = "prefect.server.concurrency.lease_storage.filesystem"
_PORTS = range(
    20_000, 32_768
)  # below Linux's ephemeral ports, so no outgoing connection takes one meanwhile
_LOG_LINES = 15  # of the log in an error
# What a server must not do, or has no use for, when it lasts for one campaign: schedules are the
# standing server's.
_IDLE_SERVICES = (
    "CANCELLATION_CLEANUP",
    "CLEANUP_RECONCILER",
    "FOREMAN",
    "LATE_RUNS",
    "PAUSE_EXPIRATIONS",
    "REPOSSESSOR",
    "SCHEDULER",
    "TRIGGERS",
)


class ServerFailed(RuntimeError):
    """A Prefect server that did not come up. The message says why, with the end of its log."""


@asynccontextmanager
async def choose_server(settings: Settings) -> AsyncIterator[str]:
    """The API's URL of the server to use, which the Prefect settings of this context name too.

    That is the one in `PREFECT_API_URL`, else the standing one of `seedbed up` if it answers, else
    a temporary one, whose log is `prefect/temporary.log` under the home folder.
    """
    url = PREFECT_API_URL.value()
    if not url:
        standing = read_standing(settings.prefect_home)
        url = standing.url if standing and answers(standing.url) else ""
    if not url:
        async with temporary_server(
            settings.prefect_home, settings.prefect_home / "temporary.log"
        ) as url:
            yield url
        return
    with temporary_settings({PREFECT_API_URL: url, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False}):
        yield url


@asynccontextmanager
async def temporary_server(prefect_home: Path, log: Path) -> AsyncIterator[str]:
    """A Prefect server on a free loopback port, for as long as this context and this process last.

    Yields the API's URL; inside the context, Prefect's settings name it. `log` is made anew. Raises
    ServerFailed if the server ended, or has not answered after two minutes.
    """
    prefect_home.mkdir(parents=True, exist_ok=True)
    async with _starting(prefect_home):
        server, url = await _start(prefect_home, log)
    try:
        # Heartbeats tell a standing server of dead runs. This one dies with them.
        with temporary_settings(
            {
                PREFECT_API_URL: url,
                PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False,
                PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
            }
        ):
            yield url
    finally:
        await _stop(server)


def server_environment(prefect_home: Path, port: int) -> dict[str, str]:
    """The whole environment of a server that we start.

    No Prefect setting of the user's, no key of a model's provider, no report to anybody.
    """
    passed = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG", "TMPDIR", "TZ")
        if name in os.environ
    }
    return passed | {
        "PREFECT_HOME": str(prefect_home),
        "PREFECT_SERVER_API_HOST": HOST,
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5",  # until a new schedule has runs
        "DO_NOT_TRACK": "1",
        "NO_COLOR": "1",
        # On disk, so that slots of a dead process are freed even if the server restarts meanwhile.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": _LEASES,
    }


def answers(url: str) -> bool:
    """Whether a Prefect API at `url` says that it is well."""
    try:
        return httpx.get(f"{url}/health", timeout=5.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


async def wait_until(
    ready: Callable[[], bool], alive: Callable[[], bool], what: str, log: Path
) -> None:
    """Wait until `ready()`. Raises ServerFailed if `alive()` ends before, or after two minutes."""
    give_up = time.monotonic() + START_SECONDS
    found = "it ended"
    while alive():
        if await asyncio.to_thread(ready):
            return
        if time.monotonic() > give_up:
            found = f"it is not ready after {START_SECONDS:.0f} s"
            break
        await asyncio.sleep(_POLL_SECONDS)
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    raise ServerFailed(
        f"wanted {what}, found that {found}; its log {str(log)!r} ends with what to look into:\n"
        + "\n".join(lines)
    )


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A loopback port that nobody listens on."""
    while not port_is_free(port := _PORTS[secrets.randbelow(len(_PORTS))]):
        pass
    return port


def api_url(port: int) -> str:
    return f"http://{HOST}:{port}/api"


async def _start(prefect_home: Path, log: Path) -> tuple[Process, str]:
    port = free_port()
    environment = server_environment(prefect_home, port) | {"PREFECT_SERVER_UI_ENABLED": "false"}
    environment |= {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in _IDLE_SERVICES}
    with log.open("wb") as output:
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "flows.server"),
            stdin=PIPE,  # never written to: its end tells the server that this process has ended
            stdout=output,
            stderr=output,
            env=environment,
            cwd=prefect_home,
            start_new_session=True,  # Ctrl-C is the campaign's, which goes on to publish
        )
    try:
        url = api_url(port)
        await wait_until(
            lambda: answers(url),
            lambda: server.returncode is None,
            f"a temporary Prefect server at {url}",
            log,
        )
    except BaseException:
        await _stop(server)
        raise
    return server, url


async def _stop(server: Process) -> None:
    assert server.stdin is not None
    server.stdin.close()
    try:
        await asyncio.wait_for(server.wait(), 2 * STOP_SECONDS)
    except TimeoutError:
        server.kill()
        await server.wait()


@asynccontextmanager
async def _starting(prefect_home: Path) -> AsyncIterator[None]:
    """One server at a time starts on a database: two that migrate an empty one at once fail."""
    with (prefect_home / "starting.lock").open("wb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_SECONDS)
        yield  # closing the file lets go of the lock


def _watch_parent(parent: int) -> None:
    """End this process when its parent has ended: by SIGTERM first, so that events are written."""
    while os.getppid() == parent and not select.select([0], [], [], 1.0)[0]:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os._exit(1)


def _serve() -> None:
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    sys.argv = ["prefect", "server", "start"]
    runpy.run_module("prefect", run_name="__main__")


if __name__ == "__main__":
    _serve()
