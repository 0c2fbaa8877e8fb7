"""Drawings of reports and of diffs: small SVG files that need no other."""

import base64
import textwrap
from collections.abc import Sequence
from typing import Literal

from policies.escape import svg
from policies.report import RoundReport

Direction = Literal["maximise", "minimise"]


def scores_chart_svg(reports: Sequence[RoundReport], *, direction: Direction) -> str:
    """The anchor's dev and external score and the best dev score over the rounds, 640 x 280."""
    reports = sorted(reports, key=lambda report: report.round)
    curves = (
        ("anchor, dev", "#0072b2", [report.results.spread.dev for report in reports]),
        ("anchor, external", "#d55e00", [report.results.spread.external for report in reports]),
        ("best, dev", "#009e73", [best_dev(report, direction) for report in reports]),
    )
    values = [value for _, _, curve in curves for value in curve if value is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    low, high = low - margin, high + margin
    step = 540 / max(1, len(reports) - 1)

    def y_of(value: float) -> float:
        return 230 - 190 * (value - low) / (high - low)

    shapes = []
    for tick in (low, (low + high) / 2, high):
        y = y_of(tick)
        shapes.append(f'<path d="M70 {y:.1f}H620" stroke="#ddd"/>')
        shapes.append(f'<text x="62" y="{y + 4:.1f}" text-anchor="end">{tick:.3g}</text>')
    every = max(1, len(reports) // 12)
    for i, report in enumerate(reports):
        if i % every == 0:
            x = 75 + i * step
            shapes.append(f'<text x="{x:.1f}" y="250" text-anchor="middle">{report.round}</text>')
    for number, (name, colour, curve) in enumerate(curves):
        points = [
            None if value is None else (75 + i * step, y_of(value)) for i, value in enumerate(curve)
        ]
        d = "".join(
            f"{'L' if i and points[i - 1] else 'M'}{point[0]:.1f} {point[1]:.1f}"
            for i, point in enumerate(points)
            if point
        )
        shapes.append(f'<path d="{d}" fill="none" stroke="{colour}" stroke-width="2"/>')
        shapes += [
            f'<circle cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="3" fill="{colour}"/>'
            for point in points
            if point
        ]
        x = 75 + 180 * number
        shapes.append(f'<path d="M{x} 20h20" stroke="{colour}" stroke-width="2"/>')
        shapes.append(f'<text x="{x + 26}" y="24">{name}</text>')
    if not values:
        shapes.append('<text x="345" y="130" text-anchor="middle">no scores</text>')
    shapes.append('<text x="345" y="270" text-anchor="middle">round</text>')
    return _drawing(640, 280, "sans-serif", shapes)


def diff_svg(lines: Sequence[tuple[str, str]], *, columns: int = 110) -> str:
    """Lines marked "+", "-" or " " as a coloured drawing, `columns` letters wide.

    Long lines wrap; nothing is cut.
    """
    width = 20 + 8 * columns
    inks = {"+": ("#1a7f37", "#e6ffec"), "-": ("#b3261e", "#ffebe9"), " ": ("#24292f", "#ffffff")}
    wrapped = [
        (mark if i == 0 else " ", inks[mark], part)
        for mark, line in lines
        for i, part in enumerate(
            textwrap.wrap(line, columns, drop_whitespace=False, break_on_hyphens=False) or [""]
        )
    ]
    shapes = []
    for i, (mark, (ink, paper), part) in enumerate(wrapped):
        y = 8 + 18 * i
        shapes.append(f'<rect y="{y}" width="{width}" height="18" fill="{paper}"/>')
        text = svg(f"{mark} {part}")
        shapes.append(f'<text x="8" y="{y + 13}" fill="{ink}" xml:space="preserve">{text}</text>')
    return _drawing(width, 16 + 18 * len(wrapped), "monospace", shapes)


def best_dev(report: RoundReport, direction: Direction) -> float | None:
    """The best dev score of a round; None where nothing was scored."""
    scores = [slot.dev.value for slot in report.results.slots if slot.dev]
    return (max if direction == "maximise" else min)(scores, default=None)


def svg_data_uri(drawing: str) -> str:
    """A drawing as a `data:` URI, for an image that needs no other file."""
    return "data:image/svg+xml;base64," + base64.b64encode(drawing.encode()).decode()


def _drawing(width: int, height: int, font: str, shapes: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{font}" font-size="12">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>' + "".join(shapes) + "</svg>\n"
    )
