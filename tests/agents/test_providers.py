"""Both providers' SDKs against a server on loopback: what is sent, what comes back, what fails."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agents.line import Line
from agents.messages import (
    Message,
    ProviderFailure,
    Reply,
    Request,
    Text,
    Tool,
    ToolResult,
    ToolUse,
)
from agents.model import UnknownModel, read_model
from tests.agents.provider_server import (
    Answer,
    Asked,
    Call,
    Counts,
    ProviderServer,
    out_of_quota,
    refused,
)
from tests.agents.talk import HURRIED, Book, ask, said, talk

PROVIDERS = ("anthropic", "openai")
both = pytest.mark.parametrize("provider", PROVIDERS)
EDIT = Tool("edit", "Edit a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}


def replies(line: Line, provider: str, answer: Answer, request: Request | None = None) -> Reply:
    with ProviderServer(lambda asked: answer) as server:
        conversation = talk(line, server, provider, Book())
        return said(conversation.converse(), request or ask())


def failure_of(
    line: Line, provider: str, answer: Answer, request: Request | None = None
) -> tuple[ProviderFailure, Book, ProviderServer]:
    book = Book()
    with ProviderServer(lambda asked: answer) as server:
        conversation = talk(line, server, provider, book)
        with pytest.raises(ProviderFailure) as failed:
            said(conversation.converse(), request or ask())
    return failed.value, book, server


@both
def test_words_arrive_whole_with_usage_stop_and_model(line: Line, provider: str) -> None:
    reply = replies(line, provider, Answer(text="Well 😀, thanks.", usage=Counts(7, 5, cached=3)))
    assert reply.message == Message("assistant", (Text("Well 😀, thanks."),))
    assert (reply.stop, reply.model) == ("end", "test-model")
    usage = reply.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (7, 5, 3)


@both
def test_tools_are_asked_for_by_name_with_their_arguments(line: Line, provider: str) -> None:
    calls = (Call("edit", {"path": "ä.py"}), Call("edit", {}), Call("edit", ""))
    reply = replies(line, provider, Answer(text="Two.", tools=calls), ask(tools=(EDIT,)))
    assert reply.stop == "tools"
    uses = [part for part in reply.message.parts if isinstance(part, ToolUse)]
    assert [(use.name, use.arguments) for use in uses] == [
        ("edit", {"path": "ä.py"}),
        ("edit", {}),
        ("edit", {}),
    ]
    assert len({use.id for use in uses}) == 3


def test_a_conversation_is_sent_as_each_provider_wants_it(line: Line) -> None:
    messages = (
        Message("user", (Text("Go."),)),
        Message("assistant", (Text("I look."), ToolUse("t1", "edit", {"path": "a"}))),
        Message("user", (ToolResult("t1", "no such file", is_error=True), Text("Again."))),
    )
    request = ask(tools=(EDIT,), messages=messages)
    sent: list[Any] = []
    for provider in PROVIDERS:
        with ProviderServer(lambda asked: Answer(text="Yes.")) as server:
            said(talk(line, server, provider, Book()).converse(), request)
            sent.append(server.asked[0].body)
    claude, gpt = sent
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "no such file"}
    cached = {"cache_control": {"type": "ephemeral"}}
    assert claude["messages"][1]["content"] == [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "edit", "input": {"path": "a"}},
    ]
    assert claude["messages"][2]["content"] == [
        {**result, "is_error": True},
        {"type": "text", "text": "Again.", **cached},  # the last turn: the next call begins so
    ]
    assert claude["system"] == [{"type": "text", "text": "Be brief.", **cached}]
    assert claude["tools"][0]["input_schema"] == EDIT.schema
    assert (claude["max_tokens"], claude["stream"]) == (1000, True)
    assert [turn["role"] for turn in gpt["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
    ]
    function = {"name": "edit", "arguments": '{"path": "a"}'}
    assert gpt["messages"][2]["tool_calls"] == [
        {"id": "t1", "type": "function", "function": function}
    ]
    assert gpt["messages"][3]["content"] == "error: no such file"
    assert (gpt["max_completion_tokens"], gpt["stream"]) == (1000, True)


@both
def test_structured_output_is_asked_for_by_the_providers_own_means(
    line: Line, provider: str
) -> None:
    with ProviderServer(lambda asked: Answer(text='{"answer": 3}')) as server:
        conversation = talk(line, server, provider, Book())
        reply = said(conversation.converse(), ask(schema=SCHEMA))
        body = server.asked[0].body
    assert reply.message.text == '{"answer": 3}'
    if provider == "anthropic":
        assert body["output_config"]["format"]["schema"]["required"] == ["answer"]
    else:
        form = body["response_format"]["json_schema"]
        assert (form["schema"], form["strict"]) == (SCHEMA, True)


OPEN = {
    "free keys": {"type": "object", "properties": {"a": {"type": "object"}}},
    "several types": {**SCHEMA, "properties": {"answer": {"type": ["integer", "null"]}}},
    "no type": {**SCHEMA, "properties": {"answer": {}}},
}


@pytest.mark.parametrize("case", OPEN)
def test_a_schema_that_a_grammar_cannot_say_is_asked_for_as_a_tool(line: Line, case: str) -> None:
    with ProviderServer(lambda asked: Answer(tools=(Call("answer", {"a": 1}),))) as server:
        conversation = talk(line, server, "anthropic", Book())
        reply = said(conversation.converse(), ask(schema=OPEN[case]))
        body = server.asked[0].body
    assert (reply.message.text, reply.stop) == ('{"a": 1}', "end")
    assert body["tools"][0]["input_schema"] == OPEN[case] and "output_config" not in body
    assert body["tool_choice"] == {"type": "tool", "name": "answer"}


@both
def test_a_server_without_structured_output_is_asked_for_a_tool_from_then_on(
    line: Line, provider: str
) -> None:
    def answer(asked: Asked) -> Answer:
        if "output_config" in asked.body or "response_format" in asked.body:
            return refused(400, "response_format / output_config: extra inputs are not permitted")
        name = asked.body["tools"][0].get("name") or asked.body["tools"][0]["function"]["name"]
        return Answer(tools=(Call(name, {"answer": 3}),))

    book = Book()
    with ProviderServer(answer) as server:
        converse = talk(line, server, provider, book).converse()
        found = [said(converse, ask(schema=SCHEMA)) for _ in range(2)]
    for reply in found:
        assert (reply.stop, json.loads(reply.message.text)) == ("end", {"answer": 3})
    assert len(server.asked) == 3
    assert book.settled["call-1"]["tokens"] == 0


@both
def test_what_the_length_cut_is_a_reply_that_says_so(line: Line, provider: str) -> None:
    cut = Answer(text="I edit", tools=(Call("edit", '{"path": "a'),), stop="length")
    reply = replies(line, provider, cut, ask(tools=(EDIT,)))
    assert reply.stop == "length"
    assert reply.message.parts == (Text("I edit"),)
    empty = replies(line, provider, Answer(text=None, stop="length"))
    assert (empty.stop, empty.message.parts) == ("length", ())


@both
def test_a_refusal_is_a_reply_of_its_own_kind(line: Line, provider: str) -> None:
    assert replies(line, provider, Answer(text="No.", stop="refusal")).stop == "refusal"


@both
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refused(401, "invalid x-api-key", kind="authentication_error"), "invalid x-api-key"),
        (refused(403, "not for you", kind="permission_error"), "not for you"),
        (refused(404, "model: test-model", kind="not_found_error"), "model: test-model"),
        (refused(400, "max_tokens too large", kind="invalid_request_error"), "max_tokens"),
        (refused(402, "credit balance is too low", kind="billing_error"), "credit balance"),
        (out_of_quota(), "exceeded your current quota"),
    ],
)
def test_a_permanent_error_stops_after_one_try_and_says_why(
    line: Line, provider: str, answer: Answer, words: str
) -> None:
    failure, book, server = failure_of(line, provider, answer)
    assert failure.permanent and words in str(failure)
    assert len(server.asked) == 1
    assert book.settled == {"call-1": {"tokens": 0, "microdollars": 0}}  # nothing was generated
    assert str(book.exchanges[0].outcome) == str(failure)


@both
@pytest.mark.parametrize(
    "answer",
    [
        refused(400, "prompt is too long: 210000 tokens > 200000 maximum"),
        refused(400, "This model's maximum context length is 32768 tokens.", kind="BadRequest"),
        refused(400, "over the limit", code="context_length_exceeded", kind="context_length"),
        refused(400, "The response was filtered: content management policy."),
    ],
)
def test_what_is_refused_of_one_request_is_not_tried_again_and_ends_no_campaign(
    line: Line, provider: str, answer: Answer
) -> None:
    failure, book, server = failure_of(line, provider, answer)
    assert not failure.permanent and len(server.asked) == 1
    assert book.settled == {"call-1": {"tokens": 0, "microdollars": 0}}


@both
@pytest.mark.parametrize("status", [429, 500, 529])
def test_a_passing_error_is_tried_again(line: Line, provider: str, status: int) -> None:
    def answer(asked: Asked) -> Answer:
        return refused(status) if asked.number < 3 else Answer(text="At last.")

    book = Book()
    with ProviderServer(answer) as server:
        reply = said(talk(line, server, provider, book).converse(), ask())
        assert len(server.asked) == 4
    assert reply.message.text == "At last."
    refusals = [book.settled[f"call-{number}"] for number in (1, 2, 3)]
    billed = book.reserved[0] if status == 500 else {"tokens": 0, "microdollars": 0}
    assert refusals == [billed] * 3


@both
def test_five_tries_are_all_and_the_first_cause_is_kept(line: Line, provider: str) -> None:
    book = Book()
    with ProviderServer(
        lambda asked: refused(503 if asked.number else 529, f"no {asked.number}")
    ) as server:
        with pytest.raises(ProviderFailure, match=r"HTTP 529.*no 0.*after 5 tries.*no 4") as failed:
            said(talk(line, server, provider, book).converse(), ask())
        assert len(server.asked) == 5
    assert not failed.value.permanent


@both
def test_no_try_begins_after_the_time_to_give_up(line: Line, provider: str) -> None:
    with ProviderServer(lambda asked: refused(503)) as server:
        soon = replace(HURRIED, give_up=0.0)
        with pytest.raises(ProviderFailure):
            said(talk(line, server, provider, Book(), soon).converse(), ask())
        assert len(server.asked) == 1


BROKEN = {
    "cut amid the text": (Answer(text="a" * 300, cut_at=500), "incomplete chunked read"),
    "cut where the end shows nothing": (
        Answer(text="a" * 300, cut_at=500, framed=False),
        "ended before the reply did|JSONDecodeError",
    ),
    "cut before the first byte": (Answer(text="a", cut_at=0), "incomplete chunked read"),
    "reset before the head": (Answer(text="a", reset=True), "disconnected"),
    "reset amid the text": (Answer(text="a" * 300, cut_at=500, reset=True), "incomplete"),
    "silent amid the text": (Answer(text="a" * 300, silent_at=500), "nothing arrived for 0.2 s"),
    "silent from the start": (Answer(text="a", silent_at=0), "nothing arrived for 0.2 s"),
    "a trickle": (Answer(text="a", pause=0.02), "no whole reply within 0.3 s"),
    "no UTF-8": (Answer(text="garbled words", garbled=True), "UnicodeDecodeError"),
    "sent twice": (Answer(text="abc", twice=True), "twice|went on after its end"),
    "no content": (Answer(text=None), "no content"),
    "arguments cut": (Answer(tools=(Call("edit", '{"path": "a'),)), "no JSON object"),
    "arguments that are a list": (Answer(tools=(Call("edit", "[1]"),)), "no JSON object"),
    "arguments with NaN": (Answer(tools=(Call("edit", '{"a": NaN}'),)), "no JSON object"),
    "arguments of four hundred levels": (
        Answer(tools=(Call("edit", '{"a":' + "[" * 400 + "]" * 400 + "}"),)),
        "no JSON object",
    ),
    "five million characters": (Answer(text="word " * 10**6), "longer than 4,194,304 characters"),
    "tools promised, none named": (Answer(text="", stop="tools"), "named none"),
}


@both
@pytest.mark.parametrize("case", BROKEN)
def test_what_is_not_whole_is_a_failure_and_charged(line: Line, provider: str, case: str) -> None:
    answer, words = BROKEN[case]
    book = Book()
    total = 0.3 if case == "a trickle" else HURRIED.total
    idle = HURRIED.total if case == "five million characters" else HURRIED.idle
    patience = replace(HURRIED, tries=2, total=total, idle=idle)
    with ProviderServer(lambda asked: answer) as server:
        conversation = talk(line, server, provider, book, patience)
        with pytest.raises(ProviderFailure, match=words) as failed:
            said(conversation.converse(), ask(tools=(EDIT,)))
        assert len(server.asked) == 2
    assert not failed.value.permanent
    assert list(book.settled.values()) == book.reserved  # at its worst: nobody knows better


@both
@pytest.mark.parametrize(
    "answer",
    [
        Answer(text="a", usage=None),
        Answer(text="a", usage_key="cost"),
        Answer(text="a", usage=Counts(0, 0)),
        Answer(text="a", usage=Counts(-5, 3)),
    ],
)
def test_usage_that_nobody_states_costs_what_was_reserved(
    line: Line, provider: str, answer: Answer
) -> None:
    book = Book()
    with ProviderServer(lambda asked: answer) as server:
        said(talk(line, server, provider, book).converse(), ask())
    assert book.settled == {"call-1": book.reserved[0]}
    assert book.reserved[0]["tokens"] > 1000


@both
def test_what_a_provider_asks_to_wait_is_waited_by_all_who_talk_to_it(
    line: Line, provider: str
) -> None:
    def answer(asked: Asked) -> Answer:
        waits = {"retry-after": "0.04"}
        return refused(429, headers=waits) if asked.number == 0 else Answer(text="Yes.")

    with ProviderServer(answer) as server:
        conversation = talk(line, server, provider, Book())
        said(conversation.converse(), ask())
        assert conversation.quiet.until > 0


def test_halves_of_a_character_are_joined_and_lone_ones_replaced(line: Line) -> None:
    reply = replies(line, "openai", Answer(text="x\ud83d\ude00 \ud83d", tools=()))
    assert reply.message.text == "x😀 \ufffd"
    with ProviderServer(lambda asked: Answer(text="Fine.")) as server:
        said(talk(line, server, "anthropic", Book()).converse(), ask("lone \ud83d half"))
        assert "lone \ufffd half" in server.asked[0].tells


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ("anthropic", ""),
        ("anthropic:", ""),
        ("mistral:large", ""),
        ("openai:m", "127.0.0.1:8000/v1"),
        ("openai:m", "https://user:secret-word@host/v1"),
        ("openai:m", "https://host/v1?key=secret-word"),
    ],
)
def test_what_names_no_model_is_refused_without_quoting_a_secret(spec: str, url: str) -> None:
    with pytest.raises(UnknownModel) as refusal:
        read_model(spec, url)
    assert "secret-word" not in str(refusal.value)
