"""Text of others made harmless: workers and models write it, people read it in Markdown and SVG."""

import html
import re
import unicodedata

MOST = 300  # characters of one piece of text in a table


def visible(text: str) -> str:
    """`text` on one line, with control, format and private characters spelled `\\uXXXX`.

    Such characters move the cursor, colour a terminal or turn the order of what is read.
    """
    if text.isprintable():  # most texts: none of those characters is
        return text
    return "".join(_spell(letter) if _is_hidden(letter) else letter for letter in text)


def one_line(text: str, most: int = MOST) -> str:
    """`text` with runs of white space as one space, visible, cut to `most` characters."""
    line = visible(" ".join(text.split())[: most + 1])  # spelled out it only gets longer
    return line if len(line) <= most else line[: most - 1] + "…"


def markdown(text: str, most: int = MOST) -> str:
    """`text` as literal Markdown, in a table cell too: no HTML, links, images or emphasis."""
    line = html.escape(_unlinked(one_line(text, most)), quote=False)
    return re.sub(r"([\\`*_\[\]|~!#])", r"\\\1", line)


def code(text: str, most: int = MOST) -> str:
    """`text` as a code span, in a table cell too: what could end it is spelled `\\u00XX`."""
    line = re.sub(r"[`|<>]", lambda found: _spell(found[0]), one_line(text, most))
    return f"`{line}`" if line else ""


def svg(text: str) -> str:
    """`text` as the content of an SVG text element."""
    return html.escape(visible(text), quote=False)


def _is_hidden(letter: str) -> bool:
    point = ord(letter)
    is_no_character = point & 0xFFFE == 0xFFFE or 0xFDD0 <= point <= 0xFDEF  # XML refuses some
    return is_no_character or unicodedata.category(letter) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def _spell(letter: str) -> str:
    return f"\\u{ord(letter):04x}"


def _unlinked(text: str) -> str:
    # Some renderers make a link of a bare address, escaped or not.
    return re.sub(r"(?i)\bwww\.", "www .", text.replace("://", ": //"))
