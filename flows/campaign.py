"""The campaign: rounds of forked, worked, measured trials, each of which revises the policy.

    for each round:
        assign and run the trials      every slot forks the same sealed substrate
        take looks                     a rationed few external scores
        report                         by code, from the rows; a model may word its narrative
        revise, review, record         only the policy is promoted, within the constitution
        anchor                         the ledger's head, kept outside of the database
        publish                        artifacts and events, from the outbox
    end                                when the plan says so; else `export` does it when asked

Whatever was recorded is never done again, so the same loop runs and resumes a campaign.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Cancelled

from flows import round as steps
from flows.clock import Clock
from flows.export import conclude
from flows.house import open_house
from flows.lease import CampaignStopped, held
from flows.narration import narrate_round
from flows.plan import Plan
from flows.program import program_sha256
from flows.progress import shown_progress
from flows.publish import publish_outbox
from flows.revision import revise_policy
from flows.roles import PAUSED, hold_keys
from flows.start import start_campaign
from flows.trial import run_trial, runs_at_once
from policies.caps import SpendCapReached

# A cached step is a lie: what was done is known from the ledger alone.
trial = task(name="trial", task_run_name="trial-r{number}-s{slot}", cache_policy=NO_CACHE)(
    run_trial
)


@flow(name="campaign", validate_parameters=True)
async def campaign(plan: Plan) -> str | State[str]:
    """Start a campaign and run it to its last round. Returns the campaign's id.

    Args:
        plan: What to run, how often, how wide, from which seed.
    """
    return await conduct(start_campaign(open_house(), plan, flow_run.id))


@flow(name="resume")
async def resume(campaign_id: str) -> str | State[str]:
    """Go on with a campaign after its last recorded trial.

    Args:
        campaign_id: The campaign's id, as `seedbed report` lists it.
    """
    return await conduct(open_house().ledger.find_campaign(campaign_id).id)


@flow(name="export")
async def export(campaign_id: str) -> str | State[str]:
    """Confirm a campaign's candidate on fresh seeds, open its lockbox once, write the adapter.

    Args:
        campaign_id: The campaign's id, as `seedbed report` lists it.
    """
    campaign_id = open_house().ledger.find_campaign(campaign_id).id
    return await alone(campaign_id, lambda: end(campaign_id))


async def conduct(campaign_id: str) -> str | State[str]:
    """Run what is left of a campaign, as the only process that does. Stopped is cancelled."""
    return await alone(campaign_id, lambda: run_rounds(campaign_id))


async def alone(campaign_id: str, work: Callable[[], Awaitable[None]]) -> str | State[str]:
    """Do something to a campaign while this process holds its lease.

    Stopped is cancelled, and so is one that reached a cap on what it may spend: both are resumable.
    """
    try:
        async with held(open_house(), campaign_id):
            await work()
    except CampaignStopped as stopped:
        return Cancelled(message=str(stopped))
    except (SpendCapReached, BaseExceptionGroup) as error:
        cause = first_cause(error)
        if not isinstance(cause, SpendCapReached):
            raise
        return Cancelled(
            message=f"{campaign_id} is paused: {cause}; `seedbed resume {campaign_id}` goes on "
            "once there is more to spend"
        )
    return campaign_id


async def end(campaign_id: str) -> None:
    """Choose, confirm, open the lockbox, export: see `flows/finale.py`."""
    house = open_house()
    await conclude(house, campaign_id)
    await publish_outbox(house.ledger, campaign_id)


async def run_rounds(campaign_id: str) -> None:
    """Every round without a report, in order. How it ended is noted, whatever ended it."""
    house = open_house()
    conducted = {"program": program_sha256()}
    house.ledger.note(campaign_id, "campaign.conducted", campaign_id, conducted)
    hold_keys([house.plan(campaign_id)], house.settings)
    house.drop_anchor()
    try:
        for number in range(1, house.plan(campaign_id).rounds + 1):
            if house.ledger.report(campaign_id, number) is None:
                await research_round(campaign_id, number)
        if house.plan(campaign_id).end.at_once:
            await conclude(house, campaign_id)
        await publish_outbox(house.ledger, campaign_id)
    except BaseException as error:
        cause = first_cause(error)
        if isinstance(cause, SpendCapReached):
            house.ledger.note(campaign_id, PAUSED, campaign_id, {"because": str(cause)})
        else:
            ended = {"by": type(cause).__name__}
            house.ledger.note(campaign_id, "campaign.interrupted", campaign_id, ended)
        raise
    finally:
        shutil.rmtree(house.settings.forks / campaign_id, ignore_errors=True)
    house.ledger.note(campaign_id, "campaign.completed", campaign_id, {})
    house.drop_anchor()


async def research_round(campaign_id: str, number: int) -> None:
    """One round, from the assignments to the recorded report and next policy."""
    house = open_house()
    plan = house.plan(campaign_id)
    clock = Clock()
    with clock.phase("open"):
        await steps.open_round(house, campaign_id, number)

    recorded = {row.slot for row in house.ledger.trials(campaign_id, number)}
    gate = asyncio.Semaphore(plan.at_once or runs_at_once(house.snapshot(campaign_id)))

    with clock.phase("trials"):
        async with shown_progress(house, campaign_id, number) as ended:

            async def through_gate(slot: int) -> None:
                async with gate:
                    await trial(campaign_id, number, slot)
                ended()

            async with asyncio.TaskGroup() as trials:
                for slot in range(plan.width):
                    if slot not in recorded:
                        trials.create_task(through_gate(slot))
    with clock.phase("collect"):
        await steps.take_looks(house, campaign_id, number)
        await narrate_round(house, campaign_id, steps.build_report(house, campaign_id, number))
        report = steps.build_report(house, campaign_id, number)
    with clock.phase("revise"):
        revision = await revise_policy(house, campaign_id, report)
    with clock.phase("record"):
        steps.record_round(house, campaign_id, report, revision)
        house.drop_anchor()
    with clock.phase("publish"):
        await publish_outbox(house.ledger, campaign_id)
    house.ledger.note(campaign_id, "round.timed", f"r{number}", clock.seconds)


def first_cause(error: BaseException) -> BaseException:
    """The first error behind a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
