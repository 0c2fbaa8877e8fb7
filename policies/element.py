"""Elements of a page: markup that we write, with every text escaped on its way in.

A string is text and nothing else, whoever wrote it; markup is only what `element` makes. What comes
out is HTML and well-formed XML at once, so that a strict parser can hold it to that.
"""

import html
from collections.abc import Iterator
from dataclasses import dataclass

from policies.escape import visible

MOST_TEXT = 1 << 16  # characters of one text: as long as a whole policy may be
_VOID = frozenset({"meta", "br", "hr", "link", "img", "col"})


@dataclass(frozen=True)
class Element:
    """An element with its attributes and what is in it."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple["Element | str", ...]


Node = Element | str


def element(name: str, /, *children: Node | None, **attributes: str | float | None) -> Element:
    """An element. `None` is left out; `class_` is `class`, `aria_label` is `aria-label`."""
    named = tuple(
        (
            key.rstrip("_").replace("_", "-"),
            f"{value:g}" if isinstance(value, float) else f"{value}",
        )
        for key, value in attributes.items()
        if value is not None
    )
    return Element(name, named, tuple(child for child in children if child is not None))


def markup(node: Node) -> str:
    """A node as bytes would have it. The text of `style` stands as it is: it must be ours."""
    return "".join(_written(node))


def _written(node: Node) -> Iterator[str]:
    if isinstance(node, str):
        yield _text(node)
        return
    attributes = "".join(f' {name}="{_text(value)}"' for name, value in node.attributes)
    if node.name in _VOID:
        yield f"<{node.name}{attributes} />"
        return
    yield f"<{node.name}{attributes}>"
    for child in node.children:
        if node.name == "style" and isinstance(child, str):
            assert "<" not in child and "&" not in child, "a style sheet holds no markup"
            yield child
        else:
            yield from _written(child)
    yield f"</{node.name}>"


def _text(text: str) -> str:
    cut = text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
    return html.escape(visible(cut))


def _number(value: str | float) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value}"
