"""`seedbed run`, `resume`, `stop` and `export`: the commands that conduct a campaign and end it."""

import json
import sys
import time
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli_campaigns import AsJson, CampaignId

if TYPE_CHECKING:
    from flows.plan import Plan

STOP_SECONDS = 20.0
NO_WALLS = "NO ISOLATION: what this campaign runs can do whatever you can do on this machine."
Dollars = Annotated[
    str | None,
    typer.Option(help="Cap on money; without it 20, and none where --tokens is given."),
]
Tokens = Annotated[int, typer.Option(min=0, help="Cap on tokens of models; 0: none.")]
GpuSeconds = Annotated[int, typer.Option(min=0, help="Cap on seconds of GPUs; 0: none.")]
HigherDollars = Annotated[
    str | None, typer.Option(help="A higher cap on the campaign's money; empty: as it is.")
]
HigherTokens = Annotated[
    int, typer.Option(min=0, help="A higher cap on the campaign's tokens; 0: as it is.")
]
HigherGpuSeconds = Annotated[
    int, typer.Option(min=0, help="A higher cap on its seconds of GPUs; 0: as it is.")
]
DollarsOfRounds = Annotated[
    str | None, typer.Option(help="A higher cap on the money of each round; empty: as it is.")
]
TokensOfRounds = Annotated[
    int, typer.Option(min=0, help="A higher cap on the tokens of each round; 0: as it is.")
]


def run(
    substrate: Annotated[str, typer.Option(help="Name of a drop-in, or a path to one.")],
    recipe: Annotated[str, typer.Option(help="Recipe; empty: the substrate's default.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to run.")] = 2,
    width: Annotated[int, typer.Option(min=3, help="Slots of a round.")] = 8,
    worker: Annotated[str, typer.Option(help="Kind of worker.")] = "sampler",
    meta: Annotated[str, typer.Option(help="Who writes the next policy.")] = "reviser",
    collector: Annotated[str, typer.Option(help="Who words a report's narrative.")] = "code",
    seed: Annotated[int, typer.Option(min=0, help="The campaign's seed.")] = 0,
    name: Annotated[str, typer.Option(help="First part of the campaign's id.")] = "",
    policy: Annotated[str, typer.Option(help="Seed policy (JSON); empty: the drop-in's.")] = "",
    at_once: Annotated[int, typer.Option(min=0, help="Trials at one time; 0: by cores.")] = 0,
    rollouts: Annotated[int, typer.Option(min=0, help="Rollouts a trial; 0: default.")] = 0,
    looks: Annotated[int, typer.Option(min=0, help="External scores, all in all.")] = 100,
    looks_per_round: Annotated[int, typer.Option(min=0, help="External scores a round.")] = 4,
    isolation: Annotated[
        Literal["best", "none"],
        typer.Option(help="Walls: best, or none for what you trust wholly."),
    ] = "best",
    end_seeds: Annotated[int, typer.Option(min=2, help="Fresh seeds at the end.")] = 3,
    end_at_once: Annotated[
        bool, typer.Option("--export", help="End as `seedbed export` does, after the last round.")
    ] = False,
    worker_url: Annotated[str, typer.Option(help="Base URL of the worker's model.")] = "",
    collector_url: Annotated[str, typer.Option(help="That of the collector's.")] = "",
    meta_url: Annotated[str, typer.Option(help="That of the meta-agent's.")] = "",
    turns: Annotated[int, typer.Option(min=1, help="Answers of a worker's model.")] = 60,
    drafts: Annotated[int, typer.Option(min=0, help="A worker's own runs of the recipe.")] = 2,
    dev_scores: Annotated[int, typer.Option(min=0, help="Dev scores of its drafts.")] = 2,
    work_seconds: Annotated[float, typer.Option(min=1, help="Wall time of a worker.")] = 7200.0,
    context: Annotated[
        int, typer.Option(min=20_000, help="Characters of its model's conversation.")
    ] = 240_000,
    dollars: Dollars = None,
    tokens: Tokens = 0,
    gpu_seconds: GpuSeconds = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would spend, and do nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a campaign in this process. Needs no Prefect server; uses PREFECT_API_URL if set."""
    from agents.worker import Caps
    from flows.plan import BudgetPlan, EndPlan, Plan, ServedPlan, ServingPlan, SpendPlan

    capped = {} if dollars is None and not tokens else {"dollars": _decimal(dollars)}
    plan = Plan(
        substrate=substrate,
        recipe=recipe,
        rounds=rounds,
        width=width,
        worker=worker,
        meta=meta,
        collector=collector,
        seed=seed,
        name=name,
        policy=policy,
        at_once=at_once,
        isolation=isolation,
        budget=BudgetPlan(rollouts=rollouts, looks=looks, looks_per_round=looks_per_round),
        end=EndPlan(seeds=end_seeds, at_once=end_at_once),
        work=Caps(
            turns=turns,
            drafts=drafts,
            dev_scores=dev_scores,
            seconds=work_seconds,
            context_characters=context,
        ),
        serving=ServingPlan(
            worker=ServedPlan(base_url=worker_url),
            collector=ServedPlan(base_url=collector_url),
            meta=ServedPlan(base_url=meta_url),
        ),
        spend=SpendPlan.model_validate({"tokens": tokens, "gpu_seconds": gpu_seconds, **capped}),
    )
    if dry_run:
        _estimate(plan, as_json)
    else:
        _in_foreground(plan, as_json)


def resume(
    campaign: CampaignId = "",
    dollars: HigherDollars = None,
    tokens: HigherTokens = 0,
    gpu_seconds: HigherGpuSeconds = 0,
    dollars_per_round: DollarsOfRounds = None,
    tokens_per_round: TokensOfRounds = 0,
    as_json: AsJson = False,
) -> None:
    """Go on with a campaign after its last recorded trial; with higher caps, if they are given."""
    from flows.house import open_house
    from flows.plan import SpendPlan
    from flows.roles import raise_caps

    given = {
        "dollars": _decimal(dollars),
        "tokens": tokens or None,
        "gpu_seconds": gpu_seconds or None,
        "dollars_per_round": _decimal(dollars_per_round),
        "tokens_per_round": tokens_per_round or None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if given:
        house = open_house()
        campaign_id = house.ledger.find_campaign(campaign or None).id
        raise_caps(house, campaign_id, SpendPlan.model_validate(given))
    _in_foreground(campaign, as_json)


def stop(campaign: CampaignId = "", as_json: AsJson = False) -> None:
    """Stop a running campaign, wherever it runs. It can be resumed."""
    from flows.house import open_house
    from flows.lease import Busy, is_dead, lease_name
    from flows.screen import state_of

    house = open_house()
    campaign_id = house.ledger.find_campaign(campaign or None).id
    holder = house.ledger.lease_holder(lease_name(campaign_id))
    running = holder is not None and not is_dead(holder)
    if running:
        house.ledger.note(campaign_id, "stop.requested", campaign_id, {})
        deadline = time.monotonic() + STOP_SECONDS
        while house.ledger.lease_holder(lease_name(campaign_id)) == holder:
            if time.monotonic() > deadline:
                raise Busy(
                    f"wanted {campaign_id} to stop, found it still running in {holder} after "
                    f"{STOP_SECONDS:.0f} s; it stops as soon as that process looks at the ledger"
                )
            time.sleep(0.1)
    if as_json:
        print(json.dumps({"campaign": campaign_id, "was_running": running}))
    else:
        then = f"`seedbed resume {campaign_id}` goes on with it"
        if not running and state_of(house, campaign_id) == "complete":
            then = "its rounds are complete"
        print(f"{campaign_id} {'is stopped' if running else 'is not running'}; {then}")


def export(
    campaign: CampaignId = "",
    to: Annotated[Path | None, typer.Option(help="A new folder to put a copy in.")] = None,
    as_json: AsJson = False,
) -> None:
    """Confirm a campaign's candidate on fresh seeds, open its lockbox once, write the adapter.

    Goes on where it was interrupted; the lockbox is opened only once, whatever happens.
    """
    import os
    import shutil

    from flows.export import conclude, exported
    from flows.foreground import run_interruptible
    from flows.house import open_house
    from flows.lease import held

    if to is not None and os.path.lexists(to):
        raise typer.BadParameter(f"wanted a new folder, found something at {to}; name another")
    house = open_house()
    campaign_id = house.ledger.find_campaign(campaign or None).id
    if exported(house, campaign_id) is None:
        said = "the end runs recipes on fresh seeds, each as long as a trial"
        print(f"{campaign_id}: {said}", file=sys.stderr, flush=True)

    async def end() -> Path:
        async with held(house, campaign_id):
            return await conclude(house, campaign_id)

    folder = run_interruptible(end)
    if to is not None:
        try:
            shutil.copytree(folder, to)
        except OSError as error:
            shutil.rmtree(to, ignore_errors=True)
            raise typer.BadParameter(
                f"wanted a copy of {folder} at {to}, found: {error}; make room, or name another"
            ) from error
        folder = to
    found = exported(house, campaign_id) or {}
    if as_json:
        print(json.dumps({"campaign": campaign_id, "folder": str(folder), **found}, indent=2))
    else:
        print((folder / "README.md").read_text("utf-8"))
        print(f"{folder}: {', '.join(sorted(found['files']))}")


def _decimal(text: str | None) -> Decimal | None:
    """An amount of money, which is no binary fraction."""
    if text is None:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        raise typer.BadParameter(f"wanted dollars such as 12.50, found {text!r}") from None


def _estimate(plan: "Plan", as_json: bool) -> None:
    """Print what the plan would spend. Nothing is called, made or written."""
    from flows.estimate import estimate_text, expected_spend
    from flows.roles import check_roles
    from flows.settings import Settings
    from flows.start import check_plan

    _, _, policy = check_plan(plan)
    expected = expected_spend(plan, policy, check_roles(plan, Settings()))
    if as_json:
        caps = plan.spend.model_dump(mode="json")
        print(json.dumps({"roles": [item.data() for item in expected], "caps": caps}, indent=2))
    else:
        print(estimate_text(plan, expected))


def _in_foreground(what: object, as_json: bool) -> None:
    """Run the plan, or resume the campaign of that name, and show what came of it."""
    from rich.console import Console

    from flows.export import exported
    from flows.foreground import prepare_prefect, run_in_foreground
    from flows.house import open_house
    from flows.plan import Plan
    from flows.roles import hold_keys
    from flows.start import check_plan
    from policies.ledger import NotInLedger
    from substrate.isolation import level_for

    house = open_house()
    if isinstance(what, Plan):
        check_plan(what)
        plan, campaign_id = what, ""
    else:
        campaign_id = house.ledger.find_campaign(str(what) or None).id
        plan = house.plan(campaign_id)
        done, rounds = len(house.ledger.reports(campaign_id)), plan.rounds
        ended = exported(house, campaign_id) is not None or not plan.end.at_once
        if done == rounds and ended and not house.ledger.unpublished(campaign_id):
            print(f"{campaign_id} is complete: nothing to resume", file=sys.stderr)
            return
        level_for(plan.isolation)
        print(f"resuming {campaign_id}: {done} of {rounds} rounds are done", file=sys.stderr)
    hold_keys([plan], house.settings)
    prepare_prefect(house.settings)
    console = Console(stderr=as_json)

    from flows import campaign as flow
    from flows import screen

    if plan.isolation == "none":
        screen.show_banner(console, NO_WALLS)
    from policies.render import campaign_json

    def start():
        return flow.campaign(what) if isinstance(what, Plan) else flow.resume(campaign_id)

    try:
        campaign_id = run_in_foreground(house, console, start)
    except NotInLedger as error:
        raise RuntimeError("the ledger lacks a row that the campaign needs") from error
    if as_json:
        row = house.campaign(campaign_id)
        print(json.dumps(campaign_json(row, house.reports(campaign_id)), indent=2))
    else:
        screen.show_campaign(console, house, campaign_id)
