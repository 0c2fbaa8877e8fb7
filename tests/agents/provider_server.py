"""A server on loopback that speaks as a language model's provider does, and misbehaves as told.

`ProviderServer(answer)` serves `POST /v1/messages` (Anthropic) and `POST /v1/chat/completions`
(OpenAI), streamed. For each request it calls `answer(asked)`, a function of the test, which returns
an `Answer`: what the model says, or what goes wrong. `asked.body` is the request as JSON,
`asked.number` counts from 0, `asked.tells` has the words of the last message, and `server.asked`
keeps all of them. `answer` runs in the server's threads, several at once.

    with ProviderServer(lambda asked: Answer(text="yes")) as server:
        model = read_model("anthropic:m", base_url=server.anthropic_url)

    Answer(tools=(Call("edit", {"path": "a.py"}),))        a tool is asked for
    Answer(text='{"answer": 1}', usage=None)               a reply that says no usage
    refused(429, headers={"retry-after": "1"})             a status and an error's body
    Answer(text="yes", cut_at=60)                          the stream ends after 60 bytes
    Answer(text="yes", cut_at=0, reset=True)               connection reset instead of any reply
    Answer(text="yes", pause=0.01)                         one byte, a pause, one byte, a pause
    Answer(text="yes", silent_at=80)                       80 bytes, then nothing until closed
"""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal

Protocol = Literal["anthropic", "openai"]
PATHS: dict[str, Protocol] = {"/v1/messages": "anthropic", "/v1/chat/completions": "openai"}
STOPS = {
    "anthropic": {"end": "end_turn", "tools": "tool_use", "length": "max_tokens"},
    "openai": {"end": "stop", "tools": "tool_calls", "length": "length"},
}
REFUSALS = {"anthropic": "refusal", "openai": "content_filter"}


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    number: int
    protocol: Protocol
    headers: Mapping[str, str]  # names in lower case
    body: dict[str, Any]

    @property
    def tells(self) -> str:
        """The last message as text, tool results too."""
        return json.dumps(self.body["messages"][-1], ensure_ascii=False)


@dataclass(frozen=True)
class Call:
    """A tool that the answer asks for. `arguments` may be text that is no JSON."""

    name: str
    arguments: dict[str, Any] | str


@dataclass(frozen=True)
class Counts:
    """The usage that a reply states; `cached` are tokens of the input that a cache had."""

    input: int = 100
    output: int = 20
    cached: int = 0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server sends back: a reply of a model, and what happens to it on its way."""

    text: str | None = ""  # None: no content at all, `content: null`
    tools: tuple[Call, ...] = ()
    stop: Literal["", "end", "tools", "length", "refusal"] = ""  # "": as the tools say
    usage: Counts | None = Counts()
    usage_key: str = "usage"  # some servers put it elsewhere
    twice: bool = False  # every event is sent a second time
    garbled: bool = False  # a byte that is no UTF-8 amid the text
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Mapping[str, Any] = field(default_factory=dict)  # the body where the status is not 200
    cut_at: int | None = None  # bytes of the body after which the connection ends
    framed: bool = True  # chunked, so that a cut shows; else the end of the connection ends it
    reset: bool = False  # it ends with a reset
    pause: float = 0.0  # seconds between bytes
    silent_at: int | None = None  # bytes of the body after which nothing more comes


def refused(
    status: int,
    message: str = "refused by the test",
    *,
    kind: str = "test_error",
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """An error as both providers shape it."""
    error = {"type": kind, "message": message, "code": code}
    return Answer(status=status, headers=headers or {}, error={"type": "error", "error": error})


def out_of_quota() -> Answer:
    """A 429 that no waiting helps."""
    return refused(
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        kind="insufficient_quota",
        code="insufficient_quota",
    )


class ProviderServer:
    """The server, running while it is entered."""

    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def __enter__(self) -> "ProviderServer":
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def anthropic_url(self) -> str:
        """The base URL for Anthropic's protocol."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI's protocol."""
        return f"{self.anthropic_url}/v1"

    def base_url(self, protocol: Protocol) -> str:
        return self.anthropic_url if protocol == "anthropic" else self.openai_url

    def note(self, protocol: Protocol, headers: Mapping[str, str], body: dict[str, Any]) -> Asked:
        with self._lock:
            asked = Asked(len(self.asked), protocol, headers, body)
            self.asked.append(asked)
        return asked

    def wait_closed(self, seconds: float | None) -> bool:
        return self._closing.wait(seconds)


def _handler_of(server: ProviderServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_POST(self) -> None:
            size = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(size))
            headers = {name.lower(): value for name, value in self.headers.items()}
            protocol = PATHS.get(self.path.partition("?")[0])
            if protocol is None:
                self.send_error(404, f"no such path: {self.path}")
                return
            asked = server.note(protocol, headers, body)
            answer = server.answer(asked)
            try:
                _send(self, server, answer, asked)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _send(
    handler: BaseHTTPRequestHandler, server: ProviderServer, answer: Answer, asked: Asked
) -> None:
    if answer.reset and not answer.cut_at:
        _reset(handler)
        return
    if answer.status != 200:
        body = json.dumps(dict(answer.error)).encode()
        handler.send_response(answer.status)
        for name, value in {"content-type": "application/json", **answer.headers}.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return
    body = stream_of(answer, asked.protocol, asked.body.get("model", ""))
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    for name, value in answer.headers.items():
        handler.send_header(name, value)
    if answer.framed:
        handler.send_header("transfer-encoding", "chunked")
    else:
        handler.send_header("connection", "close")
        handler.close_connection = True
    handler.end_headers()
    end = len(body) if answer.cut_at is None else answer.cut_at
    end = end if answer.silent_at is None else min(end, answer.silent_at)
    step = 1 if answer.pause else max(1, end)
    for start in range(0, end, step):
        part = body[start : min(start + step, end)]
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if answer.framed else part)
        if answer.pause and server.wait_closed(answer.pause):
            return
    handler.wfile.flush()
    if answer.silent_at is not None:
        # Until the client goes or the server is closed.
        handler.connection.settimeout(0.05)
        while not server.wait_closed(0):
            try:
                if not handler.connection.recv(1):
                    break
            except TimeoutError:
                continue
        handler.close_connection = True
    elif answer.cut_at is not None:
        handler.close_connection = True
        if answer.reset:
            _reset(handler)
    elif answer.framed:
        handler.wfile.write(b"0\r\n\r\n")


def _reset(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.connection.close()


def stream_of(answer: Answer, protocol: Protocol, model: str) -> bytes:
    """The whole stream of server-sent events, as bytes."""
    events = anthropic_events if protocol == "anthropic" else openai_events
    if not answer.stop:
        answer = replace(answer, stop="tools" if answer.tools else "end")
    parts = []
    for name, data in events(answer, model):
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=_has_half(data))
        event = (f"event: {name}\n" if name else "") + f"data: {text}\n\n"
        parts += [event.encode()] * (2 if answer.twice else 1)
    body = b"".join(parts)
    if answer.garbled:
        piece = json.dumps(_pieces(answer.text or "")[0], ensure_ascii=False).encode()
        place = body.index(piece) + 1
        body = body[:place] + b"\xff\xfe" + body[place:]
    return body


Events = Iterator[tuple[str, dict[str, Any] | str]]


def anthropic_events(answer: Answer, model: str) -> Events:
    """The events of Anthropic's Messages API, `message_start` to `message_stop`."""
    usage, output = {}, {}
    if answer.usage is not None:
        counts = answer.usage
        usage = {"input_tokens": counts.input, "output_tokens": 1}
        usage["cache_read_input_tokens"] = counts.cached
        output = {"output_tokens": counts.output}
    message: dict[str, Any] = {
        "id": "msg_test",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        answer.usage_key: usage,
    }
    yield "message_start", {"type": "message_start", "message": message}
    yield "ping", {"type": "ping"}
    index = 0
    if answer.text:
        block: dict[str, Any] = {"type": "text", "text": ""}
        yield _block_start(index, block)
        for piece in _pieces(answer.text):
            delta = {"type": "text_delta", "text": piece}
            yield _block_delta(index, delta)
        yield _block_stop(index)
        index += 1
    for number, call in enumerate(answer.tools):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": call.name, "input": {}}
        yield _block_start(index, block)
        for piece in _pieces(_arguments(call)):
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield _block_delta(index, delta)
        yield _block_stop(index)
        index += 1
    stop = {**STOPS["anthropic"], "refusal": REFUSALS["anthropic"]}[answer.stop]
    delta = {"stop_reason": stop, "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": delta, answer.usage_key: output}
    yield "message_stop", {"type": "message_stop"}


def openai_events(answer: Answer, model: str) -> Events:
    """The chunks of OpenAI's Chat Completions API, up to `[DONE]`."""

    def chunk(choices: list[dict[str, Any]], **more: Any) -> tuple[str, dict[str, Any]]:
        data = {"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 0}
        return "", {**data, "model": model, "choices": choices, **more}

    def choice(delta: dict[str, Any], stop: str | None = None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "finish_reason": stop}]

    yield chunk(choice({"role": "assistant", "content": None if answer.text is None else ""}))
    for piece in _pieces(answer.text or ""):
        yield chunk(choice({"content": piece}))
    for index, call in enumerate(answer.tools):
        function = {"name": call.name, "arguments": ""}
        start = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        yield chunk(choice({"tool_calls": [start]}))
        for piece in _pieces(_arguments(call)):
            more = {"index": index, "function": {"arguments": piece}}
            yield chunk(choice({"tool_calls": [more]}))
    stop = {**STOPS["openai"], "refusal": REFUSALS["openai"]}[answer.stop]
    yield chunk(choice({}, stop))
    if answer.usage is not None:
        counts = answer.usage
        prompt = counts.input + counts.cached  # OpenAI counts the cached ones in
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": counts.output,
            "total_tokens": prompt + counts.output,
            "prompt_tokens_details": {"cached_tokens": counts.cached},
        }
        yield chunk([], **{answer.usage_key: usage})
    yield "", "[DONE]"


def _block_start(index: int, block: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    data = {"type": "content_block_start", "index": index, "content_block": block}
    return "content_block_start", data


def _block_delta(index: int, delta: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    data = {"type": "content_block_delta", "index": index, "delta": delta}
    return "content_block_delta", data


def _block_stop(index: int) -> tuple[str, dict[str, Any]]:
    return "content_block_stop", {"type": "content_block_stop", "index": index}


def _has_half(data: Any) -> bool:
    """Half of a character can be sent only in JSON's own escape."""
    try:
        return not json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True


def _arguments(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _pieces(text: str) -> list[str]:
    """The text in three pieces at most, as a stream brings it."""
    size = max(1, -(-len(text) // 3))
    return [text[start : start + size] for start in range(0, len(text), size)]
