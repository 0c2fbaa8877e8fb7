"""Spend, as a campaign lives with it: estimated, capped, paused, gone on with, reported."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.exceptions import CancelledRun

from agents.journal import ReplayDiverged, replay
from agents.messages import Message, Request, SpendCapReached, Text
from flows.campaign import campaign, resume
from flows.estimate import expected_spend
from flows.exchanges import ExchangeDamaged, exchange_file, exchanges_of
from flows.house import House, open_house
from flows.plan import Plan, SpendPlan
from flows.roles import BadRole, check_roles, converse_for, raise_caps, spend_plan
from flows.round import build_report
from flows.screen import state_of, why_paused
from flows.start import check_plan, start_campaign
from policies.canonical import canonical_json
from policies.ledger import verify_chain
from policies.purse import spent_by_role
from policies.render import report_markdown
from tests.agents.provider_server import Answer, Asked, Call, Counts, ProviderServer, refused
from tests.flows.commands import seedbed
from tests.planted import places_of

STUB = Path(__file__).parent.parent / "substrates" / "stub"
KEY = "planted.Wn4Tq8Zx2Rv6Yb1Mk9Lc3Pd7Sf5Hg0Ja"
PRICES = '[models]\n"openai:m" = { input = 1, output = 1 }\n'  # a token is a millionth


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    def answer(asked: Asked) -> Answer:
        if "fail" in asked.tells:
            return refused(401, f"bad key {KEY}")
        return Answer(text=f"You said {asked.tells}, key {KEY}", usage=Counts(70, 30))

    with ProviderServer(answer) as server:
        yield server


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ProviderServer) -> House:
    """A home with a price for the server's model, and the key of the server in a keys file."""
    home, keys = tmp_path / "home", tmp_path / "keys"
    home.mkdir()
    (home / "prices.toml").write_text(PRICES)
    keys.write_text(f"OPENAI_API_KEY={KEY}\nOPENAI_BASE_URL={server.openai_url}\n")
    keys.chmod(0o600)
    monkeypatch.setenv("SEEDBED_HOME", str(home))
    monkeypatch.setenv("SEEDBED_KEYS", str(keys))
    return open_house()


def plan(server: ProviderServer, **changes: object) -> Plan:
    serving = {role: {"base_url": server.openai_url} for role in ("meta", "collector")}
    return Plan.model_validate(
        {"substrate": str(STUB), "meta": "openai:m", "serving": serving, **changes}
    )


def asks(text: str) -> Request:
    message = Message("user", (Text(text),))
    return Request(system="You revise.", messages=(message,), max_tokens=500)


def test_a_call_is_charged_journalled_and_keyless_and_answers_again_without_a_provider(
    house: House, server: ProviderServer
) -> None:
    campaign = start_campaign(house, plan(server))
    texts = ("one", "two", f"three {KEY}")

    async def converse() -> list[str]:
        talk = converse_for(house, campaign, "meta", "r1")
        return [(await talk(asks(text))).message.text for text in texts]

    said = asyncio.run(converse())
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert all("You said" in text and KEY not in text for text in said)
    calls = house.ledger.agent_calls(campaign)
    assert [(row.call, row.stop) for row in calls] == [(f"r1/meta/{n}", "end") for n in (1, 2, 3)]
    money, tokens = spent_by_role(house.ledger.spends(campaign))
    assert (money.role, money.amount, tokens.amount) == ("meta", 300, 300)
    assert verify_chain(house.ledger) is None
    assert places_of(KEY, house.settings.folder) == []

    async def again(texts: tuple[str, ...]) -> list[str]:
        talk = replay(exchanges_of(house, campaign, "r1/meta"))
        return [(await talk(asks(text))).message.text for text in texts]

    before = len(server.asked)
    redacted = (*texts[:2], "three [redacted]")
    assert asyncio.run(again(redacted)) == said
    assert len(server.asked) == before
    with pytest.raises(ReplayDiverged, match=r"request 2 .* messages\[0\]\.parts\[0\]\.text"):
        asyncio.run(again(("one", "otherwise")))
    with pytest.raises(ReplayDiverged, match="request 4"):
        asyncio.run(again((*redacted, "four")))
    file = exchange_file(house.settings, calls[1].exchange_sha256)
    file.write_text(file.read_text().replace("two", "2"))
    with pytest.raises(ExchangeDamaged, match="r1/meta/2"):
        exchanges_of(house, campaign, "r1/meta")


def test_a_cap_refuses_the_call_that_it_has_no_room_for_until_it_is_raised(
    house: House, server: ProviderServer
) -> None:
    # A request of these bytes, 2,000 tokens that a provider may add, 500 of an answer: under 3,000.
    campaign = start_campaign(house, plan(server, spend={"dollars": "0.003"}))

    async def one() -> None:
        await converse_for(house, campaign, "meta", "r1")(asks("again"))

    asyncio.run(one())
    with pytest.raises(SpendCapReached, match=r"\$0\.000\d taken of the campaign's \$0\.0030"):
        for _ in range(10):
            asyncio.run(one())
    made = len(server.asked)
    with pytest.raises(BadRole, match="only raised"):
        raise_caps(house, campaign, SpendPlan.model_validate({"dollars": "0.001"}))
    raise_caps(house, campaign, SpendPlan.model_validate({"dollars": "1.5"}))
    assert str(spend_plan(house, campaign).dollars) == "1.5"
    asyncio.run(one())
    assert len(server.asked) == made + 1


def test_a_model_without_a_price_needs_a_budget_in_tokens(
    house: House, server: ProviderServer
) -> None:
    unknown = {"meta": "openai:unheard-of"}
    with pytest.raises(BadRole, match=r"a price for openai:unheard-of.*--tokens N"):
        check_roles(plan(server, **unknown), house.settings)
    with pytest.raises(BadRole, match="wanted a cap"):
        check_roles(plan(server, **unknown, spend={"dollars": None}), house.settings)
    capped = plan(server, **unknown, spend={"dollars": None, "tokens": 5000})
    (served,) = check_roles(capped, house.settings)
    assert served.price is None
    campaign = start_campaign(house, capped)

    async def one() -> None:
        await converse_for(house, campaign, "meta", "r1")(asks("again"))

    asyncio.run(one())
    (tokens,) = spent_by_role(house.ledger.spends(campaign))
    assert (tokens.unit, tokens.amount) == ("tokens", 100)
    with pytest.raises(BadRole, match="a price"):
        raise_caps(house, campaign, SpendPlan.model_validate({"dollars": "5"}))
    per_call = {"dollars": None, "tokens": 5000, "dollars_per_call": "0.01"}
    with pytest.raises(BadRole, match="a price"):
        check_roles(plan(server, **unknown, spend=per_call), house.settings)


def test_a_price_that_went_away_since_the_start_lets_no_call_pass_a_cap_in_dollars(
    house: House, server: ProviderServer
) -> None:
    campaign = start_campaign(house, plan(server))
    house.settings.prices.unlink()
    with pytest.raises(BadRole, match="a price for openai:m"):
        converse_for(house, campaign, "meta", "r1")
    assert server.asked == []


def test_an_estimate_counts_the_calls_of_each_role(house: House, server: ProviderServer) -> None:
    whole = plan(server, collector="openai:m", rounds=3, width=8)
    _, _, policy = check_plan(whole)
    collector, meta = expected_spend(whole, policy, check_roles(whole, house.settings))
    assert (collector.works, collector.calls, collector.tokens) == (3, 3, 3 * 21_500)
    assert (meta.works, meta.calls, meta.microdollars) == (3, 6, 6 * 36_000)


def test_a_dry_run_prints_what_each_role_would_spend_and_leaves_nothing(tmp_path: Path) -> None:
    arguments = ["run", "--substrate", str(STUB), "--rounds", "2", "--dollars", "5", "--dry-run"]
    arguments += ["--collector", "openai:gpt-5.4-mini", "--meta", "anthropic:claude-opus-5"]
    done = seedbed(tmp_path / "home", *arguments)
    assert done.returncode == 0, done.stderr
    for wanted in (
        "collector: openai:gpt-5.4-mini, 2 times, 2 calls, 43,000 tokens, $0.0435 (prices.toml of",
        "meta: anthropic:claude-opus-5, 2 times, 4 calls, 144,000 tokens, $1.2000 (prices.toml of",
        "in total: 187,000 tokens, $1.2435",
        "at most: $5.0000 a campaign",
    ):
        assert wanted in done.stdout
    assert not (tmp_path / "home").exists()


def test_a_campaign_pauses_at_its_cap_and_goes_on_once_that_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_api: str
) -> None:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path / "home"))
    drop_in, house = tmp_path / "stub", open_house()
    shutil.copytree(STUB, drop_in)
    manifest = drop_in / "substrate.toml"
    manifest.write_text(manifest.read_text().replace("[limits]", "[limits]\ngpus = 1"))
    # A run reserves 11 s and settles one or a few: the later ones find no room in 12 s.
    whole = {"substrate": str(drop_in), "rounds": 1, "width": 4, "at_once": 1}
    capped = Plan.model_validate({**whole, "spend": {"gpu_seconds": 12}})
    with pytest.raises(CancelledRun, match="is paused: wanted 11 GPU-seconds"):
        asyncio.run(campaign(capped))
    (row,) = house.ledger.campaigns()
    assert state_of(house, row.id) == "paused"
    assert "raise it with" in why_paused(house, row.id)
    assert 1 <= len(house.ledger.trials(row.id)) < 4

    with pytest.raises(CancelledRun):
        asyncio.run(resume(row.id))
    raise_caps(house, row.id, SpendPlan(gpu_seconds=1000))
    asyncio.run(resume(row.id))
    assert (state_of(house, row.id), why_paused(house, row.id)) == ("complete", "")
    (report,) = house.reports(row.id)
    spend = {item.role: item for item in report.account.spend}
    assert spend["run"].calls == 4 and spend["run"].unit == "gpu_seconds"
    assert spend["look"].amount == len(report.results.looks)
    assert canonical_json(build_report(house, row.id, 1).data()) == canonical_json(report.data())
    assert "GPU-seconds" in report_markdown(report)
    assert verify_chain(house.ledger) is None


@pytest.mark.slow
def test_no_key_of_the_environment_reaches_what_a_campaign_writes_or_starts(
    tmp_path: Path, prefect_api: str
) -> None:
    drop_in, home = tmp_path / "stub", tmp_path / "home"
    shutil.copytree(STUB, drop_in)
    recipe = drop_in / "overlay" / "recipes" / "stub.py"
    recipe.write_text("import os\nprint(dict(os.environ))\n" + recipe.read_text())
    environment = {**os.environ, "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY[::-1]}
    arguments = ["run", "--substrate", str(drop_in), "--rounds", "1", "--width", "3"]
    done = seedbed(home, *arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout + done.stderr
    assert places_of(KEY, home) == []


@pytest.mark.slow
def test_a_comparison_with_a_model_has_its_key_though_the_sampler_runs_first(
    tmp_path: Path, prefect_api: str
) -> None:
    holders: list[bytes] = []

    def answer(_asked: Asked) -> Answer:
        for block in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # not ours to read, or gone
                holders.extend([block.read_bytes()] if KEY.encode() in block.read_bytes() else [])
        return Answer(tools=(Call("hand_in", {"hypothesis": "Nothing is worth a change."}),))

    with ProviderServer(answer) as server:
        own = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.openai_url}
        arms = ["sampler", "openai:m", "--other-url", server.openai_url, "--tokens", "500000"]
        size = ["--substrate", str(STUB), "--seeds", "1", "--rounds", "1", "--width", "3"]
        done = seedbed(
            tmp_path, "compare", *arms, *size, "--end-seeds", "2", environment={**os.environ, **own}
        )
    assert done.returncode == 0, done.stderr
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}
    assert holders == [] and "no_change" in done.stdout
