"""Nothing gets out of a jail, at either level, and each of its walls is one that is missed."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from substrate.isolation import HIDDEN, NoWalls, best_level, why_not
from substrate.walls import Level, jail_user

from .yard import Found, Yard, open_yard

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
        orders = yard.orders(level, user)
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
        mutations = list(mutations_of(yard.orders(level, user), level, yard.facts["key"]))
    assert len(mutations) > (40 if level == "bubblewrap" else 4)
    unnoticed = [name for name, change in mutations if not attempted(yard, level, change)]
    assert unnoticed == []
