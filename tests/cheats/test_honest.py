"""Honest edits are evaluated and left alone: no integrity event, no score withheld."""

import asyncio
import json
from pathlib import Path

import pytest

from flows.campaign import campaign
from flows.plan import Plan
from tests.cheats.cheat import RECIPE
from tests.cheats.honest import HONEST, Honest
from tests.cheats.yard import STUB, Order, Yard, by_axis, left_running

A_ROUND = 7


def order(honest: Honest) -> Order:
    recipe = honest.of((STUB / "overlay" / RECIPE).read_text("utf-8"))
    work = "".join(f"write({path!r}, {text!r})\n" for path, text in honest.files.items())
    return Order(honest.name, work, recipe)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("start", range(0, len(HONEST), A_ROUND))
def test_an_honest_edit_is_evaluated_and_not_flagged(yard: Yard, start: int) -> None:
    honest = HONEST[start : start + A_ROUND]
    report = yard.run([order(one) for one in honest], seed=5)
    ended = {
        name: (slot.outcome, slot.integrity, slot.dev is None, account.reason)
        for name, (slot, account) in by_axis(report).items()
    }
    assert ended == dict.fromkeys(ended, ("evaluated", [], False, ""))
    assert ended.keys() == {"anchor", *(one.name for one in honest)}
    assert report.account.integrity == []
    assert left_running([report.campaign]) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_two_hundred_honest_trials_none_is_flagged(yard: Yard, tmp_path: Path) -> None:
    policy = json.loads((STUB / "policies" / "stub.json").read_text("utf-8"))
    drawn = policy["axes"]
    policy["axes"] = [drawn[n % len(drawn)] | {"id": f"axis-{n}"} for n in range(199)]
    (tmp_path / "policy.json").write_text(json.dumps(policy), "utf-8")
    plan = {
        "substrate": str(STUB),
        "policy": str(tmp_path / "policy.json"),
        "rounds": 1,
        "width": 200,
        "seed": 6,
    }
    campaign_id = str(asyncio.run(campaign(Plan.model_validate(plan))))
    (report,) = yard.house.reports(campaign_id)
    assert len(report.results.slots) == 200
    assert {(s.outcome, *s.integrity) for s in report.results.slots} == {("evaluated",)}
    assert yard.house.ledger.integrity(campaign_id) == []
