"""The narrator: the collector's words, from a language model that is asked once.

Numbers are code's: a narrative with one that is not in the round's rows is not used, nor is one
that cites a row that is not there. Then the narrative that code wrote stays.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.brief import brief_text
from agents.exchange import answer_text, ends_campaign, prompt_sha256
from agents.messages import Converse, Message, ProviderFailure, Request, SpendCapReached, Text
from agents.numbers import numbers_in, values_in
from agents.quotation import line, plain, quote
from agents.testimony import testimony
from agents.tools import spell_faults
from policies.canonical import canonical_json
from policies.report import RoundReport
from policies.rows import Rows

ANSWER_TOKENS = 3000
MOST_REPORT = 160_000  # characters


class Narrative(BaseModel):
    """What a round was about, in words."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    narrative: str = Field(
        min_length=1, max_length=6000, description="What was tried, what it came to, what failed."
    )


@dataclass(frozen=True)
class Narration:
    """What came of asking. `text` is None where the answer is not used, and `fault` says why."""

    text: str | None
    fault: str
    prompt: str  # sha256
    model: str  # as its provider names it; "" where it did not answer


async def narrate(converse: Converse, shown: RoundReport) -> Narration:
    """Ask for the narrative of a round, whose report has external scores by the ladder.

    Raises ProviderFailure where no try will help, and SpendCapReached.
    """
    counts = counts_of(shown)
    request = Request(
        system=brief_text("collector"),
        messages=(Message("user", (Text(_question(shown, counts)),)),),
        schema=Narrative.model_json_schema(),
        max_tokens=ANSWER_TOKENS,
    )
    prompt = prompt_sha256(request)
    try:
        reply = await converse(request)
    except (ProviderFailure, SpendCapReached) as failure:
        if ends_campaign(failure):
            raise
        return Narration(None, f"no reply: {failure}", prompt, "")
    if reply.stop != "end":
        return Narration(None, f"the answer ended by {reply.stop}", prompt, reply.model)
    try:
        said = Narrative.model_validate_json(answer_text(reply).encode("utf-8", "surrogatepass"))
    except ValidationError as error:
        return Narration(None, line(spell_faults(error), 400), prompt, reply.model)
    text = plain(said.narrative).strip()
    fault = unfounded(text, shown)
    return Narration(None if fault or not text else text, fault, prompt, reply.model)


def unfounded(text: str, shown: RoundReport) -> str:
    """What a narrative says that the rows of its round do not; "" where all is founded."""
    rows = Rows([shown])
    for cited in _ROW.findall(text):
        if cited not in rows:
            return f"no row {cited} is in this round"
    names = {name for name in _names(shown) if re.search(r"[A-Za-z]", name)}
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", " ", text)
    data = shown.results.model_dump(mode="json")
    values = [*values_in(data), *values_in(counts_of(shown)), float(shown.round)]
    values += [n.value for title in shown.results.dead_ends for n in numbers_in(title)]
    for number in numbers_in(_ROW.sub(" ", text)):
        if not number.is_among(values):
            return f"the number {number.text!r} is not in the rows"
    return ""


def counts_of(report: RoundReport) -> dict[str, Any]:
    """How many trials there are of each kind, outcome and verdict."""
    results = report.results
    return {
        "slots": len(results.slots),
        "kinds": Counter(slot.kind for slot in results.slots),
        "outcomes": Counter(slot.outcome for slot in results.slots),
        "verdicts": Counter(verdict.verdict for verdict in results.verdicts),
        "looks": len(results.looks),
        "confirmed": sum(found.is_confirmed for found in results.confirmations),
        "decoupled": sum(found.verdict == "decoupled" for found in results.decoupling),
    }


_ROW = re.compile(r"\br\d+/s\d+(?:/(?:dev|external)(?:/[a-z0-9_-]+)?)?")


def _names(report: RoundReport) -> Iterator[str]:
    """Names with digits in them, which are no numbers."""
    results = report.results
    yield results.recipe
    yield from (verdict.axis for verdict in results.verdicts)
    yield from (test.domain for test in results.decoupling)
    for slot in results.slots:
        yield from slot.dev.domains if slot.dev else ()
        for file, constants in slot.edit.overrides.items():
            yield from (file, *constants)


def _question(shown: RoundReport, counts: dict[str, Any]) -> str:
    report = {
        "round": shown.round,
        "counts": counts,
        "results": shown.results.model_dump(mode="json"),
    }
    return "\n\n".join(
        [
            f"# Round {shown.round}",
            quote(canonical_json(report), "report", most=MOST_REPORT),
            testimony(shown),
        ]
    )
