"""Verification: everything that the ledger vouches for, checked against what is there.

In this order: the database's schema, the hash chain over all rows, the anchor, what lies in the
home of campaigns that have no row, sealed substrates and judges, adapters, patches, policies and
exchanges with models by their hashes, exports, canaries and held-out problems in what was written,
and every report. Exports and reports are made again from the rows. It ends at the first thing that
was tampered with; what cannot be checked is said, and what comes after it is checked where it can
be read. Nothing is changed, but that a database of an older version is upgraded.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from flows.adapters import namings, removed
from flows.exchanges import ExchangeDamaged, exchanges_of
from flows.export import export_folder, export_texts, exported, hashes, read_ending
from flows.house import BadHome, House, open_house
from flows.leakage import first_leak
from flows.program import program_sha256
from flows.round import build_report
from flows.settings import Settings
from policies.anchor import ANCHORED, first_drift, read_anchor
from policies.canonical import canonical_json
from policies.database import UNREADABLE, UnknownSchema, is_there
from policies.ledger import verify_chain
from policies.policy import SearchPolicy
from policies.report import RoundReport
from policies.schema import first_schema_fault
from policies.tables import Campaign, Policy, Report, sha256_of
from substrate.dropin import DropIn
from substrate.measure import adapter_damage, is_unsealed
from substrate.store import NoSnapshot, SnapshotDamaged

State = Literal["ok", "tampered", "unchecked"]
EXIT_CODES: dict[State, int] = {"ok": 0, "tampered": 1, "unchecked": 2}
_CAMPAIGN = re.compile(r".+-[0-9a-f]{6}")  # an id: a name, and what tells it from its namesakes


@dataclass(frozen=True)
class Check:
    """One thing looked at. `found` names what is wrong, where something is."""

    what: str
    state: State
    found: str


def verify(campaign: str | None = None, anchor: Path | None = None) -> Iterator[Check]:
    """The checks, one after the other, to the first that finds tampering.

    `campaign` (its id, or how it begins) leaves out what belongs to others; schema, chain and
    anchor are one for all. `anchor` is a copy of the anchor from elsewhere, perhaps an older one.
    Raises NotInLedger for a campaign that is not there.
    """
    for check in _checks(campaign, anchor):
        yield check
        if check.state == "tampered":
            return


def exit_code(checks: list[Check]) -> int:
    """0: all is as it was recorded; 1: something was tampered with; 2: not all could be checked."""
    states = {check.state for check in checks}
    state: State = "tampered" if "tampered" in states else "unchecked"
    return EXIT_CODES[state if states - {"ok"} else "ok"]


def _checks(campaign: str | None, anchor: Path | None) -> Iterator[Check]:
    settings = Settings()
    try:
        if not is_there(settings.url):
            none = f"there is none in {settings.folder}: set SEEDBED_HOME"
            yield Check("ledger", "unchecked", none)
            return
        house = open_house()
        yield _check("schema", first_schema_fault(house.ledger), "as the migrations make it")
        yield _chain(house)
        rows = [house.ledger.find_campaign(campaign)] if campaign else house.ledger.campaigns()
        yield from _anchors(house, anchor)
        if campaign is None:
            yield _strangers(house, {row.id for row in rows})
        yield from _substrates(house, _snapshots(house, rows, whole=campaign is None))
        yield from _judges(house, rows)
        yield _check("adapters", *_adapters(house, rows, whole=campaign is None))
        yield _check("texts", *_texts(house, rows))
        yield _check("exchanges", *_exchanges(house, rows))
        yield from _exports(house, rows)
        well = "no canary and no held-out problem in what was written"
        yield _check("leaks", first_leak(house, rows), well)
        for row in rows:
            yield from _reports(house, row)
    except FileNotFoundError as error:
        wanted = f"wanted the file {error.filename}, found none; see to its name"
        yield Check("reading", "unchecked", wanted)
    except UNREADABLE as error:
        yield Check("reading", "unchecked", f"the database cannot be read: {error.orig}")
    except (BadHome, UnknownSchema, OSError) as error:
        yield Check("reading", "unchecked", str(error))


def _check(what: str, fault: str | None, well: str) -> Check:
    return Check(what, "tampered", fault) if fault else Check(what, "ok", well)


def _chain(house: House) -> Check:
    if fault := verify_chain(house.ledger):  # before any row is read: it may be unreadable
        return Check("chain", "tampered", fault)
    last = house.ledger.last_event()
    return Check("chain", "ok", f"{last.seq if last else 0} events, each row as it was recorded")


def _anchors(house: House, copy: Path | None) -> Iterator[Check]:
    file = house.settings.anchor
    if file.exists() and not file.is_file():
        yield Check("anchor", "tampered", f"something else was put in the place of the file {file}")
        return
    heads = read_anchor(file) if file.exists() else []
    if not heads and house.ledger.last_event() and not house.ledger.events(kind=ANCHORED):
        yield Check("anchor", "unchecked", f"no campaign has written {file} yet")
    else:
        well = f"{len(heads)} heads in {file}"
        yield _check("anchor", first_drift(house.ledger, file), well)
    if copy is not None:
        heads = read_anchor(copy)
        what = f"anchor {copy}"
        if not heads:
            yield Check(what, "unchecked", "no line of it is a head of a ledger")
        else:
            fault = first_drift(house.ledger, copy, complete=False)
            yield _check(what, fault, f"{len(heads)} heads")


def _strangers(house: House, known: set[str]) -> Check:
    """Whether the home has campaigns without a row, as one has whose ledger was emptied."""
    for folder in (house.settings.artifacts, house.settings.folder / "exports"):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if _CAMPAIGN.fullmatch(path.name) and path.name not in known:
                said = f"{path} is of a campaign that this ledger does not know"
                why = "its rows are in another database, or they were deleted"
                return Check("home", "unchecked", f"{said}: {why}")
    return Check("home", "ok", f"{len(known)} campaigns, none without a row")


def _substrates(house: House, digests: list[str]) -> Iterator[Check]:
    for sha256 in digests:
        what = f"substrate {sha256[:12]}"
        recorded = house.ledger.substrate(sha256)
        try:
            snapshot = house.store.open(sha256)
            house.store.verify(snapshot)
        except (SnapshotDamaged, NoSnapshot) as damage:
            yield Check(what, "tampered", str(damage))
            continue
        if recorded is None:
            yield Check(what, "tampered", "the ledger has no row of it: it was deleted")
        elif not _is_manifest(recorded.manifest, snapshot.manifest):
            yield Check(what, "tampered", "its manifest in the ledger is not the snapshot's own")
        else:
            yield Check(what, "ok", f"{len(snapshot.entries)} paths as they were sealed")


def _is_manifest(text: str, manifest: DropIn) -> bool:
    try:
        return DropIn.model_validate_json(text) == manifest
    except ValidationError:
        return False


def _judges(house: House, rows: list[Campaign]) -> Iterator[Check]:
    for sha256 in sorted({row.judge_sha256 for row in rows}):
        try:
            house.store.open_judge(sha256)
            yield Check(f"judge {sha256[:12]}", "ok", "as it was sealed")
        except (SnapshotDamaged, NoSnapshot) as damage:
            yield Check(f"judge {sha256[:12]}", "tampered", str(damage))


def _snapshots(house: House, rows: list[Campaign], *, whole: bool) -> list[str]:
    """The snapshots of some campaigns; with `whole`, those that were only calibrated as well."""
    used = {row.substrate_sha256 for row in rows}
    return sorted(used | ({row.sha256 for row in house.ledger.substrates()} if whole else set()))


def _adapters(house: House, rows: list[Campaign], *, whole: bool) -> tuple[str | None, str]:
    """The first adapter that is not what a row says; with `whole`, of any in the folder."""
    gone, kept, missing = removed(house), dict[str, str | None](), set[str]()
    for one in namings(house, rows, _snapshots(house, rows, whole=whole)):
        folder = house.adapters / one.sha256
        if one.sha256 not in kept:
            kept[one.sha256] = adapter_damage(folder, one.sha256)
        if (damage := kept[one.sha256]) is None:
            continue
        if (one.campaign, one.sha256) not in gone or os.path.lexists(folder):
            return f"adapter {one.sha256} of {one.subject}: {damage}", ""
        missing.add(one.sha256)
    if whole and house.adapters.is_dir():
        for folder in sorted(house.adapters.iterdir()):
            if folder.name in kept or is_unsealed(folder):
                continue
            damage = adapter_damage(folder, folder.name)
            if damage and os.path.lexists(folder):  # `seedbed gc` may run meanwhile
                return f"{folder.name} in {house.adapters} was added: {damage}", ""
    well = f"{len(kept) - len(missing)} adapters by hash"
    return None, f"{well}, {len(missing)} removed on record by `seedbed gc`" if missing else well


def _texts(house: House, rows: list[Campaign]) -> tuple[str | None, str]:
    """The first patch or policy that is not what its own hash says, or does not follow the last."""
    patches = sorted(house.ledger.patches())
    for sha256 in patches:
        if sha256_of(house.ledger.patch_text(sha256)) != sha256:
            return f"patch {sha256}: its text has another hash", ""
    count = 0
    for row in rows:
        parent = None
        for policy in house.ledger.policies(row.id):
            where = f"policy {row.id}/p{policy.version}"
            if sha256_of(policy.body) != policy.sha256:
                return f"{where}: its body has another hash", ""
            if policy.parent != parent:
                return f"{where}: its parent is not the version before it", ""
            if not _is_policy(policy):
                return f"{where}: its body is not the policy that its row names", ""
            parent, count = policy.sha256, count + 1
    return None, f"{len(patches)} patches and {count} policies by hash"


def _is_policy(row: Policy) -> bool:
    try:
        policy = SearchPolicy.model_validate_json(row.body)
    except ValidationError:
        return False
    return (policy.version, policy.parent) == (row.version, row.parent)


def _exchanges(house: House, rows: list[Campaign]) -> tuple[str | None, str]:
    """The first exchange with a model that is not what its row says."""
    count = 0
    for row in rows:
        try:
            count += len(exchanges_of(house, row.id))
        except ExchangeDamaged as damage:
            return str(damage), ""
    return None, f"{count} exchanges with models by hash"


def _exports(house: House, rows: list[Campaign]) -> Iterator[Check]:
    """Each export, against the hashes of its files and against the rows that it came from."""
    count, differing = 0, ""
    for row in rows:
        if (said := exported(house, row.id)) is None:
            continue
        count += 1
        if fault := _export_fault(house, row.id, said.get("files", {})):
            yield Check("exports", "tampered", fault)
            return
        if fault := _rewritten(house, row.id, said.get("files", {})):
            if said.get("program") == program_sha256():
                yield Check("exports", "tampered", fault)
                return
            differing = f"another version of Seedbed wrote it; made again it differs: {fault}"
    if differing:
        yield Check("exports", "unchecked", differing)
    else:
        yield Check("exports", "ok", f"{count} exports as they were written, and as the rows say")


def _export_fault(house: House, campaign_id: str, files: dict[str, str]) -> str | None:
    """The first file of an export that is not what was exported."""
    folder = export_folder(house, campaign_id)
    found = hashes(folder) if folder.is_dir() and not folder.is_symlink() else {}
    for name in sorted(files.keys() | found.keys()):
        if found.get(name) != files.get(name):
            how = "missing" if name not in found else "altered or added"
            return f"{folder / name} is {how}"
    return None


def _rewritten(house: House, campaign_id: str, files: dict[str, str]) -> str | None:
    """The first text of an export that is not what the rows make of it today."""
    try:
        texts = export_texts(house, read_ending(house, campaign_id))
    except (LookupError, ValueError, TypeError) as error:
        return f"the export of {campaign_id} cannot be made again from the rows: {error}"
    for name, text in texts.items():
        if sha256_of(text) != files.get(name):
            return f"{export_folder(house, campaign_id) / name} is not what the rows say"
    return None


def _reports(house: House, campaign: Campaign) -> Iterator[Check]:
    """Each report of a campaign, against its hashes and against the rows that it came from."""
    written = {
        event.subject: event.seq for event in house.ledger.events(campaign.id, kind="report")
    }
    conducted = house.ledger.events(campaign.id, kind="campaign.conducted")
    for row in house.ledger.reports(campaign.id):
        subject = f"{campaign.id}/r{row.round}"
        before = [event for event in conducted if event.seq < written[subject]]
        program = json.loads(before[-1].body).get("program") if before else None
        fault, differs = _report_fault(house, row)
        if fault and differs and program != program_sha256():
            found = f"another version of Seedbed wrote it; made again it differs: {fault}"
            yield Check(f"report {subject}", "unchecked", found)
        else:
            yield _check(f"report {subject}", fault, "made again from the rows, byte for byte")


def _report_fault(house: House, row: Report) -> tuple[str | None, bool]:
    """What is wrong with a report, and whether that is a difference to what is made again."""
    if sha256_of(row.body) != row.sha256:
        return "its body has another hash than its row says", False
    try:
        report = RoundReport.model_validate_json(row.body)
    except ValidationError as error:
        return f"its body is no report: {error.errors()[0]['msg']}", False
    if report.results_digest() != row.results_sha256:
        return "its results have another hash than its row says", False
    try:
        again = build_report(house, row.campaign, row.round).data()
    except (LookupError, ValueError) as error:
        return f"it cannot be made again from the rows: {error}", True
    if canonical_json(again) == row.body:
        return None, False
    return _first_difference(json.loads(row.body), again) or "its bytes differ", True


def _first_difference(stored: Any, again: Any, where: str = "") -> str | None:
    """The first place at which two JSON values differ, and how."""
    if isinstance(stored, dict) and isinstance(again, dict):
        pairs = [(f"{where}.{key}", stored.get(key), again.get(key)) for key in again | stored]
    elif isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
        both = zip(stored, again, strict=True)
        pairs = [(f"{where}[{i}]", old, new) for i, (old, new) in enumerate(both)]
    elif stored == again:
        return None
    else:
        return f"{where.lstrip('.')} is {stored!r:.80}, the rows say {again!r:.80}"
    found = (_first_difference(old, new, name) for name, old, new in pairs)
    return next(filter(None, found), None)
