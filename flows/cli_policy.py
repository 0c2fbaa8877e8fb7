"""`seedbed policy`: the versions of a campaign's search policy, shown, listed and compared."""

import json
from typing import Annotated

import typer

policy_commands = typer.Typer(no_args_is_help=True)

CampaignId = Annotated[
    str, typer.Argument(help="Id of the campaign, or how it begins; empty: the newest.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


@policy_commands.command()
def show(
    campaign: CampaignId = "",
    version: Annotated[int, typer.Option(min=0, help="Version; 0: the one that stands.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show one version of the policy."""
    from rich.console import Console

    from flows import screen
    from flows.house import open_house

    house = open_house()
    policy = house.policy(house.ledger.find_campaign(campaign or None).id, version or None)
    if as_json:
        print(json.dumps(policy.data(), indent=2, ensure_ascii=False))
    else:
        screen.show_policy(Console(), policy)


@policy_commands.command()
def history(campaign: CampaignId = "", as_json: AsJson = False) -> None:
    """List every version: who wrote it, after which round, and its digest."""
    from rich.console import Console
    from rich.table import Table

    from flows.house import open_house

    house = open_house()
    rows = house.ledger.policies(house.ledger.find_campaign(campaign or None).id)
    if as_json:
        columns = ("version", "sha256", "parent", "author", "round")
        listed = [
            {name: row.model_dump()[name] for name in columns}
            | {"created_at": row.created_at.isoformat()}
            for row in rows
        ]
        print(json.dumps(listed, indent=2))
        return
    table = Table()
    for name in ("version", "digest", "author", "after round", "written"):
        table.add_column(name)
    for row in rows:
        after = "start" if row.round is None else str(row.round)
        written = row.created_at.isoformat(timespec="seconds")
        table.add_row(str(row.version), row.sha256[:12], row.author, after, written)
    Console().print(table)


@policy_commands.command()
def diff(
    campaign: CampaignId = "",
    old: Annotated[int, typer.Option("--from", min=0, help="0: the one before `--to`.")] = 0,
    new: Annotated[int, typer.Option("--to", min=0, help="0: the one that stands.")] = 0,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown.")] = False,
) -> None:
    """Show what changed between two versions."""
    from rich.console import Console

    from flows import screen
    from flows.house import open_house
    from policies.diff import diff_markdown, diff_policies

    house = open_house()
    campaign_id = house.ledger.find_campaign(campaign or None).id
    new = new or house.policy(campaign_id).version
    old = old or max(1, new - 1)
    before, after = house.policy(campaign_id, old), house.policy(campaign_id, new)
    changes = diff_policies(before, after)
    if as_json:
        print(json.dumps([vars(change) for change in changes], indent=2, ensure_ascii=False))
    elif markdown:
        print(diff_markdown(changes, before, after))
    else:
        screen.show_policy_diff(Console(), house, campaign_id, old, new)
