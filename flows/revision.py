"""A revision of the policy: asked for, held to the constitution and to the clean snapshot."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from agents.meta import Material, propose
from agents.reviser import revise
from flows.calling import Speaker, converse_with
from flows.house import House
from flows.knobs import turn
from policies.canonical import canonical_json
from policies.case import CampaignFacts
from policies.constitution import constitution_sha256
from policies.draft import Violation
from policies.ladder import for_readers
from policies.leaks import held_out_grams, read_problems
from policies.policy import Edit, SearchPolicy
from policies.report import RoundReport
from policies.rows import Rows
from policies.ruling import Ruling, rule
from policies.tables import Claim, DeadEnd, Policy
from substrate.fork import BadEdit, apply_edit, make_fork

REVISER = "reviser"


@dataclass(frozen=True)
class Revision:
    """What came of asking for the next policy. No ruling: the round's policy was replaced."""

    parent: SearchPolicy
    author: str
    ruling: Ruling | None
    asked: Mapping[str, Any] | None = None  # of a model: in how many turns, and the prompts' hashes

    @property
    def policy(self) -> SearchPolicy | None:
        """The next policy, if it is lawful."""
        return self.ruling.policy if self.ruling else None

    @property
    def violations(self) -> tuple[Violation, ...]:
        return self.ruling.violations if self.ruling else ()


async def revise_policy(house: House, campaign_id: str, report: RoundReport) -> Revision:
    """Ask the reviser or the plan's model for the next policy, and rule on what comes.

    Where a person has put another policy in force since the round began, that one stands: what the
    round found is in the evidence of the next revision.
    """
    parent, author = house.policy_of_round(campaign_id, report.round), house.plan(campaign_id).meta
    if house.policy(campaign_id).version != parent.version:
        return Revision(parent, author, None)
    await asyncio.to_thread(house.store.verify, house.snapshot(campaign_id))
    if author == REVISER:
        reply = decide(parent, report, house.reports(campaign_id))
        return Revision(
            parent, author, await asyncio.to_thread(hear, house, campaign_id, report, reply)
        )

    async def heard(reply: bytes) -> Ruling:
        return await asyncio.to_thread(hear, house, campaign_id, report, reply)

    speaker = Speaker(campaign_id, "meta", author, report.round)
    material = material_of(house, campaign_id, report)
    proposal = await propose(converse_with(house, speaker), material, heard)
    return Revision(parent, author, proposal.ruling, proposal.data())


def material_of(house: House, campaign_id: str, report: RoundReport) -> Material:
    """What a model revises the policy of `report`'s round from; external scores by the ladder."""
    reports = [*house.reports(campaign_id), report]
    facts = facts_of(house, campaign_id, [report])
    return Material(
        parent=house.policy_of_round(campaign_id, report.round),
        shown=for_readers(reports, facts.direction),
        rows=facts.rows,
        width=facts.width,
        looks=min(facts.looks_per_round, facts.looks_left),
    )


def decide(parent: SearchPolicy, report: RoundReport, history: list[RoundReport]) -> bytes:
    """The reviser's reply to a report, by rules: the same bytes for the same inputs."""
    draft = revise(parent, report, history)
    return Rows([*history, report]).attested(draft).text().encode()


def hear(house: House, campaign_id: str, report: RoundReport, reply: bytes) -> Ruling:
    """The ruling on any reply, of whoever revises, as the policy after that of `report`'s round."""
    parent = house.policy_of_round(campaign_id, report.round)
    return ruled(house, campaign_id, parent, [report], reply)


def ruled(
    house: House,
    campaign_id: str,
    parent: SearchPolicy,
    unrecorded: list[RoundReport],
    reply: bytes,
) -> Ruling:
    """The ruling on a reply as the policy after `parent`, by every clause and on a clean fork."""
    ruling = rule(reply, parent, facts_of(house, campaign_id, unrecorded))
    if ruling.policy is None:
        return ruling
    unfitting = unfit(house, campaign_id, ruling.policy, parent)
    return ruling.refused(*unfitting) if unfitting else ruling


def facts_of(
    house: House, campaign_id: str, unrecorded: list[RoundReport], last: int | None = None
) -> CampaignFacts:
    """What the constitution must know, with reports that are not in the ledger yet.

    `last` is the last round that counts, for what the facts were after it.
    """
    plan, campaign = house.plan(campaign_id), house.campaign(campaign_id)
    snapshot, judge = house.snapshot(campaign_id), house.judge(campaign_id)
    reports = [*house.reports(campaign_id), *unrecorded]
    reports = [report for report in reports if last is None or report.round <= last]
    newest = max((report.round for report in reports), default=0)
    looks = [look for look in house.ledger.looks(campaign_id) if look.round <= newest]
    return CampaignFacts(
        substrate_sha256=campaign.substrate_sha256,
        judge_sha256=campaign.judge_sha256,
        constitution_sha256=campaign.constitution_sha256,
        found_substrate_sha256=snapshot.digest,
        found_judge_sha256=judge.digest,
        found_constitution_sha256=constitution_sha256(),
        width=plan.width,
        looks_per_round=plan.budget.looks_per_round,
        looks_left=plan.budget.looks - len(looks),
        rows=Rows(reports),
        sealed=tuple(snapshot.manifest.files.sealed),
        direction=snapshot.manifest.sets.external.direction,
        held_out=_grams(
            (snapshot.root / snapshot.manifest.sets.dev.path, judge.external, judge.lockbox),
            snapshot.root / snapshot.manifest.sets.target.path,
        ),
    )


def unfit(
    house: House, campaign_id: str, draft: SearchPolicy, parent: SearchPolicy
) -> list[Violation]:
    """What of a draft does not apply to the clean snapshot: such a draft is rejected (C12).

    Knobs are held to the fork that workers would get, but for those that the parent has already.
    """
    known = [knob for axis in parent.axes for knob in axis.knobs]
    new = [knob for axis in draft.axes for knob in axis.knobs if knob not in known]
    standing = draft.standing_recipe
    folder = house.settings.forks / campaign_id
    folder.mkdir(parents=True, exist_ok=True)
    edits = [Edit(), *(item.edit for item in draft.replicates)]
    for edit in edits:
        what = "standing_recipe" if edit.is_empty() else "replicates"
        quote = f"{what}: {canonical_json(edit.model_dump(mode='json'))}"
        # Of its own: a person may have a draft checked while the campaign revises.
        place = Path(tempfile.mkdtemp(prefix="draft-policy-", dir=folder))
        try:
            patches = [house.ledger.patch_text(patch) for patch in standing.patches]
            fork = make_fork(
                house.snapshot(campaign_id),
                place / "fork",
                overrides=standing.overrides,
                patches=patches,
            )
            patch = house.ledger.patch_text(edit.patch) if edit.patch else None
            apply_edit(fork, edit.overrides, patch)
            for knob in new if edit.is_empty() else []:
                quote = f"axes: {knob.constant} in {knob.file}"
                turn(knob, fork)
        except BadEdit as error:
            return [Violation("C12", quote[:200], f"it does not apply to the snapshot: {error}")]
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return []


def policy_rows(
    campaign_id: str,
    policy: SearchPolicy,
    parent: SearchPolicy,
    *,
    author: str,
    round: int,
) -> list[Policy | Claim | DeadEnd]:
    """The rows of a new version: itself, its claims, and the dead ends that its parent had not."""
    known = {end.id for end in parent.dead_ends}
    rows: list[Policy | Claim | DeadEnd] = [
        Policy(
            campaign=campaign_id,
            version=policy.version,
            sha256=policy.digest(),
            parent=policy.parent,
            body=policy.text(),
            author=author,
            round=round,
            created_at=datetime.now(UTC),
        )
    ]
    rows += [
        Claim(
            campaign=campaign_id,
            policy_version=policy.version,
            claim=claim.id,
            text=claim.text,
            rows=json.dumps(claim.rows),
        )
        for claim in policy.claims
    ]
    rows += [
        DeadEnd(
            campaign=campaign_id,
            policy_version=policy.version,
            dead_end=end.id,
            axis=end.axis,
            title=end.title,
            rows=json.dumps(end.rows),
        )
        for end in policy.dead_ends
        if end.id not in known
    ]
    return rows


@cache
def _grams(held_out: tuple[Path, ...], trainable: Path) -> frozenset[int]:
    """The grams of sealed problem files: they never change, and only their hashes are kept."""
    texts = [path.read_text(encoding="utf-8").splitlines() for path in held_out]
    return held_out_grams(
        (problem for lines in texts for problem in read_problems(lines)),
        read_problems(trainable.read_text(encoding="utf-8").splitlines()),
    )
