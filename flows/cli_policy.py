"""`seedbed policy`: the versions of a campaign's search policy, and what they rest on."""

import json
from pathlib import Path
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
    """List every version, who wrote it after which round, what it changed, and rejected drafts."""
    from rich.console import Console

    from flows import screen
    from flows.house import open_house
    from policies.lineage import read_lineage

    house = open_house()
    campaign_id = house.ledger.find_campaign(campaign or None).id
    if as_json:
        lineage = read_lineage(house.ledger.policies(campaign_id))
        print(json.dumps([item.data() for item in lineage], indent=2))
    else:
        screen.show_history(Console(), house, campaign_id)


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


@policy_commands.command()
def rejected(campaign: CampaignId = "", as_json: AsJson = False) -> None:
    """List the drafts that the constitution rejected: clause, place in the draft, and reason."""
    from rich.console import Console

    from flows import screen
    from flows.house import open_house
    from policies.rejection import REJECTED, read_rejections

    house = open_house()
    campaign_id = house.ledger.find_campaign(campaign or None).id
    found = read_rejections(house.ledger.events(campaign_id, REJECTED))
    if as_json:
        print(json.dumps([item.data() for item in found], indent=2))
    elif not found:
        print(f"no draft of {campaign_id} was rejected")
    else:
        screen.show_rejections(Console(), house, campaign_id)


@policy_commands.command()
def why(
    subject: Annotated[
        str, typer.Argument(help="An axis, a dead end, a constant of the recipe, or a domain.")
    ],
    campaign: CampaignId = "",
    as_json: AsJson = False,
) -> None:
    """Say why the policy says what it says: the versions, claims, rows and rounds behind it."""
    from rich.console import Console

    from flows import screen
    from flows.house import open_house
    from policies.lineage import read_lineage
    from policies.rows import Rows
    from policies.why import explain

    house = open_house()
    campaign_id = house.ledger.find_campaign(campaign or None).id
    lineage = read_lineage(house.ledger.policies(campaign_id))
    answer = explain(subject, lineage, Rows(house.reports(campaign_id)))
    if as_json:
        print(json.dumps(answer.data(), indent=2, ensure_ascii=False))
    else:
        screen.show_why(Console(), answer)


@policy_commands.command()
def check(
    draft: Annotated[Path, typer.Argument(help="A draft of the next policy, as JSON.")],
    campaign: CampaignId = "",
    as_json: AsJson = False,
) -> None:
    """Hold a draft to the constitution as the next policy. Records nothing; exit 2 if unlawful."""
    from flows.house import open_house
    from flows.revision import ruled

    house = open_house()
    campaign_id = house.ledger.find_campaign(campaign or None).id
    try:
        reply = draft.read_bytes()
    except OSError as error:
        raise typer.BadParameter(
            f"wanted a draft, found that it cannot be read: {error}"
        ) from error
    ruling = ruled(house, campaign_id, house.policy(campaign_id), [], reply)
    if as_json:
        print(json.dumps([vars(found) for found in ruling.violations], indent=2))
    else:
        for found in ruling.violations:
            print(
                f"{found.clause}  {found.reason}" + (f"\n    {found.quote}" if found.quote else "")
            )
        if not ruling.violations:
            print("lawful")
    if ruling.violations:
        raise SystemExit(2)


@policy_commands.command()
def rollback(
    version: Annotated[int, typer.Argument(min=1, help="Version whose decisions to take again.")],
    reason: Annotated[str, typer.Option(help="Why, for the record.")],
    campaign: Annotated[
        str, typer.Option(help="Id of the campaign, or how it begins; empty: the newest.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Write a new version with an old one's decisions. What was found out since stays."""
    from flows.foreground import prepare_prefect
    from flows.house import open_house

    house = open_house()
    prepare_prefect(house.settings)
    from flows.rollback import roll_back

    campaign_id = house.ledger.find_campaign(campaign or None).id
    policy = roll_back(house, campaign_id, version, reason)
    if as_json:
        print(json.dumps(policy.data(), indent=2, ensure_ascii=False))
    else:
        print(f"policy {policy.version} of {campaign_id} decides as version {version} did")


@policy_commands.command()
def replay(
    campaign: CampaignId = "",
    version: Annotated[int, typer.Option(min=0, help="One version; 0: every decision.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Make decisions again from the recorded inputs and compare digests. Exit 2 if any differs."""
    from flows.house import open_house
    from flows.replay import replay as replayed

    house = open_house()
    campaign_id = house.ledger.find_campaign(campaign or None).id
    decisions = replayed(house, campaign_id, version)
    if as_json:
        print(json.dumps([vars(item) for item in decisions], indent=2))
    else:
        for item in decisions:
            digests = item.recorded[:12] if item.state == "same" else item.recorded
            found = "" if item.state == "same" else f", found {item.found}"
            print(f"{item.state}: {item.decision} by {item.author}, {digests}{found}")
    if any(item.state == "differs" for item in decisions):
        raise SystemExit(2)
