"""A round's steps around its trials: open it, spend its looks, report it, record it."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

from agents.collector import choose_looks, collect
from flows.calibrate import calibration_of
from flows.house import House
from flows.inspection import inspect_score
from flows.look import look
from flows.narration import narrative_of
from flows.progress import progress_of
from flows.publish import outbox_rows
from flows.record import incident_rows, worker_of
from flows.revision import Revision, policy_rows
from flows.seed import derive_seed
from flows.trial import note_strangers, runs_at_once
from flows.trial_rows import score_rows
from policies.canonical import canonical_json
from policies.chain import Note
from policies.constitution import hold_constitution
from policies.evidence import round_of
from policies.integrity import Incident, is_flagged
from policies.policy import Edit
from policies.purse import look_spent, spent_by_role
from policies.rejection import rejection_note, rejection_of
from policies.report import (
    Account,
    DomainScore,
    IntegrityEvent,
    RoleSpend,
    RoundReport,
    SetScore,
    SlotAccount,
    SlotResult,
)
from policies.tables import (
    OVERALL,
    Integrity,
    Look,
    ProblemSet,
    Report,
    Round,
    Score,
    Trial,
)
from substrate.isolation import level_for
from substrate.measure import SealedAdapter
from substrate.walls import Level

FAILED_LOOK = "look.failed"
ASKED = "policy.asked"


async def open_round(house: House, campaign_id: str, number: int) -> None:
    """Verify substrate and constitution, and fix the policy that the round runs under.

    Raises SnapshotDamaged or ConstitutionChanged, before any trial.
    """
    hold_constitution(campaign_id, house.campaign(campaign_id).constitution_sha256)
    # In a thread: the weights may take minutes to read, and the lease wants its heartbeat.
    await asyncio.to_thread(house.store.verify, house.snapshot(campaign_id))
    if number in {row.number for row in house.ledger.rounds(campaign_id)}:
        return
    version = house.ledger.policy(campaign_id).version
    house.ledger.append(
        Round(
            campaign=campaign_id,
            number=number,
            policy_version=version,
            started_at=datetime.now(UTC),
        )
    )


async def take_looks(house: House, campaign_id: str, number: int) -> None:
    """Obtain the external scores that the round's rations allow, as many at once as trials run.

    Each look is counted first. One that was counted but has neither score nor failure (the process
    died in between) is obtained again without being counted again. What infrastructure keeps
    failing is final.
    """
    plan, snapshot = house.plan(campaign_id), house.snapshot(campaign_id)
    chosen = [row.slot for row in house.ledger.looks(campaign_id) if row.round == number]
    if not chosen:
        chosen = _count_looks(house, campaign_id, number)
    level = await asyncio.to_thread(level_for, plan.isolation)
    failed = {event.subject for event in house.ledger.events(campaign_id, FAILED_LOOK)}
    gate = asyncio.Semaphore(plan.at_once or runs_at_once(snapshot))

    async def through_gate(slot: int) -> None:
        async with gate:
            await _look_at(house, campaign_id, number, slot, level)

    async with asyncio.TaskGroup() as looks:
        for slot in chosen:
            if f"r{number}/s{slot}" in failed:
                continue
            if _score(house, campaign_id, number, slot, "external") is not None:
                continue
            if is_flagged(row.kind for row in house.ledger.integrity(campaign_id, number, slot)):
                continue
            looks.create_task(through_gate(slot))


def build_report(house: House, campaign_id: str, number: int) -> RoundReport:
    """The round's report, from the rows alone: the same bytes whenever it is asked for."""
    campaign, snapshot = house.campaign(campaign_id), house.snapshot(campaign_id)
    policy = house.policy_of_round(campaign_id, number)
    trials = house.ledger.trials(campaign_id, number)
    slots = [_slot_result(house, campaign_id, number, row) for row in trials]
    history = [
        round_of(
            report.round,
            house.policy(campaign_id, report.results.policy_version),
            report.results.slots,
        )
        for report in house.reports(campaign_id)
        if report.round < number
    ]
    results = collect(
        number=number,
        policy=policy,
        slots=slots,
        looks=[row.slot for row in house.ledger.looks(campaign_id) if row.round == number],
        history=history,
        direction=snapshot.manifest.sets.dev.direction,
        substrate_sha256=campaign.substrate_sha256,
        constitution_sha256=campaign.constitution_sha256,
        recipe=campaign.recipe,
        calibration=calibration_of(house, campaign_id),
    )
    if (narrative := narrative_of(house, campaign_id, number)) is not None:
        results = results.model_copy(update={"narrative": narrative})
    started = house.ledger.round(campaign_id, number).started_at
    ended = max(row.finished_at for row in trials)
    phases: dict[str, float] = {"elapsed": (ended - started).total_seconds()}
    accounts = [
        SlotAccount.model_validate({"slot": row.slot, **json.loads(row.account)}) for row in trials
    ]
    for account in accounts:
        for phase, seconds in account.seconds.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
    last = house.ledger.last_event_of_round(campaign_id, number)
    return RoundReport(
        campaign=campaign_id,
        round=number,
        results=results,
        account=Account(
            started_at=started.isoformat(),
            ended_at=ended.isoformat(),
            seconds=phases,
            slots=accounts,
            worker=campaign.worker,
            isolation="; ".join(sorted({account.isolation for account in accounts})),
            custody="; ".join(sorted({account.custody for account in accounts} - {""})),
            spend=_spend(house, campaign_id, number),
            integrity=[
                IntegrityEvent(
                    slot=row.slot,
                    attempt=row.attempt,
                    kind=row.kind,
                    detail=row.detail,
                    worker=row.worker,
                )
                for row in house.ledger.integrity(campaign_id, number)
            ],
            ledger_seq=last.seq,
            ledger_hash=last.hash,
        ),
    )


def record_round(house: House, campaign_id: str, report: RoundReport, revision: Revision) -> None:
    """Report, next policy and everything to be published, in one transaction.

    Raises ConstitutionChanged, having written nothing, where the text moved since the campaign's
    start.
    """
    hold_constitution(campaign_id, house.campaign(campaign_id).constitution_sha256)
    body = canonical_json(report.data())
    rows: list[Any] = [Report.of(campaign_id, report.round, report.results_digest(), body)]
    if revision.policy is not None:
        rows += policy_rows(
            campaign_id,
            revision.policy,
            revision.parent,
            author=revision.author,
            round=report.round,
        )
    rows += outbox_rows(
        campaign=house.campaign(campaign_id),
        report=report,
        history=house.reports(campaign_id),
        old=house.policy(campaign_id),
        new=revision.policy,
        violations=revision.violations,
        direction=house.snapshot(campaign_id).manifest.sets.dev.direction,
    )
    rows.append(progress_of(house, campaign_id, report.round))
    if revision.ruling is not None and revision.policy is None:
        rejection = rejection_of(
            revision.ruling,
            round=report.round,
            parent=revision.parent.version,
            author=revision.author,
        )
        rows.append(rejection_note(campaign_id, rejection))
    if revision.asked is not None:
        said = {"author": revision.author, **revision.asked}
        rows.append(Note(campaign_id, ASKED, f"r{report.round}", said))
    house.ledger.append(*rows)


def _count_looks(house: House, campaign_id: str, number: int) -> list[int]:
    """Choose the slots that the round looks at, and have each look on record."""
    plan, campaign = house.plan(campaign_id), house.campaign(campaign_id)
    policy, looks = house.policy_of_round(campaign_id, number), house.ledger.looks(campaign_id)
    slots = sorted(row.slot for row in house.ledger.trials(campaign_id, number))
    chosen = choose_looks(
        {slot: _score(house, campaign_id, number, slot, "dev") for slot in slots},
        policy=policy,
        looks=min(policy.budget.looks, plan.budget.looks_per_round, plan.budget.looks - len(looks)),
        seed=derive_seed(campaign.seed, number, "looks"),
        direction=house.snapshot(campaign_id).manifest.sets.external.direction,
    )
    house.ledger.append(
        *(
            Look(campaign=campaign_id, round=number, slot=slot, number=len(looks) + place)
            for place, slot in enumerate(chosen, start=1)
        ),
        *(row for slot in chosen for row in look_spent(campaign_id, f"r{number}/s{slot}")),
    )
    return chosen


async def _look_at(house: House, campaign_id: str, number: int, slot: int, level: Level) -> None:
    """Have a slot's external score on record, or why there is none."""
    snapshot, judge = house.snapshot(campaign_id), house.judge(campaign_id)
    scored, tries = snapshot.manifest.sets.external, house.plan(campaign_id).budget.attempts
    (trial,) = (row for row in house.ledger.trials(campaign_id, number) if row.slot == slot)
    assert trial.adapter_sha256 is not None, "only trials with a dev score are looked at"
    adapter = SealedAdapter(house.adapters / trial.adapter_sha256, trial.adapter_sha256)
    measured = await look(
        snapshot, adapter, judge, judge.external, scored, level=level, tries=tries
    )
    note_strangers(house, f"{campaign_id}/r{number}/s{slot}", measured)
    if measured.score is None:
        why = {"outcome": measured.outcome, "reason": measured.reason}
        house.ledger.note(campaign_id, FAILED_LOOK, f"r{number}/s{slot}", why)
        return
    score = SetScore.model_validate(measured.score)
    if found := inspect_score(score, scored, "external"):
        house.ledger.append(*_late_incidents(house, trial, found))
    else:
        house.ledger.append(*score_rows(campaign_id, number, slot, "external", score))


def _late_incidents(house: House, trial: Trial, found: list[Incident]) -> list[Integrity]:
    """What was found of a trial that is recorded already: its report takes its scores back."""
    attempts = house.ledger.attempts(trial.campaign, trial.round, trial.slot)
    attempt = next(row for row in attempts if row.attempt == trial.attempt)
    worker = worker_of(trial.kind, house.campaign(trial.campaign).worker)
    known = house.ledger.integrity(trial.campaign, trial.round, trial.slot)
    rows = incident_rows(attempt, worker, found)
    for number, row in enumerate(rows, start=1 + len(known)):
        row.number = number
    return rows


def _spend(house: House, campaign_id: str, number: int) -> list[RoleSpend]:
    """What the round spent, and the revision before it: its own is still to come."""
    rows = [
        row
        for row in house.ledger.spends(campaign_id)
        if row.subject.startswith(f"r{number - 1}/meta/")
        or (
            row.subject.startswith(f"r{number}/") and not row.subject.startswith(f"r{number}/meta/")
        )
    ]
    return [RoleSpend(**vars(spent)) for spent in spent_by_role(rows)]


def _slot_result(house: House, campaign_id: str, number: int, row: Trial) -> SlotResult:
    """A trial as its rows have it; of one that was flagged, in time or later, without scores."""
    incidents = house.ledger.integrity(campaign_id, number, row.slot)
    kinds = list(dict.fromkeys(incident.kind for incident in incidents))
    dev = _score(house, campaign_id, number, row.slot, "dev")
    external = _score(house, campaign_id, number, row.slot, "external")
    outcome, discarded = row.outcome, None
    if is_flagged(kinds):
        kept = [SetScore.model_validate_json(i.discarded) for i in incidents if i.discarded]
        outcome, discarded = "tampered", dev or next(iter(kept), None)
        dev = external = None
    return SlotResult(
        slot=row.slot,
        kind=row.kind,
        axis=row.axis,
        hypothesis=row.hypothesis,
        edit=Edit.model_validate_json(row.edit),
        diff_sha256=row.diff_sha256,
        seed=row.seed,
        outcome=outcome,
        adapter_sha256=row.adapter_sha256,
        dev=dev,
        external=external,
        integrity=kinds,
        discarded=discarded,
    )


def _score(
    house: House, campaign_id: str, number: int, slot: int, problem_set: ProblemSet
) -> SetScore | None:
    rows: dict[str, Score] = {
        row.domain: row for row in house.ledger.scores(campaign_id, number, slot, problem_set)
    }
    if not rows:
        return None
    whole = rows.pop(OVERALL)
    return SetScore(
        value=whole.value,
        n=whole.n,
        domains={name: DomainScore(value=row.value, n=row.n) for name, row in rows.items()},
        metric=whole.metric,
        metric_version=whole.metric_version,
        engine=whole.engine,
    )
