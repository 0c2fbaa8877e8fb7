"""`seedbed gc`: what is not needed any more, told by kind, and removed when that is asked for."""

import json
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli_campaigns import AsJson

if TYPE_CHECKING:
    from rich.console import Console

    from flows.house import House
    from flows.sweep import Sweep

DAY = 86_400.0
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def gc(
    campaign: Annotated[
        str, typer.Argument(help="Only what belongs to this campaign; empty: all there is.")
    ] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Remove it.")] = False,
    older_than: Annotated[
        float, typer.Option(min=0, help="Only what was not changed for so many days.")
    ] = 1.0,
    adapters: Annotated[
        bool,
        typer.Option(
            "--adapters",
            help="Also adapters of trials of complete campaigns, but for those that a promotion "
            "rests on. Their removal is on record, and cannot be undone.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what no row and no process needs any more; with --apply, remove it.

    Nothing that `seedbed verify` checks is touched, and no campaign or calibration that runs is
    disturbed. Exit 2 where something could not be removed.
    """
    from rich.console import Console

    from flows import sweep
    from flows.house import open_existing_house

    house = open_existing_house()
    rows = [house.ledger.find_campaign(campaign)] if campaign else house.ledger.campaigns()
    act = sweep.apply if apply else sweep.find
    done = act(house, rows, whole=not campaign, days=older_than, drop=adapters)
    failed = [path for path in done.left if path in {one.path for one in done.found}]
    if as_json:
        print(json.dumps(_data(house, done, applied=apply, days=older_than), indent=2))
    else:
        _show(Console(), house, done, applied=apply, days=older_than)
    if failed:
        raise SystemExit(2)


def _data(house: "House", done: "Sweep", *, applied: bool, days: float) -> dict[str, object]:
    now, home = time.time(), house.settings.folder
    gone = {one.path for one in done.removed}
    return {
        "applied": applied,
        "older_than_days": days,
        "home": str(home),
        "garbage": [
            {
                "kind": one.kind,
                "path": str(one.path.relative_to(home)),
                "campaign": one.campaign,
                "bytes": done.weights[one.path].bytes,
                "days": round((now - done.weights[one.path].changed) / DAY, 2),
                "removed": one.path in gone,
            }
            for one in done.found
        ],
        "younger": [str(one.path.relative_to(home)) for one in done.younger],
        "left": {str(path.relative_to(home)): why for path, why in done.left.items()},
        "bytes": sum(
            done.weights[one.path].bytes for one in (done.removed if applied else done.found)
        ),
    }


def _show(console: "Console", house: "House", done: "Sweep", *, applied: bool, days: float) -> None:
    from rich.box import SIMPLE
    from rich.markup import escape
    from rich.table import Table

    now, shown = time.time(), done.removed if applied else done.found
    kinds = defaultdict[tuple[str, str], list[tuple[int, float]]](list)
    for one in shown:
        weight = done.weights[one.path]
        kinds[one.kind, one.campaign or ""].append((weight.bytes, now - weight.changed))
    if kinds:
        table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
        for name in ("what", "of"):
            table.add_column(name, overflow="fold")
        for name in ("number", "size", "days old"):
            table.add_column(name, justify="right", no_wrap=True)
        for (kind, campaign), pieces in kinds.items():
            youngest, oldest = min(age for _, age in pieces), max(age for _, age in pieces)
            ages = f"{oldest / DAY:.1f}"
            if f"{youngest / DAY:.1f}" != ages:
                ages = f"{youngest / DAY:.1f} to {ages}"
            size = _size(sum(bytes for bytes, _ in pieces))
            table.add_row(kind, escape(campaign), str(len(pieces)), size, ages)
        console.print(table)
    total = _size(sum(done.weights[one.path].bytes for one in shown))
    if applied:
        console.print(f"Removed {_things(len(shown))}, {total}.")
    elif shown:
        console.print(f"[bold]seedbed gc --apply[/bold] removes {_things(len(shown))}, {total}.")
    else:
        console.print("Nothing to remove.")
    if done.younger:
        console.print(
            f"{_things(len(done.younger))} more changed within {days:g} days: --older-than 0 "
            "counts them in."
        )
    for path, why in done.left.items():
        name = path.relative_to(house.settings.folder)
        console.print(f"left: {escape(str(name))}: {escape(why)}", soft_wrap=True)


def _things(number: int) -> str:
    return f"{number} thing" if number == 1 else f"{number} things"


def _size(bytes: int) -> str:
    size, unit = float(bytes), 0
    while size >= 1024 and unit + 1 < len(UNITS):
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {UNITS[unit]}" if unit else f"{bytes} bytes"
