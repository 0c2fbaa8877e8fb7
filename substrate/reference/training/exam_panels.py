"""The panels of measurements at intervals: exams and cross-play.

As those of `training/panels.py`, which lists them: functions of rows that leave the axes empty
where there is nothing to show.

Shapes are suffixes: S steps, M members of a role, W measurements, T teachers and P students
(pupils) of pairs.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from training.marks import (
    BLUE,
    GREEN,
    MEMBERS,
    ORANGE,
    Rows,
    finish,
    line,
    matrices,
    mean,
    member_lines,
    share_axis,
    steps,
    table,
    values,
)

MAPS = 4  # cross-plays that are shown: the last ones


def exam(axes: Axes, rows: Rows) -> None:
    sat = _with(rows, "exam")
    member_lines(axes, sat, table([_passes(row, "exam", "1") for row in sat]), "S")
    share_axis(axes)
    finish(axes, "Exam", "Fixed problems all along: a measure of progress", "pass@1")


def pass_at(axes: Axes, rows: Rows) -> None:
    sat, base = _with(rows, "exam"), _with(rows, "exam_of_base")
    for k, colour in zip(_ks(sat, "exam"), MEMBERS, strict=False):
        means_S = mean(table([_passes(row, "exam", k) for row in sat]))
        line(axes, sat, means_S, f"k = {k}", colour)
        of_base = [found for row in base for found in _passes(row, "exam_of_base", k)]
        if of_base:
            axes.plot(steps(sat)[[0, -1]], [of_base[0]] * 2, ":", color=colour)
    share_axis(axes)
    caption = "Mean of members; the base's is dotted: above it for large k, more than sharpened"
    finish(axes, "pass@k of the exam", caption, "pass@k")


def pass_at_of_tasks(axes: Axes, rows: Rows) -> None:
    ks = list(dict.fromkeys(k for row in rows for k in row.get("pass_at") or {}))
    for k, colour in zip(ks, MEMBERS, strict=False):
        line(axes, rows, values(rows, "pass_at", k), f"k = {k}", colour)
    share_axis(axes)
    finish(axes, "pass@k of tasks", "Of what teachers write at that step", "pass@k")


def agreement(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "exam", "agreement"), "students", GREEN)
    share_axis(axes, whole=True)
    caption = "Share of exam problems with one answer of two students"
    finish(axes, "Agreement", caption, "share")


def earlier_tasks(axes: Axes, rows: Rows) -> None:
    played = _with(rows, "cross_play")
    fresh_S = mean(
        table([[r for rates in row["cross_play"]["fresh"] for r in rates] for row in played])
    )
    earlier_S_M = table([row["cross_play"]["earlier"] for row in played])
    line(axes, played, fresh_S, "fresh tasks", ORANGE)
    line(axes, played, mean(earlier_S_M), "earlier ones", BLUE)
    share_axis(axes, whole=True)
    caption = "Students who forget earlier tasks run in circles"
    finish(axes, "Hall of fame", caption, "solve rate")


def cross_play(axes: Axes, rows: Rows) -> None:
    played = _with(rows, "cross_play")[-MAPS:]
    if not played:
        return
    rates_W_T_P = np.stack([table(row["cross_play"]["fresh"]) for row in played])
    if rates_W_T_P[0].size < 2:
        return
    matrices(axes, rates_W_T_P, [f"step {row['step']}" for row in played])
    caption = "Solve rate of every student S at fresh tasks of every teacher T"
    finish(axes, "Cross-play", caption, "", x="")


def _with(rows: Rows, key: str) -> Rows:
    """The rows of steps with this measurement."""
    return [row for row in rows if row.get(key) is not None]


def _passes(row: dict[str, Any], key: str, k: str) -> list[float]:
    """pass@k of each member."""
    return row[key]["pass_at"].get(k, [])


def _ks(rows: Rows, key: str) -> list[str]:
    return list(dict.fromkeys(k for row in rows for k in row[key]["pass_at"]))
