"""Two arms against each other, from finished campaigns on the stub."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows import round as steps
from flows.calling import answered_by
from flows.cli import app
from flows.compare import BadComparison, compare_arms, comparison_markdown, missing_plans
from flows.finale import choose, confirm
from flows.house import House, open_house
from flows.plan import EndPlan, Plan
from flows.rerun import begin_rerun
from flows.revision import revise_policy
from flows.start import start_campaign
from flows.trial import run_trial
from policies.ledger import NotInLedger
from tests.agents.scripted import says, script

STUB = Path(__file__).parents[1] / "substrates" / "stub"
WIDTH = 3

# Sets the learning rate to its best value, which the sampler finds by chance.
PROGRAM = """
import json, pathlib
recipe = pathlib.Path("recipes/stub.py")
recipe.write_text(recipe.read_text().replace("LEARNING_RATE = 3e-4", "LEARNING_RATE = 2e-3"))
pathlib.Path("out/hand-in.json").write_text(json.dumps({"hypothesis": "The optimum."}))
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBED_HOME", str(tmp_path_factory.mktemp("home")))
        yield open_house()


def plan(worker: str, seed: int, **changes: Any) -> Plan:
    fields = {"substrate": str(STUB), "rounds": 1, "width": WIDTH, "worker": worker, "seed": seed}
    return Plan.model_validate({**fields, "end": EndPlan(seeds=2), **changes})


def conducted(house: House, wanted: Plan) -> str:
    """A campaign, without Prefect, and the runs of its end."""
    campaign_id = start_campaign(house, wanted)

    async def run() -> None:
        await steps.open_round(house, campaign_id, 1)
        for slot in range(WIDTH):
            await run_trial(campaign_id, 1, slot)
        await steps.take_looks(house, campaign_id, 1)
        report = steps.build_report(house, campaign_id, 1)
        revision = await revise_policy(house, campaign_id, report)
        steps.record_round(house, campaign_id, report, revision)
        choose(house, campaign_id)
        await confirm(house, campaign_id)

    asyncio.run(run())
    return campaign_id


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("programs") / "optimum"
    path.write_text(f"#!{sys.executable}\n{PROGRAM}")
    path.chmod(0o755)
    return f"command:{path}"


@pytest.fixture(scope="module")
def ids(house: House, program: str) -> dict[str, list[str]]:
    """Two campaigns of each kind, on the same two seeds."""
    return {
        kind: [conducted(house, plan(kind, seed)) for seed in (0, 1)]
        for kind in ("sampler", program)
    }


def test_two_kinds_of_worker_are_compared_by_campaign_within_seeds(
    house: House, program: str, ids: dict[str, list[str]]
) -> None:
    found = compare_arms(house, program, "sampler")
    assert found.unit == "campaign"
    assert [sorted(arm.campaigns) for arm in found.arms] == [
        sorted(ids[program]),
        sorted(ids["sampler"]),
    ]
    best = found.differences["best trial on dev"]
    assert (best.way, best.n) == ("paired", (2, 2))
    for arm, kind in zip(found.arms, (program, "sampler"), strict=True):
        tops = {
            (house.campaign(one).seed,): max(
                slot.dev.value
                for report in house.reports(one)
                for slot in report.results.slots[1:]
                if slot.dev
            )
            for one in ids[kind]
        }
        assert arm.values["best trial on dev"] == tops
        assert arm.outcomes == {"evaluated": 4}
    # Nothing was promoted in one round: both end with what they began with, on the same seeds.
    same = found.differences["external of the candidate"]
    assert same.difference == 0.0 and found.differences["external gain over the start"].means == (
        0.0,
        0.0,
    )
    assert found.differences["cost: rollouts"].means == (3 * 960.0, 3 * 960.0)


def test_two_campaigns_are_compared_by_the_runs_of_their_ends(
    house: House, program: str, ids: dict[str, list[str]]
) -> None:
    found = compare_arms(house, ids[program][0], ids["sampler"][0])
    assert found.unit == "run"
    assert found.differences["external of the candidate"].way == "paired"
    other = compare_arms(house, ids[program][0], ids["sampler"][1])
    assert other.differences["external of the candidate"].way == "unpaired"
    assert other.differences["best trial on dev"].way == "none"


def test_the_command_prints_tables_or_json_that_say_the_same(
    house: House, program: str, ids: dict[str, list[str]]
) -> None:
    said = CliRunner().invoke(app, ["compare", program, "sampler", "--json"])
    data = json.loads(said.stdout)
    assert [arm["name"] for arm in data["arms"]] == [program, "sampler"]
    assert data["measures"]["best trial on dev"]["way"] == "paired"
    text = CliRunner().invoke(app, ["compare", program, "sampler"]).stdout
    assert text.strip() == comparison_markdown(compare_arms(house, program, "sampler")).strip()
    assert "| best trial on dev |" in text and "| evaluated | 4 | 4 |" in text


def test_what_was_run_is_not_run_again_and_reruns_do_not_count(
    house: House, program: str, ids: dict[str, list[str]]
) -> None:
    there, missing = plan("sampler", 0), plan("sampler", 7)
    assert missing_plans(house, [there, missing]) == [missing]
    before = compare_arms(house, program, "sampler").arms[1].campaigns
    begin_rerun(house, ids["sampler"][0])
    assert compare_arms(house, program, "sampler").arms[1].campaigns == before


@pytest.mark.slow
def test_of_one_seed_the_newest_campaign_counts_and_another_author_of_policies_is_other_ground(
    house: House, program: str, ids: dict[str, list[str]]
) -> None:
    again = conducted(house, plan("sampler", 0, name="again"))
    spend = {"dollars": None, "tokens": 10**6}
    with answered_by(lambda _house, _speaker: script(says("No.", "refusal"))):
        modelled = conducted(house, plan("sampler", 1, meta="openai:scripted", spend=spend))
    found = compare_arms(house, program, "sampler")
    assert sorted(found.arms[1].campaigns) == sorted([again, ids["sampler"][1]])
    assert found.ground["meta"] == "reviser"
    chosen = compare_arms(house, modelled, ids["sampler"][1])
    assert "meta" not in chosen.ground


@pytest.mark.slow
def test_campaigns_on_other_ground_are_not_compared(
    house: House, ids: dict[str, list[str]]
) -> None:
    budget = {"rollouts": 480}
    other = conducted(house, plan("sampler", 0, budget=budget))
    with pytest.raises(BadComparison, match="rollouts 0 and 480"):
        compare_arms(house, ids["sampler"][0], other)
    with pytest.raises(NotInLedger):
        compare_arms(house, "openai:nobody", "sampler")
    unfinished = start_campaign(house, plan("sampler", 3))
    with pytest.raises(NotInLedger, match=f"resume {unfinished}"):
        compare_arms(house, unfinished, other)
