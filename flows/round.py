"""A round's steps around its trials: open it, spend its looks, report it, revise the policy."""

import asyncio
import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agents.collector import choose_looks, collect
from agents.reviser import revise
from flows.calibrate import calibration_of
from flows.house import House
from flows.publish import outbox_rows
from flows.seed import derive_seed
from flows.trial import score_rows
from policies.canonical import canonical_json
from policies.chain import Note
from policies.constitution import (
    CampaignFacts,
    Violation,
    constitution_sha256,
    review,
)
from policies.evidence import round_of
from policies.policy import Edit, SearchPolicy
from policies.report import (
    Account,
    DomainScore,
    RoundReport,
    SetScore,
    SlotAccount,
    SlotResult,
)
from policies.tables import (
    OVERALL,
    Claim,
    DeadEnd,
    Look,
    Policy,
    ProblemSet,
    Report,
    Round,
    Score,
    Trial,
)
from substrate.fork import BadEdit, apply_edit, make_fork
from substrate.measure import SealedAdapter, measure
from substrate.outcome import Outcome

FAILED_LOOK = "look.failed"


@dataclass(frozen=True)
class Revision:
    """What came of the meta-agent's draft: the next policy, or why it was rejected."""

    draft: SearchPolicy
    violations: tuple[Violation, ...]

    @property
    def accepted(self) -> bool:
        return not self.violations


class ConstitutionChanged(RuntimeError):
    """The constitution is not the one that the campaign was started under."""


async def open_round(house: House, campaign_id: str, number: int) -> None:
    """Verify substrate and constitution, and fix the policy that the round runs under.

    Raises SnapshotDamaged or ConstitutionChanged, before any trial.
    """
    pinned = house.campaign(campaign_id).constitution_sha256
    if pinned != constitution_sha256():
        raise ConstitutionChanged(
            f"{campaign_id} was started under constitution {pinned[:12]}, found "
            f"{constitution_sha256()[:12]} in policies/constitution.md; put the text back, or "
            "start another campaign"
        )
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
    """Obtain the external scores that the round's rations allow. Each look is counted first.

    A look that was counted but has neither score nor failure (the process died in between) is
    obtained again without being counted again. What infrastructure keeps failing is final.
    """
    plan, campaign = house.plan(campaign_id), house.campaign(campaign_id)
    snapshot, judge = house.snapshot(campaign_id), house.judge(campaign_id)
    scored = snapshot.manifest.sets.external
    trials = {row.slot: row for row in house.ledger.trials(campaign_id, number)}
    looks = house.ledger.looks(campaign_id)
    chosen = [row.slot for row in looks if row.round == number]
    if not chosen:
        ration = min(
            house.policy_of_round(campaign_id, number).budget.looks,
            plan.budget.looks_per_round,
            plan.budget.looks - len(looks),
        )
        overall = {slot: _score(house, campaign_id, number, slot, "dev") for slot in sorted(trials)}
        chosen = choose_looks(
            overall,
            policy=house.policy_of_round(campaign_id, number),
            looks=ration,
            seed=derive_seed(campaign.seed, number, "looks"),
            direction=scored.direction,
        )
        house.ledger.append(
            *(
                Look(campaign=campaign_id, round=number, slot=slot, number=len(looks) + place)
                for place, slot in enumerate(chosen, start=1)
            )
        )
    failed = {event.subject for event in house.ledger.events(campaign_id, FAILED_LOOK)}
    for slot in chosen:
        if f"r{number}/s{slot}" in failed:
            continue
        if _score(house, campaign_id, number, slot, "external") is not None:
            continue
        sha256 = trials[slot].adapter_sha256
        assert sha256 is not None, "only trials with a dev score are looked at"
        adapter = SealedAdapter(house.adapters / sha256, sha256)
        measured = await measure(snapshot, adapter, judge.external, scored)
        tried = 1
        while measured.outcome is Outcome.INFRASTRUCTURE and tried < plan.budget.attempts:
            measured = await measure(snapshot, adapter, judge.external, scored)
            tried += 1
        if measured.score is not None:
            score = SetScore.model_validate(measured.score)
            house.ledger.append(*score_rows(campaign_id, number, slot, "external", score))
        else:
            why = {"outcome": measured.outcome, "reason": measured.reason}
            house.ledger.note(campaign_id, FAILED_LOOK, f"r{number}/s{slot}", why)


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
            ledger_seq=last.seq,
            ledger_hash=last.hash,
        ),
    )


async def revise_policy(house: House, campaign_id: str, report: RoundReport) -> Revision:
    """Ask for the next policy; hold the draft against the constitution and the clean snapshot."""
    policy = house.policy_of_round(campaign_id, report.round)
    draft = revise(policy, report, house.reports(campaign_id))
    await asyncio.to_thread(house.store.verify, house.snapshot(campaign_id))
    violations = review(draft.data(), policy, _facts(house, campaign_id, report))
    if not violations:
        violations = unfit(house, campaign_id, draft)
    return Revision(draft, tuple(violations))


def unfit(house: House, campaign_id: str, draft: SearchPolicy) -> list[Violation]:
    """What of a draft does not apply to the clean snapshot: such a draft is rejected (C12)."""
    standing = draft.standing_recipe
    place = house.settings.forks / campaign_id / "draft-policy"
    edits = [Edit(), *(item.edit for item in draft.replicates)]
    for edit in edits:
        try:
            patches = [house.ledger.patch_text(patch) for patch in standing.patches]
            fork = make_fork(
                house.snapshot(campaign_id), place, overrides=standing.overrides, patches=patches
            )
            patch = house.ledger.patch_text(edit.patch) if edit.patch else None
            apply_edit(fork, edit.overrides, patch)
        except BadEdit as error:
            what = "standing_recipe" if edit.is_empty() else "replicates"
            quote = f"{what}: {canonical_json(edit.model_dump(mode='json'))}"[:200]
            return [Violation("C12", quote, f"it does not apply to the snapshot: {error}")]
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return []


def record_round(house: House, campaign_id: str, report: RoundReport, revision: Revision) -> None:
    """Report, next policy and everything to be published, in one transaction."""
    now = datetime.now(UTC)
    policy = house.policy_of_round(campaign_id, report.round)
    body = canonical_json(report.data())
    rows: list[Any] = [Report.of(campaign_id, report.round, report.results_digest(), body)]
    draft = revision.draft
    if revision.accepted:
        rows.append(
            Policy(
                campaign=campaign_id,
                version=draft.version,
                sha256=draft.digest(),
                parent=draft.parent,
                body=draft.text(),
                author="reviser",
                round=report.round,
                created_at=now,
            )
        )
        rows += [
            Claim(
                campaign=campaign_id,
                policy_version=draft.version,
                claim=claim.id,
                text=claim.text,
                rows=json.dumps(claim.rows),
            )
            for claim in draft.claims
        ]
        known = {end.id for end in policy.dead_ends}
        rows += [
            DeadEnd(
                campaign=campaign_id,
                policy_version=draft.version,
                dead_end=end.id,
                axis=end.axis,
                title=end.title,
                rows=json.dumps(end.rows),
            )
            for end in draft.dead_ends
            if end.id not in known
        ]
    rows += outbox_rows(
        campaign=house.campaign(campaign_id),
        report=report,
        history=house.reports(campaign_id),
        old=policy,
        new=draft if revision.accepted else None,
        violations=revision.violations,
        direction=house.snapshot(campaign_id).manifest.sets.dev.direction,
    )
    if not revision.accepted:
        violations = [vars(violation) for violation in revision.violations]
        rejected = {"violations": violations, "draft": draft.data()}
        rows.append(Note(campaign_id, "policy.rejected", f"p{draft.version}", rejected))
    house.ledger.append(*rows)


def _slot_result(house: House, campaign_id: str, number: int, row: Trial) -> SlotResult:
    return SlotResult(
        slot=row.slot,
        kind=row.kind,
        axis=row.axis,
        hypothesis=row.hypothesis,
        edit=Edit.model_validate_json(row.edit),
        diff_sha256=row.diff_sha256,
        seed=row.seed,
        outcome=row.outcome,
        adapter_sha256=row.adapter_sha256,
        dev=_score(house, campaign_id, number, row.slot, "dev"),
        external=_score(house, campaign_id, number, row.slot, "external"),
        integrity=json.loads(row.integrity),
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


def _facts(house: House, campaign_id: str, report: RoundReport) -> CampaignFacts:
    plan, campaign = house.plan(campaign_id), house.campaign(campaign_id)
    snapshot, judge = house.snapshot(campaign_id), house.judge(campaign_id)
    known: set[str] = set()
    patches: set[str] = set()
    for number in range(1, report.round + 1):
        known.add(f"r{number}")
        for row in house.ledger.trials(campaign_id, number):
            known.add(f"r{number}/s{row.slot}")
            if patch := Edit.model_validate_json(row.edit).patch:
                patches.add(patch)
        for score in house.ledger.scores(campaign_id, number):
            where = f"r{number}/s{score.slot}/{score.problem_set}"
            known |= {where, f"{where}/{score.domain}"}
    return CampaignFacts(
        substrate_sha256=campaign.substrate_sha256,
        judge_sha256=campaign.judge_sha256,
        constitution_sha256=campaign.constitution_sha256,
        found_substrate_sha256=snapshot.digest,
        found_judge_sha256=judge.digest,
        found_constitution_sha256=constitution_sha256(),
        width=plan.width,
        looks_per_round=plan.budget.looks_per_round,
        looks_left=plan.budget.looks - len(house.ledger.looks(campaign_id)),
        known_patches=frozenset(patches),
        known_rows=frozenset(known),
        sealed=tuple(snapshot.manifest.files.sealed),
    )
