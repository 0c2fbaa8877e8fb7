"""The command line: `seedbed run | resume | stop | report | policy | substrate | doctor | up`.

Exit codes: 0 done; 1 failed, with a traceback, which is a bug of ours; 2 refused, with what was
wanted, found, and what to do; 3 stopped and resumable; 130 interrupted and resumable.
"""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.cli_policy import policy_commands
from flows.cli_substrate import substrate_commands

app = typer.Typer(
    name="seedbed",
    help="Autonomous post-training campaigns for language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(
    policy_commands, name="policy", help="The search policy: what it says, since when, and why."
)
app.add_typer(
    substrate_commands, name="substrate", help="Drop-ins: list, show, new, check, seal, calibrate."
)

STOP_SECONDS = 20.0
NO_WALLS = "NO ISOLATION: what this campaign runs can do whatever you can do on this machine."
CampaignId = Annotated[
    str, typer.Argument(help="Id of the campaign, or how it begins; empty: the newest.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


@app.command()
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
    as_json: AsJson = False,
) -> None:
    """Run a campaign in this process. Needs no Prefect server; uses PREFECT_API_URL if set."""
    from flows.plan import BudgetPlan, EndPlan, Plan

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
    )
    _in_foreground(plan, as_json)


@app.command()
def resume(campaign: CampaignId = "", as_json: AsJson = False) -> None:
    """Go on with a campaign after its last recorded trial."""
    _in_foreground(campaign, as_json)


@app.command()
def stop(campaign: CampaignId = "", as_json: AsJson = False) -> None:
    """Stop a running campaign, wherever it runs. It can be resumed."""
    from flows.house import open_house
    from flows.lease import CampaignBusy, is_dead, lease_name

    house = open_house()
    campaign_id = house.ledger.find_campaign(campaign or None).id
    holder = house.ledger.lease_holder(lease_name(campaign_id))
    running = holder is not None and not is_dead(holder)
    if running:
        house.ledger.note(campaign_id, "stop.requested", campaign_id, {})
        deadline = time.monotonic() + STOP_SECONDS
        while house.ledger.lease_holder(lease_name(campaign_id)) == holder:
            if time.monotonic() > deadline:
                raise CampaignBusy(
                    f"wanted {campaign_id} to stop, found it still running in {holder} after "
                    f"{STOP_SECONDS:.0f} s; it stops as soon as that process looks at the ledger"
                )
            time.sleep(0.1)
    if as_json:
        print(json.dumps({"campaign": campaign_id, "was_running": running}))
    else:
        state = "is stopped" if running else "is not running"
        print(f"{campaign_id} {state}; `seedbed resume {campaign_id}` goes on with it")


@app.command()
def report(
    campaign: CampaignId = "",
    number: Annotated[int, typer.Option("--round", min=0, help="One round; 0: all.")] = 0,
    listing: Annotated[bool, typer.Option("--list", help="All campaigns, newest first.")] = False,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown.")] = False,
) -> None:
    """Print round reports: tables, or the fixed-schema JSON, or Markdown."""
    from rich.console import Console

    from flows import screen
    from flows.house import open_house
    from policies.ledger import NotInLedger
    from policies.rejection import REJECTED, read_rejections, rejections_markdown
    from policies.render import campaign_json, report_markdown

    house = open_house()
    if listing:
        if as_json:
            print(json.dumps(screen.campaign_list(house), indent=2))
        else:
            screen.show_campaigns(Console(), house)
        return
    row = house.ledger.find_campaign(campaign or None)
    reports = [found for found in house.reports(row.id) if number in (0, found.round)]
    if number and not reports:
        there = [found.round for found in house.reports(row.id)]
        raise NotInLedger(f"wanted the report of round {number} of {row.id}, found rounds {there}")
    rejected = read_rejections(house.ledger.events(row.id, REJECTED))
    rejected = [item for item in rejected if number in (0, item.round)]
    if as_json:
        data = campaign_json(row, reports)
        data["rejections"] = [item.data() for item in rejected]
        print(json.dumps(data, indent=2, ensure_ascii=False))
    elif markdown:
        print("\n".join(report_markdown(found) for found in reports))
        print(rejections_markdown(rejected), end="")
    elif number:
        screen.show_round(Console(), reports[0])
    else:
        screen.show_campaign(Console(), house, row.id)


@app.command()
def export(
    campaign: CampaignId = "",
    to: Annotated[Path | None, typer.Option(help="A new folder to put a copy in.")] = None,
    as_json: AsJson = False,
) -> None:
    """Confirm a campaign's candidate on fresh seeds, open its lockbox once, write the adapter.

    Goes on where it was interrupted; the lockbox is opened only once, whatever happens.
    """
    import asyncio
    import shutil

    from flows.export import conclude, exported
    from flows.house import open_house
    from flows.lease import held

    house = open_house()
    campaign_id = house.ledger.find_campaign(campaign or None).id

    async def end() -> Path:
        async with held(house, campaign_id):
            return await conclude(house, campaign_id)

    folder = asyncio.run(end())
    if to is not None:
        shutil.copytree(folder, to)
        folder = to
    found = exported(house, campaign_id) or {}
    if as_json:
        print(json.dumps({"campaign": campaign_id, "folder": str(folder), **found}, indent=2))
    else:
        print((folder / "README.md").read_text("utf-8"))
        print(f"{folder}: {', '.join(sorted(found['files']))}")


@app.command()
def verify(
    campaign: Annotated[
        str, typer.Argument(help="Only what belongs to this campaign; empty: all of them.")
    ] = "",
    anchor: Annotated[
        Path | None, typer.Option(help="Check against this copy of the anchor as well.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check everything that the ledger vouches for, and name the first thing tampered with.

    Exit codes: 0 all is as it was recorded; 1 tampered with; 2 not all of it could be checked.
    """
    from flows.verify import exit_code
    from flows.verify import verify as checks_of

    checks = []
    for check in checks_of(campaign or None, anchor):
        checks.append(check)
        if not as_json:
            print(f"{check.state:9}  {check.what}: {check.found}", flush=True)
    if as_json:
        print(json.dumps([vars(check) for check in checks], indent=2))
    raise SystemExit(exit_code(checks))


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check this installation and say how to mend what is wrong. Exit 2 if anything is."""
    from flows.doctor import examine

    findings = examine()
    if as_json:
        print(json.dumps([vars(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{'ok  ' if finding.ok else 'BAD '} {finding.what}: {finding.found}")
            if not finding.ok:
                print(f"       {finding.todo}")
    if not all(finding.ok for finding in findings):
        raise SystemExit(2)


@app.command()
def up(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on loopback.")] = 4200,
    as_json: AsJson = False,
) -> None:
    """Bring up a standing Prefect server with the campaign deployment."""
    from flows.foreground import prepare_prefect
    from flows.settings import Settings

    settings = Settings()
    prepare_prefect(settings)
    from flows.standing import bring_up

    url = bring_up(settings, port)
    print(json.dumps({"url": url}) if as_json else f"Seedbed is up: {url}")


@app.command()
def down(as_json: AsJson = False) -> None:
    """End what `seedbed up` started. Running campaigns can be resumed."""
    from flows.settings import Settings
    from flows.standing import bring_down

    was_up = bring_down(Settings())
    if as_json:
        print(json.dumps({"was_up": was_up}))
    else:
        print("Seedbed is down." if was_up else "Seedbed was not up.")


def _in_foreground(what: object, as_json: bool) -> None:
    """Run the plan, or resume the campaign of that name, and show what came of it."""
    from rich.console import Console

    from flows.export import exported
    from flows.foreground import prepare_prefect, run_in_foreground
    from flows.house import open_house
    from flows.plan import Plan
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


def main() -> None:
    """Run the command line; turn what a user can mend into a message and an exit code."""
    try:
        app()
    except Exception as error:
        explained = _explain(error)
        if explained is None:
            raise
        message, code = explained
        from rich.console import Console

        from flows import screen

        screen.show_error(Console(stderr=True), message)
        raise SystemExit(code) from None


def _explain(error: Exception) -> tuple[str, int] | None:
    """Message and exit code for what a user can mend; None for a bug of ours."""
    from pydantic import ValidationError

    from agents.messages import ProviderFailure
    from agents.worker import UnknownWorker
    from flows.clean_run import RunFailed
    from flows.finale import CampaignUnfinished, NothingToExport
    from flows.foreground import Interrupted
    from flows.house import BadHome
    from flows.lease import CampaignBusy, LeaseLost
    from flows.start import BadPlan
    from policies.constitution import ConstitutionChanged
    from policies.database import UnknownSchema
    from policies.ledger import NotInLedger
    from policies.rollback import BadRollback
    from policies.why import NothingSaid
    from substrate.dropin import BadDropIn
    from substrate.isolation import NoWalls
    from substrate.store import NoSnapshot, SnapshotDamaged

    if isinstance(error, ExceptionGroup):
        explained = [_explain(inner) for inner in error.exceptions]
        return explained[0] if all(explained) else None
    if isinstance(error, Interrupted):
        return str(error), 130
    if isinstance(error, ValidationError) and error.title == "Plan":
        faults = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        return "the plan is not valid: " + "; ".join(faults), 2
    refused = (BadDropIn, BadPlan, UnknownWorker, NotInLedger, CampaignBusy, LeaseLost)
    refused = (*refused, NoWalls, BadRollback, NothingSaid, RunFailed, CampaignUnfinished)
    refused = (*refused, ProviderFailure)
    damaged = (
        NothingToExport,
        BadHome,
        NoSnapshot,
        SnapshotDamaged,
        UnknownSchema,
        ConstitutionChanged,
    )
    if isinstance(error, (*refused, *damaged)):
        return str(error), 2
    if "prefect" in sys.modules:
        from prefect.exceptions import CancelledRun

        from flows.server import ServerFailed

        if isinstance(error, CancelledRun):
            return str(error), 3
        if isinstance(error, ServerFailed):
            return str(error), 2
    return None


if __name__ == "__main__":
    main()
