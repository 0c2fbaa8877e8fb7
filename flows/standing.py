"""What `seedbed up` starts and `seedbed down` ends: a Prefect server, and served deployments.

Both processes are detached from whoever started them, and known by a state file under
`settings.prefect_home`.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from flows.process import ProcessMark, is_alive, mark, marked_by, send
from flows.server import (
    STOP_SECONDS,
    ServerFailed,
    answers,
    api_url,
    port_is_free,
    server_environment,
    wait_until,
)
from flows.settings import Settings
from flows.standing_file import Standing, alone, read_standing, standing_file

# Prefect gives the runs of a serving process 30 s after SIGTERM, then cancels them.
DRAIN_SECONDS = 40.0
MARK = "SEEDBED_STANDING"  # in the environment of every process that comes of one `up`
SERVED = ("campaign", "resume", "export", "calibrate", "verify")
DEPLOYMENTS = tuple(f"{name}/{name}" for name in SERVED)
_POLL_SECONDS = 0.05


def bring_up(settings: Settings, port: int) -> str:
    """Bring up what is not up yet, and wait until it is ready. Returns the URL of Prefect's UI.

    Raises ServerFailed when the port is taken, or a process does not get ready.
    """
    home = settings.prefect_home
    home.mkdir(parents=True, exist_ok=True)
    with alone(home):
        standing = read_standing(home)
        if standing is None or not _is_up(standing):
            _end(home)
            standing = _start(settings, port)
    return ui_url(standing)


def bring_down(settings: Settings) -> bool:
    """End every process that came of `bring_up`. Returns whether there was one.

    A campaign that runs there is stopped as if by Ctrl-C; what it recorded stays, and it can be
    resumed.
    """
    home = settings.prefect_home
    if not home.is_dir():
        return False
    with alone(home):
        return _end(home)


def ui_url(standing: Standing) -> str:
    return standing.url.removesuffix("/api")


def _start(settings: Settings, port: int) -> Standing:
    if not port_is_free(port):
        raise ServerFailed(
            f"wanted port {port} of loopback for Prefect's server, found that another program "
            "has it; end that program, or choose another port with `seedbed up --port`"
        )
    home, url = settings.prefect_home, api_url(port)
    server_log, serving_log = home / "server.log", home / "deployments.log"
    standing = Standing(url=url, port=port, token=secrets.token_hex(8))
    _write(home, standing)  # before anything is started, so that `down` finds it however this ends
    try:
        server = _detached(
            ["-m", "prefect", "server", "start"],
            server_environment(home, port) | {MARK: standing.token},
            home,
            server_log,
        )
        standing = standing.model_copy(update={"server": server})
        _write(home, standing)
        what = f"Prefect's server at {url}"
        asyncio.run(wait_until(lambda: answers(url), lambda: is_alive(server), what, server_log))

        started = datetime.now(UTC)
        serving = _detached(
            ["-m", "flows.serve"],
            _serving_environment(settings, url) | {MARK: standing.token},
            home,
            serving_log,
        )
        standing = standing.model_copy(update={"deployments": serving})
        _write(home, standing)
        what = f"the deployments {' and '.join(DEPLOYMENTS)} to be served"
        asyncio.run(
            wait_until(
                lambda: _are_served(url, started), lambda: is_alive(serving), what, serving_log
            )
        )
    except BaseException:
        _end(home)
        raise
    return standing


def _end(home: Path) -> bool:
    standing = read_standing(home)
    if standing is None:
        return False
    if standing.deployments is not None:
        # First this one: its runs have something to say to the server yet.
        send(standing.deployments, signal.SIGTERM)
        _wait(standing.deployments, DRAIN_SECONDS)
    _kill(standing, spare=standing.server)
    if standing.server is not None:
        send(standing.server, signal.SIGTERM)
        _wait(standing.server, STOP_SECONDS)
    _kill(standing)
    standing_file(home).unlink()
    return True


def _kill(standing: Standing, spare: ProcessMark | None = None) -> None:
    """SIGKILL what is left of one `up`, the runs of its deployments too, until nothing is."""
    while left := [found for found in marked_by(MARK, standing.token) if found != spare]:
        for process in left:
            send(process, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _is_up(standing: Standing) -> bool:
    processes = (standing.server, standing.deployments)
    return all(process and is_alive(process) for process in processes) and answers(standing.url)


def _are_served(url: str, since: datetime) -> bool:
    """Whether each deployment was asked for its scheduled runs after `since`."""
    for name in DEPLOYMENTS:
        try:
            found = httpx.get(f"{url}/deployments/name/{name}", timeout=5.0, trust_env=False)
        except httpx.HTTPError:
            return False
        polled: Any = found.json().get("last_polled") if found.status_code == 200 else None
        if polled is None or datetime.fromisoformat(polled) < since:
            return False
    return True


def _serving_environment(settings: Settings, url: str) -> dict[str, str]:
    """The user's own, with keys for workers in it, but Prefect's settings are ours."""
    theirs = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return theirs | {
        "SEEDBED_HOME": str(settings.folder),
        "PREFECT_HOME": str(settings.prefect_home),
        "PREFECT_API_URL": url,
        "PREFECT_CLIENT_MAX_RETRIES": "10",  # outlasts a restart of the server
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_RUNNER_POLL_FREQUENCY": "2",  # seconds until a run that a person starts is seen
        "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,agents,policies,substrate",
        "DO_NOT_TRACK": "1",
    }


def _detached(arguments: list[str], env: dict[str, str], cwd: Path, log: Path) -> ProcessMark:
    """Start Python in a session of its own, away from this terminal, and never wait for it."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    process.returncode = 0  # it outlives this process on purpose: no warning that it still runs
    found = mark(process.pid)
    if found is None:
        raise ServerFailed(f"wanted a process of {arguments}, found it dead; see {str(log)!r}")
    return found


def _wait(process: ProcessMark, seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while is_alive(process) and time.monotonic() < give_up:
        time.sleep(_POLL_SECONDS)


def _write(home: Path, standing: Standing) -> None:
    """The whole file or none of it: `down` must find what a killed `up` started."""
    new = standing_file(home).with_suffix(".new")
    new.write_text(standing.model_dump_json(indent=2) + "\n")
    new.replace(standing_file(home))
