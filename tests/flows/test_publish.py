"""What people see in Prefect of a round: artifacts and events, through the outbox."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect import flow
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.campaign import campaign as run_campaign
from flows.house import open_house
from flows.plan import Plan, artifact_key
from flows.progress import progress_of, shown_progress
from flows.publish import outbox_rows, publish_outbox
from flows.round import open_round
from flows.start import start_campaign
from flows.trial import run_trial
from policies.constitution import Violation
from policies.ledger import Ledger
from policies.policy import (
    Axis,
    BudgetSplit,
    Edit,
    NoiseModel,
    NumberKnob,
    SearchPolicy,
)
from policies.report import (
    Account,
    DomainScore,
    Results,
    RoundReport,
    SetScore,
    SlotAccount,
    SlotResult,
    Spread,
)
from policies.tables import Campaign, Outbox

SHA = "ab" * 32
STUB = Path(__file__).parent.parent / "substrates" / "stub"
KNOB = NumberKnob(kind="float", file="recipes/stub.py", constant="RATE", low=0.1, high=1.0)
OLD = SearchPolicy(
    version=1,
    parent=None,
    objective="Raise the score.",
    evidence_ranking=["external"],
    axes=[Axis(id="rate", title="Rate", hypothesis="More is better.", knobs=[KNOB])],
)
NEW = OLD.model_copy(
    update={
        "version": 2,
        "parent": OLD.digest(),
        "budget": BudgetSplit(replicates=2),
        "rationale": "Two replicates are enough.",
    }
)
WHEN = datetime.now(UTC)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield ledger
    ledger.close()


def campaign(name: str) -> Campaign:
    return Campaign(
        id=name,
        name=name,
        plan="{}",
        seed=0,
        substrate_name="stub",
        substrate_sha256=SHA,
        judge_sha256=SHA,
        constitution_sha256=SHA,
        recipe="stub",
        worker="sampler",
        created_at=WHEN,
    )


def score(value: float) -> SetScore:
    return SetScore(
        value=value,
        n=40,
        domains={"strings": DomainScore(value=value, n=40)},
        metric="accuracy",
        metric_version=SHA,
        engine="stub 1",
    )


def report_of(
    name: str, number: int = 1, slots: int = 2, words: str = "As expected."
) -> RoundReport:
    return RoundReport(
        campaign=name,
        round=number,
        results=Results(
            substrate_sha256=SHA,
            constitution_sha256=SHA,
            policy_version=number,
            policy_sha256=SHA,
            recipe="stub",
            slots=[
                SlotResult(
                    slot=slot,
                    kind="explore" if slot else "anchor",
                    axis="rate" if slot else None,
                    hypothesis=words,
                    edit=Edit(overrides={"recipes/stub.py": {"RATE": 0.5}} if slot else {}),
                    diff_sha256=None,
                    seed=slot,
                    outcome="evaluated",
                    adapter_sha256=SHA,
                    dev=score(0.5 + 0.1 * (slot % 2)),
                    external=score(0.4) if slot == 0 else None,
                )
                for slot in range(slots)
            ],
            looks=[0],
            spread=Spread(dev=0.5, external=0.4, mean=0.5, low=0.5, high=0.5, n=1),
            noise=NoiseModel(),
            verdicts=[],
            dead_ends=[],
            narrative="",
        ),
        account=Account(
            started_at=WHEN.isoformat(),
            ended_at=WHEN.isoformat(),
            seconds={"trials": 1.0},
            slots=[
                SlotAccount(
                    slot=slot,
                    attempts=1,
                    reason="",
                    notes=words,
                    seconds={"run": 0.1},
                    cpu_seconds=0.1,
                    peak_memory_mb=10.0,
                    rollouts=1,
                    tokens=1,
                )
                for slot in range(slots)
            ],
            worker="sampler",
            isolation="none",
        ),
    )


def rows_of(name: str, **changes: Any) -> list[Outbox]:
    values: dict[str, Any] = {
        "campaign": campaign(name),
        "report": report_of(name),
        "history": [],
        "old": OLD,
        "new": NEW,
        "violations": [],
        "direction": "maximise",
    }
    return outbox_rows(**values | changes)


def artifact(url: str, key: str) -> dict[str, Any]:
    return httpx.get(f"{url}/artifacts/{key}/latest").raise_for_status().json()


def events(url: str, name: str, most_seconds: float = 30.0) -> list[dict[str, Any]]:
    """The events of a campaign, once the server has written them, which it does in batches."""
    resource = {"id": [f"seedbed.campaign.{name}"]}
    give_up = time.monotonic() + most_seconds
    while True:
        found = httpx.post(f"{url}/events/filter", json={"filter": {"resource": resource}})
        events = found.raise_for_status().json()["events"]
        if events or time.monotonic() > give_up:
            return events
        time.sleep(0.2)


def test_a_round_is_read_in_prefect_after_its_rows_are_published(
    ledger: Ledger, prefect_api: str
) -> None:
    name = "read-1a"
    ledger.append(*rows_of(name))

    @flow(name="publishing")
    async def publishing() -> int:
        return await publish_outbox(ledger, name)

    assert asyncio.run(publishing()) == 6
    assert ledger.unpublished(name) == []
    assert asyncio.run(publishing()) == 0

    report = artifact(prefect_api, "read-1a-report")
    assert report["type"] == "markdown" and "# Round 1 of `read-1a`" in report["data"]
    assert "](/v2/artifacts/key/read-1a-policy-diff)" in report["data"]
    run = httpx.get(f"{prefect_api}/flow_runs/{report['flow_run_id']}").raise_for_status().json()
    assert run["state_type"] == "COMPLETED"

    table = json.loads(artifact(prefect_api, "read-1a-scores")["data"])
    assert [(row["slot"], row["dev"], row["external"]) for row in table] == [
        (0, 0.5, 0.4),
        (1, 0.6, None),
    ]
    assert table[1]["edit"] == "RATE=0.5" and table[1]["dev, strings"] == 0.6

    diff = artifact(prefect_api, "read-1a-policy-diff")["data"]
    assert "# Policy version 1 to 2, after round 1" in diff
    assert "](data:image/svg+xml;base64," in diff
    assert "- replicates: 4\n+ replicates: 2" in diff
    assert "# Campaign `read-1a`" in artifact(prefect_api, "read-1a-index")["data"]

    happened = {event["event"]: event for event in events(prefect_api, name)}
    assert set(happened) == {"seedbed.round.completed", "seedbed.policy.revised"}
    assert happened["seedbed.policy.revised"]["payload"]["version"] == 2
    assert happened["seedbed.round.completed"]["payload"]["outcomes"] == {"evaluated": 2}
    related = happened["seedbed.round.completed"]["related"]
    assert f"prefect.flow-run.{run['id']}" in [item["prefect.resource.id"] for item in related]


def test_rows_wait_while_no_server_can_be_reached(ledger: Ledger, prefect_api: str) -> None:
    name = "waiting-1a"
    ledger.append(*rows_of(name))
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert asyncio.run(publish_outbox(ledger, name)) == 0
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert asyncio.run(publish_outbox(ledger, name)) == 0
    assert len(ledger.unpublished(name)) == 6
    assert asyncio.run(publish_outbox(ledger, name)) == 6


def test_a_row_that_the_server_refuses_holds_back_no_other(
    ledger: Ledger, prefect_api: str
) -> None:
    name = "refused-1a"
    refused = Outbox(campaign=name, kind="event", key="no.resource", body='{"event": "x"}')
    ledger.append(refused, *rows_of(name))
    assert asyncio.run(publish_outbox(ledger, name)) == 6
    assert [row.key for row in ledger.unpublished(name)] == ["no.resource"]


def test_an_event_that_is_published_twice_is_one_event(tmp_path: Path, prefect_api: str) -> None:
    name = "twice-1a"
    for file in ("first.db", "second.db"):
        ledger = Ledger(f"sqlite:///{tmp_path / file}")
        ledger.append(*rows_of(name))
        assert asyncio.run(publish_outbox(ledger, name)) == 6
        ledger.close()
        found = [event["event"] for event in events(prefect_api, name)]
        assert sorted(found) == ["seedbed.policy.revised", "seedbed.round.completed"]


def test_a_rejected_draft_is_shown_with_clause_reason_and_quote() -> None:
    found = Violation(clause="C4", quote="axes: []", reason="at least two axes")
    rows = {row.key: json.loads(row.body) for row in rows_of("no-1a", new=None, violations=[found])}
    text = rows["no-1a-policy-diff"]["data"]
    assert "Policy version 1 stays" in text
    assert "| C4 | at least two axes | `axes: []` |" in text
    assert rows["seedbed.policy.rejected"]["payload"]["clauses"] == ["C4"]
    assert "seedbed.policy.revised" not in rows


def test_keys_are_what_prefect_takes_and_bodies_stay_below_a_megabyte() -> None:
    report = report_of("wide-1a", slots=2000, words="A long hypothesis. " * 50)
    rows = rows_of("wide-1a", report=report)
    artifacts = [row for row in rows if row.kind != "event"]
    assert [row.key for row in artifacts] == [
        artifact_key("wide-1a", what) for what in ("report", "scores", "policy-diff", "index")
    ]
    for row in artifacts:
        assert re.fullmatch("[a-z0-9-]+", row.key)
        assert len(json.loads(row.body)["data"].encode()) < 1_000_000
    text = json.loads(artifacts[0].body)["data"]
    assert text.endswith("The whole: `seedbed report wide-1a --round 1 --markdown`\n")


# Progress


def progress(name: str, ended: int) -> Outbox:
    body = {"description": f"{name}: {ended} of 4 trials", "data": 25.0 * ended}
    return Outbox(campaign=name, kind="progress", key=f"{name}-progress", body=json.dumps(body))


def versions(url: str, key: str) -> list[dict[str, Any]]:
    wanted = {"artifacts": {"key": {"any_": [key]}}}
    return httpx.post(f"{url}/artifacts/filter", json=wanted).raise_for_status().json()


def test_progress_is_one_artifact_of_a_run_that_the_newest_row_changes(
    ledger: Ledger, prefect_api: str
) -> None:
    name = "going-1a"

    @flow(name="going")
    async def going(batches: list[list[int]]) -> None:
        for batch in batches:
            ledger.append(*(progress(name, ended) for ended in batch))
            assert await publish_outbox(ledger, name) == 1, "what was overtaken is not shown"

    asyncio.run(going([[1], [2, 3]]))
    assert ledger.unpublished(name) == []
    (only,) = versions(prefect_api, "going-1a-progress")
    assert (only["type"], only["data"]) == ("progress", 75.0)
    assert only["description"] == "going-1a: 3 of 4 trials"
    assert artifact(prefect_api, "going-1a-progress")["data"] == 75.0

    asyncio.run(going([[4]]))
    assert artifact(prefect_api, "going-1a-progress")["data"] == 100.0
    assert len(versions(prefect_api, "going-1a-progress")) == 2, "a run that resumed has its own"


def test_a_campaign_shows_how_far_it_is_and_that_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_api: str
) -> None:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path))
    name = asyncio.run(run_campaign(Plan(substrate=str(STUB), rounds=2, width=3)))
    shown = artifact(prefect_api, f"{name}-progress")
    assert (shown["type"], shown["data"]) == ("progress", 100.0)
    assert shown["description"] == f"{name}: round 2 of 2, 3 of 3 trials"
    run = httpx.get(f"{prefect_api}/flow_runs/{shown['flow_run_id']}").raise_for_status().json()
    assert run["state_type"] == "COMPLETED"
    assert len(versions(prefect_api, f"{name}-progress")) == 1


def test_progress_that_cannot_be_shown_stops_nothing_and_can_be_shown_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_api: str
) -> None:
    """The trials of a round beside it; the address is one where nobody answers."""
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path))
    house = open_house()
    name = start_campaign(house, Plan(substrate=str(STUB), rounds=2, width=4))
    asyncio.run(open_round(house, name, 1))

    async def trials() -> None:
        async with shown_progress(house, name, 1) as ended:
            for slot in range(2):
                await run_trial(name, 1, slot)
                ended()

    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        asyncio.run(trials())
    house.ledger.append(progress_of(house, name, 1))
    assert asyncio.run(publish_outbox(house.ledger, name)) == 1
    shown = artifact(prefect_api, f"{name}-progress")
    # Two of the eight trials of two rounds.
    assert shown["data"] == 25.0 and shown["description"] == f"{name}: round 1 of 2, 2 of 4 trials"
