"""The control group of one jail: the kernel's own limits on its tree, and a kill that none outruns.

Both versions of cgroups(7). In version 1 memory and pids are two hierarchies, so a jail has a
folder in each; in version 2 it has one. `substrate/cgroup_parents.py` says where they may be made;
where nowhere, a jail has none, and all of this does nothing.

The keeper holds a lock on each folder. It goes with the keeper, however that ends: a folder that
nobody holds is a dead keeper's, and the next jail removes it with all that lives in it.
"""

import fcntl
import os
import time
from collections.abc import Iterable

PREFIX = "seedbed-jail-"
SIGKILL = 9
_FIRST_PAUSE_SECONDS = 0.0005  # after the first try to remove; doubled after each
_TRIES = 13  # 4 s together; what the kernel cannot kill by then is left to the next jail


class Cgroup:
    """A control group below each of `parents`, with its limits, made anew.

    Memory is all that the kernel charges: pages of programs, their files in tmpfs, and what it
    holds for them itself. Files on a disk are charged too, but given up when room is short. No swap
    is had. Raises OSError.
    """

    def __init__(self, parents: Iterable[str], name: str, *, memory_bytes: int, tasks: int) -> None:
        self.folders: list[str] = []
        self._locks: list[int] = []
        for parent in parents:
            _sweep(parent)
            folder = os.path.join(parent, name)
            self._locks.append(_made(folder))
            self.folders.append(folder)
            for file, value in _limits(memory_bytes, tasks):
                if os.path.exists(f"{folder}/{file}"):
                    _write(f"{folder}/{file}", value)

    def enter(self, pid: int = 0) -> None:
        """Put a process into it, by itself or by its id; what it starts is born there."""
        for folder in self.folders:
            _write(f"{folder}/cgroup.procs", str(pid))

    def ran_out(self) -> bool:
        """Whether the kernel has killed in it because its memory was used up."""
        for folder in self.folders:
            for file in ("memory.events", "memory.oom_control"):  # of version 2, of version 1
                for line in _read(f"{folder}/{file}").splitlines():
                    if line.startswith("oom_kill ") and int(line.split()[1]) > 0:
                        return True
        return False

    def kill(self) -> None:
        """SIGKILL all that is in it, and let nothing be started there any more."""
        for folder in self.folders:
            _kill(folder)

    def remove(self) -> None:
        """Kill what is in it and remove it."""
        for folder, lock in zip(self.folders, self._locks, strict=True):
            clear(folder)
            os.close(lock)


def clear(folder: str) -> None:
    """Kill all that is in a control group and remove it; nothing where there is none.

    Tried for about 4 s.
    """
    pause = _FIRST_PAUSE_SECONDS
    for _ in range(_TRIES):
        try:
            os.rmdir(folder)  # refused while a process is in it
            return
        except FileNotFoundError:
            return
        except OSError:
            _kill(folder)
        time.sleep(pause)
        pause *= 2


def _limits(memory_bytes: int, tasks: int) -> list[tuple[str, str]]:
    """The files of limits, of both versions, in the order in which they are to be written."""
    memory = str(memory_bytes)
    return [
        ("memory.limit_in_bytes", memory),
        ("memory.memsw.limit_in_bytes", memory),  # memory and swap; not there without swap
        ("memory.swappiness", "0"),
        ("memory.max", memory),
        ("memory.swap.max", "0"),
        ("memory.oom.group", "1"),  # one that must go takes all with it
        ("pids.max", str(tasks)),
    ]


def _kill(folder: str) -> None:
    try:
        if os.path.exists(f"{folder}/cgroup.kill"):  # version 2, since Linux 5.14
            _write(f"{folder}/cgroup.kill", "1")
            return
        if os.path.exists(f"{folder}/pids.max"):
            _write(f"{folder}/pids.max", "0")  # from here on it can but shrink
    except OSError:
        return  # gone meanwhile
    for pid in map(int, _read(f"{folder}/cgroup.procs").split()):
        if pid <= 0:
            continue  # of another pid namespace; to kill(2) it would be our own group
        try:
            os.kill(pid, SIGKILL)
        except OSError:
            continue  # ended meanwhile


def _made(folder: str) -> int:
    """Make the folder of a control group. Returns a descriptor that holds its lock."""
    while True:
        os.mkdir(folder)
        lock = -1
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.stat(folder).st_ino == os.fstat(lock).st_ino:
                return lock
        except FileNotFoundError:
            pass  # another jail took it for a dead keeper's before it was locked
        if lock >= 0:
            os.close(lock)


def _sweep(parent: str) -> None:
    """Clear what dead keepers left."""
    for name in os.listdir(parent):
        if not name.startswith(PREFIX):
            continue
        folder = os.path.join(parent, name)
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # gone meanwhile
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            clear(folder)
        except BlockingIOError:
            continue  # its keeper lives
        finally:
            os.close(lock)


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _read(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode()
    except OSError:
        return ""
