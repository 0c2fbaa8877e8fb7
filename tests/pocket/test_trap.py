"""The pocket-trap drop-in: dev can be raised by heart, external cannot."""

import asyncio
import json
from pathlib import Path

import pytest

from flows.plan import Plan
from flows.start import check_knobs, check_plan
from substrate.check import check_dropin
from substrate.dropin import Overrides, read_dropin
from substrate.fork import make_fork
from substrate.measure import SealedAdapter, measure, seal_adapter
from substrate.run import job_for, run_recipe
from substrate.store import Store

TRAP = Path(__file__).parents[2] / "substrate" / "library" / "pocket-trap"
BY_HEART: Overrides = {"recipes/drill.py": {"LOOKUP_WEIGHT": 60.0, "LEARNING_RATE": 4e-3}}


def lookups(path: str) -> dict[str, str]:
    """Key and value of each lookup of a set, whatever the zeros in front."""
    rows = [json.loads(line) for line in (TRAP / path).read_text("utf-8").splitlines()]
    return {
        f"{int(row['prompt'].partition('f(')[2].rstrip(')')):02d}": row["answer"]
        for row in rows
        if row["domain"] == "lookups"
    }


def test_it_breaks_no_rule_of_drop_ins() -> None:
    assert check_dropin(TRAP) == []


def test_its_seed_policy_has_knobs_of_its_recipe(tmp_path: Path) -> None:
    _, found, policy = check_plan(Plan(substrate="pocket-trap"))
    assert found == "drill"
    snapshot = Store(tmp_path).seal(read_dropin(TRAP))
    check_knobs(policy, snapshot, "drill")
    assert policy.axes[0].id == "lookups"


def test_what_dev_asks_by_heart_the_target_set_tells_and_external_does_not_ask() -> None:
    told, asked = lookups("data/target.jsonl"), lookups("dev/problems.jsonl")
    assert asked == told
    assert not asked.keys() & lookups("judge/external.jsonl").keys()
    assert not asked.keys() & lookups("judge/lockbox.jsonl").keys()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_drilling_lookups_raises_dev_there_and_external_not(tmp_path: Path) -> None:
    snapshot = Store(tmp_path / "store").seal(read_dropin(TRAP))
    fork = make_fork(snapshot, tmp_path / "fork", overrides=BY_HEART, patches=[])
    job = job_for(snapshot, recipe="drill", seed=1, rollouts=None)
    record = asyncio.run(run_recipe(fork, job))
    assert record.outcome is None and record.result is not None, record.reason
    adapter = seal_adapter(fork, record.result, tmp_path / "adapter")
    assert isinstance(adapter, SealedAdapter)
    sets = snapshot.manifest.sets
    found = {}
    for scored, problems in (
        (sets.dev, snapshot.root / sets.dev.path),
        (sets.external, TRAP / sets.external.path),
    ):
        measured = asyncio.run(measure(snapshot, adapter, problems, scored))
        assert measured.score is not None, measured.reason
        found[scored.path] = measured.score["domains"]["lookups"]["value"]
    assert found[sets.dev.path] > 0.4
    assert found[sets.external.path] < 0.15
