"""A campaign whose models are served over HTTP, through both SDKs, and its rerun without them."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows import round as steps
from flows.calling import answered_by, journal_of
from flows.exchanges import exchanges_of
from flows.house import House, open_house
from flows.narration import narrate_round
from flows.plan import Plan
from flows.rerun import answers_of, begin_rerun, compare_rerun
from flows.revision import decide, revise_policy
from flows.start import start_campaign
from flows.trial import run_trial
from tests.agents.provider_server import Answer, Asked, Call, ProviderServer

STUB = str(Path(__file__).parents[1] / "substrates" / "stub")
WIDTH = 3


@dataclass(frozen=True)
class Ground:
    """A substrate, and the rate that its recipe begins with."""

    substrate: str
    recipe: str
    rate: str
    rollouts: int = 0

    def work(self) -> tuple[Call, ...]:
        """A worker breaks the recipe, sees it fail, repairs it, runs it again, hands in."""
        was, broken, mended = (f"LEARNING_RATE = {x}" for x in (self.rate, "1 / 0", "2e-3"))
        return (
            Call("edit", {"path": self.recipe, "old": was, "new": broken}),
            Call("run_recipe", {"kind": "smoke"}),
            Call("edit", {"path": self.recipe, "old": broken, "new": mended}),
            Call("run_recipe", {"kind": "draft"}),
            Call("hand_in", {"hypothesis": "The optimum.", "notes": "It failed once."}),
        )


POCKET = Ground("pocket", "recipes/rlvr.py", "3e-3", rollouts=512)
GROUNDS = [
    pytest.param(Ground(STUB, "recipes/stub.py", "3e-4"), id="stub"),
    pytest.param(POCKET, id="pocket", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
]


@pytest.fixture
def server(ground: Ground) -> Iterator[ProviderServer]:
    """Workers speak one protocol and the meta-agent the other; its first draft is too greedy."""

    def answer(asked: Asked) -> Answer:
        messages = asked.body["messages"]
        if asked.protocol == "anthropic":
            return Answer(tools=(ground.work()[len(messages) // 2],))
        if "# You are the collector" in str(messages[0]):
            return Answer(text=json.dumps({"narrative": "The anchor is r1/s0."}))
        house = open_house()
        campaign_id = house.ledger.find_campaign(None).id
        report = steps.build_report(house, campaign_id, 1)
        draft = json.loads(decide(house.policy(campaign_id), report, []))
        draft["claims"] = []
        if "C8" not in str(messages[-1]["content"])[:600]:
            draft["budget"]["looks"] = 99
        return Answer(text=json.dumps(draft))

    with ProviderServer(answer) as server:
        yield server


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ProviderServer) -> House:
    keys = tmp_path / "keys"
    keys.write_text(
        f"OPENAI_API_KEY=sk-of-this-test-000001\nOPENAI_BASE_URL={server.openai_url}\n"
        f"ANTHROPIC_API_KEY=sk-ant-of-this-test-0002\nANTHROPIC_BASE_URL={server.anthropic_url}\n"
    )
    keys.chmod(0o600)
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SEEDBED_KEYS", str(keys))
    return open_house()


async def one_round(house: House, campaign_id: str) -> None:
    await steps.open_round(house, campaign_id, 1)
    for slot in range(WIDTH):
        await run_trial(campaign_id, 1, slot)
    await steps.take_looks(house, campaign_id, 1)
    await narrate_round(house, campaign_id, steps.build_report(house, campaign_id, 1))
    report = steps.build_report(house, campaign_id, 1)
    revision = await revise_policy(house, campaign_id, report)
    steps.record_round(house, campaign_id, report, revision)


@pytest.mark.parametrize("ground", GROUNDS)
def test_a_served_campaign_is_charged_journalled_and_run_again_without_its_server(
    ground: Ground, house: House, server: ProviderServer
) -> None:
    serving = {
        "worker": {"base_url": server.anthropic_url},
        "meta": {"base_url": server.openai_url},
        "collector": {"base_url": server.openai_url},
    }
    roles = {"worker": "anthropic:m", "meta": "openai:m", "collector": "openai:m"}
    spend = {"dollars": None, "tokens": 10**7}
    plan = {"substrate": ground.substrate, "rounds": 1, "width": WIDTH, "serving": serving}
    plan |= {"spend": spend, "budget": {"rollouts": ground.rollouts}}
    campaign_id = start_campaign(house, Plan.model_validate({**plan, **roles}))
    asyncio.run(one_round(house, campaign_id))

    (report,) = house.reports(campaign_id)
    explored = [slot for slot in report.results.slots if slot.kind == "explore"]
    assert [slot.outcome for slot in explored] == ["evaluated"] * len(explored)
    assert all(slot.edit.overrides == {ground.recipe: {"LEARNING_RATE": 2e-3}} for slot in explored)
    assert [row.author for row in house.ledger.policies(campaign_id)] == ["seed", "openai:m"]
    assert report.results.narrative == "The anchor is r1/s0."

    calls = house.ledger.agent_calls(campaign_id)
    assert sum(row.role == "worker" for row in calls) == len(ground.work()) * len(explored)
    (note,) = house.ledger.events(campaign_id, steps.ASKED)
    asked = json.loads(note.body)
    journalled = [row.request_sha256 for row in calls if row.role == "meta"]
    assert asked["turns"] == 2 and asked["prompts"] == journalled
    (first, _) = exchanges_of(house, campaign_id, "r1/meta")
    assert "# The report of round 1" in first.request.messages[0].text

    before = len(server.asked)
    again = begin_rerun(house, campaign_id)
    with answered_by(answers_of(campaign_id, journal_of(house, campaign_id), house)):
        asyncio.run(one_round(house, again))
    assert all(step.is_same for step in compare_rerun(house, campaign_id, again))
    assert len(server.asked) == before
    assert house.ledger.agent_calls(again) == []
