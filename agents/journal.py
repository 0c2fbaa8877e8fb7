"""The journal: every exchange with a model as a canonical text, and what answers from it again."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from agents.marks import NO_MARKS, Marks
from agents.messages import (
    Converse,
    Message,
    ProviderFailure,
    Reply,
    Request,
    Text,
    Tool,
    ToolResult,
    ToolUse,
    Usage,
)
from agents.redaction import redacted
from agents.replies import whole
from policies.canonical import canonical_json, digest


class ReplayDiverged(RuntimeError):
    """What is asked is not what was asked when the journal was written."""


@dataclass(frozen=True)
class Exchange:
    """A request and what came of it, redacted: what the journal keeps, and no more."""

    model: str
    request: Request
    outcome: Reply | ProviderFailure

    def text(self) -> str:
        """The exchange as canonical JSON."""
        outcome = self.outcome
        data = {"model": self.model, "request": request_data(self.request)}
        if isinstance(outcome, Reply):
            data["reply"] = {
                "message": message_data(outcome.message),
                "stop": outcome.stop,
                "usage": asdict(outcome.usage),
                "model": outcome.model,
            }
        else:
            data["failure"] = {"message": str(outcome), "permanent": outcome.permanent}
        return canonical_json(data)

    def request_sha256(self) -> str:
        return digest(request_data(self.request))


def exchange(
    model: str, request: Request, outcome: Reply | ProviderFailure, marks: Marks
) -> Exchange:
    """The exchange as it may be kept, without keys."""
    return read_exchange(canonical_json(redacted(_data(Exchange(model, request, outcome)), marks)))


def read_exchange(text: str) -> Exchange:
    data = json.loads(text)
    request = request_of(data["request"])
    if "failure" in data:
        failure = data["failure"]
        outcome = ProviderFailure(failure["message"], permanent=failure["permanent"])
        return Exchange(data["model"], request, outcome)
    reply = data["reply"]
    usage = Usage(**reply["usage"])
    message = message_of(reply["message"])
    return Exchange(data["model"], request, Reply(message, reply["stop"], usage, reply["model"]))


def replay(exchanges: Iterable[Exchange]) -> Converse:
    """Answers the same requests in the same order, without a provider; a failure fails again.

    Raises ReplayDiverged for any other request, naming the first part of it that differs.
    """
    left = iter(exchanges)
    number = 0

    async def converse(request: Request) -> Reply:
        nonlocal number
        number += 1
        recorded = next(left, None)
        if recorded is None:
            raise ReplayDiverged(
                f"wanted the answer to request {number}, found that the journal has "
                f"{number - 1}; the code or the plan asks for more than it did then"
            )
        asked = redacted(request_data(cleaned(request)), NO_MARKS)
        wanted = request_data(recorded.request)
        if (where := _first_difference(wanted, asked)) is not None:
            raise ReplayDiverged(
                f"wanted request {number} to be that of the journal, found another {where}; "
                "replay with the code and the plan that wrote it"
            )
        if isinstance(recorded.outcome, ProviderFailure):
            raise ProviderFailure(str(recorded.outcome), permanent=recorded.outcome.permanent)
        return recorded.outcome

    return converse


def cleaned(request: Request) -> Request:
    """The request with nothing in it that cannot be written as UTF-8."""
    text = json.dumps(request_data(request), ensure_ascii=False)
    return request if text.isascii() else request_of(json.loads(whole(text)))


def request_data(request: Request) -> dict[str, Any]:
    """The request as JSON values."""
    return {
        "system": request.system,
        "messages": [message_data(message) for message in request.messages],
        "tools": [asdict(tool) for tool in request.tools],
        "schema": request.schema,
        "max_tokens": request.max_tokens,
    }


def request_of(data: dict[str, Any]) -> Request:
    return Request(
        system=data["system"],
        messages=tuple(message_of(message) for message in data["messages"]),
        tools=tuple(Tool(**tool) for tool in data["tools"]),
        schema=data["schema"],
        max_tokens=data["max_tokens"],
    )


def message_data(message: Message) -> dict[str, Any]:
    kinds = {Text: "text", ToolUse: "tool_use", ToolResult: "tool_result"}
    parts = [{"type": kinds[type(part)], **asdict(part)} for part in message.parts]
    return {"role": message.role, "parts": parts}


def message_of(data: dict[str, Any]) -> Message:
    kinds = {"text": Text, "tool_use": ToolUse, "tool_result": ToolResult}
    parts = []
    for part in data["parts"]:
        fields = {name: value for name, value in part.items() if name != "type"}
        parts.append(kinds[part["type"]](**fields))
    return Message(data["role"], tuple(parts))


def _data(whole_exchange: Exchange) -> dict[str, Any]:
    return json.loads(whole_exchange.text())


def _first_difference(wanted: Any, found: Any, path: str = "") -> str | None:
    """Where two JSON values differ first; None where they do not."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name in sorted(wanted.keys() | found.keys()):
            where = _first_difference(wanted.get(name), found.get(name), f"{path}.{name}")
            if where is not None:
                return where
        return None
    if isinstance(wanted, list) and isinstance(found, list):
        for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
            where = _first_difference(one, other, f"{path}[{index}]")
            if where is not None:
                return where
        same = len(wanted) == len(found)
        return None if same else f"number of {path.lstrip('.')}: {len(wanted)}, {len(found)}"
    if wanted == found:
        return None
    return f"{path.lstrip('.')}: {str(wanted)[:80]!r}, {str(found)[:80]!r}"
