"""Blocks of reports as HTML: the same cells that Markdown is made of, with rows as links."""

import re
from collections.abc import Collection, Iterable, Sequence

from policies.cells import (
    Block,
    Cell,
    Code,
    Interval,
    Items,
    Mark,
    Paragraph,
    Piece,
    Quote,
    Refs,
    Said,
    Strong,
    Table,
    interval_text,
)
from policies.charts import interval_bar
from policies.element import Element, Node, element
from policies.escape import one_line
from policies.rows import place_of

BRIEF = 44  # characters that stand on one line in a table
_NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?( \(n=\d+\)| ± [\d.]+)?|\$[\d,.]+")


def blocks_html(blocks: Iterable[Block], places: Collection[str], name: str) -> list[Element]:
    """Blocks as elements. `places` has the anchors that rows may link to, `name` is for who hears
    a table and does not see it.
    """
    found: list[Element] = []
    for block in blocks:
        match block:
            case Table(rows=[]) | Table(rows=()):
                continue
            case Table():
                found.append(table_html(block, places, name))
            case Items(items):
                lines = [element("li", *cell_html(item, places)) for item in items]
                found.append(element("ul", *lines))
            case Paragraph(lines):
                spans = [element("span", *cell_html(line, places), " ") for line in lines]
                found.append(element("p", *spans))
            case Quote(text, most):
                found.append(element("blockquote", one_line(text, most)))
    return found


def table_html(table: Table, places: Collection[str], name: str) -> Element:
    """A table that can be scrolled sideways where it is wider than the page."""
    ends = [cell for row in table.rows for cell in row if isinstance(cell, Interval)]
    values = [v for cell in ends for v in (cell.effect, cell.low, cell.high) if v is not None]
    reach = max(map(abs, values), default=0.0)
    kinds = [_kind(column) for column in zip(*table.rows, strict=True)]
    heads = [
        element("th", title, scope="col", class_=kind)
        for title, kind in zip(table.head, kinds, strict=True)
    ]
    rows = []
    for i, row in enumerate(table.rows):
        first, *others = row
        place = anchor_of(table.places[i]) if table.places else None
        cells = [element("th", *cell_html(first, places), scope="row", class_=kinds[0])]
        cells += [
            element("td", *cell_html(cell, places, reach), class_=kind)
            for cell, kind in zip(others, kinds[1:], strict=True)
        ]
        rows.append(element("tr", *cells, id=place))
    whole = element(
        "table", element("thead", element("tr", *heads)), element("tbody", *rows), aria_label=name
    )
    return element("div", whole, class_="scroll", tabindex=0, role="region", aria_label=name)


def cell_html(cell: Cell, places: Collection[str], reach: float = 0.0) -> list[Node]:
    """What is in a cell or a line; `reach` is the farthest end of the intervals beside it."""
    pieces = cell if isinstance(cell, tuple) else (cell,)
    return [node for piece in pieces for node in _piece_html(piece, places, reach)]


def anchor_of(row: str) -> str:
    """The anchor of a row's trial, or of its round: `r3-s2` for `r3/s2/dev/strings`."""
    place = place_of(row)
    return f"r{place.round}" if place.slot is None else f"r{place.round}-s{place.slot}"


def _piece_html(piece: Piece, places: Collection[str], reach: float) -> list[Node]:
    match piece:
        case Said(text, most):
            line = one_line(text, most)
            kind = "said long" if len(line) > BRIEF else "said"
            return [element("span", line, class_=kind)] if line else []
        case Code(text, most):
            line = one_line(text, most)
            return [element("code", line, class_=None if len(line) > BRIEF else "nowrap")]
        case Mark(text, tone):
            return [element("span", text, class_=f"mark {tone}")]
        case Strong(text):
            return [element("strong", text)]
        case Refs(rows):
            return _spaced([_link(row, places) for row in rows])
        case Interval():
            drawn = interval_bar(piece.effect, piece.low, piece.high, reach)
            return [drawn, element("span", interval_text(piece), class_="nowrap")]
        case _:
            return [piece]


def _link(row: str, places: Collection[str]) -> Element:
    place = anchor_of(row)
    if place not in places:
        return element("span", row, class_="row")
    return element("a", row, href=f"#{place}", class_="row")


def _spaced(nodes: Sequence[Node]) -> list[Node]:
    return [part for node in nodes for part in (" ", node)][1:]


def _kind(column: Sequence[Cell]) -> str | None:
    """Columns of numbers end at one line, their heads and what is missing too."""
    texts = [cell for cell in column if isinstance(cell, str)]
    is_number = len(texts) == len(column) and any(map(_NUMBER.fullmatch, texts))
    return "n" if is_number else None
