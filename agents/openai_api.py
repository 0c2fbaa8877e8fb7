"""OpenAI's Chat Completions API, which many servers speak: a request to it, a reply from it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
from openai import AsyncOpenAI

from agents.line import BROKEN_LINE, Line, failure_of
from agents.messages import Message, Reply, Request, Text, ToolResult, ToolUse
from agents.model import Model
from agents.replies import ANSWER, Asking, Pieces, Stop, assembled, count
from agents.tries import Patience, broken, from_status

STOPS: dict[str, Stop] = {
    "stop": "end",
    "tool_calls": "tools",
    "length": "length",
    "content_filter": "refusal",
}


def body_of(request: Request, model: Model, *, forced: bool) -> dict[str, Any]:
    """The request as the API takes it. `forced`: structured output by a forced tool."""
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    for message in request.messages:
        messages += _turns(message)
    body: dict[str, Any] = {
        "model": model.name,
        "max_completion_tokens": request.max_tokens,
        "messages": messages,
        "stream_options": {"include_usage": True},
    }
    tools = [_tool(tool.name, tool.description, tool.schema) for tool in request.tools]
    if request.schema is not None and forced:
        tools.append(_tool(ANSWER, "Give the answer.", request.schema))
        named = {"type": "function", "function": {"name": ANSWER}}
        body["tool_choice"] = "required" if request.tools else named
    elif request.schema is not None:
        form = {"name": ANSWER, "schema": request.schema, "strict": is_strict(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    if tools:
        body["tools"] = tools
    return body


def takes_schema(schema: dict[str, Any]) -> bool:
    """Whether structured output can say the schema: any, since it need not be strict."""
    return True


def is_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode takes the schema: objects closed, every property required."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    if "properties" in schema or schema.get("type") == "object":
        properties = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", [])) != set(properties):
            return False
    return "default" not in schema and all(is_strict(item) for item in schema.values())


async def converse_once(
    line: Line, model: Model, request: Request, patience: Patience, *, forced: bool
) -> Reply:
    """One try. Raises TryFailed."""
    async with (
        line.http(patience) as http,
        AsyncOpenAI(
            api_key="held-by-the-broker",
            base_url=line.url(model),
            default_headers=line.headers(model),
            max_retries=0,
            http_client=http,
        ) as client,
    ):
        streaming, body = False, body_of(request, model, forced=forced)
        try:
            async with await client.chat.completions.create(**body, stream=True) as stream:
                streaming = True
                pieces = await _read(chunk.to_dict(warnings=False) async for chunk in stream)
        except openai.APIStatusError as error:
            kind = error.code if isinstance(error.code, str) else error.type
            raise from_status(
                error.status_code,
                str(kind or ""),
                error.message,
                error.response.headers,
                streaming=streaming,
            ) from error
        except (openai.APIError, *BROKEN_LINE) as error:
            raise failure_of(error, patience) from error
    return assembled(pieces, forced=forced)


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


def _turns(message: Message) -> list[dict[str, Any]]:
    """One turn as the API's messages: each result of a tool is one of its own, and comes first."""
    turns: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            text = f"error: {part.text}" if part.is_error else part.text
            turns.append({"role": "tool", "tool_call_id": part.id, "content": text})
    text = message.text
    calls = [
        {
            "id": part.id,
            "type": "function",
            "function": {"name": part.name, "arguments": json.dumps(part.arguments)},
        }
        for part in message.parts
        if isinstance(part, ToolUse)
    ]
    if calls:
        turns.append({"role": message.role, "content": text or None, "tool_calls": calls})
    elif any(isinstance(part, Text) for part in message.parts):
        turns.append({"role": message.role, "content": text})
    return turns


async def _read(chunks: AsyncIterator[dict[str, Any]]) -> Pieces:
    pieces, asking, refusal = Pieces(), dict[int, Asking](), False
    async for chunk in chunks:
        pieces.model = pieces.model or str(chunk.get("model") or "unnamed")
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            _count(pieces, usage)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if pieces.stop is not None:
                raise broken("the stream went on after its end")
            delta = choice.get("delta")
            delta = delta if isinstance(delta, dict) else {}
            pieces.text.append(pieces.count(str(delta.get("content") or "")))
            if delta.get("refusal"):
                refusal = True
                pieces.text.append(str(delta["refusal"]))
            for call in delta.get("tool_calls") or []:
                _add_call(pieces, asking, call)
            stop = choice.get("finish_reason")
            if stop is not None and stop not in STOPS:
                raise broken(f"the reply stopped for a reason that is not known: {stop!r}")
            if stop is not None:
                pieces.stop = "refusal" if refusal else STOPS[stop]
    return pieces


def _add_call(pieces: Pieces, asking: dict[int, Asking], call: dict[str, Any]) -> None:
    index, function = call.get("index"), call.get("function")
    function = function if isinstance(function, dict) else {}
    if not isinstance(index, int):
        raise broken(f"a use of a tool has no place in the reply: {index!r}")
    if index not in asking:
        asking[index] = Asking(str(call.get("id") or ""), str(function.get("name") or ""))
        pieces.asking.append(asking[index])
    elif call.get("id") and function.get("name"):
        raise broken(f"a use of a tool began twice: {index}")
    asking[index].arguments += pieces.count(str(function.get("arguments") or ""))


def _count(pieces: Pieces, usage: dict[str, Any]) -> None:
    """The provider counts what a cache had, and what went into one, among the prompt's tokens."""
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    read = count(details.get("cached_tokens")) or 0
    written = count(details.get("cache_write_tokens")) or 0
    prompt = count(usage.get("prompt_tokens"))
    if prompt is not None and prompt < read + written:
        prompt = None  # that cannot be: nothing of it is believed
    pieces.output_tokens = count(usage.get("completion_tokens"))
    if prompt is None:
        pieces.input_tokens = None
        return
    pieces.input_tokens = prompt - read - written
    pieces.cache_read_tokens, pieces.cache_write_tokens = read, written
