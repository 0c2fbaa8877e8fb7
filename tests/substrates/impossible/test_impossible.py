"""On a substrate where nothing can be learnt, whoever gains has seen the labels, and is named."""

import asyncio
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from flows.house import House, open_house
from flows.plan import Plan
from flows.round import build_report, open_round, take_looks
from flows.start import start_campaign
from flows.trial import run_trial
from policies.report import RoundReport
from substrate.check import check_dropin
from substrate.dropin import read_dropin
from substrate.fork import make_fork
from substrate.measure import SealedAdapter, measure, measure_completion, seal_adapter
from substrate.probe import make_adapter
from substrate.run import job_for, run_recipe
from substrate.store import Store
from tests.substrates.impossible import make_data

IMPOSSIBLE = Path(__file__).parent
STUB = IMPOSSIBLE.parent / "stub"
ROOM = 4 * 0.5 / 20  # four deviations of a score of 400 coin tosses


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path / "home"))
    return open_house()


def learnt_from(path: str) -> list[float]:
    """The weights that fit the labels of a set best: what no recipe can know."""
    problems = [json.loads(line) for line in (IMPOSSIBLE / path).read_text().splitlines()]
    inputs = [
        [byte / 127.5 - 1 for byte in hashlib.shake_256(p["prompt"].encode()).digest(128)]
        for p in problems
    ]
    called = [1.0 if problem["answer"] == "heads" else -1.0 for problem in problems]
    return [round(float(w), 4) for w in np.linalg.lstsq(np.array(inputs), called, rcond=None)[0]]


def round_of(house: House, folder: Path, learnt: list[float]) -> RoundReport:
    """One round of an anchor and two explorations: of LEARNT, where there is any, and a placebo."""
    policy = json.loads((STUB / "policies" / "faults.json").read_text("utf-8"))
    policy["trust"] = {"coins": "trusted"}
    file = "recipes/toss.py"
    knobs = [
        {"kind": "choice", "file": file, "constant": "LEARNT", "choices": [learnt]},
        {"kind": "float", "file": file, "constant": "WARMUP", "low": 0.0, "high": 0.5},
    ]
    policy["axes"] = [
        {"id": f"axis-{n}", "title": "An axis", "hypothesis": "It helps.", "knobs": [knob]}
        for n, knob in enumerate(knobs if learnt else [knobs[1], {**knobs[1], "high": 0.9}])
    ]
    (folder / "policy.json").write_text(json.dumps(policy))
    plan = {"substrate": str(IMPOSSIBLE), "width": 3, "policy": str(folder / "policy.json")}
    campaign_id = start_campaign(house, Plan.model_validate({**plan, "rounds": 1, "seed": 3}))

    async def whole_round() -> None:
        await open_round(house, campaign_id, 1)
        for slot in range(3):
            await run_trial(campaign_id, 1, slot)
        await take_looks(house, campaign_id, 1)
        await take_looks(house, campaign_id, 1)  # a round that is resumed looks no second time

    asyncio.run(whole_round())
    return build_report(house, campaign_id, 1)


def test_the_drop_in_passes_every_check_and_is_what_the_script_writes(tmp_path: Path) -> None:
    assert check_dropin(IMPOSSIBLE) == []
    make_data.write_all(tmp_path)
    for path in (*make_data.SETS, "base/base.safetensors"):
        assert (tmp_path / path).read_bytes() == (IMPOSSIBLE / path).read_bytes(), path


@pytest.mark.parametrize("seen", ["dev/problems.jsonl", "judge/external.jsonl"])
def test_who_has_the_labels_raises_the_alarm_and_has_no_score(
    seen: str, house: House, tmp_path: Path
) -> None:
    report = round_of(house, tmp_path, learnt_from(seen))

    cheat, *others = sorted(report.results.slots, key=lambda slot: not slot.integrity)
    assert (cheat.integrity, cheat.outcome) == (["implausible_score"], "tampered")
    assert (cheat.dev, cheat.external) == (None, None) and cheat.discarded is not None
    (event,) = report.account.integrity
    assert ("on dev" if "dev" in seen else "on external") in event.detail
    assert [slot.outcome for slot in others] == ["evaluated"] * 2
    assert report.results.flagged is not None and report.results.flagged.trials == 1


def test_who_has_not_raises_none(house: House, tmp_path: Path) -> None:
    report = round_of(house, tmp_path, [])
    assert [slot.integrity for slot in report.results.slots] == [[]] * 3
    for slot in report.results.slots:
        for score in (slot.dev, slot.external):
            assert score is not None and abs(score.value - 0.5) <= ROOM
    assert report.results.flagged is None


def test_a_random_adapter_and_an_empty_answer_never_beat_the_base(tmp_path: Path) -> None:
    snapshot = Store(tmp_path / "store").seal(read_dropin(IMPOSSIBLE))
    fork = make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])
    scored = snapshot.manifest.sets.dev

    async def scores() -> tuple[float, list[float]]:
        record = await run_recipe(fork, job_for(snapshot, recipe="toss", seed=1, rollouts=None))
        assert record.result is not None
        like = seal_adapter(fork, record.result, tmp_path / "adapters")
        assert isinstance(like, SealedAdapter)
        found = []
        adapters = [make_adapter("base", like, 0, tmp_path / "adapters")]
        adapters += [make_adapter("random", like, n, tmp_path / "adapters") for n in range(4)]
        for adapter in adapters:
            measured = await measure(snapshot, adapter, snapshot.root / scored.path, scored)
            assert measured.score is not None, measured
            found.append(measured.score["value"])
        empty = await measure_completion(snapshot, "", snapshot.root / scored.path, scored)
        assert empty.score is not None and empty.score["value"] == 0.0
        return found[0], found[1:]

    base, random = asyncio.run(scores())
    assert max(random) <= base + ROOM
