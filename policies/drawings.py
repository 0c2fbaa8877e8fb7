"""The drawing of a diff, a small SVG file that needs no other, and drawings as addresses."""

import base64
import textwrap
from collections.abc import Sequence
from typing import Literal

from policies.escape import svg
from policies.report import RoundReport

Direction = Literal["maximise", "minimise"]


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
    height = 16 + 18 * len(wrapped)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="monospace" font-size="12">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>' + "".join(shapes) + "</svg>\n"
    )


def best_dev(report: RoundReport, direction: Direction) -> float | None:
    """The best dev score of a round; None where nothing was scored."""
    scores = [slot.dev.value for slot in report.results.slots if slot.dev]
    return (max if direction == "maximise" else min)(scores, default=None)


def svg_data_uri(drawing: str) -> str:
    """A drawing as a `data:` URI, for an image that needs no other file."""
    return "data:image/svg+xml;base64," + base64.b64encode(drawing.encode()).decode()
