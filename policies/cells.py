"""Cells: what the tables and lines of reports hold, before they are Markdown or HTML."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from policies.escape import MOST, code, markdown

Tone = Literal["good", "bad", "odd", "quiet"]


@dataclass(frozen=True)
class Said:
    """Words of a worker, a model or a file: shown as text, whatever is in them."""

    text: str
    most: int = MOST  # characters


@dataclass(frozen=True)
class Code:
    """A name or a value, shown as code."""

    text: str
    most: int = MOST


@dataclass(frozen=True)
class Mark:
    """A word of ours that stands out."""

    text: str
    tone: Tone


@dataclass(frozen=True)
class Strong:
    """Words of ours that nobody overlooks."""

    text: str


@dataclass(frozen=True)
class Refs:
    """Rows of the campaign, such as `r3/s2/dev/strings`."""

    rows: Sequence[str]


@dataclass(frozen=True)
class Interval:
    """An effect and the interval around it."""

    effect: float | None
    low: float | None
    high: float | None


Piece = str | Said | Code | Mark | Strong | Refs | Interval
Cell = Piece | tuple[Piece, ...]


@dataclass(frozen=True)
class Table:
    """A table. `places` are the rows of the campaign that its rows are the place of, if any."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    places: Sequence[str] = ()


@dataclass(frozen=True)
class Items:
    """A list."""

    items: Sequence[Cell]


@dataclass(frozen=True)
class Paragraph:
    """Lines that belong together."""

    lines: Sequence[Cell]


@dataclass(frozen=True)
class Quote:
    """Words of a model, or of the code in its place, that are longer than a cell."""

    text: str
    most: int = 8000


Block = Table | Items | Paragraph | Quote


@dataclass(frozen=True)
class Section:
    """A part of a report under its title. Without blocks there was nothing of the kind."""

    title: str
    blocks: Sequence[Block]


def blocks_markdown(blocks: Iterable[Block]) -> list[str]:
    """Blocks as lines of Markdown, with an empty line between two; a table without rows is left
    out.
    """
    lines: list[str] = []
    for block in blocks:
        if found := _block_markdown(block):
            lines += ["", *found] if lines else found
    return lines


def cell_markdown(cell: Cell) -> str:
    """What stands in a table's cell or in a line, as Markdown."""
    pieces = cell if isinstance(cell, tuple) else (cell,)
    return "".join(map(_piece_markdown, pieces))


def number(value: float | None, missing: str) -> str:
    return missing if value is None else f"{value:.4f}"


def signed(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.4f}"


def with_error(value: float | None, error: float | None) -> str:
    return signed(value) if value is None or error is None else f"{value:+.4f} ± {error:.4f}"


def interval_text(interval: Interval) -> str:
    return f"{signed(interval.low)} to {signed(interval.high)}"


def code_or(text: str | None, otherwise: str) -> Piece:
    """A name as code, or a word of ours where there is none."""
    return Code(text) if text and text.strip() else otherwise


def joined(pieces: Iterable[Piece], separator: str = ", ") -> tuple[Piece, ...]:
    """Pieces with a separator between two."""
    return tuple(part for piece in pieces for part in (separator, piece))[1:]


def _block_markdown(block: Block) -> list[str]:
    match block:
        case Table(rows=[]) | Table(rows=()):
            return []
        case Table(head, rows):
            cells = [head, ["---"] * len(head), *(map(cell_markdown, row) for row in rows)]
            return ["| " + " | ".join(row) + " |" for row in cells]
        case Items(items):
            return [f"- {cell_markdown(item)}" for item in items]
        case Paragraph(lines):
            return [cell_markdown(line) for line in lines]
        case Quote(text, most):
            return [f"> {markdown(text, most)}"]


def _piece_markdown(piece: Piece) -> str:
    match piece:
        case Said(text, most):
            return markdown(text, most)
        case Code(text, most):
            return code(text, most)
        case Mark(text):
            return text
        case Strong(text):
            return f"**{text}**"
        case Refs(rows):
            return " ".join(rows)
        case Interval():
            return interval_text(piece)
        case _:
            return piece
