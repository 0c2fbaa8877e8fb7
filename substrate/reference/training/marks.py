"""What panels are made of: numbers out of rows of metrics, and marks on axes in one style.

Each mark leaves the axes as they are where it has nothing to show. Lines and areas of many steps
are running means.

Shapes are suffixes: S steps, M members of a role, L layers of a stack, W maps, T teachers and P
students (pupils) of pairs.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

Row = dict[str, Any]
Rows = Sequence[Row]
Floats = NDArray[np.float64]

MANY = 60  # values above which a line is smoothed
FEW = 30  # values up to which they are marked one by one: dots on lines, bars for areas

# Okabe and Ito's colours, which the colour-blind tell apart too; yellow for areas only.
BLUE, SKY, GREEN, ORANGE = "#0072B2", "#56B4E9", "#009E73", "#E69F00"
RED, PINK, YELLOW = "#D55E00", "#CC79A7", "#F0E442"
INK, GREY, PALE = "#333333", "#8C8C8C", "#C8C8C8"
TEACHERS, STUDENTS, POLICY = RED, BLUE, GREEN
MEMBERS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY, "#6A3D9A")


def smoothed(count: int) -> int:
    """Of how many values, an odd number, the running mean of this many is."""
    return 2 * (count // 40) + 1 if count > MANY else 1


# Numbers out of rows. What is no number is NaN.


def values(rows: Rows, *path: str) -> Floats:
    """One number of each row, (S,), along these keys."""
    found: list[float] = []
    for row in rows:
        value: Any = row
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        found.append(_number(value))
    return np.array(found)


def table(lists: Sequence[Sequence[Any] | None]) -> Floats:
    """A list of numbers of each row, such as one for each member, as a table (S, M)."""
    longest = max((len(found) for found in lists if found), default=0)
    table_S_M = np.full((len(lists), longest), np.nan)
    for row, found in zip(table_S_M, lists, strict=True):
        row[: len(found or [])] = [_number(value) for value in found or []]
    return table_S_M


def mean(table_S_M: Floats) -> Floats:
    """The mean of what is there in each row, (S,)."""
    counts_S = np.isfinite(table_S_M).sum(axis=1)
    return np.nansum(table_S_M, axis=1) / np.where(counts_S, counts_S, np.nan)


def steps(rows: Rows) -> NDArray[np.int64]:
    return np.array([row["step"] for row in rows])


def running_mean(values_S: Floats) -> Floats:
    """The mean of each value and as many on either side; fewer near the ends, where a mean that
    has more on one side than on the other would bend a line.
    """
    count = len(values_S)
    places = np.arange(count)
    half = np.minimum(smoothed(count) // 2, np.minimum(places, count - 1 - places))
    sums = np.concatenate([[0.0], np.cumsum(values_S)])
    return (sums[places + half + 1] - sums[places - half]) / (2 * half + 1)


# Marks on axes.


def line(
    axes: Axes,
    rows: Rows,
    values_S: Floats,
    label: str,
    colour: str,
    style: str = "-",
    *,
    smooth: bool = True,
) -> None:
    """A line through what is there. A solid one that is smoothed has a hair line of the values
    themselves behind it.
    """
    there_S = np.isfinite(values_S)
    x, y = steps(rows)[there_S], values_S[there_S]
    if len(y) == 0:
        return
    if smooth and smoothed(len(y)) > 1:
        if style == "-":
            axes.plot(x, y, color=colour, alpha=0.2, linewidth=0.6)
        y = running_mean(y)
    marker = "o" if style == "-" and len(y) <= FEW else None
    axes.plot(x, y, style, color=colour, label=label, marker=marker, markersize=3)


def band(
    axes: Axes, rows: Rows, table_S_M: Floats, label: str, colour: str, *, alpha: float = 0.12
) -> None:
    """From the least to the largest of each row, where a row has several."""
    there_S = np.isfinite(table_S_M).any(axis=1)
    if table_S_M.shape[1] > 1 and there_S.any():
        least = running_mean(np.nanmin(table_S_M[there_S], axis=1))
        largest = running_mean(np.nanmax(table_S_M[there_S], axis=1))
        x = steps(rows)[there_S]
        axes.fill_between(x, least, largest, color=colour, alpha=alpha, linewidth=0, label=label)


def member_lines(axes: Axes, rows: Rows, table_S_M: Floats, letter: str) -> None:
    """A line for each member, and where there are several their mean."""
    for member, (colour, style) in enumerate(member_styles(table_S_M.shape[1])):
        line(axes, rows, table_S_M[:, member], f"{letter}{member}", colour, style)
    if table_S_M.shape[1] > 1:
        line(axes, rows, mean(table_S_M), "mean", INK, "--")


def member_styles(count: int) -> list[tuple[str, str]]:
    """A colour and a line style for each member."""
    colours = zip(range(count), cycle(MEMBERS), strict=False)
    return [(colour, "-" if member < len(MEMBERS) else ":") for member, colour in colours]


def stack(
    axes: Axes,
    rows: Rows,
    counts_S: Sequence[Mapping[str, Any] | None],
    layers: Mapping[str, tuple[Sequence[str], str]],
    *,
    shares: bool = False,
) -> None:
    """Layers from the bottom up, by label: the names of the numbers that are summed in it, and a
    colour. As shares of all, if wanted.
    """
    pairs = zip(steps(rows), counts_S, strict=True)
    there = [(step, counts) for step, counts in pairs if counts]
    if not there:
        return
    x = np.array([step for step, _ in there])
    layers_L_S = np.stack(
        [
            running_mean(np.nansum(table([[c.get(n) for n in names] for _, c in there]), axis=1))
            for names, _ in layers.values()
        ]
    )
    if shares:
        sums_S = layers_L_S.sum(axis=0)
        layers_L_S = layers_L_S / np.where(sums_S > 0, sums_S, np.nan)
    colours = [colour for _, colour in layers.values()]
    if len(x) > FEW:
        axes.stackplot(x, layers_L_S, labels=[*layers], colors=colours, linewidth=0)
    else:
        floors_L_S = np.cumsum(layers_L_S, axis=0) - layers_L_S
        width = 0.9 * (np.diff(x).min() if len(x) > 1 else 1)
        for layer, (label, colour) in enumerate(zip(layers, colours, strict=True)):
            floors_S = floors_L_S[layer]
            axes.bar(x, layers_L_S[layer], width, floors_S, color=colour, label=label)
    axes.grid(False)
    handles, labels = axes.get_legend_handles_labels()
    legend(axes, handles[::-1], labels[::-1])  # from the top down, as they lie


def matrices(axes: Axes, rates_W_T_P: Floats, labels: Sequence[str]) -> None:
    """Solve rates of teachers (T, down) and students (P, across), as maps side by side, each with a
    label below it: from the teachers' colour, at 0, to the students'.
    """
    _, teachers, students = rates_W_T_P.shape
    gap_T_1 = np.full((teachers, 1), np.nan)
    blocks = [block for rates_T_P in rates_W_T_P for block in (rates_T_P, gap_T_1)]
    axes.imshow(np.hstack(blocks[:-1]), vmin=0, vmax=1, cmap="RdBu", aspect="auto")
    ticks: dict[float, str] = {}
    for number, (rates_T_P, label) in enumerate(zip(rates_W_T_P, labels, strict=True)):
        start = number * (students + 1)
        ticks |= {start + student: f"S{student}" for student in range(students)}
        # A hair aside: the label of a map must not replace that of the student in its middle.
        ticks[start + (students - 1) / 2 + 1e-6] = f"\n{label}"
        for (teacher, student), rate in np.ndenumerate(rates_T_P):
            text = f"{rate:.2f}".removeprefix("0") if np.isfinite(rate) else "–"
            colour = "white" if abs(rate - 0.5) > 0.35 else INK
            place = start + student, teacher
            axes.text(*place, text, ha="center", va="center", size=8, color=colour)
    axes.set_xticks([*ticks], [*ticks.values()])
    axes.set_yticks(range(teachers), [f"T{teacher}" for teacher in range(teachers)])
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def log_axis(axes: Axes) -> None:
    """For axes that are drawn on already."""
    if not axes.has_data():
        return
    axes.set_yscale("log")
    least, largest = axes.get_ylim()
    decades = np.log10(largest / least)
    subs = (1, 2, 5) if decades < 2 else (1, 3) if decades < 3 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def share_axis(axes: Axes, *, whole: bool = False) -> None:
    """Shares in per cent; from 0 to all of it, if wanted."""
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.4g}%")
    if whole:
        axes.set_ylim(0, 1)


def legend(axes: Axes, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1, 1), borderaxespad=0.2)


def finish(
    axes: Axes, title: str, caption: str, y: str, *, x: str = "step", from_0: bool = False
) -> None:
    """The words of a panel that shows something, and its legend unless it has one."""
    if not axes.has_data():
        return
    axes.set_title(title)
    axes.text(0, 1.03, caption, transform=axes.transAxes, size=8, color=GREY)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if x.startswith("step"):
        left, right = axes.get_xlim()
        if right - left < 1:  # one step
            axes.set_xlim(left - 1, right + 1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    if from_0:
        axes.set_ylim(bottom=0)
    handles, labels = axes.get_legend_handles_labels()
    if axes.get_legend() is None and len(handles) > 1:
        legend(axes, handles, labels)


def _number(found: Any) -> float:
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number and abs(found) != np.inf else np.nan
