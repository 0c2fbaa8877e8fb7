"""A jail with walls: it keeps what every jail keeps, its table is in order, its user its own."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from substrate.interpreter import python_places
from substrate.isolation import why_not
from substrate.jail import Ending, Limits, jail_orders, keep, run_jailed
from substrate.walls import USERS, Level, Walls, bubblewrap_rows, jail_user

ROOM = {"seconds": 30.0, "grace_seconds": 0.3, "memory_mb": 512, "file_mb": 64}
IS_ROOT = os.geteuid() == 0

# Starts five daemons that fork twice, leave the session and ignore what can be ignored, each under
# an environment of its own, so that no mark of the jail is on it; then does what it is told.
DAEMONS = """
import os, signal, sys, time
for i in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            open(f"{i}.up", "w").close()
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c",
                      "import time; time.sleep(60)", sys.argv[2]], {})
        os._exit(0)
while not all(os.path.exists(f"{i}.up") for i in range(5)):
    time.sleep(0.005)
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture(params=["bubblewrap", "landlock"])
def level(request: pytest.FixtureRequest) -> Level:
    if (reason := why_not(request.param)) is not None:
        pytest.skip(f"wanted {request.param} here: {reason}")
    return request.param


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "desk").mkdir()
    return tmp_path / "desk"


def walls(level: Level, desk: Path, *readable: Path) -> Walls:
    places = (*readable, *python_places(sys.executable))
    return Walls(level=level, writable=(desk,), readable=places)


def jailed(level: Level, desk: Path, *argv: str, stdin: bytes = b"", **limits: Any) -> Ending:
    return asyncio.run(
        run_jailed(
            argv,
            cwd=desk,
            env={},
            limits=Limits(**(ROOM | limits)),
            log=desk.parent / "log",
            walls=walls(level, desk),
            stdin=stdin,
        )
    )


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code, *arguments)


def log_of(desk: Path) -> str:
    return (desk.parent / "log").read_text()


def marked(mark: str) -> list[int]:
    """The processes of this machine that have the mark among their arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        ("exit 0", (0, None)),
        ("exit 77", (77, None)),
        ("exit 125", (125, None)),
        ("exit 127", (127, None)),
        ("kill -9 $$", (None, 9)),
        ("kill -11 $$", (None, 11)),
    ],
)
def test_a_program_ends_as_it_would_without_walls(
    level: Level, desk: Path, script: str, ending: tuple[int | None, int | None]
) -> None:
    found = jailed(level, desk, "sh", "-c", script)
    assert (found.exit_code, found.signal, found.limit) == (*ending, None)


def test_a_program_that_is_not_there_is_no_fault_of_the_walls(level: Level, desk: Path) -> None:
    assert jailed(level, desk, "/no/such/program").exit_code == 127
    assert "cannot start '/no/such/program'" in log_of(desk)


def test_walls_that_cannot_be_made_start_nothing(level: Level, desk: Path) -> None:
    async def run() -> None:
        with jail_user() as user:
            orders = jail_orders(
                ["touch", "started"],
                cwd=desk,
                env={},
                limits=Limits(**ROOM),
                walls=walls(level, desk, desk.parent / "not-there"),
                user=user,
            )
            await keep(orders, log=desk.parent / "log")

    with pytest.raises(RuntimeError, match=f"wanted the walls of {level} around 'touch'"):
        asyncio.run(run())
    assert list(desk.iterdir()) == []


def test_input_output_and_environment_pass_through_the_walls(level: Level, desk: Path) -> None:
    jailed(level, desk, "sh", "-c", "cat; env | sort; pwd", stdin=b"given\n")
    given, *variables, folder = log_of(desk).splitlines()
    names = {line.partition("=")[0] for line in variables} - {"_", "SHLVL", "OLDPWD"}
    assert given == "given" and folder == str(desk)
    assert names == {
        "PATH", "LANG", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "HOME", "TMPDIR", "PWD",
        "SEEDBED_JAIL",
    }  # fmt: skip


@pytest.mark.parametrize("before", ["", "kill -STOP $$;"], ids=["running", "stopped"])
def test_a_program_may_deliver_within_its_grace(level: Level, desk: Path, before: str) -> None:
    script = f"trap 'echo saved > kept; exit 3' TERM; {before} while :; do sleep 0.02; done"
    ending = jailed(level, desk, "sh", "-c", script, seconds=1.0, grace_seconds=20.0)
    assert (ending.exit_code, ending.signal, ending.limit) == (3, None, "seconds")
    assert (desk / "kept").read_text() == "saved\n"


@pytest.mark.parametrize(
    ("wait", "limits"), [("0", {}), ("60", {"seconds": 2.0})], ids=["exit", "time limit"]
)
def test_no_daemon_survives(level: Level, desk: Path, wait: str, limits: dict[str, Any]) -> None:
    mark = f"seedbed-daemon-{os.urandom(4).hex()}"
    jailed(level, desk, *python(DAEMONS, wait, mark), **limits)
    assert len(list(desk.glob("*.up"))) == 5
    assert marked(mark) == []


def test_memory_and_processes_are_limited_for_the_tree(level: Level, desk: Path) -> None:
    hoard = "import time\nheld = []\nwhile True:\n held.append(b'x' * (1 << 20))\n time.sleep(.001)"
    assert jailed(level, desk, *python(hoard), memory_mb=100).limit == "memory"
    bomb = (
        "import os, time\nfor _ in range(40):\n if os.fork() == 0: time.sleep(60)\ntime.sleep(60)"
    )
    assert jailed(level, desk, *python(bomb), processes=20).limit == "processes"
    few = "import os, time\nfor _ in range(18):\n if os.fork() == 0: time.sleep(.5); os._exit(0)"
    assert jailed(level, desk, *python(few), processes=20).limit is None  # the walls' do not count


def test_a_cancelled_jail_leaves_nothing(level: Level, desk: Path) -> None:
    mark = f"seedbed-daemon-{os.urandom(4).hex()}"

    async def cancel() -> None:
        running = asyncio.create_task(
            run_jailed(
                python(DAEMONS, "60", mark),
                cwd=desk,
                env={},
                limits=Limits(**ROOM),
                log=desk.parent / "log",
                walls=walls(level, desk),
            )
        )
        while len(list(desk.glob("*.up"))) < 5:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())
    assert marked(mark) == []


@pytest.mark.parametrize("flag", [True, False], ids=["as it is", "without --die-with-parent"])
def test_what_has_lost_its_keeper_dies_with_it_by_one_row(desk: Path, flag: bool) -> None:
    if (reason := why_not("bubblewrap")) is not None:
        pytest.skip(f"wanted bubblewrap here: {reason}")
    mark = f"seedbed-daemon-{os.urandom(4).hex()}"

    async def kill_the_keeper() -> None:
        with jail_user() as user:
            orders = jail_orders(
                python(DAEMONS, "0.3", mark),
                cwd=desk,
                env={},
                limits=Limits(**ROOM),
                walls=walls("bubblewrap", desk),
                user=user,
            )
            orders["cgroup_parents"] = []  # the controller would kill by them
            if not flag:
                orders["rows"].remove(("--die-with-parent",))
            running = asyncio.create_task(keep(orders, log=desk.parent / "log"))
            while len(marked(mark)) < 5:
                await asyncio.sleep(0.01)
            status = Path(f"/proc/{_ancestor(marked(mark)[0])}/status").read_text()
            os.kill(int(status.split("PPid:")[1].split()[0]), signal.SIGKILL)
            with pytest.raises(RuntimeError, match="wanted an Ending from the keeper"):
                await running

    try:
        asyncio.run(kill_the_keeper())
        give_up = time.monotonic() + (10 if flag else 0.5)
        while marked(mark) and time.monotonic() < give_up:
            time.sleep(0.02)
        assert bool(marked(mark)) is not flag
    finally:
        for pid in marked(mark):
            with contextlib.suppress(ProcessLookupError):  # one of them takes all with it
                os.kill(pid, signal.SIGKILL)


def test_a_writable_folder_within_what_may_be_read_is_refused(desk: Path) -> None:
    with pytest.raises(ValueError, match="move SEEDBED_HOME"):
        walls("bubblewrap", desk, desk.parent)


def test_an_inner_place_is_mounted_after_the_one_that_would_hide_it(tmp_path: Path) -> None:
    outer, inner = tmp_path / "a" / "shelf", tmp_path / "a" / "shelf" / "deep" / "b"
    fork, scratch = tmp_path / "fork", Path(tempfile.gettempdir()) / "scratch"
    for folder in (inner, fork):
        folder.mkdir(parents=True)
    rows = bubblewrap_rows(
        Walls(level="bubblewrap", writable=(fork,), readable=(inner, outer)),
        scratch=scratch,
        user=None,
    )
    mounts = ("--ro-bind", "--bind", "--dev-bind", "--tmpfs", "--dev", "--proc")
    targets = [str(row[-1]) for row in rows if any(option in row for option in mounts)]
    assert str(outer) in targets and str(inner) not in targets  # there already
    for number, target in enumerate(targets):
        assert [one for one in targets[number:] if target.startswith(f"{one}/")] == []
    assert rows[-1] == ("--remount-ro", "/")


@pytest.mark.skipif(not IS_ROOT, reason="wanted root, who has users to give")
def test_jails_that_run_at_once_have_a_user_each_and_files_of_their_own(desk: Path) -> None:
    with jail_user() as first, jail_user() as second:
        assert first != second and first in USERS and second in USERS
    if why_not("bubblewrap") is None:
        jailed("bubblewrap", desk, "sh", "-c", "id -u > user; id -un >> user")
        user, name = (desk / "user").read_text().split()
        assert int(user) in USERS and name == "jail"
        assert (desk / "user").stat().st_uid == int(user)


@pytest.mark.skipif(not IS_ROOT, reason="wanted root, for a home that only root may enter")
def test_a_python_and_a_fork_that_only_root_may_reach_serve_a_jail(level: Level) -> None:
    # As root's own home and a virtual environment below it are.
    with tempfile.TemporaryDirectory() as closed:  # 0700
        desk = Path(closed) / "desk"
        desk.mkdir()
        site = Path(closed) / "site"
        site.mkdir()
        (site / "only_here.py").write_text("VALUE = 7")
        ending = asyncio.run(
            run_jailed(
                python(f"import sys; sys.path.append({str(site)!r}); import only_here as o; "
                       "open('value', 'w').write(str(o.VALUE))"),
                cwd=desk,
                env={},
                limits=Limits(**ROOM),
                log=Path(closed) / "log",
                walls=walls(level, desk, site),
            )
        )  # fmt: skip
        assert (ending.exit_code, (desk / "value").read_text()) == (0, "7")


def _ancestor(pid: int) -> int:
    """The outer bwrap above a process: the highest of that name."""
    found = 0
    while pid > 1:
        status = Path(f"/proc/{pid}/status").read_text()
        found = pid if status.startswith("Name:\tbwrap") else found
        pid = int(status.split("PPid:")[1].split()[0])
    return found


def test_a_folder_is_bound_as_one_only_where_all_that_is_in_it_may_be_read(tmp_path: Path) -> None:
    places = [tmp_path / name / part for name in ("whole", "partly", "ours") for part in ("a", "b")]
    for place in places:
        place.mkdir(parents=True)
        (place / "file").write_text("x")
    (tmp_path / "whole" / "stamp").touch()  # empty: nothing to be read
    (tmp_path / "partly" / "secret").write_text("x")
    (tmp_path / "ours" / "desk").mkdir()
    desk = tmp_path / "ours" / "desk"
    asked = Walls(level="bubblewrap", writable=(desk,), readable=tuple(places))
    rows = bubblewrap_rows(asked, scratch=tmp_path / "scratch", user=None)
    bound = {row[1] for row in rows if row[0] == "--ro-bind" and str(tmp_path) in str(row[1])}
    wanted = ["whole", "partly/a", "partly/b", "ours/a", "ours/b"]
    assert bound == {str(tmp_path / name) for name in wanted}
