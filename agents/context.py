"""A conversation within bounds: what is old and long is folded before a model's context is full."""

from dataclasses import dataclass, replace

from agents.messages import Message, Text, ToolResult, ToolUse

RECENT = 6  # last messages, which are never folded
SHORT = 300  # characters of what is left of a part when it is folded
_TARGET = 0.6  # share of the budget to fold down to: a provider's cache holds until the next time


@dataclass
class Context:
    """The messages of one conversation, at most `budget` characters of them, and what was folded.

    The budget bounds what is older than the last RECENT messages; the tools bound these.
    """

    budget: int
    messages: tuple[Message, ...] = ()
    folded: int = 0  # parts

    def say(self, *parts: Text | ToolResult) -> None:
        """Add a turn of the user's."""
        self._add(Message("user", parts))

    def hear(self, message: Message) -> None:
        """Add a turn of the model's."""
        self._add(message)

    def _add(self, message: Message) -> None:
        self.messages = (*self.messages, message)
        if size(self.messages) > self.budget:
            self._fold()

    def _fold(self) -> None:
        """Fold parts, the oldest first; the first message is the brief, and stays."""
        kept = list(self.messages)
        for place in range(1, len(kept) - RECENT):
            if size(kept) <= _TARGET * self.budget:
                break
            parts = tuple(_folded(part) for part in kept[place].parts)
            self.folded += sum(
                one is not other for one, other in zip(parts, kept[place].parts, strict=True)
            )
            kept[place] = replace(kept[place], parts=parts)
        self.messages = tuple(kept)


def size(messages: tuple[Message, ...] | list[Message]) -> int:
    """Characters of messages."""
    return sum(_length(part) for message in messages for part in message.parts)


def _length(part: Text | ToolUse | ToolResult) -> int:
    if isinstance(part, ToolUse):
        return len(part.name) + sum(len(str(value)) for value in part.arguments.values())
    return len(part.text)


def _folded(part: Text | ToolUse | ToolResult) -> Text | ToolUse | ToolResult:
    if _length(part) <= SHORT:
        return part
    if isinstance(part, ToolUse):
        most = SHORT // max(1, len(part.arguments))
        short = {name: _short(value, most) for name, value in part.arguments.items()}
        return replace(part, arguments=short)
    return replace(part, text=_cut(part.text, SHORT))


def _short(value: object, most: int) -> object:
    spelled = str(value)
    return value if len(spelled) <= most else _cut(spelled, most)


def _cut(text: str, most: int) -> str:
    mark = f"[folded: {len(text)} characters]"
    return f"{text[: max(0, most - len(mark))]}{mark}"
