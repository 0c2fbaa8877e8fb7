"""Random faults of a provider, four workers at once, one purse: the cap holds in every sequence."""

import asyncio
import itertools
import random
from contextlib import closing
from pathlib import Path

import pytest

from agents.correspondence import Account, Amounts, Correspondence
from agents.line import Line
from agents.messages import ProviderFailure, SpendCapReached
from agents.model import read_model
from agents.tries import Patience
from policies.caps import SpendCaps
from policies.ledger import Ledger
from policies.purse import Purse
from tests.agents.provider_server import (
    Answer,
    Asked,
    Call,
    Counts,
    ProviderServer,
    out_of_quota,
    refused,
)
from tests.agents.talk import ONE_DOLLAR, ask

WORKERS, CALLS, MOST = 3, 2, 300
IMPATIENT = Patience(
    idle=0.05, total=2.0, tries=3, give_up=10.0, first_wait=0.001, longest_wait=0.002
)


def drawn(dice: random.Random, asked: Asked) -> Answer:
    """An answer, as often as not a bad one."""
    counts = Counts(dice.randrange(1, 200), dice.randrange(1, MOST + 1), dice.randrange(0, 50))
    good = Answer(text="Fine, thanks. " * 5, usage=counts)
    answers = [
        good,
        good,
        good,
        Answer(text=good.text, usage=None),
        Answer(text=good.text, usage=counts, usage_key="cost"),
        Answer(text=good.text, usage=counts, cut_at=dice.randrange(1, 900), framed=False),
        Answer(text=good.text, usage=counts, cut_at=dice.randrange(1, 900)),
        Answer(text=good.text, usage=counts, reset=True),
        Answer(text=good.text, usage=counts, garbled=True),
        Answer(text=good.text, usage=counts, twice=True),
        Answer(text=None, usage=counts, stop="length"),
        Answer(text=None, usage=counts),
        Answer(text="No.", usage=counts, stop="refusal"),
        Answer(tools=(Call("edit", '{"path": "'),), usage=counts),
        refused(429, headers={"retry-after": "0.001"}),
        refused(529),
        refused(500),
        refused(503),
        out_of_quota(),
        refused(401),
    ]
    if asked.number % 40 == 7:
        return Answer(text=good.text, usage=counts, silent_at=dice.randrange(0, 400))
    return dice.choice(answers)


async def sequence(seed: int, line: Line, purse: Purse, cap: int) -> list[str]:
    """What came of each worker's calls, under a provider whose faults the seed draws."""
    dice = random.Random(seed)
    billed: list[int] = []

    def answer(asked: Asked) -> Answer:
        answer = drawn(dice, asked)
        if answer.status == 200 and answer.usage is not None and not answer.reset:
            counts = answer.usage
            billed.append(counts.input + counts.cached + counts.output)
        return answer

    async def worker(server: ProviderServer, slot: int) -> str:
        provider = "anthropic" if slot % 2 else "openai"
        numbers = itertools.count(1)

        def reserve(amounts: Amounts) -> str:
            call = f"r1/s{slot}/a1/worker/{next(numbers)}"
            purse.reserve(call, amounts)
            assert purse.spent("microdollars") <= cap
            return call

        account = Account(reserve=reserve, settle=purse.settle, record=lambda *_: None)
        model = read_model(f"{provider}:m", server.base_url(provider))
        converse = Correspondence(
            line=line,
            model=model,
            price=ONE_DOLLAR,
            account=account,
            patience=IMPATIENT,
            seed=seed,
        ).converse()
        for _ in range(CALLS):
            try:
                reply = await converse(ask(max_tokens=MOST))
            except SpendCapReached:
                return "capped"
            except ProviderFailure as failure:
                if failure.permanent:
                    return "permanent"
                continue
            assert reply.stop in ("end", "length", "refusal", "tools")
        return "done"

    with ProviderServer(answer) as server:
        ended = await asyncio.gather(*(worker(server, slot) for slot in range(1, WORKERS + 1)))
    charged = purse.spent("tokens")
    assert sum(billed) <= charged, "what was billed is on the account"
    assert purse.spent("microdollars") == charged <= cap
    return ended


def run_sequences(seeds: range, line: Line, folder: Path) -> set[str]:
    ended: set[str] = set()
    with closing(Ledger(f"sqlite:///{folder / 'ledger.db'}")) as ledger:
        for seed in seeds:
            cap = random.Random(-seed).randrange(2_000, 20_000)
            caps = SpendCaps({("microdollars", "campaign"): cap})
            purse = Purse(ledger, f"c{seed}", lambda caps=caps: caps)
            ended |= set(asyncio.run(sequence(seed, line, purse, cap)))
    return ended


def test_no_sequence_of_faults_spends_above_the_cap(line: Line, tmp_path: Path) -> None:
    ended = run_sequences(range(50), line, tmp_path)
    assert ended == {"done", "capped", "permanent"}, "the faults reach every way to end"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_hundred_sequences_of_faults_spend_no_more(line: Line, tmp_path: Path) -> None:
    assert run_sequences(range(50, 550), line, tmp_path) == {"done", "capped", "permanent"}
