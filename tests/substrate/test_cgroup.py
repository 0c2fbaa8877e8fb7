"""Control groups of jails: limits that hold between two looks of the keeper, and no group left."""

import asyncio
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.cgroup import PREFIX, clear
from substrate.cgroup_parents import cgroup_parents, why_no_cgroups
from substrate.interpreter import python_places
from substrate.isolation import why_not
from substrate.jail import Ending, KeeperLost, Limits, run_jailed
from substrate.walls import HIDDEN, NO_WALLS, Walls

UNIFIED = Path("/sys/fs/cgroup/unified")

# Stops the keeper, so that it cannot look, until the program is dead.
BLIND = """
import os, signal, sys
keeper, program = os.getppid(), os.getpid()
os.kill(keeper, signal.SIGSTOP)
if os.fork() == 0:
    while os.getppid() == program:
        pass
    os.kill(keeper, signal.SIGCONT)
    os._exit(0)
"""
ALLOCATE = "held = b'x' * (300 << 20)"
FORK_BOMB = """
import time
started = 0
while True:
    try:
        if os.fork() == 0:
            open(f'{os.getpid()}.pid', 'w').close()
            time.sleep(60)
        started += 1
    except BlockingIOError:
        os.write(1, b'%d' % started)
        os._exit(0)
"""


@pytest.fixture
def groups() -> Iterator[None]:
    """A machine with control groups, none of which a test leaves behind."""
    if (reason := why_no_cgroups()) is not None:
        pytest.skip(f"wanted control groups here: {reason}")
    yield
    found = left_behind()
    assert [folder for folder in found if folder in left_behind()] == []


@pytest.fixture(params=["with control groups", "without"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without":
        monkeypatch.setenv(HIDDEN, "cgroups")
    else:
        request.getfixturevalue("groups")


def left_behind() -> list[Path]:
    """The groups of jails that no keeper holds; other tests may run jails of theirs meanwhile."""
    found = [folder for parent in cgroup_parents() for folder in Path(parent).glob(f"{PREFIX}*")]
    return [folder for folder in found if not is_held(folder)]


def is_held(folder: Path) -> bool:
    lock = -1
    try:
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, FileNotFoundError):
        return True  # or removed meanwhile by its keeper
    finally:
        if lock >= 0:
            os.close(lock)
    return False


def jail(
    folder: Path, code: str, *, memory_mb: int = 200, processes: int = 100, walls: Walls = NO_WALLS
) -> Ending:
    limits = Limits(seconds=30, memory_mb=memory_mb, file_mb=400, processes=processes)
    argv = [sys.executable, "-I", "-S", "-c", code]
    log = folder.with_suffix(".log")
    return asyncio.run(run_jailed(argv, cwd=folder, env={}, limits=limits, log=log, walls=walls))


def living(folder: Path) -> list[str]:
    """Of the processes that left their names: those that are there."""
    return [file.stem for file in folder.glob("*.pid") if Path(f"/proc/{file.stem}").exists()]


@pytest.mark.usefixtures("either_way")
def test_an_allocation_beyond_the_limit_is_told_as_memory(tmp_path: Path) -> None:
    ending = jail(tmp_path, "import time; held = b'x' * (300 << 20); time.sleep(60)")
    assert (ending.exit_code, ending.signal, ending.limit) == (None, 9, "memory")


@pytest.mark.usefixtures("either_way")
def test_a_fork_bomb_is_told_as_processes_and_none_of_it_lives(tmp_path: Path) -> None:
    endless = FORK_BOMB.replace("os._exit(0)", "time.sleep(60)")
    ending = jail(tmp_path, "import os\n" + endless, processes=10)
    assert (ending.signal, ending.limit) == (9, "processes")
    assert living(tmp_path) == []


@pytest.mark.usefixtures("groups")
def test_the_limit_on_memory_holds_while_the_keeper_does_not_look(tmp_path: Path) -> None:
    ending = jail(tmp_path, BLIND + ALLOCATE)
    assert (ending.exit_code, ending.signal, ending.limit) == (None, 9, "memory")
    assert ending.peak_memory_mb == 200


@pytest.mark.usefixtures("groups")
def test_the_limit_on_tasks_holds_while_the_keeper_does_not_look(tmp_path: Path) -> None:
    ending = jail(tmp_path, BLIND + FORK_BOMB, processes=4)
    assert ending.exit_code == 0
    # 16 tasks for each process of the limit; the program and its helper are two of them.
    assert int(tmp_path.with_suffix(".log").read_text()) == 4 * 16 - 2
    assert living(tmp_path) == []


@pytest.mark.usefixtures("groups")
def test_a_child_killed_for_memory_is_told_though_the_program_goes_on(tmp_path: Path) -> None:
    code = """
import os
if os.fork() == 0:
    held = b'x' * (300 << 20)
    os._exit(0)
os.wait()
"""
    assert jail(tmp_path, code).limit == "memory"


@pytest.mark.usefixtures("groups")
def test_files_in_memory_count_as_memory(tmp_path: Path) -> None:
    if (reason := why_not("bubblewrap")) is not None:
        pytest.skip(f"wanted bubblewrap here: {reason}")
    desk = tmp_path / "desk"
    desk.mkdir()
    walls = Walls(level="bubblewrap", writable=(desk,), readable=python_places(sys.executable))
    code = "open('/tmp/full', 'wb').writelines(bytes(1 << 20) for _ in range({}))"
    assert jail(desk, code.format(50), memory_mb=100, walls=walls).exit_code == 0
    assert jail(desk, code.format(150), memory_mb=100, walls=walls).limit == "memory"


@pytest.mark.usefixtures("groups")
def test_what_a_killed_keeper_leaves_is_killed_and_removed_though_it_hides(tmp_path: Path) -> None:
    code = """
import os, signal
keeper = os.getppid()
if os.fork() == 0:
    os.setsid()
    os.execve('/bin/sh', ['sh', '-c', 'echo > $$.pid; kill -9 "$1"; sleep 60', '', str(keeper)], {})
signal.pause()
"""
    with pytest.raises(KeeperLost):
        jail(tmp_path, code)
    assert len(list(tmp_path.glob("*.pid"))) == 1
    assert [pid for pid in living(tmp_path) if "Z" not in state(pid)] == []


def state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.usefixtures("groups")
def test_a_jail_removes_the_groups_of_dead_keepers_and_none_of_the_living(tmp_path: Path) -> None:
    stale, held = (
        [Path(parent) / f"{PREFIX}{name}" for parent in cgroup_parents()]
        for name in ("of-the-dead", "of-the-living")
    )
    for folder in (*stale, *held):
        folder.mkdir()
    locks = [os.open(folder, os.O_RDONLY) for folder in held]
    straggler = subprocess.Popen(["sleep", "60"])
    try:
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in stale:
            (folder / "cgroup.procs").write_text(str(straggler.pid))
        assert jail(tmp_path, "").exit_code == 0
        assert straggler.wait(10) == -9
        assert not any(folder.exists() for folder in stale)
        assert all(folder.exists() for folder in held)
    finally:
        straggler.kill()
        for lock in locks:
            os.close(lock)
        for folder in (*stale, *held):
            clear(str(folder))


def test_hidden_control_groups_are_had_nowhere_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(HIDDEN, "cgroups")
    assert cgroup_parents() == ()
    assert why_no_cgroups() == f"hidden by {HIDDEN}"


def test_a_group_of_version_2_is_killed_and_removed_as_a_whole() -> None:
    # Its limits are tried nowhere: here the controllers belong to version 1, if there are any.
    folder = UNIFIED / f"{PREFIX}{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"wanted a hierarchy of version 2 to write in: {error}")
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as process:
        (folder / "cgroup.procs").write_text(str(process.pid))
        clear(str(folder))
        assert process.wait(10) == -9
    assert not folder.exists()
