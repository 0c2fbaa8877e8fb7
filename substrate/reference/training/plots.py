"""Draw a run: `python -m training.plots RUN` turns its `metrics.jsonl` into pictures.

RUN is a folder with `metrics.jsonl`, a fork with `out/metrics.jsonl`, or the file itself. The
pictures go into `plots/` beside the file: a PNG and an SVG for each section of
`training/panels.py` for which the rows have something, whichever recipe wrote them. Equal rows
give equal bytes. What is no row, such as a last line that was cut off, is left out and said.

Exit code 2 where there is nothing to draw; the message says what to do.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from training.marks import GREY, INK, Row, Rows, smoothed
from training.panels import COLUMNS, SECTIONS, Panel

INCHES = (2.6, 3.3)  # of a column and of a row of panels
PADS = (0.1, 0.12)  # inches beside and above a panel
MARGIN = 0.8  # inches for title and foot
RESOLUTION = 110  # dots an inch: a picture as wide as a screen

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 20,  # room for the caption
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.01,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 1.4,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "seedbed",  # else the names inside an SVG are drawn at random
}


class NothingToDraw(ValueError):
    """What was given is no run, or its rows are for no panel."""


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        metrics = metrics_of(Path(arguments[0]))
        rows, notes = read_rows(metrics)
        for note in notes:
            print(f"{metrics}: {note}", file=sys.stderr)
        for path in draw(rows, metrics.parent / "plots"):
            print(path)
    except NothingToDraw as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"wanted to read metrics of {arguments[0]} and to write plots/ beside them, found "
            f"{error}; copy metrics.jsonl to a folder that can be written to, and name that",
            file=sys.stderr,
        )
        return 2
    return 0


def metrics_of(run: Path) -> Path:
    """The file of a run's metrics. Raises NothingToDraw where there is none."""
    candidates = [run, run / "metrics.jsonl", run / "out" / "metrics.jsonl"]
    for path in candidates:
        if path.is_file():
            return path
    found = "a folder without either" if run.is_dir() else "nothing there"
    raise NothingToDraw(
        f"wanted metrics.jsonl or out/metrics.jsonl in {run}, or a file of metrics, found {found}; "
        "name the folder of a run that has begun its first step"
    )


def read_rows(metrics: Path) -> tuple[list[Row], list[str]]:
    """The rows, and a note on each line that is none. Raises NothingToDraw where no row is left."""
    rows: list[Row] = []
    notes: list[str] = []
    lines = metrics.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, start=1):
        row = _row(line)
        if row is not None:
            rows.append(row)
        elif line.strip():
            # A line that was written whole ends in a newline, behind which is one more, empty.
            found = "is cut off" if number == len(lines) else "is no row of metrics"
            notes.append(f"line {number} {found}: left out")
    if not rows:
        found = f"{len(notes)} line(s), none of which is one" if notes else "an empty file"
        raise NothingToDraw(
            f"wanted rows of metrics, JSON objects with a step, in {metrics}, found {found}; wait "
            "for the run's first step, or see its run.log for why there was none"
        )
    return rows, notes


def draw(rows: Rows, folder: Path) -> list[Path]:
    """Write the pictures and return their paths. Raises NothingToDraw where no panel has data,
    OSError where the folder cannot be written to.
    """
    matplotlib.rcdefaults()  # whatever the reader's own settings
    matplotlib.rcParams.update(STYLE)
    written: list[Path] = []
    for section, (title, panels) in SECTIONS.items():
        figure = _figure(title, panels, rows)
        if figure is None:
            continue
        folder.mkdir(exist_ok=True)
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            path = folder / f"{section}.{kind}"
            figure.savefig(path, dpi=RESOLUTION, metadata=metadata)
            written.append(path)
    if not written:
        keys = sorted({key for row in rows for key in row})
        raise NothingToDraw(
            f"wanted rows with keys that a panel draws, found {', '.join(keys)}; add a panel for "
            "them to training/panels.py"
        )
    return written


def _row(line: str) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    is_row = isinstance(row, dict) and isinstance(row.get("step"), int)
    return row if is_row else None


def _figure(title: str, panels: Sequence[tuple[int, Panel]], rows: Rows) -> Figure | None:
    """A section's panels that have data, left to right, in as many lines as they need."""
    figure = Figure()
    places: list[tuple[Axes, int, slice]] = []  # line and columns
    line, column = 0, 0
    for columns, panel in panels:
        axes = figure.add_subplot()
        if not _has_drawn(panel, axes, rows):
            axes.remove()
            continue
        if column + columns > COLUMNS:
            line, column = line + 1, 0
        places.append((axes, line, slice(column, column + columns)))
        column += columns
    if not places:
        return None
    grid = figure.add_gridspec(line + 1, COLUMNS if line else column)
    for axes, line, columns in places:
        axes.set_subplotspec(grid[line, columns])
    figure.set_size_inches(grid.ncols * INCHES[0], grid.nrows * INCHES[1] + MARGIN)
    figure.suptitle(title, x=0.01, ha="left", size=14, weight="bold")
    figure.supxlabel(_foot(rows), x=0.01, ha="left", size=8, color=GREY)
    # Once for both files; a figure that keeps its engine is laid out at each drawing.
    ConstrainedLayoutEngine(w_pad=PADS[0], h_pad=PADS[1]).execute(figure)
    return figure


def _has_drawn(panel: Panel, axes: Axes, rows: Rows) -> bool:
    """Draw a panel, if it has data. One whose key another recipe gave another shape says so."""
    try:
        panel(axes, rows)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        reason = f"{panel.__name__}: not drawn, {type(error).__name__}: {error}"
        print(reason, file=sys.stderr)
        axes.clear()
        axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", wrap=True)
        axes.set_axis_off()
        return True
    return axes.has_data()


def _foot(rows: Rows) -> str:
    """What the pictures are of, and what their lines are."""
    parts = [f"Steps {rows[0]['step']} to {rows[-1]['step']}"]
    rollouts = rows[-1].get("rollouts")
    if isinstance(rollouts, int):
        parts.append(f"{rollouts:,} rollouts")
    if smoothed(len(rows)) > 1:
        parts.append("Most lines and areas are running means over a twentieth of the run")
    return ". ".join(parts) + "."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
