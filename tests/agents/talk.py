"""A correspondence with a test's server, on an account that is kept in a list."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from agents.correspondence import Account, Amounts, Correspondence
from agents.journal import Exchange
from agents.line import Line
from agents.messages import Converse, Message, Reply, Request, Text
from agents.model import Model, Provider, read_model
from agents.tries import Patience
from policies.prices import Price
from tests.agents.provider_server import ProviderServer

HURRIED = Patience(idle=0.2, total=5.0, tries=5, give_up=10.0, first_wait=0.001, longest_wait=0.05)
ONE_DOLLAR = Price(1_000_000, 1_000_000, 1_000_000, 1_000_000, "the test")  # a million tokens


@dataclass
class Book:
    """An account without a cap: what was reserved, settled and recorded, in order."""

    reserved: list[Amounts] = field(default_factory=list)
    settled: dict[str, Amounts] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)

    def account(self) -> Account:
        def reserve(amounts: Amounts) -> str:
            self.reserved.append(amounts)
            return f"call-{len(self.reserved)}"

        def settle(call: str, amounts: Amounts) -> None:
            assert call not in self.settled
            self.settled[call] = amounts

        def record(call: str, exchange: Exchange) -> None:
            assert call in self.settled
            self.exchanges.append(exchange)

        return Account(reserve=reserve, settle=settle, record=record)


def talk(
    line: Line, server: ProviderServer, provider: str, book: Book, patience: Patience = HURRIED
) -> Correspondence:
    provider = cast(Provider, provider)
    model = read_model(f"{provider}:test-model", server.base_url(provider))
    return talk_to(line, model, book, patience)


def talk_to(line: Line, model: Model, book: Book, patience: Patience = HURRIED) -> Correspondence:
    return Correspondence(
        line=line, model=model, price=ONE_DOLLAR, account=book.account(), patience=patience
    )


def ask(text: str = "How are you?", **more: Any) -> Request:
    messages = (Message("user", (Text(text),)),)
    return Request(**{"system": "Be brief.", "messages": messages, "max_tokens": 1000, **more})


def said(converse: Converse, request: Request) -> Reply:
    """What comes of one request, waited for."""

    async def wait() -> Reply:
        return await converse(request)

    return asyncio.run(wait())
