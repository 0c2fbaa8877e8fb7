"""The rehearsal: a model is asked as a run asks it, one tool and one schema, before a run is paid.

The same broker, correspondence, SDK, streaming and timeouts as in a campaign; only the purse is
another: no campaign is charged, and two short answers are all that is asked for.
"""

import asyncio
import itertools
import json
from dataclasses import dataclass, field

from agents.correspondence import Account, Amounts, Correspondence
from agents.journal import Exchange
from agents.line import NoLine
from agents.messages import Message, ProviderFailure, Reply, Request, Text, Tool, ToolUse
from agents.model import UnknownModel
from flows.doctor import Finding
from flows.plan import Plan, ServedPlan, ServingPlan
from flows.roles import Served, served_roles, take_keys
from flows.settings import Settings
from policies.caps import amount_text
from policies.prices import BadPrices

MOST = 4_000  # tokens of an answer: room for a model that thinks first
LOOK = Tool(
    "look",
    "Look at a file.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
)
ANSWER = {
    "type": "object",
    "properties": {"lines": {"type": "integer"}},
    "required": ["lines"],
    "additionalProperties": False,
}
KEYS = "put the key into the environment, or into the file that SEEDBED_KEYS names, mode 600"


@dataclass
class Tally:
    """What the rehearsal cost, by unit."""

    amounts: dict[str, int] = field(default_factory=dict)

    def account(self) -> Account:
        numbers = itertools.count(1)

        def settle(call: str, amounts: Amounts) -> None:
            for unit, amount in amounts.items():
                self.amounts[unit] = self.amounts.get(unit, 0) + amount

        def record(call: str, exchange: Exchange) -> None:
            """Nothing of a rehearsal is kept."""

        return Account(reserve=lambda _: str(next(numbers)), settle=settle, record=record)

    def text(self) -> str:
        return ", ".join(amount_text(unit, amount) for unit, amount in self.amounts.items())


def rehearse(spec: str, base_url: str) -> list[Finding]:
    """Findings on the model, its price, its key, a tool and a schema; the first fault ends them."""
    settings = Settings()
    plan = Plan(
        substrate="none",
        worker=spec,
        serving=ServingPlan(worker=ServedPlan(base_url=base_url)),
    )
    try:
        served = served_roles(plan, settings)
        if not served:
            raise UnknownModel(f"wanted a model such as `openai:MODEL`, found {spec!r}")
        line = take_keys(settings)
    except (UnknownModel, BadPrices, NoLine) as error:
        return [Finding("model", False, str(error), "correct what it names")]
    (role,) = served
    key = line.keys.get(role.model.provider, "none")
    findings = [
        Finding("keys", True, f"{role.model.provider}: {key}", KEYS),
        Finding("price", True, _price(role), "write one into prices.toml in SEEDBED_HOME"),
    ]
    tally = Tally()
    correspondence = Correspondence(
        line=line,
        model=role.model,
        price=role.price,
        account=tally.account(),
        patience=role.patience,
    )
    return findings + asyncio.run(_interview(correspondence, tally))


async def _interview(correspondence: Correspondence, tally: Tally) -> list[Finding]:
    converse, name = correspondence.converse(), correspondence.model.spec
    asked = (
        ("a tool", _request("Use the tool to look at the file `notes.txt`.", tools=(LOOK,))),
        ("a schema", _request("A file has three lines. How many lines has it?", schema=ANSWER)),
    )
    findings = []
    for what, request in asked:
        try:
            reply = await converse(request)
        except ProviderFailure as failure:
            todo = KEYS if failure.permanent else "try again later, or another model or server"
            return [*findings, Finding(f"{name}, {what}", False, str(failure), todo)]
        fault = _fault(request, reply)
        todo = "take a model that uses tools and keeps to a schema"
        findings.append(Finding(f"{name}, {what}", not fault, fault or tally.text(), todo))
        if fault:
            break
    return findings


def _request(text: str, **more: object) -> Request:
    message = Message("user", (Text(text),))
    told = {"system": "Do what is asked, nothing else.", "messages": (message,)}
    return Request(**{**told, "max_tokens": MOST, **more})  # pyright: ignore[reportArgumentType]


def _fault(request: Request, reply: Reply) -> str:
    """What is wrong with a reply; empty where nothing is."""
    if reply.stop in ("length", "refusal"):
        return f"the reply stopped for {reply.stop}: {reply.message.text[:200]!r}"
    if request.tools:
        uses = [part.name for part in reply.message.parts if isinstance(part, ToolUse)]
        return "" if LOOK.name in uses else f"wanted a use of the tool, found {uses or 'none'}"
    try:
        fits = isinstance(json.loads(reply.message.text)["lines"], int)
    except (ValueError, KeyError, TypeError):
        fits = False
    return "" if fits else f"wanted JSON of the schema, found {reply.message.text[:200]!r}"


def _price(role: Served) -> str:
    if role.price is None:
        return "none is known: a campaign needs a cap in tokens, `--tokens N`"
    return f"known, from {role.price.source}"
