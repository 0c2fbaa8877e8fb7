"""The researcher: a worker that is a language model with tools in its fork.

    until it hands in     one answer of the model, then the results of the tools that it asked for
    refusal               `refused`
    a cut answer          not used; asked once to go on, then `crashed`
    no use of a tool, or  told so, `REPAIRS` times in a row; then `crashed`
    only wrong uses
    out of turns, time    `over_budget`, `timed_out`

It has no memory of other trials, and what it says is kept as words.
"""

import asyncio
import math
from dataclasses import replace
from typing import Any

from agents.brief import brief_text, worker_brief
from agents.context import Context
from agents.messages import Message, Request, Text, ToolResult, ToolUse
from agents.quotation import plain
from agents.tools import TOOLS, Toolbox
from agents.worker import HandIn, WorkEnded, Workplace
from substrate.outcome import Outcome

REPAIRS = 2  # turns in a row without a use of a tool that could be done
MOST_SAID = 20_000  # characters of one answer's words that stay in the conversation
MOST_USES = 16  # tools asked for in one answer
MOST_DEPTH = 8  # of an argument
NOTES = 7000  # characters


async def researcher(workplace: Workplace) -> HandIn:
    """Work until the model hands in. Raises WorkEnded, and the errors of `agents.messages`."""
    assert workplace.converse is not None, "a model is conversed with"
    toolbox, context = Toolbox(workplace), Context(workplace.caps.context_characters)
    try:
        async with asyncio.timeout(workplace.caps.seconds):
            hand_in = await _work(workplace, toolbox, context)
    except TimeoutError:
        reason = f"nothing was handed in within {workplace.caps.seconds:g} s"
        raise WorkEnded(Outcome.TIMED_OUT, reason, _bounds(toolbox, context)) from None
    except WorkEnded as ended:
        raise WorkEnded(ended.outcome, ended.reason, _bounds(toolbox, context)) from ended
    notes = "\n".join(filter(None, [hand_in.notes[:NOTES], _bounds(toolbox, context)]))
    return replace(hand_in, notes=notes)


async def _work(workplace: Workplace, toolbox: Toolbox, context: Context) -> HandIn:
    assert workplace.converse is not None, "a model is conversed with"
    caps = workplace.caps
    context.say(Text(worker_brief(workplace, has_tools=True)))
    faults, was_cut = 0, False
    for turn in range(1, caps.turns + 1):
        request = Request(
            system=brief_text("worker"),
            messages=context.messages,
            tools=TOOLS,
            max_tokens=caps.answer_tokens,
        )
        reply = await workplace.converse(request)
        if reply.stop == "refusal":
            raise WorkEnded(
                Outcome.REFUSED, f"the model declined: {plain(reply.message.text[:MOST_SAID])}"
            )
        if reply.stop == "length":
            if was_cut:
                raise WorkEnded(Outcome.CRASHED, "two answers in a row were cut for length")
            was_cut = True
            context.hear(_heard(reply.message, is_whole=False))
            context.say(Text("Your answer was cut for length, and no tool of it was used. Go on."))
            continue
        was_cut = False
        context.hear(_heard(reply.message, is_whole=True))
        uses = [part for part in reply.message.parts if isinstance(part, ToolUse)]
        results: list[ToolResult] = []
        for place, use in enumerate(uses):
            if toolbox.handed_in is not None or place >= MOST_USES:
                said = f"not done: at most {MOST_USES} uses in an answer, none after hand_in"
                results.append(ToolResult(plain(use.id), said, is_error=True))
            else:
                results.append(replace(await toolbox.use(use), id=plain(use.id)))
        if toolbox.handed_in is not None:
            return toolbox.handed_in
        faults = 0 if any(not result.is_error for result in results) else faults + 1
        if faults > REPAIRS:
            what = f"{faults} answers in a row asked for nothing that could be done"
            raise WorkEnded(Outcome.CRASHED, f"the worker ended without handing in: {what}")
        context.say(*results, *_reminder(bool(uses), caps.turns - turn))
    raise WorkEnded(Outcome.OVER_BUDGET, f"nothing was handed in within {caps.turns} turns")


def _heard(message: Message, *, is_whole: bool) -> Message:
    """What of an answer stays in the conversation: bounded words, and whole uses of tools."""
    words = plain(message.text[:MOST_SAID])
    uses = [
        ToolUse(plain(part.id), plain(part.name)[:80], _sendable(part.arguments))
        for part in message.parts
        if is_whole and isinstance(part, ToolUse)
    ]
    said = [Text(words)] if words.strip() else []
    return Message("assistant", (*said, *uses) or (Text("(nothing)"),))


def _sendable(value: Any, depth: int = 0) -> Any:
    """Arguments as they can be sent again: bounded, and without half characters and NaN."""
    match value:
        case dict() | list() if depth == MOST_DEPTH:
            return "[nested deeper]"
        case dict():
            items = [(plain(str(name)[:80]), item) for name, item in value.items()]
            return {name: _sendable(item, depth + 1) for name, item in items}
        case list():
            return [_sendable(item, depth + 1) for item in value[:MOST_USES]]
        case str():
            return value[:MOST_SAID].encode("utf-8", "replace").decode()
        case bool() | int() | None:
            return value
        case float() if math.isfinite(value):
            return value
    return str(value)


def _reminder(used: bool, left: int) -> list[Text]:
    said = []
    if not used:
        said.append("Nothing was done: use a tool, and end with hand_in.")
    if left <= 3:
        said.append(f"Turns left: {left}. What is not handed in is lost.")
    return [Text(" ".join(said))] if said else []


def _bounds(toolbox: Toolbox, context: Context) -> str:
    """What the bounds of the conversation left out, for the trial's record."""
    left_out = {"results cut": toolbox.cut, "old parts folded": context.folded}
    said = ", ".join(f"{name}: {count}" for name, count in left_out.items() if count)
    return f"[the controller: {said}]" if said else ""
