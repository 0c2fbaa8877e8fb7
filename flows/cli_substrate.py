"""`seedbed substrate`: drop-ins listed, shown, made, checked, sealed and calibrated."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

substrate_commands = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name in `substrate/library`, or a path.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


@substrate_commands.command("list")
def list_substrates(as_json: AsJson = False) -> None:
    """List the drop-ins in `substrate/library`, with what was calibrated of each."""
    from flows.calibrate import calibrations_of
    from flows.house import open_house
    from substrate.check import list_dropins
    from substrate.dropin import read_dropin

    house = open_house()
    found = [read_dropin(folder).manifest for folder in list_dropins()]
    if as_json:
        listed = [
            manifest.model_dump(mode="json")
            | {"calibrations": [vars(item) for item in calibrations_of(house, manifest.name)]}
            for manifest in found
        ]
        print(json.dumps(listed, indent=2))
        return
    for manifest in found:
        print(f"{manifest.name:24} {manifest.title}")
        for item in calibrations_of(house, manifest.name):
            print(f"{'':24} {item}")
    if not found:
        print("none; `seedbed substrate new NAME` writes a template")


@substrate_commands.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a drop-in: base, sets, budget, limits, and the baselines that were calibrated."""
    from flows.calibrate import calibrations_of
    from flows.house import open_house
    from substrate.check import find_dropin
    from substrate.dropin import read_dropin

    manifest = read_dropin(find_dropin(name)).manifest
    found = calibrations_of(open_house(), manifest.name)
    if as_json:
        shown = manifest.model_dump(mode="json") | {"calibrations": [vars(item) for item in found]}
        print(json.dumps(shown, indent=2))
        return
    print(f"{manifest.name}: {manifest.title}")
    print(f"base      {manifest.base.source}, {manifest.base.licence}, {manifest.base.sha256[:12]}")
    adapter = manifest.adapter
    print(f"adapter   rank {adapter.rank}, alpha {adapter.alpha:g}, on {adapter.target_modules}")
    print(f"budget    {manifest.budget.rollouts} rollouts, {manifest.limits.seconds:g} s")
    sets = manifest.sets
    scored_sets = {"dev": sets.dev, "external": sets.external, "lockbox": sets.lockbox}
    for what, scored in scored_sets.items():
        print(f"{what:9} {scored.metric}, {scored.direction}; {', '.join(scored.domains)}")
    for item in found:
        print(f"baseline  {item}")
    if not found:
        print(f"baseline  none; `seedbed substrate calibrate {name}` measures it")


@substrate_commands.command()
def calibrate(
    name: Name,
    recipe: Annotated[str, typer.Option(help="Recipe; empty: the substrate's default.")] = "",
    rollouts: Annotated[int, typer.Option(min=0, help="Rollouts a run; 0: default.")] = 0,
    runs: Annotated[int, typer.Option(min=2, help="Seeds on which the recipe is run.")] = 8,
    at_once: Annotated[int, typer.Option(min=0, help="Runs at one time; 0: by cores.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure the baseline and the noise of the unmodified recipe, and what must not beat it.

    Goes on where it was interrupted. Exit 2 with the named rules that a degenerate probe breaks.
    """
    import asyncio

    from flows.calibrate import calibrate as measure_baseline
    from flows.calibrate import calibrations_of, find_subject
    from flows.house import open_house
    from policies.baseline import faults, score_of

    house = open_house()
    subject = find_subject(house, name, recipe, rollouts)
    to_do = f"{runs} runs of {subject.recipe}, less those on record, each as long as a trial"
    print(f"{name}: {to_do}", file=sys.stderr, flush=True)
    rows = asyncio.run(measure_baseline(house, subject, runs=runs, at_once=at_once))
    found = faults(rows, subject.snapshot.manifest.sets.dev.direction)
    (summary,) = [
        item
        for item in calibrations_of(house, subject.snapshot.manifest.name)
        if (item.substrate_sha256, item.recipe, item.rollouts)
        == (subject.snapshot.digest, subject.recipe, subject.rollouts)
    ]
    if as_json:
        print(json.dumps(vars(summary) | {"faults": found}, indent=2))
    else:
        for row in rows:
            score = score_of(row, "dev")
            shown = f"{score.value:.4f} of {score.n} problems" if score else row.reason
            print(f"{row.probe:9} {row.number:3}  {row.outcome:12}  {shown}")
        print(summary)
        for fault in found:
            print(fault)
    if found:
        raise SystemExit(2)


@substrate_commands.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the new drop-in.")],
    folder: Annotated[
        Path | None, typer.Option("--in", help="Folder to write it in; default: the library.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a commented template. It passes `check` once the base model is filled in."""
    from substrate.check import LIBRARY
    from substrate.template import write_template

    place = (folder or LIBRARY) / name
    written = write_template(place, name)
    if as_json:
        print(json.dumps([str(path) for path in written]))
        return
    for path in written:
        print(path)
    shown = place if folder else name
    print(f"\nNext: fill in [base], then `seedbed substrate check {shown}`")


@substrate_commands.command()
def check(name: Name, as_json: AsJson = False) -> None:
    """Check a drop-in before any GPU or model call. Exit 2 with the named rules it breaks."""
    from substrate.check import check_dropin, find_dropin

    folder = find_dropin(name)
    findings = check_dropin(folder)
    if as_json:
        print(json.dumps([vars(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(finding)
        if not findings:
            print(f"{folder}: ok")
    if findings:
        raise SystemExit(2)


@substrate_commands.command()
def seal(name: Name, as_json: AsJson = False) -> None:
    """Make the content-addressed snapshot of a drop-in and print its digest."""
    from flows.house import open_house
    from substrate.check import check_dropin, find_dropin
    from substrate.dropin import BadDropIn, read_dropin

    folder = find_dropin(name)
    if findings := check_dropin(folder):
        raise BadDropIn("\n".join(str(finding) for finding in findings))
    store = open_house().store
    with store.hold():
        snapshot = store.seal(read_dropin(folder))
    if as_json:
        print(json.dumps({"sha256": snapshot.digest, "path": str(snapshot.root)}))
    else:
        print(f"{snapshot.digest}  {snapshot.root}")
