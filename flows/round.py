"""A round's steps around its trials: open it, spend its looks, report it, revise the policy."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agents.collector import choose_looks, collect
from agents.reviser import revise
from flows.house import House
from flows.publish import outbox_rows
from flows.seed import derive_seed
from flows.trial import score_rows
from policies.canonical import canonical_json
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
from policies.tables import Claim, DeadEnd, Look, Policy, ProblemSet, Report, Round, Score, Trial
from substrate.measure import SealedAdapter, measure
from substrate.outcome import Outcome

ISOLATION = "process group, empty environment, limits"


@dataclass(frozen=True)
class Revision:
    """What came of the meta-agent's draft: the next policy, or why it was rejected."""

    draft: SearchPolicy
    violations: tuple[Violation, ...]

    @property
    def accepted(self) -> bool:
        return not self.violations


def open_round(house: House, campaign_id: str, number: int) -> None:
    """Verify the substrate, weights included, and fix the policy that the round runs under."""
    house.store.verify(house.snapshot(campaign_id))
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

    A look that was counted but has no score (the process died in between) is obtained again
    without being counted again.
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
            {slot: score.value if score else None for slot, score in overall.items()},
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
    for slot in chosen:
        if _score(house, campaign_id, number, slot, "external") is not None:
            continue
        sha256 = trials[slot].adapter_sha256
        assert sha256 is not None, "only trials with a dev score are looked at"
        adapter = SealedAdapter(house.adapters / sha256, sha256)
        measured = await measure(snapshot, adapter, judge.external, scored)
        if measured.score is None:
            house.ledger.note(
                campaign_id,
                "look.failed",
                f"r{number}/s{slot}",
                {"outcome": measured.outcome, "reason": measured.reason},
            )
            continue
        score = SetScore.model_validate(measured.score)
        house.ledger.append(*score_rows(campaign_id, number, slot, "external", score))


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
    )
    started = house.ledger.round(campaign_id, number).started_at
    ended = max(row.finished_at for row in trials)
    phases: dict[str, float] = {"trials": (ended - started).total_seconds()}
    accounts = [
        SlotAccount.model_validate({"slot": row.slot, **json.loads(row.account)}) for row in trials
    ]
    for account in accounts:
        for phase, seconds in account.seconds.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
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
            isolation=ISOLATION,
        ),
    )


def revise_policy(house: House, campaign_id: str, report: RoundReport) -> Revision:
    """Ask for the next policy and hold the draft against the constitution."""
    policy = house.policy_of_round(campaign_id, report.round)
    draft = revise(policy, report, house.reports(campaign_id))
    facts = _facts(house, campaign_id, report)
    return Revision(draft, tuple(review(draft.data(), policy, facts)))


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
    house.ledger.append(*rows)
    if not revision.accepted:
        house.ledger.note(
            campaign_id,
            "policy.rejected",
            f"v{draft.version}",
            {
                "violations": [vars(violation) for violation in revision.violations],
                "draft": draft.data(),
            },
        )


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
    whole = rows.pop("overall")
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
    house.store.verify(snapshot)
    known = set()
    for number in range(1, report.round + 1):
        known.add(f"r{number}")
        for row in house.ledger.trials(campaign_id, number):
            known.add(f"r{number}/s{row.slot}")
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
        known_patches=frozenset(house.ledger.patches()),
        known_rows=frozenset(known),
        sealed=tuple(snapshot.manifest.files.sealed),
    )


def lost(report: RoundReport) -> list[int]:
    """Slots that infrastructure kept from a result: missing data, not bad results."""
    return [slot.slot for slot in report.results.slots if slot.outcome == Outcome.INFRASTRUCTURE]
