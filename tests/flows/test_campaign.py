"""Whole campaigns on the stub, through the flow, against a real Prefect server."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from flows.campaign import campaign, conduct, resume
from flows.house import House, open_house
from flows.lease import Busy, held
from flows.plan import BudgetPlan, Plan
from flows.start import BadPlan, start_campaign
from flows.trial import run_trial
from policies.ledger import DuplicateRow
from substrate.isolation import HIDDEN, why_not
from substrate.store import SnapshotDamaged

STUB = Path(__file__).parent.parent / "substrates" / "stub"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_api: str) -> House:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path / "home"))
    return open_house()


def plan(**changes: object) -> Plan:
    return Plan.model_validate({"substrate": str(STUB), "rounds": 2, "width": 4, **changes})


def conducted(**changes: object) -> str:
    return str(asyncio.run(campaign(plan(**changes))))


def digests(house: House, campaign_id: str) -> tuple[list[str], list[str]]:
    reports = [report.results_digest() for report in house.reports(campaign_id)]
    return reports, [row.sha256 for row in house.ledger.policies(campaign_id)]


def test_two_rounds_of_eight_are_recorded_and_revise_the_policy_twice(house: House) -> None:
    campaign_id = conducted(width=8)

    trials = house.ledger.trials(campaign_id)
    assert [(row.round, row.slot) for row in trials] == [(r, s) for r in (1, 2) for s in range(8)]
    first, second = house.reports(campaign_id)
    assert [slot.kind for slot in first.results.slots].count("anchor") == 1
    assert all(slot.dev is not None for slot in first.results.slots)
    assert len(first.results.looks) == 4 and 0 in first.results.looks
    assert [s.slot for s in first.results.slots if s.external] == sorted(first.results.looks)
    assert [row.version for row in house.ledger.policies(campaign_id)] == [1, 2, 3]
    assert second.results.policy_sha256 == house.ledger.policy(campaign_id, 2).sha256
    assert house.ledger.unpublished(campaign_id) == []
    assert not any(house.settings.forks.iterdir())


def test_a_report_is_regenerated_byte_for_byte_from_the_rows(house: House) -> None:
    from flows.round import build_report
    from policies.canonical import canonical_json

    campaign_id = conducted(rounds=1)

    stored = house.ledger.report(campaign_id, 1)
    assert stored is not None
    assert canonical_json(build_report(house, campaign_id, 1).data()) == stored.body


def test_equal_seed_and_plan_give_equal_results_and_policies(house: House) -> None:
    one, two = conducted(seed=7), conducted(seed=7, at_once=1)
    other = conducted(seed=8)

    assert one != two
    assert digests(house, one) == digests(house, two)
    assert digests(house, one) != digests(house, other)


def test_every_fault_is_a_row_and_the_round_reports_all_eight(house: House) -> None:
    campaign_id = conducted(rounds=1, width=8, policy=str(STUB / "policies" / "faults.json"))

    (report,) = house.reports(campaign_id)
    outcomes = {slot.axis: slot.outcome for slot in report.results.slots}
    assert len(report.results.slots) == 8
    assert outcomes.pop(None) == "evaluated"
    assert sorted(outcomes.values()) == [
        "crashed",
        "diverged",
        "evaluated",
        "invalid_adapter",
        "no_change",
        "out_of_memory",
        "timed_out",
    ]
    assert all((slot.dev is None) == (slot.outcome != "evaluated") for slot in report.results.slots)


TAMPER = """
if FAULT == "tamper":
    from pathlib import Path

    for sealed in (Path("evaluation/solve.py").resolve(), Path("substrate.toml").resolve()):
        sealed.unlink()
        sealed.write_text("# mine\\n")

if __name__ == "__main__":
"""


@pytest.mark.skipif(why_not("landlock") is not None, reason="wanted Landlock here")
def test_a_recipe_that_writes_to_its_evaluation_is_tampered_and_harms_nobody_else(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Behind bubblewrap's walls it cannot write there: tests/cheats has what becomes of it.
    monkeypatch.setenv(HIDDEN, "bubblewrap")
    drop_in = tmp_path / "stub"
    shutil.copytree(STUB, drop_in)
    recipe = drop_in / "overlay" / "recipes" / "stub.py"
    recipe.write_text(recipe.read_text().replace('\nif __name__ == "__main__":\n', TAMPER))
    policy = json.loads((STUB / "policies" / "faults.json").read_text("utf-8"))
    tampering = next(axis for axis in policy["axes"] if axis["knobs"][0]["constant"] == "FAULT")
    tampering["knobs"][0]["choices"] = ["tamper"]
    honest = next(axis for axis in policy["axes"] if axis["knobs"][0]["constant"] != "FAULT")
    policy["axes"] = [tampering, honest]
    (tmp_path / "tamper.json").write_text(json.dumps(policy))

    # Without walls: within them the copies can only be read.
    fields = {"substrate": str(drop_in), "policy": str(tmp_path / "tamper.json")}
    campaign_id = conducted(rounds=1, width=3, isolation="none", **fields)

    (report,) = house.reports(campaign_id)
    assert [slot.outcome for slot in report.results.slots] == ["evaluated", "tampered", "evaluated"]
    assert report.results.slots[1].integrity == ["sealed_files_changed"]
    (event,) = report.account.integrity
    assert (event.slot, event.attempt, event.worker) == (1, 1, "sampler")
    assert "evaluation/solve.py" in event.detail and "substrate.toml" in event.detail
    assert report.results.slots[1].dev is None
    house.store.verify(house.snapshot(campaign_id))


def test_an_edit_that_changes_nothing_is_no_change(house: House, tmp_path: Path) -> None:
    policy = json.loads((STUB / "policies" / "faults.json").read_text("utf-8"))
    for axis in policy["axes"]:
        axis["knobs"][0] |= {"constant": "FAULT", "kind": "choice", "choices": ["none"]}
        axis["knobs"][0] = {k: axis["knobs"][0][k] for k in ("kind", "file", "constant", "choices")}
    seed_policy = tmp_path / "nothing.json"
    seed_policy.write_text(json.dumps(policy))

    campaign_id = conducted(rounds=1, width=4, policy=str(seed_policy))

    trials = house.ledger.trials(campaign_id)
    assert [row.outcome for row in trials] == ["evaluated", *["no_change"] * 3]
    assert [row.adapter_sha256 is None for row in trials] == [False, True, True, True]


@pytest.mark.parametrize(
    ("knob", "message"),
    [
        ({"constant": "NOTHING"}, "NOTHING"),
        ({"choices": [1, 2]}, "FAULT"),
        ({"file": "evaluation/solve.py", "constant": "ENGINE"}, "sealed"),
    ],
)
def test_a_seed_policy_whose_knobs_cannot_be_turned_is_refused(
    knob: dict[str, object], message: str, house: House, tmp_path: Path
) -> None:
    policy = json.loads((STUB / "policies" / "faults.json").read_text("utf-8"))
    turned = {"kind": "choice", "file": "recipes/stub.py", "constant": "FAULT", "choices": ["x"]}
    policy["axes"][0]["knobs"] = [turned | knob]
    (tmp_path / "bad.json").write_text(json.dumps(policy))

    with pytest.raises(BadPlan, match=message):
        start_campaign(house, plan(policy=str(tmp_path / "bad.json")))
    assert house.ledger.campaigns() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"replicates": [{"axis": "none", "edit": {}, "origin": "r1/s1"}]},
            "replicates",
        ),
        ({"claims": [{"id": "c", "text": "It helps.", "rows": ["r1"]}]}, "claims"),
        (
            {"dead_ends": [{"id": "d", "axis": "a", "title": "t", "effect": None, "rows": ["r1"]}]},
            "dead_ends",
        ),
        ({"noise": {"sigma": float("inf")}}, "finite"),
    ],
)
def test_a_seed_policy_that_speaks_of_rows_or_infinities_is_refused(
    change: dict[str, object], message: str, house: House, tmp_path: Path
) -> None:
    policy = json.loads((STUB / "policies" / "stub.json").read_text("utf-8"))
    (tmp_path / "bad.json").write_text(json.dumps(policy | change))

    with pytest.raises(BadPlan, match=message):
        start_campaign(house, plan(policy=str(tmp_path / "bad.json")))
    assert house.ledger.campaigns() == []


def test_a_seed_policy_that_is_nested_without_end_is_refused(house: House, tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(BadPlan, match="not a valid search policy"):
        start_campaign(house, plan(policy=str(tmp_path / "deep.json")))


def test_infrastructure_is_tried_again_and_then_recorded_as_missing(
    house: House, tmp_path: Path
) -> None:
    drop_in = tmp_path / "stub"
    shutil.copytree(STUB, drop_in)
    manifest = drop_in / "substrate.toml"
    text = manifest.read_text()
    gone = "/nowhere/python"
    text = text.replace("[run]", f'[run]\npython = "{gone}"', 1)
    manifest.write_text(text if "[run]" in text else f'{text}\n[run]\npython = "{gone}"\n')

    campaign_id = conducted(
        rounds=1, width=3, substrate=str(drop_in), budget=BudgetPlan(attempts=2).model_dump()
    )

    trials = house.ledger.trials(campaign_id)
    assert {row.outcome for row in trials} == {"infrastructure"}
    assert [row.attempt for row in house.ledger.attempts(campaign_id, 1, 0)] == [1, 2]
    assert house.ledger.scores(campaign_id) == [] and house.ledger.looks(campaign_id) == []
    (report,) = house.reports(campaign_id)
    assert [slot.dev for slot in report.results.slots] == [None, None, None]


def test_looks_never_exceed_the_campaigns_cap(house: House) -> None:
    campaign_id = conducted(budget=BudgetPlan(looks=5, looks_per_round=4).model_dump())

    assert [look.number for look in house.ledger.looks(campaign_id)] == [1, 2, 3, 4, 5]


def test_a_trial_is_recorded_once_whoever_runs_it_again(house: House) -> None:
    campaign_id = conducted(rounds=1)
    before = house.ledger.trials(campaign_id, 1)

    with pytest.raises(DuplicateRow, match="trial"):
        asyncio.run(run_trial(campaign_id, 1, 0))

    assert house.ledger.trials(campaign_id, 1) == before
    assert [row.attempt for row in house.ledger.attempts(campaign_id, 1, 0)] == [1, 2]


def test_a_complete_campaign_resumed_does_nothing(house: House) -> None:
    campaign_id = conducted(rounds=1)
    before = digests(house, campaign_id)

    assert asyncio.run(resume(campaign_id)) == campaign_id

    assert digests(house, campaign_id) == before
    assert len(house.ledger.attempts(campaign_id, 1, 0)) == 1


def test_a_second_conductor_is_refused(house: House) -> None:
    asyncio.run(second_conductor(house, conducted(rounds=1)))


async def second_conductor(house: House, campaign_id: str) -> None:
    async def conduct_for_a_while() -> None:
        async with held(house, campaign_id):
            await asyncio.sleep(30)

    first = asyncio.create_task(conduct_for_a_while())
    await asyncio.sleep(0.1)
    assert house.ledger.claim_lease(f"campaign/{campaign_id}", "elsewhere:1:1", 5) is False
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first

    assert house.ledger.claim_lease(f"campaign/{campaign_id}", "elsewhere:1:1", 60)
    forks = house.settings.forks / campaign_id / "of-the-other"
    forks.mkdir(parents=True)
    with pytest.raises(Busy, match="elsewhere"):
        await conduct(campaign_id)
    assert forks.is_dir(), "what the other conductor works with is not ours to remove"


def test_a_damaged_snapshot_ends_the_campaign_with_its_path(house: House, tmp_path: Path) -> None:
    drop_in = tmp_path / "stub"
    shutil.copytree(STUB, drop_in)
    campaign_id = conducted(rounds=1, substrate=str(drop_in))
    longer = json.loads(house.campaign(campaign_id).plan)
    scorer = house.snapshot(campaign_id).root / "evaluation" / "score.py"
    scorer.chmod(0o644)
    scorer.write_text("print(1.0)\n")

    with pytest.raises(SnapshotDamaged, match=r"evaluation/score\.py"):
        asyncio.run(campaign(Plan.model_validate(longer)))
