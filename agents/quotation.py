"""Quotation: text of others as data in a prompt, bounded, delimited and without false marks.

Documents, files, logs, output of programs and what other agents wrote reach a model only so. It
helps the model to tell data from orders; nothing rests on it, since no text can widen what an agent
may do.
"""

import json
import re
import unicodedata
from typing import Literal

Kept = Literal["start", "end"]

MOST = 16_000  # characters of one quotation

# What chat formats, and our own delimiter, mark turns and data with.
_MARKS = re.compile(
    r"<(?=\|)"  # <|im_start|>, <|end|>
    r"|<(?=/?\s*(data|system|user|assistant|human|instructions?|tool\w*|function\w*|antml\w*)\b)"
    r"|\[(?=/?(INST|SYS|SYSTEM)\])"
    r"|<(?=<\s*/?SYS)",
    re.IGNORECASE,
)
_ROLE = re.compile(
    r"^([^\w\n]*)(system|user|assistant|human|developer|tool)([^\w\n]*):", re.I | re.M
)
_INSTEAD = {"<": "‹", "[": "⟦"}  # noqa: RUF001 - on purpose: they look alike and mark nothing


def quote(
    text: str, source: str, *, most: int = MOST, keep: Literal["start", "end"] = "start"
) -> str:
    """`text` as data from `source`, at most `most` characters of it: its start, or its end.

    Control and invisible characters are gone, marks of turns are defused, and what was left out is
    said.
    """
    shown = defused(text)
    if len(shown) > most:
        left_out = f"[{len(shown) - most} of {len(shown)} characters are left out here]"
        shown = f"{shown[:most]}\n{left_out}" if keep == "start" else f"{left_out}\n{shown[-most:]}"
    return f"<data source={json.dumps(line(source, 200))}>\n{shown}\n</data>"


def defused(text: str) -> str:
    """`text` without control and invisible characters, with marks of turns that mark nothing."""
    return _ROLE.sub(r"\1\2\3 -", _MARKS.sub(lambda m: _INSTEAD[m[0]], plain(text)))


def plain(text: str) -> str:
    """`text` without what no reader sees: control characters, directions, half characters."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_UNSEEN)


def line(text: str, most: int) -> str:
    """`text` on one line of at most `most` characters."""
    one = " ".join(defused(text[: 4 * most]).split())
    return one if len(one) <= most else f"{one[: most - 1]}…"


class _Unseen(dict[int, int | None]):
    """What `str.translate` makes of each character: itself, or nothing where no reader sees it."""

    def __missing__(self, code: int) -> int | None:
        # Cc control, Cf directions and zero widths, Cs half a character, Co private, Cn unassigned.
        is_seen = chr(code) in "\n\t" or unicodedata.category(chr(code)) not in _HIDDEN
        self[code] = code if is_seen else None
        return self[code]


_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn")
_UNSEEN = _Unseen()
