"""The panels that `training/plots.py` draws, by section: each is a function of rows of metrics.

A panel draws into the axes what the rows have for it. Where that is nothing it leaves them empty,
and is left out: so the rows of every recipe do. A recipe's own keys get a panel here. Those of the
members of a population, and of measurements at intervals, are in modules of their own.

Shapes are suffixes: S steps, M members of a role, W windows of steps, T teachers and P students
(pupils) of pairs.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from training import exam_panels, member_panels, question_panels
from training.marks import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    PINK,
    POLICY,
    RED,
    SKY,
    STUDENTS,
    TEACHERS,
    YELLOW,
    Floats,
    Row,
    Rows,
    band,
    finish,
    line,
    log_axis,
    matrices,
    mean,
    member_lines,
    member_styles,
    share_axis,
    stack,
    steps,
    table,
    values,
)

Panel = Callable[[Axes, Rows], None]

COLUMNS = 6  # of the grid that panels are laid out on
WINDOWS = 4  # of the run, for each of which pairs are shown
REASONS = 6  # why proposals are refused: the most frequent ones have a layer of their own
MEASURES = {
    "nodes": BLUE,
    "steps": ORANGE,
    "lines": SKY,
    "depth": GREEN,
    "cyclomatic": PINK,
    "cognitive": RED,
}
ROLES = ("teacher", "student")


# Play: who solves what.


def solve_rate(axes: Axes, rows: Rows) -> None:
    rates_S_M = table([[match["solve_rate"] for match in _matches(row)] for row in rows])
    forecasts_S_M = table([[match["expected"] for match in _matches(row)] for row in rows])
    band(axes, rows, rates_S_M, "all pairs", BLUE)
    line(axes, rows, mean(rates_S_M), "mean of pairs", BLUE)
    line(axes, rows, mean(forecasts_S_M), "forecast", ORANGE, "--")
    share_axis(axes, whole=True)
    finish(axes, "Solve rate", "Right attempts at valid tasks, and what ratings forecast", "share")


def reward(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "teacher_reward"), "teachers", TEACHERS)
    line(axes, rows, values(rows, "student_reward"), "students", STUDENTS)
    line(axes, rows, values(rows, "reward"), "policy", POLICY)
    finish(axes, "Reward", "Mean of a step", "reward")


def teacher_ratings(axes: Axes, rows: Rows) -> None:
    _ratings(axes, rows, "teacher", "student")


def student_ratings(axes: Axes, rows: Rows) -> None:
    _ratings(axes, rows, "student", "teacher")


def pair_solve_rates(axes: Axes, rows: Rows) -> None:
    windows = np.array_split(np.arange(len(rows)), min(WINDOWS, len(rows)))
    rates_W_T_P = np.stack([_pair_rates(rows, window) for window in windows])
    if rates_W_T_P[0].size < 2:  # one pair: its solve rate over steps says it all
        return
    ends = [[rows[window[end]]["step"] for end in (0, -1)] for window in windows]
    matrices(axes, rates_W_T_P, [f"steps {first} to {last}" for first, last in ends])
    caption = "Mean over the matches of teacher T and student S: red below a half, blue above"
    finish(axes, "Solve rate of each pair", caption, "", x="")


# Tasks: what teachers write.


def proposals(axes: Axes, rows: Rows) -> None:
    counts_S = [row.get("proposals") for row in rows]
    totals = Counter[str]()
    for counts in counts_S:
        totals.update(counts or {})
    refused = sorted(totals.keys() - {"valid", "duplicate"}, key=lambda name: (-totals[name], name))
    colours = (RED, ORANGE, PINK, YELLOW, GREEN, GREY)
    layers: dict[str, tuple[Sequence[str], str]] = {"valid": (["valid"], BLUE)}
    layers["duplicate"] = (["duplicate"], SKY)
    for name, colour in zip(refused[:REASONS], colours, strict=False):
        layers[name.replace("_", " ")] = ([name], colour)
    if refused[REASONS:]:
        layers["other reasons"] = (refused[REASONS:], PALE)
    stack(axes, rows, counts_S, layers, shares=True)
    share_axis(axes, whole=True)
    finish(axes, "Proposals", "What becomes of a teacher's completion", "share of proposals")


def solved_by(axes: Axes, rows: Rows) -> None:
    layers = {"all attempts": (["all"], PALE), "some": (["some"], BLUE)}
    layers["no attempt"] = (["none"], GREY)
    stack(axes, rows, [row.get("solve_rates") for row in rows], layers, shares=True)
    share_axis(axes, whole=True)
    finish(axes, "Tasks solved by", "Students learn from those in between", "share of tasks")


def coverage(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "coverage", "shapes"), "shapes", BLUE, smooth=False)
    line(axes, rows, values(rows, "coverage", "behaviours"), "behaviours", ORANGE, smooth=False)
    finish(axes, "Coverage", "Distinct tasks up to a step", "tasks", from_0=True)


def complexity(axes: Axes, rows: Rows) -> None:
    for measure, colour in MEASURES.items():
        line(axes, rows, values(rows, "complexity", measure), measure, colour)
    log_axis(axes)
    finish(axes, "Complexity of tasks", "Mean over a step's valid tasks", "count (log)")


def complexity_per_line(axes: Axes, rows: Rows) -> None:
    lines_S = values(rows, "complexity", "lines")
    lines_S[lines_S <= 0] = np.nan
    for measure, colour in MEASURES.items():
        if measure != "lines":
            line(axes, rows, values(rows, "complexity", measure) / lines_S, measure, colour)
    log_axis(axes)
    finish(axes, "Complexity per line", "The mean over the mean of lines", "count a line (log)")


def cells(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "coverage", "cells"), "cells", GREEN, smooth=False)
    caption = "Depths × cyclomatic complexities × types of output"
    finish(axes, "Cells covered", caption, "cells", from_0=True)


def likeness(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "likeness", "of_one"), "of one teacher", RED)
    line(axes, rows, values(rows, "likeness", "of_two"), "of two teachers", ORANGE)
    share_axis(axes)
    caption = "Chance that two tasks of a step are of one kind"
    finish(axes, "Likeness of tasks", caption, "chance", from_0=True)


def authors_cells(axes: Axes, rows: Rows) -> None:
    authors = sorted({key for row in rows for key in row.get("coverage_by_author") or {}}, key=int)
    for author, (colour, style) in zip(authors, member_styles(len(authors)), strict=True):
        cells_S = values(rows, "coverage_by_author", author)
        line(axes, rows, cells_S, f"T{author}", colour, style, smooth=False)
    finish(axes, "Cells of each teacher", "Those with a new task of its own", "cells", from_0=True)


def novelty(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "novelty"), "novelty", BLUE)
    line(axes, rows, values(rows, "overlap"), "overlap of teachers", RED, "--")
    share_axis(axes)
    caption = "Distance to the nearest earlier tasks; cells that two teachers share"
    finish(axes, "Novelty of tasks", caption, "share", from_0=True)


# Training.


def surprisal(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "teacher_entropy"), "teachers", TEACHERS)
    line(axes, rows, values(rows, "student_entropy"), "students", STUDENTS)
    caption = "Mean over sampled tokens; at 0 nothing new is tried"
    finish(axes, "Surprisal", caption, "nats a token", from_0=True)


def lengths(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "proposal_tokens"), "proposals", TEACHERS)
    line(axes, rows, values(rows, "attempt_tokens"), "attempts", STUDENTS)
    line(axes, rows, values(rows, "completion_tokens"), "completions", POLICY)
    finish(axes, "Length", "Mean over a step's completions", "tokens", from_0=True)


def odd_completions(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "malformed"), "malformed", RED)
    line(axes, rows, values(rows, "cut_off"), "cut off", ORANGE)
    share_axis(axes)
    title = "Malformed completions" if "malformed" in rows[0] else "Completions that are cut off"
    finish(axes, title, "Share of a step's", "share", from_0=True)


def equal_groups(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "equal_groups"), "equal groups", POLICY)
    share_axis(axes, whole=True)
    finish(axes, "Groups without gradient", "All their rewards are equal", "share")


def loss(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "loss"), "loss", POLICY)
    finish(axes, "Loss", "With policy gradients no measure of progress", "loss")


def gradient_norm(axes: Axes, rows: Rows) -> None:
    norms_S_M = table([row.get("gradient_norms") for row in rows])
    band(axes, rows, norms_S_M, "all members", GREEN)
    line(axes, rows, mean(norms_S_M), "mean of members", GREEN)
    line(axes, rows, values(rows, "gradient_norm"), "policy", POLICY)
    finish(axes, "Gradient norm", "Before clipping", "norm", from_0=True)


def seconds(axes: Axes, rows: Rows) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row.get("seconds") or {}))
    totals = [float(np.nansum(values(rows, "seconds", name))) for name in names]
    whole = sum(totals) or 1.0
    layers = {
        f"{name}, {total / whole:.0%}": ([name], colour)
        for (name, total), (colour, _) in zip(
            zip(names, totals, strict=True), member_styles(len(names)), strict=True
        )
    }
    stack(axes, rows, [row.get("seconds") for row in rows], layers)
    caption = f"By phase; {whole / 60:,.1f} minutes in all"
    finish(axes, "Wall time", caption, "seconds a step", from_0=True)


# For each section, which is a picture: its title, and its panels with the columns they take.
SECTIONS: Mapping[str, tuple[str, Sequence[tuple[int, Panel]]]] = {
    "play": (
        "Play: who solves what",
        [
            (2, solve_rate),
            (2, reward),
            (3, teacher_ratings),
            (3, student_ratings),
            (6, pair_solve_rates),
        ],
    ),
    "tasks": (
        "Tasks: what teachers write",
        [
            (2, proposals),
            (2, solved_by),
            (2, coverage),
            (2, complexity),
            (2, complexity_per_line),
            (2, cells),
            (2, likeness),
            (2, authors_cells),
            (2, novelty),
        ],
    ),
    "questions": (
        "Questions: what a generator writes, and what it is worth",
        [
            (3, question_panels.questions),
            (3, question_panels.solved),
            (3, question_panels.depth),
            (3, question_panels.right_keys),
            (3, question_panels.earned),
            (3, question_panels.score),
            (3, question_panels.score_by_topic),
            (3, question_panels.agreement),
            (3, question_panels.reliability),
            (3, question_panels.manner),
            (3, question_panels.tokens),
        ],
    ),
    "members": (
        "Members: how different they are, how long they live",
        [
            (2, member_panels.cosine),
            (2, member_panels.angle),
            (2, member_panels.stable_rank),
            (2, member_panels.norm),
            (2, member_panels.kinship),
            (2, member_panels.growth),
            (6, member_panels.survival),
            (6, member_panels.recovery),
        ],
    ),
    "exams": (
        "Exams: what no step shows",
        [
            (2, exam_panels.exam),
            (2, exam_panels.pass_at),
            (2, exam_panels.agreement),
            (2, exam_panels.pass_at_of_tasks),
            (2, exam_panels.earlier_tasks),
            (6, exam_panels.cross_play),
        ],
    ),
    "training": (
        "Training",
        [
            (2, surprisal),
            (2, lengths),
            (2, odd_completions),
            (2, equal_groups),
            (2, loss),
            (2, gradient_norm),
            (2, seconds),
        ],
    ),
}


def _ratings(axes: Axes, rows: Rows, role: str, other: str) -> None:
    """Each member's rating, with the deviation as a band, and a ring where a newcomer starts."""
    means_S_M, deviations_S_M = _ratings_of(rows, role)
    members = means_S_M.shape[1]
    for member, (colour, _) in enumerate(member_styles(members)):
        mean_S, deviation_S = means_S_M[:, member], deviations_S_M[:, member]
        edges_S_2 = np.stack([mean_S - deviation_S, mean_S + deviation_S], axis=1)
        band(axes, rows, edges_S_2, "", colour, alpha=max(0.06, 0.25 / members))
        born = [
            place
            for place, row in enumerate(rows)
            for birth in row.get("births") or []
            if (birth["role"], birth["member"]) == (role, member)
        ]
        rings = {"color": colour, "fillstyle": "none", "markersize": 4}
        axes.plot(steps(rows)[born], mean_S[born], "o", **rings)
    member_lines(axes, rows, means_S_M, role[0].upper())
    if members:
        line(axes, rows, mean(_ratings_of(rows, other)[0]), f"{other}s", GREY, ":")
    caption = "Relative to the other role, dotted: no measure of progress. Rings: births"
    finish(axes, f"Ratings of {role}s", caption, "TrueSkill, mean ± deviation")


def _ratings_of(rows: Rows, role: str) -> tuple[Floats, Floats]:
    """The means and the deviations of a role, each (S, M)."""
    ratings_S = [(row.get("ratings") or {}).get(f"{role}s") or [] for row in rows]
    means_S_M = table([[mean for mean, _ in ratings] for ratings in ratings_S])
    return means_S_M, table([[deviation for _, deviation in ratings] for ratings in ratings_S])


def _matches(row: Row) -> list[Row]:
    return row.get("matches") or []


def _pair_rates(rows: Rows, window: NDArray[np.intp]) -> Floats:
    """The mean solve rate of each pair in a window of rows, (T, P)."""
    met = [match for row in rows for match in _matches(row)]
    shape = [1 + max((match[role] for match in met), default=-1) for role in ROLES]
    sums_T_P, counts_T_P = np.zeros(shape), np.zeros(shape)
    for match in (match for place in window for match in _matches(rows[place])):
        if match["solve_rate"] is not None:
            sums_T_P[match["teacher"], match["student"]] += match["solve_rate"]
            counts_T_P[match["teacher"], match["student"]] += 1
    return sums_T_P / np.where(counts_T_P, counts_T_P, np.nan)
