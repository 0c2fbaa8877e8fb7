"""A correspondence: a role's calls to its model, each reserved, made, settled, journalled."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType

from agents.journal import Exchange, cleaned, exchange
from agents.line import Line
from agents.messages import Converse, ProviderFailure, Reply, Request
from agents.model import Model
from agents.redaction import redact
from agents.tries import Patience, Quiet, Tries, TryFailed, broken
from policies.caps import Unit
from policies.prices import Price

# A token has one byte at least, and the JSON around a text more bytes than the template has tokens.
# What a provider adds of its own, for tools and schemas, stays below this.
ADDED_TOKENS = 2_000
NO_STRUCTURED_OUTPUT = re.compile(
    r"output_config|output_format|response_format|json_schema|structured output", re.IGNORECASE
)

Amounts = Mapping[Unit, int]


@dataclass(frozen=True, kw_only=True)
class Account:
    """What a correspondence is charged to. Whoever keeps the rows hands these in."""

    # Takes the worst case, gives what the call is called; raises SpendCapReached.
    reserve: Callable[[Amounts], str]
    settle: Callable[[str, Amounts], None]
    record: Callable[[str, Exchange], None]


@dataclass(kw_only=True)
class Correspondence:
    """One role's way to one model. Its state is what was learned of the server."""

    line: Line
    model: Model
    price: Price | None  # None: tokens alone are counted
    account: Account
    patience: Patience = Patience()  # noqa: RUF009 - frozen
    seed: int = 0  # of the waits between tries
    quiet: Quiet = field(default_factory=Quiet)  # shared by all who talk to this provider
    forced: bool = False  # structured output as a tool, once the server had none

    def converse(self) -> Converse:
        """The function that agents are given."""
        return self._reply

    async def _reply(self, request: Request) -> Reply:
        """A reply that was paid for and written down before anyone saw it.

        Raises ProviderFailure, and SpendCapReached before a try that a cap does not leave room for.
        """
        request = cleaned(request)
        tries = Tries(self.patience, self.seed, self.quiet)
        calls: list[str] = []
        try:
            reply = await tries.until_answered(self.model.spec, lambda: self._paid(request, calls))
        except ProviderFailure as failure:
            words = redact(str(failure), self.line.marks)
            told = ProviderFailure(words, permanent=failure.permanent)
            self.account.record(calls[-1], self._exchange(request, told))
            raise told from None  # the cause's own words are not redacted
        kept = self._exchange(request, reply)
        self.account.record(calls[-1], kept)
        assert isinstance(kept.outcome, Reply)
        return kept.outcome

    def _exchange(self, request: Request, outcome: Reply | ProviderFailure) -> Exchange:
        return exchange(self.model.spec, request, outcome, self.line.marks)

    async def _paid(self, request: Request, calls: list[str]) -> Reply:
        """One try, reserved at its worst case and settled with what it used."""
        forced = self._forces(request)
        worst = worst_case(request, self.model, self.price, forced=forced)
        call = self.account.reserve(worst)
        calls.append(call)
        try:
            reply = await self._once(request, forced=forced)
        except TryFailed as failed:
            nothing: Amounts = dict.fromkeys(worst, 0)
            self.account.settle(call, worst if failed.billed else nothing)
            if request.schema is not None and not forced and _has_no_schemas(failed):
                self.forced = True
                return await self._paid(request, calls)
            raise
        self.account.settle(call, cost_of(reply, self.price) or worst)
        return reply

    def _forces(self, request: Request) -> bool:
        """Whether structured output is asked for as a tool."""
        if request.schema is None:
            return False
        return self.forced or not _api(self.model).takes_schema(request.schema)

    async def _once(self, request: Request, *, forced: bool) -> Reply:
        api, patience = _api(self.model), self.patience
        try:
            async with asyncio.timeout(patience.total):
                return await api.converse_once(
                    self.line, self.model, request, patience, forced=forced
                )
        except TimeoutError:
            raise broken(f"no whole reply within {patience.total:g} s") from None


def worst_case(
    request: Request, model: Model, price: Price | None, *, forced: bool = False
) -> dict[Unit, int]:
    """The most that one try can use: every byte of it a token, and the longest answer."""
    body = _api(model).body_of(request, model, forced=forced)
    told = len(json.dumps(body, ensure_ascii=False).encode()) + ADDED_TOKENS
    worst: dict[Unit, int] = {"tokens": told + request.max_tokens}
    if price is not None:
        worst["microdollars"] = price.most(input=told, output=request.max_tokens)
    return worst


def cost_of(reply: Reply, price: Price | None) -> dict[Unit, int] | None:
    """What a reply used; None where the provider did not say, which is not nothing.

    Nothing read, or nothing written where something was, is what servers say that do not count.
    """
    usage = reply.usage
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    if not (usage.input_tokens or cached) or usage.input_tokens is None:
        return None
    if usage.output_tokens is None or (reply.message.parts and not usage.output_tokens):
        return None
    cost: dict[Unit, int] = {"tokens": usage.input_tokens + usage.output_tokens + cached}
    if price is not None:
        cost["microdollars"] = price.cost(
            input=usage.input_tokens,
            output=usage.output_tokens,
            cache_read=usage.cache_read_tokens,
            cache_write=usage.cache_write_tokens,
        )
    return cost


def _has_no_schemas(failed: TryFailed) -> bool:
    return failed.permanent and bool(NO_STRUCTURED_OUTPUT.search(str(failed)))


def _api(model: Model) -> ModuleType:
    """How the model's server is spoken to. An SDK takes a second to import: one that is needed."""
    if model.provider == "anthropic":
        from agents import anthropic_api

        return anthropic_api
    from agents import openai_api

    return openai_api
