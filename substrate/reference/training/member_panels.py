"""The panels of a population's members: how different they are, whose children, how long they live.

As those of `training/panels.py`, which lists them: functions of rows that leave the axes empty
where there is nothing to show.
"""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes

from training.marks import (
    BLUE,
    INK,
    RED,
    STUDENTS,
    TEACHERS,
    Row,
    Rows,
    finish,
    line,
    values,
)
from training.ratings import Rating, lower_bound

OFFSETS = (0.0, 0.1, -0.1, 0.2, -0.2, 0.3, -0.3)  # of dots that would hide one another
DOTS: dict[str, Any] = {"markersize": 4, "alpha": 0.7}


def cosine(axes: Axes, rows: Rows) -> None:
    _of_roles(axes, rows, "cosine")
    finish(axes, "Likeness", "Mean cosine of the updates of two members", "cosine")


def angle(axes: Axes, rows: Rows) -> None:
    _of_roles(axes, rows, "angle")
    caption = "Mean principal angle of the updates of two members"
    finish(axes, "Angles", caption, "degrees", from_0=True)


def stable_rank(axes: Axes, rows: Rows) -> None:
    _of_roles(axes, rows, "stable_rank")
    finish(axes, "Stable rank", "How many directions carry an update", "directions", from_0=True)


def norm(axes: Axes, rows: Rows) -> None:
    _of_roles(axes, rows, "norm")
    finish(axes, "Size", "Frobenius norm of an update", "norm", from_0=True)


def kinship(axes: Axes, rows: Rows) -> None:
    _of_births(axes, rows, lambda birth: birth["cosines"])
    caption = "Cosine of a newcomer's update and each parent's"
    finish(axes, "Children and parents", caption, "", x="cosine")


def growth(axes: Axes, rows: Rows) -> None:
    _of_births(axes, rows, _growths)
    caption = "Norm of a newcomer's update over its larger parent's"
    finish(axes, "Size at birth", caption, "", x="ratio")


def survival(axes: Axes, rows: Rows) -> None:
    _spans(axes, _lives(rows), "replaced", RED, BLUE)
    caption = "Dots: members that were replaced. Rings: those still there. Bars: the median life"
    finish(axes, "Survival by operator", caption, "", x="steps from birth")


def recovery(axes: Axes, rows: Rows) -> None:
    _spans(axes, recoveries(rows), "recovered", BLUE, RED)
    caption = "Dots: newcomers whose rating's bound came up to their best parent's at their birth. "
    caption += "Rings: those that did not while they were there. Bars: the median"
    finish(axes, "Recovery by operator", caption, "", x="steps from birth")


def recoveries(rows: Rows) -> dict[str, list[tuple[int, bool]]]:
    """By operator, for each of its children the steps until it was rated as high as its best parent
    when it was born, and whether it came to that; else the steps that it was there.
    """
    found: dict[str, list[tuple[int, bool]]] = {}
    waiting: dict[tuple[str, int], tuple[str, int, float]] = {}  # operator, birth, bar
    for row in rows:
        step = row["step"]
        for place, (operator, born, bar) in list(waiting.items()):
            if step > born and any(bound >= bar for bound in _bounds(row, place[0], [place[1]])):
                found.setdefault(operator, []).append((step - born, True))
                del waiting[place]
        for birth in row.get("births") or []:
            place = birth["role"], birth["member"]
            if place in waiting:
                operator, born, _ = waiting.pop(place)
                found.setdefault(operator, []).append((step - born, False))
            if bounds := _bounds(row, birth["role"], birth["parents"]):
                waiting[place] = birth["operator"], step, max(bounds)
    for operator, born, _ in waiting.values():
        found.setdefault(operator, []).append((rows[-1]["step"] - born, False))
    return dict(sorted(found.items()))


def median_life(spans: Sequence[tuple[int, bool]]) -> int | None:
    """The median of lifetimes, each with whether its end was seen: the first age at which the
    survival curve of Kaplan and Meier (1958) is down at a half. None where it never is.
    """
    alive, share = len(spans), 1.0
    for age, died in sorted(spans, key=lambda span: (span[0], not span[1])):  # deaths first
        share *= 1 - died / alive
        alive -= 1
        if share < 0.5 + 1e-9:
            return age
    return None


def _bounds(row: Row, role: str, members: Sequence[int]) -> list[float]:
    """The lower bounds of members' ratings; empty where the row has no ratings."""
    ratings = (row.get("ratings") or {}).get(f"{role}s")
    return [lower_bound(Rating(*ratings[member])) for member in members] if ratings else []


def _spans(
    axes: Axes, spans_of: dict[str, list[tuple[int, bool]]], ended: str, seen: str, unseen: str
) -> None:
    """A dot or a ring for each span by operator, with colours for ends that were seen or not."""
    if not spans_of:
        return
    for place, spans in enumerate(spans_of.values()):
        for end, colour, fill in ((True, seen, "full"), (False, unseen, "none")):
            lengths = [length for length, is_over in spans if is_over == end]
            axes.plot(
                lengths, _heights(place, len(lengths)), "o", color=colour, fillstyle=fill, **DOTS
            )
        median = median_life(spans)
        if median is not None:
            axes.plot([median, median], [place - 0.4, place + 0.4], color=INK, linewidth=2)
        text = f"{len(spans)} born, {sum(is_over for _, is_over in spans)} {ended}, "
        text += "median not reached" if median is None else f"median {median}"
        axes.text(1.01, place, text, transform=axes.get_yaxis_transform(), va="center", size=8)
    _operators(axes, [*spans_of])
    axes.set_xlim(left=0)


def _of_roles(axes: Axes, rows: Rows, key: str) -> None:
    line(axes, rows, values(rows, "diversity", "teachers", key), "teachers", TEACHERS)
    line(axes, rows, values(rows, "diversity", "students", key), "students", STUDENTS)


def _of_births(axes: Axes, rows: Rows, numbers: Callable[[Row], Sequence[float | None]]) -> None:
    """A dot for each number of each birth, by operator and role."""
    births = [birth for row in rows for birth in row.get("births") or [] if "norm" in birth]
    operators = sorted({birth["operator"] for birth in births})
    if not births:
        return
    for place, operator in enumerate(operators):
        for role, colour in (("teacher", TEACHERS), ("student", STUDENTS)):
            chosen = [b for b in births if (b["operator"], b["role"]) == (operator, role)]
            found = [number for birth in chosen for number in numbers(birth) if number is not None]
            label = f"{role}s" if place == 0 else None
            axes.plot(found, _heights(place, len(found)), "o", color=colour, label=label, **DOTS)
    _operators(axes, operators)


def _growths(birth: Row) -> list[float]:
    """A newcomer's norm over its larger parent's: none where that is 0."""
    largest = max(birth["parents_norms"])
    return [birth["norm"] / largest] if largest > 0 else []


def _heights(place: int, count: int) -> list[float]:
    """Of dots on one line, a little apart."""
    return [place + OFFSETS[number % len(OFFSETS)] for number in range(count)]


def _operators(axes: Axes, names: Sequence[str]) -> None:
    """A line for each, from the top down."""
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(False, axis="y")


def _lives(rows: Rows) -> dict[str, list[tuple[int, bool]]]:
    """By operator, for each of its children the steps it lived and whether it was replaced. Empty
    where nobody was born.
    """
    lives: dict[str, list[tuple[int, bool]]] = {}
    first, last = rows[0]["step"], rows[-1]["step"]
    since: dict[tuple[str, int], tuple[str, int]] = {}  # who is in a place: operator and birth
    for role, ratings in (rows[0].get("ratings") or {}).items():
        for member in range(len(ratings)):
            since[role.removesuffix("s"), member] = "founder", first
    for row in rows:
        for birth in row.get("births") or []:
            place = birth["role"], birth["member"]
            operator, born = since.get(place, ("founder", first))
            lives.setdefault(operator, []).append((row["step"] - born, True))
            since[place] = birth["operator"], row["step"]
    if not lives:
        return {}
    for operator, born in since.values():
        lives.setdefault(operator, []).append((last - born, False))
    return dict(sorted(lives.items(), key=lambda life: (life[0] != "founder", life[0])))
