"""The command line: `seedbed run | resume | stop | report | policy | substrate | doctor | up`.

Exit codes: 0 done; 1 failed, with a traceback, which is a bug of ours; 2 refused, with what was
wanted, found, and what to do; 3 stopped and resumable; 130 interrupted and resumable.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import cli_campaigns, cli_gc, cli_run
from flows.cli_campaigns import AsJson, CampaignId
from flows.cli_policy import policy_commands
from flows.cli_substrate import substrate_commands

if TYPE_CHECKING:
    from flows.house import House

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

for conducting in (cli_run.run, cli_run.resume, cli_run.stop, cli_run.export):
    app.command()(conducting)
app.command()(cli_campaigns.compare)
app.command()(cli_campaigns.replay)
app.command()(cli_gc.gc)


@app.command()
def report(
    campaign: CampaignId = "",
    number: Annotated[int, typer.Option("--round", min=0, help="One round; 0: all.")] = 0,
    listing: Annotated[bool, typer.Option("--list", help="All campaigns, newest first.")] = False,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown.")] = False,
    html: Annotated[
        bool, typer.Option("--html", help="The whole campaign as one HTML file with plots.")
    ] = False,
    to: Annotated[
        str,
        typer.Option(help="File for --html; `-`: standard output; empty: below its artifacts."),
    ] = "",
) -> None:
    """Print round reports: tables, or the fixed-schema JSON, or Markdown, or write them as HTML."""
    from rich.console import Console

    from flows import screen
    from flows.house import open_house
    from policies.ledger import NotInLedger
    from policies.purse import spent_by_role
    from policies.rejection import REJECTED, read_rejections, rejections_markdown
    from policies.render import campaign_json, report_markdown

    house = open_house()
    if html:
        _html(house, campaign, to, number, as_json)
        return
    if to:
        raise typer.BadParameter(f"wanted --html for a file, found only --to {to}; add --html")
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
        raise NotInLedger(
            f"wanted the report of round {number} of {row.id}, found {there}; name one of these"
        )
    rejected = read_rejections(house.ledger.events(row.id, REJECTED))
    rejected = [item for item in rejected if number in (0, item.round)]
    if as_json:
        data = campaign_json(row, reports)
        data["rejections"] = [item.data() for item in rejected]
        data["state"] = screen.state_of(house, row.id)
        data["paused"] = screen.why_paused(house, row.id)
        data["spend"] = [vars(item) for item in spent_by_role(house.ledger.spends(row.id))]
        print(json.dumps(data, indent=2, ensure_ascii=False))
    elif markdown:
        print("\n".join(report_markdown(found) for found in reports))
        print(rejections_markdown(rejected), end="")
    elif number:
        screen.show_round(Console(), reports[0])
    else:
        screen.show_campaign(Console(), house, row.id)


def _html(house: "House", campaign: str, to: str, number: int, as_json: bool) -> None:
    """Write a campaign's page and say where, or print it."""
    from flows.dossier import read_dossier, write_page
    from policies.page import campaign_page

    if number:
        raise typer.BadParameter(
            f"wanted a whole campaign, found --round {number}; open the page at #r{number}"
        )
    campaign_id = house.ledger.find_campaign(campaign or None).id
    if to == "-":
        sys.stdout.buffer.write(campaign_page(read_dossier(house, campaign_id)).encode())
        return
    place = write_page(house, campaign_id, to)
    print(json.dumps({"campaign": campaign_id, "file": place}) if as_json else place)


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
    from policies.escape import visible

    checks = []
    for check in checks_of(campaign or None, anchor):
        checks.append(check)
        if not as_json:
            # A name may have anything in it: none may look like another line of this.
            print(visible(f"{check.state:9}  {check.what}: {check.found}"), flush=True)
    if as_json:
        print(json.dumps([vars(check) for check in checks], indent=2))
    raise SystemExit(exit_code(checks))


@app.command()
def doctor(
    worker: Annotated[str, typer.Option(help="Talk to this model, as a run would.")] = "",
    base_url: Annotated[str, typer.Option(help="Base URL of its server.")] = "",
    as_json: AsJson = False,
) -> None:
    """Check this installation and say how to mend what is wrong. Exit 2 if anything is."""
    from flows.doctor import examine
    from flows.rehearsal import rehearse

    findings = examine()
    if worker:
        findings += rehearse(worker, base_url)
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
    from agents.broker import KEY_NAMES
    from agents.line import take_from_environment
    from flows.foreground import prepare_prefect
    from flows.settings import Settings

    settings = Settings()
    if KEY_NAMES.values() & take_from_environment().keys():
        told = (
            f"keys of the environment are not handed on: campaigns of the UI read {settings.keys}"
        )
        print(told, file=sys.stderr)
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


def main() -> None:
    """Run the command line; turn what a user can mend into a message and an exit code."""
    try:
        app()
    except Exception as error:
        from flows.mendable import explain

        explained = explain(error)
        if explained is None:
            raise
        message, code = explained
        from rich.console import Console

        from flows import screen

        screen.show_error(Console(stderr=True), message)
        raise SystemExit(code) from None


if __name__ == "__main__":
    main()
