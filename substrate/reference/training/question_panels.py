"""Panels of a generator and a solver: questions, their worth, and whether scores mean it."""

from collections import Counter

import numpy as np
from matplotlib.axes import Axes

from training.marks import (
    BLUE,
    GREEN,
    GREY,
    MEMBERS,
    ORANGE,
    PALE,
    PINK,
    RED,
    SKY,
    STUDENTS,
    TEACHERS,
    Rows,
    finish,
    line,
    share_axis,
    stack,
    values,
)

REASONS = 5  # why questions are refused: the most frequent ones have a layer of their own
REFUSED = (SKY, PINK, ORANGE, RED, GREY)


def questions(axes: Axes, rows: Rows) -> None:
    counts_S = [row.get("questions") for row in rows]
    found = [counts for counts in counts_S if isinstance(counts, dict)]
    totals = Counter[str]()
    for counts in found:
        totals.update({name: n for name, n in counts.items() if name != "valid"})
    reasons = [name for name, n in totals.most_common(REASONS) if n]
    others = [name for name, n in totals.items() if n and name not in reasons]
    layers: dict[str, tuple[list[str], str]] = {"valid": (["valid"], GREEN)}
    for name, colour in zip(reasons, REFUSED, strict=False):
        layers[name.replace("_", " ")] = [name], colour
    if others:
        layers["others"] = others, PALE
    stack(axes, rows, [counts if isinstance(counts, dict) else None for counts in counts_S], layers)
    finish(axes, "Questions", "What the generator wrote, and why it was refused", "a step")


def solved(axes: Axes, rows: Rows) -> None:
    if any("questions" in row for row in rows):
        layers = {
            "always": (["all"], GREEN),
            "sometimes": (["some"], BLUE),
            "never": (["none"], PALE),
        }
        stack(axes, rows, [row.get("solve_rates") for row in rows], layers)
    finish(axes, "Solved", "Valid questions, by the solver's attempts", "a step")


def depth(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "question_depth"), "valid questions", GREY)
    line(axes, rows, values(rows, "useful_depth"), "solved sometimes", BLUE)
    line(axes, rows, values(rows, "target", "depth"), "target problems", ORANGE, "--")
    finish(axes, "Depth", "Mean of a step", "lines")


def score(axes: Axes, rows: Rows) -> None:
    for name, colour in (("most", SKY), ("mean", BLUE), ("least", GREY)):
        line(axes, rows, values(rows, "score", name), name, colour)
    finish(axes, "Influence", "Scores of questions that were solved sometimes", "score")


def score_by_topic(axes: Axes, rows: Rows) -> None:
    by = [row.get("score_by_topic") for row in rows]
    topics = sorted({topic for found in by if isinstance(found, dict) for topic in found})
    for topic, colour in zip(topics[: len(MEMBERS)], MEMBERS, strict=False):
        line(axes, rows, values(rows, "score_by_topic", topic), topic, colour)
    finish(axes, "Influence by topic", "Mean scores by the document's topic", "score")


def agreement(axes: Axes, rows: Rows) -> None:
    for name, label, colour in (
        ("with_cosine", "raw cosine", GREEN),
        ("with_variance", "variance", ORANGE),
        ("with_length", "length", GREY),
    ):
        line(axes, rows, values(rows, "score", name), label, colour)
    line(axes, rows, values(rows, "probe", "rank_correlation"), "true influence", BLUE)
    finish(axes, "What scores go with", "Spearman's correlation within a step", "correlation")


def reliability(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "target", "reliability"), "target's gradient", BLUE)
    line(axes, rows, values(rows, "probe", "score_reliability"), "scores", ORANGE)
    refused = np.array([bool(row.get("generator_refused")) for row in rows], dtype=float)
    if any("generator_refused" in row for row in rows):
        line(axes, rows, refused, "no lesson", PALE)
    finish(axes, "Reliability", "Share of signal; and steps without a lesson", "share")


def right_keys(axes: Axes, rows: Rows) -> None:
    if any("key_right" in row for row in rows):
        line(axes, rows, values(rows, "key_right"), "right keys", GREEN)
        line(axes, rows, values(rows, "malformed"), "malformed", GREY)
        share_axis(axes, whole=True)
    finish(axes, "Keys", "As far as the truth is known", "share")


def earned(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "generator_reward"), "generator", TEACHERS)
    line(axes, rows, values(rows, "target", "reward"), "solver", STUDENTS)
    finish(axes, "Reward", "Mean of a step; the solver's at the target", "reward")


def manner(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "generator", "surprisal"), "generator", TEACHERS)
    line(axes, rows, values(rows, "solver", "surprisal"), "solver", STUDENTS)
    finish(axes, "Surprisal", "Of what was sampled", "nats a token", from_0=True)


def tokens(axes: Axes, rows: Rows) -> None:
    line(axes, rows, values(rows, "generator", "tokens"), "generator", TEACHERS)
    line(axes, rows, values(rows, "solver", "tokens"), "solver", STUDENTS)
    finish(axes, "Length", "Of a completion", "tokens", from_0=True)
