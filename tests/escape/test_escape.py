"""Nothing gets out of a jail, at either level, and each of its walls is one that is missed."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from substrate.isolation import HIDDEN, NoWalls, best_level, why_not
from substrate.walls import Level, jail_user

from .yard import Found, Yard, open_yard

REPO = Path(__file__).parents[2]
NOBODY = 65534
LEVELS: tuple[Level, ...] = ("bubblewrap", "landlock")


@pytest.fixture
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    home = tmp_path_factory.mktemp("yard")
    for folder in (home, *home.parents[:2]):
        folder.chmod(0o755)
    with open_yard(home) as opened:
        yield opened


def stands(level: Level) -> None:
    if (reason := why_not(level)) is not None:
        pytest.skip(f"wanted {level} here: {reason}")


def attempted(yard: Yard, level: Level, change: Any = None) -> Found:
    """What came of all attempts, with the orders as they are or changed.

    A jail that cannot be made any more has come to nothing as well: its program never ran.
    """
    with jail_user() as user:
        orders = yard.orders(level, user, in_python_only=change is not None)
        if change is not None:
            change(orders)
        try:
            return asyncio.run(yard.run(orders))
        except RuntimeError as error:
            return Found([], [str(error)], [])


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_gets_out_and_honest_programs_have_what_they_need(yard: Yard, level: Level) -> None:
    stands(level)
    found = attempted(yard, level)
    assert len(found.made) >= 40
    assert (found.through, found.failed) == ([], [])


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="wanted root, who may become somebody else")
def test_nothing_gets_out_of_the_jails_of_a_user_without_privileges(tmp_path: Path) -> None:
    python = next((path for path in ("/usr/bin/python3", sys.executable) if within_reach(path)), "")
    if not python or shutil.which("setpriv") is None:
        pytest.skip("wanted setpriv and a Python of our version that any user may start")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    own = tmp_path / "own"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    run = subprocess.run(
        [
            *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"),
            *(python, "-B", "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow", "-rs"),
            *(f"--basetemp={own / 'pytest'}", __file__),
        ],
        cwd=REPO,
        env={"PATH": os.defpath, "HOME": str(own), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
    assert "3 passed" in run.stdout


def within_reach(python: str) -> bool:
    """Whether everybody may start this Python and it has our version."""
    path = Path(python).resolve()
    if not path.is_file() or not all(up.stat().st_mode & 1 for up in (REPO, *path.parents)):
        return False
    asked = [python, "-I", "-c", "import sys; print(*sys.version_info[:2])"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return said.split() == [str(part) for part in sys.version_info[:2]]


def test_where_both_levels_are_hidden_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDDEN, "bubblewrap,landlock")
    with pytest.raises(NoWalls):
        best_level()


# Each wall taken away, one at a time, is missed by an attempt or by an honest need.

Orders = dict[str, Any]


def without_row(number: int) -> Any:
    return lambda orders: orders["rows"].pop(number)


def writable_row(number: int) -> Any:
    def change(orders: Orders) -> None:
        row = orders["rows"][number]
        orders["rows"][number] = ("--bind", *row[1:])

    return change


def unlimited_row(number: int) -> Any:
    """A row without its option, which stands before the one that mounts."""
    return lambda orders: orders["rows"].__setitem__(number, tuple(orders["rows"][number][2:]))


def mutations_of(orders: Orders, level: Level, key: str) -> Iterator[tuple[str, Any]]:
    """Each piece of the orders that is a wall, by name, and how to take it away."""
    if level == "landlock":
        options = orders["confine"]
        for flag in ("--no-sockets", "--shared-user"):
            if flag in options:
                yield f"confine: {flag}", lambda o, f=flag: o["confine"].remove(f)
        shelf = options.index(next(word for word in options if word.endswith("/shelf")))
        home = options[shelf].removesuffix("/shelf")
        yield "confine: the shelf", lambda o: o["confine"].__setitem__(shelf - 1, "--write")
        yield "confine: read home", lambda o: o["confine"].__setitem__(shelf, home)
    for number, row in enumerate(orders.get("rows", ())):
        name = " ".join(word for word in row if isinstance(word, str))
        if row[0] == "--die-with-parent":
            continue  # see below
        yield f"row: {name}", without_row(number)
        if row[0] == "--ro-bind":
            yield f"writable: {name}", writable_row(number)
        if row[0] in ("--perms", "--size"):
            yield f"unlimited: {name}", unlimited_row(number)
    if level == "bubblewrap":
        yield "filter", lambda o: o.update(filter=b"")
    if orders["user"] is not None:
        yield "user", lambda o: o.update(user=None)
    yield "limit of a file", lambda o: o["limits"].update(file_mb=1000)
    yield "wall of the environment", lambda o: o["env"].update(API_KEY=key)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", LEVELS)
def test_each_wall_taken_away_is_missed(yard: Yard, level: Level) -> None:
    stands(level)
    with jail_user() as user:
        mutations = list(
            mutations_of(yard.orders(level, user, in_python_only=True), level, yard.facts["key"])
        )
    assert len(mutations) > (40 if level == "bubblewrap" else 4)
    unnoticed = [name for name, change in mutations if not attempted(yard, level, change)]
    assert unnoticed == []
