"""Blocks: the labelled parts of a prompt or a completion, fenced as Markdown has it.

A block opens with a line of three or more backticks and its label, and closes with the next line of
nothing but at least as many backticks. Fences start their lines. A block that is never closed is
none, nor is anything after its opening line. Lines end in \\n, \\r\\n or \\r.

A model that reasons between <think> and </think> says nothing there: only what follows the last
</think> counts, and nothing does if that is missing.
"""

import re
from dataclasses import dataclass

_BACKTICKS = re.compile(r"`+")


@dataclass(frozen=True)
class Block:
    label: str  # the first word behind the fence, in lower case
    text: str  # without the line break before the closing fence


def fenced(label: str, text: str) -> str:
    """A block of this text, whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{label}\n{text}\n{fence}"


def read_blocks(text: str) -> list[Block]:
    """All blocks of a text, in order."""
    blocks = []
    fence, label, lines = "", "", []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if fence:
            end = line.rstrip(" \t")
            if end.startswith(fence) and not end.strip("`"):
                blocks.append(Block(label, "\n".join(lines)))
                fence = ""
            else:
                lines.append(line)
        elif line.startswith("```") and "`" not in (rest := line.lstrip("`")):
            fence, lines = line[: len(line) - len(rest)], []
            label = (rest.split() or [""])[0].lower()
    return blocks


def said(completion: str) -> str:
    """What a completion says when its reasoning is over; nothing if it never is."""
    _, end, rest = completion.rpartition("</think>")
    return rest if end else "" if "<think>" in completion else completion
