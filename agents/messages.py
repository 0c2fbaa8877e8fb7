"""Messages: what is said between an agent and a language model, whichever provider serves it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

# What a call raises beside ProviderFailure: it could cost more than a cap leaves, and was not made.
from policies.caps import SpendCapReached as SpendCapReached


@dataclass(frozen=True)
class Text:
    """Something said in words."""

    text: str


@dataclass(frozen=True)
class ToolUse:
    """The model asks for one use of a tool."""

    id: str
    name: str
    arguments: dict[str, Any]  # as the model gave them: not checked against the tool's schema


@dataclass(frozen=True)
class ToolResult:
    """What came of one use of a tool."""

    id: str  # of the ToolUse it answers
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class Message:
    """One turn. Results of tools are the user's."""

    role: Literal["user", "assistant"]
    parts: tuple[Text | ToolUse | ToolResult, ...]

    @property
    def text(self) -> str:
        """All that it says in words."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


@dataclass(frozen=True)
class Tool:
    """A tool that the model may ask for."""

    name: str
    description: str
    schema: dict[str, Any]  # JSON Schema of the arguments, an object


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call: everything the model is told, and what it may answer with."""

    system: str
    messages: tuple[Message, ...]  # the last one is the user's
    tools: tuple[Tool, ...] = ()
    schema: dict[str, Any] | None = None  # JSON Schema that the answer's text must follow
    max_tokens: int  # of the answer: what is reserved for it


@dataclass(frozen=True)
class Usage:
    """Tokens of one call. None: the provider did not say, which is not zero."""

    input_tokens: int | None  # read anew, neither from a cache nor into one
    output_tokens: int | None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True)
class Reply:
    """What the model answered, whole: a stream that was cut is a ProviderFailure, not a reply.

    `length` stops are replies, so that who asked can say so to the model; what they hold was cut
    and is never read as complete.
    """

    message: Message
    stop: Literal["end", "tools", "length", "refusal"]
    usage: Usage
    model: str  # as the provider names what answered


Converse = Callable[[Request], Awaitable[Reply]]


class ProviderFailure(RuntimeError):
    """A provider gave no reply. The message has its first cause."""

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent  # no try will help: authentication, quota, unknown model
