"""The meta-agent: a language model that reads a round's report and writes the next policy.

    one answer            held to every clause; a lawful one is the next policy
    an unlawful one       told the clauses it breaks, with quotes: at most REPAIRS times
    else                  the policy in force stays, and the last draft is on record as rejected

It learns of external scores what the ladder tells, and of workers what is quoted. Its only effect
is the policy. Findings, window and what it may not know are filled in by code.
"""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.brief import brief_text
from agents.exchange import answer_text, ends_campaign, prompt_sha256
from agents.messages import (
    Converse,
    Message,
    ProviderFailure,
    Reply,
    Request,
    SpendCapReached,
    Text,
)
from agents.quotation import plain, quote
from agents.testimony import testimony
from agents.tried import everything_tried, tried_table
from policies.canonical import canonical_json
from policies.constitution import constitution_text
from policies.draft import Violation, parse_draft, read_draft
from policies.ladder import policy_for_readers
from policies.policy import SearchPolicy
from policies.report import RoundReport
from policies.rows import Rows
from policies.ruling import Ruling

REPAIRS = 2  # answers after the first
ANSWER_TOKENS = 24_000
MOST_REPORT = 160_000  # characters
MOST_TOLD = 24  # violations

_DECIMALS = re.compile(r"[-+]?(\d*\.\d+(e[-+]?\d+)?|\d+e[-+]?\d+)", re.IGNORECASE)
_SPEAK_OF_EXTERNAL = ("C1", "C9", "C11")  # clauses whose reasons may have its numbers

Hear = Callable[[bytes], Awaitable[Ruling]]


@dataclass(frozen=True)
class Material:
    """What a revision is made from: for readers, and in full for what code fills in."""

    parent: SearchPolicy
    shown: Sequence[RoundReport]  # by the ladder, oldest first
    rows: Rows  # in full
    width: int
    looks: int  # most external scores that the next round may have

    @property
    def newest(self) -> RoundReport:
        return max(self.shown, key=lambda report: report.round)


@dataclass(frozen=True)
class Proposal:
    """The ruling on the last answer, and what it took to get there."""

    ruling: Ruling
    turns: int
    prompts: tuple[str, ...]  # sha256 of each
    models: tuple[str, ...]  # what answered, as its provider names it

    def data(self) -> dict[str, Any]:
        """For the record."""
        return {"turns": self.turns, "prompts": list(self.prompts), "models": list(self.models)}


async def propose(converse: Converse, material: Material, hear: Hear) -> Proposal:
    """Ask for the next policy until one is lawful or the turns are used.

    Raises ProviderFailure where no try will help, and SpendCapReached.
    """
    messages = [Message("user", (Text(question(material)),))]
    prompts: list[str] = []
    models: list[str] = []
    while True:
        request = Request(
            system=f"{brief_text('meta')}\n{constitution_text()}",
            messages=tuple(messages),
            schema=answer_schema(),
            max_tokens=ANSWER_TOKENS,
        )
        prompts.append(prompt_sha256(request))
        try:
            reply = await converse(request)
        except (ProviderFailure, SpendCapReached) as failure:
            if ends_campaign(failure):
                raise
            ruling = _unread(await hear(b""), f"no reply: {failure}")
            return Proposal(ruling, len(prompts), tuple(prompts), tuple(models))
        models.append(reply.model)
        ruling = await _ruling(reply, material, hear)
        is_last = len(prompts) > REPAIRS or reply.stop == "refusal"
        if ruling.policy is not None or is_last:
            return Proposal(ruling, len(prompts), tuple(prompts), tuple(models))
        said = plain(reply.message.text[:MOST_REPORT]).strip() or "(nothing)"
        messages += [
            Message("assistant", (Text(said),)),
            Message("user", (Text(_repair(ruling.violations)),)),
        ]


async def _ruling(reply: Reply, material: Material, hear: Hear) -> Ruling:
    text = answer_text(reply).encode("utf-8", "surrogatepass")
    if reply.stop == "refusal":
        return _unread(await hear(text), "the model declined to answer")
    if reply.stop == "length":
        reason = "the answer was cut for length, and is not read; write a shorter one"
        return _unread(await hear(text), reason)
    ruling = await hear(completed(text, material.parent, material.rows))
    if ruling.policy is not None and (found := told_to_workers(ruling.policy, material)):
        return ruling.refused(*found)
    return ruling


def _unread(ruling: Ruling, reason: str) -> Ruling:
    """The ruling on what is no answer, whatever it says: it breaks C12 for this one reason."""
    return replace(ruling, policy=None, violations=(Violation("C12", "", reason),))


def completed(reply: bytes, parent: SearchPolicy, rows: Rows) -> bytes:
    """A draft with what code knows and its author may not: as it was where it is no policy.

    Filled in are the findings of claims, the window, the noise on external, and effects of
    promotions that the draft leaves null.
    """
    draft = parse_draft(reply)
    if isinstance(draft, Violation):
        return reply
    try:
        policy = read_draft(_with_effects(json.loads(reply), parent, rows))
    except (ValueError, TypeError):
        return reply
    if rows.newest is not None:
        noise = rows.newest.results.noise
        external = {
            "external_sigma": noise.external_sigma,
            "external_degrees": noise.external_degrees,
        }
        policy = policy.model_copy(update={"noise": policy.noise.model_copy(update=external)})
    return rows.attested(policy).text().encode()


def _with_effects(draft: Any, parent: SearchPolicy, rows: Rows) -> Any:
    """Promotions whose effect is null have that of the same rows in the parent, or in a report."""
    known = {tuple(item.rows): item.effect for item in parent.standing_recipe.provenance}
    for report in rows.reports.values():
        for found in report.results.confirmations:
            value = found.effect if found.effect is not None else found.external_effect
            if value is not None:
                known.setdefault(tuple(found.rows), value)
    recipe = draft.get("standing_recipe")
    provenance = recipe.get("provenance") if isinstance(recipe, dict) else None
    for item in provenance if isinstance(provenance, list) else []:
        cited = item.get("rows") if isinstance(item, dict) else None
        if isinstance(cited, list) and item.get("effect") is None:
            item["effect"] = known.get(tuple(map(str, cited)))
    return draft


_ROW = re.compile(r"\br\d+(/s\d+)?\b")
_SCORED = re.compile(r"(?i)\b(external|score[sd]?|accuracy|leaderboard|held.out|test set)\b")


def told_to_workers(policy: SearchPolicy, material: Material) -> list[Violation]:
    """What a worker would read in its brief and may not know: rows of evidence, external scores."""
    parent = material.parent
    values = {
        f"{score.value:.{digits}f}"
        for reports in (material.shown, material.rows.reports.values())
        for report in reports
        for slot in report.results.slots
        if (score := slot.external) is not None
        for digits in (2, 3, 4)
    }
    texts = [
        (f"axes[{i}].{name}", text)
        for i, axis in enumerate(policy.axes)
        if axis not in parent.axes
        for name, text in (("title", axis.title), ("hypothesis", axis.hypothesis))
    ]
    texts += [
        (f"dead_ends[{i}].title", end.title)
        for i, end in enumerate(policy.dead_ends)
        if end not in parent.dead_ends
    ]
    found = []
    for place, text in texts:
        numbers = [number[0].lstrip("+-") for number in _DECIMALS.finditer(text)]
        is_score = _SCORED.search(text) and any(number in values for number in numbers)
        if is_score or _ROW.search(text):
            what = "an external score" if is_score else "a row of evidence"
            reason = f"workers read it, and it holds {what}: say what to try, not what was found"
            found.append(Violation("C13", place, reason))
    return found


def question(material: Material) -> str:
    """All that the meta-agent is told of the campaign."""
    parent, newest = material.parent, material.newest
    report = {"round": newest.round, "results": newest.results.model_dump(mode="json")}
    return "\n\n".join(
        [
            "# The policy in force",
            quote(canonical_json(policy_for_readers(parent)), "policy", most=MOST_REPORT),
            f"# The report of round {newest.round}",
            quote(canonical_json(report), "report", most=MOST_REPORT),
            "# Everything tried",
            quote(tried_table(everything_tried(material.shown)), "trials", most=MOST_REPORT),
            testimony(newest),
            "# The next policy",
            f"version {parent.version + 1}, parent {parent.digest()}; a round has "
            f"{material.width} slots, the anchor included, and at most {material.looks} external "
            "scores.",
        ]
    )


def answer_schema() -> dict[str, Any]:
    """The JSON Schema of an answer: a policy, without what code fills in."""
    schema = SearchPolicy.model_json_schema()
    del schema["properties"]["window"]
    del schema["$defs"]["Claim"]["properties"]["findings"]
    for name in ("Finding", "EvidenceWindow"):
        del schema["$defs"][name]
    effect = schema["$defs"]["Promotion"]["properties"]["effect"]
    effect["type"] = ["number", "null"]
    return schema


def _repair(violations: Sequence[Violation]) -> str:
    """What is told of a draft that was not let in, without numbers that may be external ones."""
    told = []
    for found in violations[:MOST_TOLD]:
        said = f"{found.clause}  {found.reason}\n    {found.quote}"
        if found.clause in _SPEAK_OF_EXTERNAL or "external" in said:
            said = _DECIMALS.sub("…", said)
        told.append(said)
    more = f"\nand {len(violations) - MOST_TOLD} more" if len(violations) > MOST_TOLD else ""
    return (
        "This draft breaks the constitution and is not the next policy:\n\n"
        f"{quote(chr(10).join(told) + more, 'ruling')}\n\n"
        "Write the whole policy again, without that."
    )
