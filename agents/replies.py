"""Replies: a stream's pieces put together, and checked to be whole before they are one."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from agents.messages import Message, Reply, Text, ToolUse, Usage
from agents.tries import broken

Stop = Literal["end", "tools", "length", "refusal"]
ANSWER = "answer"  # the tool that stands in for structured output where a server has none
LONGEST = 2**22  # characters of a reply
DEEPEST = 32  # levels of a tool's arguments: what walks them is recursive


@dataclass
class Asking:
    """A use of a tool, of which the arguments still arrive."""

    id: str
    name: str
    arguments: str = ""


@dataclass
class Pieces:
    """What has arrived of one reply."""

    text: list[str] = field(default_factory=list)
    asking: list[Asking] = field(default_factory=list)
    stop: Stop | None = None
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    length: int = 0

    def count(self, text: str) -> str:
        """The piece itself. Raises TryFailed where the reply has no end."""
        self.length += len(text)
        if self.length > LONGEST:
            raise broken(f"the reply is longer than {LONGEST:,} characters")
        return text


def assembled(pieces: Pieces, *, forced: bool) -> Reply:
    """The reply. `forced`: structured output was asked for as a tool.

    Raises TryFailed for one that is not whole: no stop, arguments that are no JSON object, no
    content. A `length` stop is a reply, with only those uses of tools that arrived whole.
    """
    if pieces.stop is None:
        raise broken("the stream ended before the reply did")
    text = whole("".join(pieces.text))
    uses = []
    for asking in pieces.asking:
        arguments = _arguments(asking.arguments)
        if arguments is not None and asking.id and asking.name:
            uses.append(ToolUse(whole(asking.id), whole(asking.name), arguments))
        elif pieces.stop != "length":
            raise broken(
                f"the arguments for tool {asking.name!r} are no JSON object: "
                f"{asking.arguments[:200]!r}"
            )
    stop = pieces.stop
    if forced and uses and uses[0].name == ANSWER and stop != "refusal":
        text, uses = json.dumps(uses[0].arguments, ensure_ascii=False), []
        stop = "length" if stop == "length" else "end"
    if uses and stop == "end":  # some servers stop for tools without saying so
        stop = "tools"
    if stop == "tools" and not uses:
        raise broken("the model stopped to use tools and named none")
    if stop == "end" and not text.strip():
        raise broken("the reply has no content")
    parts = (*((Text(text),) if text else ()), *uses)
    usage = Usage(
        pieces.input_tokens,
        pieces.output_tokens,
        pieces.cache_read_tokens,
        pieces.cache_write_tokens,
    )
    return Reply(Message("assistant", parts), stop, usage, whole(pieces.model))


def count(value: Any) -> int | None:
    """A number of tokens as stated, or None: what is no such number was not stated."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def whole(text: str) -> str:
    """Text that can be written as UTF-8: halves of a character are joined, lone ones replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _arguments(text: str) -> dict[str, Any] | None:
    """The arguments as an object; no text is none. None where they are anything else."""
    try:
        value = json.loads(text or "{}", parse_constant=_no_number)
        found = json.loads(whole(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and _is_shallow(found, DEEPEST) else None


def _is_shallow(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_shallow(item, levels - 1) for item in inner)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
