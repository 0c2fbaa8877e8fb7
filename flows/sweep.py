"""The sweep: garbage put aside and removed, while campaigns and calibrations go on.

    a campaign's, a calibration's    under its lease, and looked for once more under it
    adapters                         those that no living process can have delivered
    the store                        under its locks, and looked for once more under them
    logs                             while nothing of `seedbed up` is there

Nothing is removed under its own name: it is renamed first, so that a sweep that is killed leaves
nothing half there, and the next one removes the rest. Two sweeps exclude each other.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flows import garbage
from flows.adapters import REMOVED, removable, removed
from flows.garbage import TRASH, Found, Kind, Weight
from flows.house import BadHome, House
from flows.lease import borrowed, lease_name, live_leases
from flows.standing_file import alone
from policies.anchor import first_drift
from policies.chain import Note
from policies.ledger import verify_chain
from policies.tables import Campaign
from substrate.measure import discard_adapter
from substrate.store import StoreBusy
from substrate.tree import remove_tree

DAY = 86_400.0
# A clock may have been set since a process began, and a seal may be about to be recorded.
SLACK_SECONDS = 3600.0
STORED: tuple[Kind, ...] = (
    "snapshot that no row has",
    "judge that no row has",
    "base that no snapshot has",
)
SEALED: tuple[Kind, ...] = ("adapter of a run that no row has", "adapter of a complete campaign")


class SweepRefused(BadHome):
    """It is not certain what is garbage, or another sweep is under way. Nothing was removed."""


@dataclass
class Sweep:
    """What was found, and what became of it."""

    found: list[Found]
    weights: dict[Path, Weight]
    younger: list[Found] = field(default_factory=list)  # than was asked for
    removed: list[Found] = field(default_factory=list)
    left: dict[Path, str] = field(default_factory=dict)  # what is not removed, and why


def find(house: House, rows: Sequence[Campaign], *, whole: bool, days: float, drop: bool) -> Sweep:
    """The garbage that is older than so many days. Changes nothing.

    Without `whole`, only what belongs to these campaigns. With `drop`, adapters of those that are
    complete as well. Raises SweepRefused where the ledger is not as it was recorded.
    """
    _hold_ledger(house)
    live, found = live_leases(house.ledger), list[Found]()
    for row in rows:
        found += garbage.of_campaign(house, row)
    if whole:
        found += garbage.of_calibrations(house)
        found += garbage.of_adapters(house)
        found += garbage.of_store(house, judges=not _calibrates(live))
        found += garbage.of_seals(house)
        found += garbage.of_prefect(house)
        found += garbage.of_trash(house)
    if drop:
        conducted = {row.id for row in rows if lease_name(row.id) in live}
        for sha256 in sorted(removable(house, rows, conducted)):
            if garbage.is_real(house.settings.folder, house.adapters / sha256):
                found.append(Found("adapter of a complete campaign", house.adapters / sha256))
    sweep = Sweep([], {})
    for one in found:
        if one.lease in live:
            sweep.left[one.path] = f"a process works under the lease {one.lease}"
        else:
            sweep.found.append(one)
    sweep.left |= dict.fromkeys(
        garbage.links_out(house), "it is a link: what it leads to is not touched"
    )
    weights = garbage.weigh(sweep.found)
    before = time.time() - days * DAY
    sweep.younger = [one for one in sweep.found if weights[one.path].changed > before]
    sweep.found = [one for one in sweep.found if weights[one.path].changed <= before]
    sweep.weights = garbage.weigh(sweep.found)
    return sweep


def apply(house: House, rows: Sequence[Campaign], *, whole: bool, days: float, drop: bool) -> Sweep:
    """Find the garbage and remove it. What cannot be removed is left, with the reason.

    Raises SweepRefused, and OSError where nothing can be written.
    """
    with _alone(house) as since:
        live = live_leases(house.ledger)
        sweep = find(house, rows, whole=whole, days=days, drop=drop)
        # Before then no living process can have delivered an adapter, or begun to.
        since = min((since, *(began - SLACK_SECONDS for began in live.values())))
        for lease in dict.fromkeys(one.lease for one in sweep.found if one.lease):
            _remove_under(house, sweep, lease)
        _remove_adapters(house, rows, sweep, since)
        _remove_from_store(house, sweep)
        _remove_logs(house, sweep)
        for one in (one for one in sweep.found if one.kind == "unfinished removal"):
            _tell(sweep, one, remove_tree)
    return sweep


def _hold_ledger(house: House) -> None:
    """Rows say what is garbage, so they have to be all there, and be this home's."""
    file = house.settings.anchor
    fault = verify_chain(house.ledger) or first_drift(house.ledger, file)
    if fault:
        raise SweepRefused(
            f"wanted the ledger of this home as it was recorded, found: {fault}; look with "
            "`seedbed verify`, and see to SEEDBED_HOME and SEEDBED_DATABASE_URL"
        )


@contextmanager
def _alone(house: House) -> Iterator[float]:
    """One sweep of the home at a time. Yields when it began, by the clock of the home's disk."""
    file = house.settings.folder / "gc.lock"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise SweepRefused(
            f"wanted to write in {house.settings.folder}, found: {error}; without --apply, "
            "`seedbed gc` needs to read alone"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SweepRefused(
                f"wanted to be the only `seedbed gc` in {house.settings.folder}, found another; "
                "wait until it has ended"
            ) from error
        os.utime(descriptor)
        yield os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _remove_under(house: House, sweep: Sweep, lease: str) -> None:
    """What was left under a lease, if it is garbage still once nobody else can have the lease."""
    wanted = [one for one in sweep.found if one.lease == lease]
    aside = dict[Path, Found]()
    with borrowed(house.ledger, lease) as is_ours:
        if not is_ours:
            for one in wanted:
                sweep.left[one.path] = f"a process works under the lease {lease}"
            return
        ids = {one.campaign for one in wanted if one.campaign}
        again = {one for id in ids for one in garbage.of_campaign(house, house.campaign(id))}
        if not ids:
            again = set(garbage.of_calibrations(house))
        for one in wanted:
            if one in again and (place := _put_aside(house, sweep, one)):
                aside[place] = one
    for place, one in aside.items():  # which may take longer than a lease lasts
        _tell(sweep, one, lambda _, place=place: remove_tree(place))


def _remove_adapters(house: House, rows: Sequence[Campaign], sweep: Sweep, since: float) -> None:
    for one in sweep.found:
        if one.kind == "unfinished adapter":
            if sweep.weights[one.path].changed >= since:
                sweep.left[one.path] = "a process that runs may be about to seal it"
            else:
                _tell(sweep, one, remove_tree)
    sealed = [one for one in sweep.found if one.kind in SEALED]
    _note_removals(house, rows, [one for one in sealed if one.kind == SEALED[1]])
    for one in sealed:

        def discard(path: Path, one: Found = one) -> None:
            if not discard_adapter(path, since):
                raise OSError("a process that runs may have delivered it")

        _tell(sweep, one, discard)


def _note_removals(house: House, rows: Sequence[Campaign], dropped: Sequence[Found]) -> None:
    """Have the removal of adapters that rows name on record, before the first of them is gone."""
    names = {one.path.name for one in dropped}
    known, notes = removed(house), list[Note]()
    for row in rows:
        own = {trial.adapter_sha256 for trial in house.ledger.trials(row.id)}
        new = sorted(sha256 for sha256 in names if sha256 in own and (row.id, sha256) not in known)
        if new:
            notes.append(Note(row.id, REMOVED, row.id, {"adapters": new}))
    if notes:
        house.ledger.append(*notes)
        house.drop_anchor()


def _remove_from_store(house: House, sweep: Sweep) -> None:
    stored = [one for one in sweep.found if one.kind in STORED]
    seals = [one for one in sweep.found if one.kind == "unfinished seal"]
    if not (stored or seals):
        return
    try:
        with house.store.discarding() as discard:
            again = set(garbage.of_store(house, judges=not _calibrates(live_leases(house.ledger))))
            for one in stored:
                if one.path.is_dir() and time.time() - one.path.lstat().st_mtime < SLACK_SECONDS:
                    sweep.left[one.path] = "it was sealed within the hour"
                elif one in again:
                    _tell(sweep, one, discard)
            sweep.removed += seals
    except (StoreBusy, OSError) as busy:
        sweep.left |= {one.path: str(busy) for one in (*stored, *seals)}


def _remove_logs(house: House, sweep: Sweep) -> None:
    logs = [one for one in sweep.found if one.kind == "log of a server that is down"]
    if logs:
        with alone(house.settings.prefect_home):
            again = set(garbage.of_prefect(house))
            for one in (one for one in logs if one in again):
                _tell(sweep, one, Path.unlink)


def _put_aside(house: House, sweep: Sweep, one: Found) -> Path | None:
    """Rename a folder to a name that nobody knows; None where that cannot be."""
    trash = house.settings.folder / TRASH
    place = trash / secrets.token_hex(8)
    try:
        trash.mkdir(mode=0o700, exist_ok=True)
        if not garbage.is_real(house.settings.folder, trash):
            raise OSError(f"{trash} is not a folder of the home")
        one.path.chmod(0o700)  # a folder that may not be written to cannot be moved
        one.path.rename(place)
    except OSError as error:
        sweep.left[one.path] = str(error)
        return None
    return place


def _tell(sweep: Sweep, one: Found, remove: Callable[[Path], object]) -> None:
    """Remove a piece, and say whether that could be done."""
    try:
        remove(one.path)
        sweep.removed.append(one)
    except FileNotFoundError:
        return  # whoever left it has come back for it
    except OSError as error:
        sweep.left[one.path] = str(error)


def _calibrates(live: Collection[str]) -> bool:
    return any(name.startswith("calibration/") for name in live)
