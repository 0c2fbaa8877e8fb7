"""The JSON object that a completion ends with, among thoughts, prose and fences.

    last_object(completion, lambda found: "question" in found)

Backslashes of LaTeX that were not doubled are repaired first, also those that JSON takes for an
escape: the \\t of \\theta, the \\n of \\nabla. A \\n before letters that are no LaTeX command is
a new line.

The work is bounded, whatever the completion: only its end is read, and only so many braces are
tried. Numbers come as they are spelled, as texts.
"""

import json
import re
from collections.abc import Callable
from typing import Any

LONGEST = 2**16  # characters of the completion's end that are read: 8192 tokens have about half
ATTEMPTS = 64  # places where an object may begin, the last ones

_BEGINNING = re.compile(r'\{\s*"[^"\\]{0,64}"\s*:')
_CODE_POINT = re.compile("u[0-9a-fA-F]{4}")
_ESCAPE = re.compile(rf"\\({_CODE_POINT.pattern}|[A-Za-z]+|[^A-Za-z])")
# LaTeX commands that begin like a JSON escape which is also written on purpose.
_COMMAND_NAMES = """
    nabla natural ncong ne nearrow neg neq newline nexists ngeq ngtr ni nleftarrow nleq nless nmid
    nolimits nonumber not notag notin nparallel nrightarrow nsim nsubseteq nsupseteq nu nwarrow
    rVert rangle rbrace rbrack rceil rfloor rho right rightarrow rightharpoonup rightleftarrows
    rightleftharpoons rightsquigarrow rm root rtimes rule rvert
    tag tan tanh tau tbinom text textbf textcolor textdegree textit textrm textsf textsubscript
    textsuperscript texttt tfrac therefore theta thickapprox thicksim thinspace tilde times to top
    triangle triangleleft trianglelefteq triangleq triangleright trianglerighteq twoheadrightarrow
"""
_COMMANDS = frozenset(_COMMAND_NAMES.split())


def last_object(
    completion: str, accepts: Callable[[dict[str, Any]], bool]
) -> dict[str, Any] | None:
    """The last object outside thoughts and other objects that is accepted; None without one. An
    object that has a key twice is none.
    """
    text = repaired(without_thoughts(completion)[-LONGEST:])
    starts = [found.start() for found in _BEGINNING.finditer(text)][-ATTEMPTS:]
    last, end = None, 0
    for start in starts:
        if start < end:  # in an object that was read
            continue
        try:
            found, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if accepts(found):
            last = found
    return last


def without_thoughts(completion: str) -> str:
    """A completion without its <think> blocks, nor what comes before the end of one that the
    prompt began, nor one that has no end.
    """
    parts = []
    at = 0
    while (start := completion.find("<think>", at)) >= 0:
        parts.append(completion[at:start])
        end = completion.find("</think>", start)
        if end < 0:
            break
        at = end + len("</think>")
    else:
        parts.append(completion[at:])
    return "".join(parts).rpartition("</think>")[2]


def repaired(text: str) -> str:
    """JSON in which the backslashes of LaTeX are doubled."""
    return _ESCAPE.sub(_doubled, text)


def _doubled(escape: re.Match[str]) -> str:
    name = escape[1]
    if name[0] in "bf":  # nobody means a backspace or a page break
        is_latex = len(name) > 1
    elif name[0] in "nrt":
        is_latex = name in _COMMANDS
    elif name[0] == "u":
        is_latex = not _CODE_POINT.fullmatch(name)
    else:
        is_latex = name not in ('"', "\\", "/")
    return "\\" * is_latex + escape[0]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


# Line breaks in texts are let pass: models write them.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=str, parse_float=str, parse_constant=str, strict=False
)
