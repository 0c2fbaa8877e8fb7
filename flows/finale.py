"""The campaign's end: its candidate chosen, confirmed on fresh seeds, and the lockbox opened once.

    choose        by the rule that the plan declares; nothing of the end is read
    confirm       candidate and baseline on fresh seeds, scored on dev and external
    open          count first, then look; an opening that a crash cut short is not repeated

What was recorded is never done again, so that an interrupted end goes on where it stopped.
"""

import asyncio
import json
from dataclasses import replace

from flows.clean_run import TRIES, Bench, clean_run
from flows.gpu_seconds import run_charged
from flows.house import House
from flows.look import look
from flows.seed import derive_seed
from flows.trial import runs_at_once
from policies.canonical import canonical_json
from policies.chain import Note
from policies.final import RULE
from policies.policy import StandingRecipe
from policies.report import SetScore
from policies.tables import Arm, Candidate, FinalRun, Opening
from substrate.isolation import level_for
from substrate.measure import Measured, SealedAdapter

SCORED = "lockbox.scored"


class CampaignUnfinished(RuntimeError):
    """The campaign has rounds to run."""


class NothingToExport(RuntimeError):
    """No final run of the candidate was evaluated."""


class LockboxOpened(RuntimeError):
    """The campaign's lockbox was opened before. It is opened once."""


def choose(house: House, campaign_id: str) -> Candidate:
    """The campaign's candidate, chosen by RULE once every round has its report."""
    chosen = house.ledger.candidate(campaign_id)
    if chosen is not None:
        return chosen
    done, rounds = len(house.ledger.reports(campaign_id)), house.plan(campaign_id).rounds
    if done < rounds:
        raise CampaignUnfinished(
            f"wanted {campaign_id} to be complete, found {done} of {rounds} rounds done; "
            f"`seedbed resume {campaign_id}` runs the others"
        )
    newest = house.ledger.policy(campaign_id)
    standing = house.policy(campaign_id, newest.version).standing_recipe
    chosen = Candidate(
        campaign=campaign_id,
        rule=RULE,
        policy_version=newest.version,
        policy_sha256=newest.sha256,
        standing_recipe=canonical_json(standing.model_dump(mode="json")),
    )
    house.ledger.append(chosen)
    return chosen


async def confirm(house: House, campaign_id: str) -> None:
    """Run every arm on the plan's number of fresh seeds. Both arms get the same seeds."""
    plan, campaign = house.plan(campaign_id), house.campaign(campaign_id)
    snapshot = house.snapshot(campaign_id)
    rollouts = plan.budget.rollouts or None
    level = await asyncio.to_thread(level_for, plan.isolation)
    bench = Bench(snapshot, house.judge(campaign_id), campaign.recipe, rollouts, level)
    there = {(row.arm, row.number) for row in house.ledger.final_runs(campaign_id)}
    gate = asyncio.Semaphore(plan.at_once or runs_at_once(snapshot))

    async def run(arm: Arm, standing: StandingRecipe, number: int) -> None:
        charged = run_charged(house, campaign_id, f"end/{arm}-{number}")
        async with gate:
            columns = await clean_run(
                house,
                replace(bench, run=charged),
                standing,
                seed=derive_seed(campaign.seed, "end", number),
                name=f"{campaign_id}/end/{arm}-{number}",
            )
            row = FinalRun(campaign=campaign_id, arm=arm, number=number, **columns)
            house.ledger.append(row)

    async with asyncio.TaskGroup() as group:
        for arm, standing in arms(house, campaign_id).items():
            for number in range(1, plan.end.seeds + 1):
                if (arm, number) not in there:
                    group.create_task(run(arm, standing, number))


def arms(house: House, campaign_id: str) -> dict[Arm, StandingRecipe]:
    """The candidate, and what the campaign began with where that is something else."""
    chosen = house.ledger.candidate(campaign_id)
    assert chosen is not None, "a candidate is chosen before anything is run"
    candidate = StandingRecipe.model_validate_json(chosen.standing_recipe)
    began = house.policy(campaign_id, 1).standing_recipe
    found: dict[Arm, StandingRecipe] = {"candidate": candidate}
    if (candidate.overrides, candidate.patches) != (began.overrides, began.patches):
        found["baseline"] = began
    return found


async def open_lockbox(house: House, campaign_id: str) -> None:
    """Score the adapters on the lockbox, once: the opening is on record before the first look.

    Raises LockboxOpened when it was opened before, whatever came of that.
    """
    if opened := house.ledger.opening(campaign_id):
        raise LockboxOpened(
            f"wanted to open the lockbox of {campaign_id}, found it opened at "
            f"{opened.opened_at.isoformat()}; it is opened once, and what is on record stands"
        )
    adapters = {arm: first_adapter(house, campaign_id, arm) for arm in ("candidate", "baseline")}
    candidate = adapters["candidate"]
    if candidate is None:
        reasons = [row.reason for row in house.ledger.final_runs(campaign_id, "candidate")]
        raise NothingToExport(
            f"wanted an evaluated run of {campaign_id}'s candidate, found none: {reasons[:3]}; "
            "the lockbox stays shut"
        )
    level = await asyncio.to_thread(level_for, house.plan(campaign_id).isolation)
    opening = Opening(
        campaign=campaign_id, candidate_sha256=candidate, baseline_sha256=adapters["baseline"]
    )
    house.ledger.append(opening)  # the key is the campaign: of two at once, one is refused
    house.drop_anchor()
    snapshot, judge = house.snapshot(campaign_id), house.judge(campaign_id)
    scored = snapshot.manifest.sets.lockbox
    scores: dict[str, object] = {}
    for arm, sha256 in adapters.items():
        if sha256 is not None:
            adapter = SealedAdapter(house.adapters / sha256, sha256)
            measured = await look(
                snapshot, adapter, judge, judge.lockbox, scored, level=level, tries=TRIES
            )
            scores[arm] = _said(measured)
    house.ledger.append(Note(campaign_id, SCORED, campaign_id, scores))


def first_adapter(house: House, campaign_id: str, arm: Arm) -> str | None:
    """The adapter of an arm's first evaluated run: the first by number, and not the best."""
    rows = house.ledger.final_runs(campaign_id, arm)
    return next((row.adapter_sha256 for row in rows if row.outcome == "evaluated"), None)


def lockbox_scores(house: House, campaign_id: str) -> dict[Arm, SetScore]:
    """The scores on the lockbox by arm; none where no score came of its opening."""
    events = house.ledger.events(campaign_id, kind=SCORED)
    if not events:
        return {}
    said = json.loads(events[0].body)
    arms: tuple[Arm, ...] = ("candidate", "baseline")
    return {
        arm: SetScore.model_validate(said[arm]["score"])
        for arm in arms
        if arm in said and said[arm]["score"] is not None
    }


def _said(measured: Measured) -> dict[str, object]:
    return {"outcome": measured.outcome, "reason": measured.reason, "score": measured.score}
