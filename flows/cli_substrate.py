"""`seedbed substrate`: drop-ins listed, made from a template, checked and sealed."""

import json
from pathlib import Path
from typing import Annotated

import typer

substrate_commands = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name in `substrate/library`, or a path.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


@substrate_commands.command("list")
def list_substrates(as_json: AsJson = False) -> None:
    """List the drop-ins in `substrate/library`."""
    from substrate.check import list_dropins
    from substrate.dropin import read_dropin

    found = [read_dropin(folder).manifest for folder in list_dropins()]
    if as_json:
        print(json.dumps([manifest.model_dump(mode="json") for manifest in found], indent=2))
        return
    for manifest in found:
        print(f"{manifest.name:24} {manifest.title}")
    if not found:
        print("none; `seedbed substrate new NAME` writes a template")


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
    snapshot = open_house().store.seal(read_dropin(folder))
    if as_json:
        print(json.dumps({"sha256": snapshot.digest, "path": str(snapshot.root)}))
    else:
        print(f"{snapshot.digest}  {snapshot.root}")
