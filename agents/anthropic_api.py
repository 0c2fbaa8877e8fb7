"""Anthropic's Messages API: a request as it is sent there, a reply from what is streamed back."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
from anthropic import AsyncAnthropic

from agents.line import BROKEN_LINE, Line, failure_of
from agents.messages import Message, Reply, Request, Text, ToolUse
from agents.model import Model
from agents.replies import ANSWER, Asking, Pieces, Stop, assembled, count
from agents.tries import Patience, broken, from_status

STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
CACHED = {"cache_control": {"type": "ephemeral"}}


def body_of(request: Request, model: Model, *, forced: bool) -> dict[str, Any]:
    """The request as the Messages API takes it. `forced`: structured output by a forced tool.

    The system's text is marked for the provider's cache, and the last turn where there are tools:
    the next call of such a conversation begins with all of this one.
    """
    messages = [_turn(message) for message in request.messages]
    if request.tools and messages[-1]["content"]:
        messages[-1]["content"][-1] |= CACHED
    body: dict[str, Any] = {
        "model": model.name,
        "max_tokens": request.max_tokens,
        "messages": messages,
    }
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, **CACHED}]
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
        for tool in request.tools
    ]
    if request.schema is not None and forced:
        about = "Give the answer."
        tools.append({"name": ANSWER, "description": about, "input_schema": request.schema})
        choice = {"type": "any"} if request.tools else {"type": "tool", "name": ANSWER}
        body["tool_choice"] = choice
    elif request.schema is not None:
        # Ranges and lengths go into descriptions there; who asked checks all of it.
        schema = anthropic.transform_schema(request.schema)
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    if tools:
        body["tools"] = tools
    return body


def takes_schema(schema: dict[str, Any]) -> bool:
    """Whether structured output can say the schema.

    It knows no objects with keys of any name, and no value of one of several types but by `anyOf`.
    """
    if not _is_plain(schema):
        return False
    try:
        anthropic.transform_schema(schema)
    except ValueError:
        return False
    return True


async def converse_once(
    line: Line, model: Model, request: Request, patience: Patience, *, forced: bool
) -> Reply:
    """One try. Raises TryFailed."""
    async with (
        line.http(patience) as http,
        AsyncAnthropic(
            api_key="held-by-the-broker",
            base_url=line.url(model),
            default_headers=line.headers(model),
            max_retries=0,
            http_client=http,
        ) as client,
    ):
        streaming, body = False, body_of(request, model, forced=forced)
        try:
            async with await client.messages.create(**body, stream=True) as stream:
                streaming = True
                pieces = await _read(event.to_dict(warnings=False) async for event in stream)
        except anthropic.APIStatusError as error:
            message = error.api_message or str(error)
            raise from_status(
                error.status_code,
                error.type or "",
                message,
                error.response.headers,
                streaming=streaming,
            ) from error
        except (anthropic.APIError, *BROKEN_LINE) as error:
            raise failure_of(error, patience) from error
    return assembled(pieces, forced=forced)


def _is_plain(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(_is_plain(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    is_object = "properties" in schema or schema.get("type") == "object"
    if is_object and schema.get("additionalProperties") is not False:
        return False
    return not isinstance(schema.get("type"), list) and all(map(_is_plain, schema.values()))


def _turn(message: Message) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            if part.text.strip():  # the API takes no empty text
                blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, ToolUse):
            block = {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
            blocks.append(block)
        else:
            block = {"type": "tool_result", "tool_use_id": part.id, "content": part.text}
            blocks.append(block | {"is_error": True} if part.is_error else block)
    return {"role": message.role, "content": blocks}


async def _read(events: AsyncIterator[dict[str, Any]]) -> Pieces:
    pieces, blocks, ended = Pieces(), dict[int, Asking | None](), False
    async for event in events:
        kind = event.get("type")
        if ended:
            raise broken(f"the stream went on after its end, with {kind!r}")
        if kind == "message_start":
            if pieces.model:
                raise broken("the reply began twice")
            message = _object(event, "message")
            pieces.model = str(message.get("model") or "unnamed")
            usage = _object(message, "usage")
            pieces.input_tokens = count(usage.get("input_tokens"))
            pieces.cache_read_tokens = count(usage.get("cache_read_input_tokens")) or 0
            pieces.cache_write_tokens = count(usage.get("cache_creation_input_tokens")) or 0
        elif kind == "content_block_start":
            index, block = event.get("index"), _object(event, "content_block")
            if not isinstance(index, int) or index in blocks:
                raise broken(f"a part of the reply began twice: {index!r}")
            blocks[index] = None
            if block.get("type") == "tool_use":
                asking = Asking(str(block.get("id") or ""), str(block.get("name") or ""))
                blocks[index] = asking
                pieces.asking.append(asking)
            elif block.get("type") == "text":
                pieces.text.append(str(block.get("text") or ""))
        elif kind == "content_block_delta":
            index, delta = event.get("index"), _object(event, "delta")
            if index not in blocks:
                raise broken(f"a piece came of no part of the reply: {index!r}")
            asking = blocks[index]
            if delta.get("type") == "text_delta":
                pieces.text.append(pieces.count(str(delta.get("text") or "")))
            elif delta.get("type") == "input_json_delta" and asking is not None:
                asking.arguments += pieces.count(str(delta.get("partial_json") or ""))
        elif kind == "message_delta":
            stop = _object(event, "delta").get("stop_reason")
            if stop not in STOPS:
                raise broken(f"the reply stopped for a reason that is not known: {stop!r}")
            pieces.stop = STOPS[stop]
            # The beginning states one token of output, too: only the end counts.
            pieces.output_tokens = count(_object(event, "usage").get("output_tokens"))
        elif kind == "message_stop":
            ended = True
    if not ended:
        pieces.stop = None
    return pieces


def _object(data: dict[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}
