"""A script in place of a language model: it answers with what stands in it, and keeps what it was
asked."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from agents.messages import Message, Reply, Request, Text, ToolUse, Usage

Line = Reply | Exception | Callable[[Request], Reply]


@dataclass
class Script:
    """Answers in order; after the last one, the last one again. It keeps what was said."""

    lines: list[Line]
    asked: list[Request] = field(default_factory=list)
    said: list[Reply] = field(default_factory=list)

    async def __call__(self, request: Request) -> Reply:
        line = self.lines[min(len(self.asked), len(self.lines) - 1)]
        self.asked.append(request)
        if isinstance(line, Exception):
            raise line
        self.said.append(line if isinstance(line, Reply) else line(request))
        return self.said[-1]


def script(*lines: Line) -> Script:
    return Script(list(lines))


def says(text: str, stop: Literal["end", "length", "refusal"] = "end") -> Reply:
    return reply([Text(text)], stop)


def uses(name: str, **arguments: Any) -> Reply:
    return reply([ToolUse(f"use-{name}", name, arguments)], "tools")


def reply(
    parts: Iterable[Text | ToolUse], stop: Literal["end", "tools", "length", "refusal"]
) -> Reply:
    return Reply(Message("assistant", tuple(parts)), stop, Usage(10, 5), "scripted")


def context_of(request: Request) -> str:
    """Everything that a model was told, as one text."""
    return repr(request)
