"""What a person sees in the terminal: campaigns, rounds, policies and errors, drawn with Rich."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flows.export import exported
from flows.house import House
from flows.lease import is_dead, lease_name
from flows.roles import PAUSED
from policies.diff import diff_lines, diff_policies, headline
from policies.edits import edit_text
from policies.escape import visible
from policies.isolation import isolation_banner
from policies.lineage import read_lineage
from policies.policy import SearchPolicy
from policies.purse import spent_by_role, spent_text
from policies.rejection import REJECTED, read_rejections
from policies.report import RoundReport, SetScore
from policies.why import Answer

COLOURS = {"+": "green", "-": "red", " ": "default"}


def show_campaign(console: Console, house: House, campaign_id: str) -> None:
    """All rounds, every policy diff, where the files are, and what to type next."""
    reports = house.reports(campaign_id)
    for report in reports:
        show_round(console, report)
    for row in house.ledger.policies(campaign_id)[1:]:
        show_policy_diff(console, house, campaign_id, row.version - 1, row.version, whole=False)
    show_rejections(console, house, campaign_id)
    rounds, state = house.plan(campaign_id).rounds, state_of(house, campaign_id)
    if banner := isolation_banner(reports):
        show_banner(console, banner)
    console.print(f"\n[bold]{campaign_id}[/bold]: {len(reports)} of {rounds} rounds, {state}")
    if state == "paused":
        console.print(f"  paused: {escape(why_paused(house, campaign_id))}", soft_wrap=True)
    for line in spent_by_role(house.ledger.spends(campaign_id)):
        console.print(f"  {escape(spent_text(line))}")
    if reports:
        first, last = reports[0].results.spread, reports[-1].results.spread
        policy = house.policy(campaign_id)
        console.print(
            f"  standing recipe, dev: {_number(first.mean)} to {_number(last.mean)}; promoted: "
            f"{len(policy.standing_recipe.provenance)}; dead ends: {len(policy.dead_ends)}"
        )
    console.print(f"  database   {_place(house.settings.url)}", soft_wrap=True)
    console.print(f"  artifacts  {house.settings.artifacts / campaign_id}", soft_wrap=True)
    console.print(f"  snapshot   {house.snapshot(campaign_id).root}", soft_wrap=True)
    console.print("\nNext:")
    steps = {
        f"report {campaign_id} --markdown": "the round reports, whole",
        f"policy diff {campaign_id}": "what the last revision changed",
        "up": "the same in Prefect's UI, and a form to start more",
    }
    if state == "running":
        steps = {f"stop {campaign_id}": "stop it; it can be resumed"} | steps
    elif state != "complete":
        steps = {f"resume {campaign_id}": "go on"} | steps
    elif exported(house, campaign_id) is None:
        steps[f"export {campaign_id}"] = "end it: fresh seeds, the lockbox once, the adapter"
    for command, what in steps.items():
        console.print(f"  [bold]{program()} {command}[/bold]   {what}", soft_wrap=True)


def show_campaigns(console: Console, house: House) -> None:
    """A line for each campaign, newest first."""
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for name in ("campaign", "substrate", "recipe", "seed", "rounds", "state", "started"):
        table.add_column(name, overflow="fold", no_wrap=name != "substrate")
    for row in campaign_list(house):
        done = f"{row['rounds_done']} of {row['rounds']}"
        words = (row[name] for name in ("campaign", "substrate", "recipe", "seed"))
        table.add_row(*map(str, words), done, str(row["state"]), _when(str(row["created_at"])))
    console.print(table)


def campaign_list(house: House) -> list[dict[str, str | int]]:
    """Every campaign, newest first, as JSON values."""
    return [
        {
            "campaign": row.id,
            "substrate": row.substrate_name,
            "recipe": row.recipe,
            "seed": row.seed,
            "rounds_done": len(house.ledger.reports(row.id)),
            "rounds": house.plan(row.id).rounds,
            "state": state_of(house, row.id),
            "created_at": row.created_at.isoformat(),
        }
        for row in house.ledger.campaigns()
    ]


def state_of(house: House, campaign_id: str) -> str:
    """`running`, `complete`, `paused` or `resumable`, as lease, reports and notes have it."""
    holder = house.ledger.lease_holder(lease_name(campaign_id))
    if holder is not None and not is_dead(holder):
        return "running"
    done = len(house.ledger.reports(campaign_id)) == house.plan(campaign_id).rounds
    if done:
        return "complete"
    return "paused" if why_paused(house, campaign_id) else "resumable"


def why_paused(house: House, campaign_id: str) -> str:
    """The cap at which a campaign paused, unless it went on since; empty where it did not."""
    kinds = {"campaign.conducted", PAUSED}
    notes = [event for event in house.ledger.events(campaign_id) if event.kind in kinds]
    if not notes or notes[-1].kind != PAUSED:
        return ""
    return str(json.loads(notes[-1].body)["because"])


def program() -> str:
    """The command line as it can be typed here: its name if it is on the path, else its place."""
    if shutil.which("seedbed"):
        return "seedbed"
    return os.path.relpath(Path(sys.prefix) / "bin" / "seedbed")


def show_banner(console: Console, text: str) -> None:
    """A warning that nobody overlooks."""
    console.print(f"[bold white on red] {escape(text)} [/]")


def show_round(console: Console, report: RoundReport) -> None:
    """The table of a round's trials, and the anchor's spread."""
    results = report.results
    if banner := isolation_banner([report]):
        show_banner(console, banner)
    table = Table(
        title=f"Round {report.round}, policy {results.policy_version}",
        title_justify="left",
        box=SIMPLE,
        padding=(0, 1, 0, 0),
    )
    table.add_column("slot", justify="right", no_wrap=True)
    for name in ("axis", "edit", "outcome"):
        table.add_column(name, overflow="fold")
    for name in ("dev", "external"):
        table.add_column(name, justify="right", no_wrap=True)
    for slot in results.slots:
        axis = slot.axis or ("anchor" if slot.kind == "anchor" else "standing recipe")
        if slot.kind == "replicate":
            axis += " (replicate)"
        table.add_row(
            str(slot.slot),
            escape(axis),
            _plain(edit_text(slot.edit)) or "none",
            slot.outcome,
            _score(slot.dev, missing="not scored"),
            _score(slot.external, missing="no look"),
        )
    console.print(table)
    spread, noise = results.spread, results.noise
    if spread.mean is not None:
        line = f"anchor {_number(spread.dev)}; standing recipe {spread.mean:.4f}"
        if spread.n > 1:
            line += f", {_number(spread.low)} to {_number(spread.high)} over {spread.n} runs"
        if noise.sigma is not None:
            behind = f"{noise.degrees} degrees of freedom" if noise.degrees else "binomial error"
            line += f"; one trial's noise {noise.sigma:.4f} ({behind})"
        console.print(line)
    for verdict in results.verdicts:
        if verdict.verdict != "unresolved":
            console.print(
                f"  slot {verdict.slot}, {escape(verdict.axis)}: {verdict.verdict} by "
                f"{_number(verdict.effect)} ({_number(verdict.low)} to {_number(verdict.high)})"
            )


def show_policy(console: Console, policy: SearchPolicy) -> None:
    """A policy as a person reads it: axes, standing recipe, what is known."""
    console.print(f"[bold]policy {policy.version}[/bold]  {policy.digest()[:12]}")
    console.print(_plain(policy.objective))
    table = Table(title="axes", title_justify="left")
    for name in ("axis", "status", "knobs", "evidence"):
        table.add_column(name, overflow="fold")
    for axis in policy.axes:
        knobs = "\n".join(
            _plain(f"{knob.constant} {knob.low:g} to {knob.high:g}")
            if knob.kind != "choice"
            else _plain(f"{knob.constant} {knob.choices}")
            for knob in axis.knobs
        )
        table.add_row(axis.id, axis.status, knobs, " ".join(axis.evidence[-4:]))
    console.print(table)
    standing = policy.standing_recipe
    for file, constants in standing.overrides.items():
        for name, value in constants.items():
            console.print(_plain(f"  standing: {file} {name} = {value!r}"))
    for patch in standing.patches:
        console.print(f"  standing: patch {patch[:12]}")
    for item in policy.replicates:
        console.print(f"  to replicate: {item.axis} {_plain(edit_text(item.edit))}")
    for end in policy.dead_ends:
        console.print(f"  dead end: {_plain(end.title)} ({' '.join(end.rows)})")
    for claim in policy.claims:
        console.print(f"  claim: {_plain(claim.text)} ({' '.join(claim.rows)})")
    if policy.rationale:
        console.print(_plain(policy.rationale))


def show_policy_diff(
    console: Console, house: House, campaign_id: str, old: int, new: int, *, whole: bool = True
) -> None:
    """What changed between two versions, coloured. Not whole: without row lists and rationale."""
    before, after = house.policy(campaign_id, old), house.policy(campaign_id, new)
    console.print(f"\n[bold]policy {old} to {new}[/bold]")
    changes = [
        change
        for change in diff_policies(before, after)
        if whole or (change.section != "rationale" and "evidence" not in change.path)
    ]
    for line in headline(changes):
        console.print(Text(f"  {line}", style="bold"), soft_wrap=True)
    for mark, line in diff_lines(changes):
        console.print(Text(f"  {mark} {line}", style=COLOURS[mark]), soft_wrap=True)


def show_history(console: Console, house: House, campaign_id: str) -> None:
    """Every version and what it changed, and after which rounds a draft was rejected."""
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for name in ("version", "digest", "author", "round", "written", "changed"):
        table.add_column(name, overflow="fold", no_wrap=name in ("version", "digest", "written"))
    for item in read_lineage(house.ledger.policies(campaign_id)):
        after = "start" if item.round is None else str(item.round)
        written = _when(item.created_at.isoformat())
        changed = "\n".join(item.headline) + (f"\nBROKEN: {item.fault}" if item.fault else "")
        version = (str(item.version), item.sha256[:12], item.author)
        table.add_row(*version, after, written, escape(changed))
    console.print(table)
    show_rejections(console, house, campaign_id)


def show_rejections(console: Console, house: House, campaign_id: str) -> None:
    """Every rejected draft: the clauses that it broke, where, and why."""
    for item in read_rejections(house.ledger.events(campaign_id, REJECTED)):
        said = f"after round {item.round} a draft of {item.author} was rejected"
        stays = f"policy {item.parent} stays"
        console.print(Text(visible(f"{said}, {stays}"), style="bold"))
        for found in item.violations:
            quote = f"\n      {found.quote}" if found.quote else ""
            line = Text(f"  {found.clause}  ", style="red") + Text(visible(found.reason))
            console.print(line + Text(visible(quote)), soft_wrap=True)


def show_why(console: Console, answer: Answer) -> None:
    """What stands, the versions and claims behind it, and what their rows hold."""
    console.print(Text(visible(f"{answer.kind} {answer.subject}"), style="bold"))
    console.print(Text(visible(f"  stands: {_json(answer.stands)}")), soft_wrap=True)
    for step in answer.steps:
        after = "at the start" if step.round is None else f"after round {step.round}"
        console.print(Text(f"  policy {step.version}, by {step.author}, {after}", style="bold"))
        for mark, value in (("-", step.before), ("+", step.after)):
            if value is not None:
                line = visible(f"    {mark} {_json(value)}")
                console.print(Text(line, style=COLOURS[mark]), soft_wrap=True)
        for claim in step.claims:
            line = f"    claim: {claim.text} ({' '.join(claim.rows)})"
            console.print(Text(visible(line)), soft_wrap=True)
    for row, held in answer.rows.items():
        console.print(Text(visible(f"  {row}: {_json(held)}")), soft_wrap=True)


def show_error(console: Console, message: str) -> None:
    """An error for a person: its message, no traceback."""
    console.print(Text("error: ", style="bold red") + Text(message), soft_wrap=True)


def _score(score: SetScore | None, missing: str) -> str:
    return missing if score is None else f"{score.value:.4f}"


def _plain(text: str) -> str:
    """Text of others for a line of markup: what would move the cursor is spelled out."""
    return escape(visible(text))


def _when(moment: str) -> str:
    """A moment in ISO 8601, to the minute, in the zone that it is in."""
    return moment[:16].replace("T", " ")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def _place(url: str) -> str | Path:
    """The file of an SQLite database; of another URL only what holds no password."""
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///"))
    return url.rpartition("@")[2]
