"""Garbage: what lies in the home and no row of the ledger, and no process, needs any more.

Each kind is known by its place and its name, and by the rows that would name it; what is not known
is never garbage. No link is followed, neither in the home nor in what is found there.
"""

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from flows.adapters import namings
from flows.house import House
from flows.lease import lease_name
from flows.standing_file import read_standing
from policies.tables import Campaign
from substrate.measure import external_version, is_unsealed
from substrate.store import Judge, Snapshot, SnapshotDamaged

Kind = Literal[
    "fork",
    "output of a run that no row has",
    "unfinished export",
    "unfinished adapter",
    "adapter of a run that no row has",
    "adapter of a complete campaign",
    "unfinished seal",
    "snapshot that no row has",
    "judge that no row has",
    "base that no snapshot has",
    "log of a server that is down",
    "unfinished removal",
]
TRASH = "removed"  # the folder in the home in which things are put before they are removed
LOGS = ("server.log", "deployments.log")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ATTEMPT = re.compile(r"(?P<name>.+)-(?P<number>\d+)-(?P<pid>\d+)")  # of a calibration's fork
_RUN = re.compile(r"(?P<name>.+)-(?P<number>\d+)")


@dataclass(frozen=True)
class Found:
    """A piece of garbage. Under its lease, if it has one, nobody may work when it is removed."""

    kind: Kind
    path: Path
    campaign: str | None = None
    lease: str | None = None


@dataclass(frozen=True)
class Weight:
    """What a piece takes, and when it was changed last (seconds of the epoch)."""

    bytes: int  # that its removal, together with the others', frees
    changed: float


def of_campaign(house: House, row: Campaign) -> Iterator[Found]:
    """What processes that conducted a campaign have left, if nobody conducts it."""
    home, lease = house.settings.folder, lease_name(row.id)
    fork = house.settings.forks / row.id
    if is_real(home, fork):
        yield Found("fork", fork, row.id, lease)
    for path in listed(home, home / "exports"):
        if re.fullmatch(rf"\.{re.escape(row.id)}-\d+", path.name):
            yield Found("unfinished export", path, row.id, lease)
    kept = house.settings.artifacts / row.id
    recorded = {f"r{trial.round}/s{trial.slot}" for trial in house.ledger.trials(row.id)}
    recorded |= {f"end/{run.arm}-{run.number}" for run in house.ledger.final_runs(row.id)}
    for folder in listed(home, kept):
        for path in listed(home, folder):
            name = f"{folder.name}/{path.name}"
            is_ours = re.fullmatch(r"r\d+/s\d+|end/(candidate|baseline)-\d+", name)
            if is_ours and name not in recorded:
                yield Found("output of a run that no row has", path, row.id, lease)


def of_calibrations(house: House) -> Iterator[Found]:
    """The same of calibrations."""
    settings, place = house.settings, "calibration"
    for path in listed(settings.folder, settings.forks / place):
        if name := _ATTEMPT.fullmatch(path.name):
            yield Found("fork", path, None, f"{place}/{name['name']}")
    recorded = {
        f"{row.substrate_sha256[:12]}-{row.recipe}-{row.rollouts}-{row.number}"
        for substrate in house.ledger.substrates()
        for row in house.ledger.calibrations(substrate.sha256)
        if row.probe == "recipe"
    }
    for path in listed(settings.folder, settings.artifacts / place):
        if (name := _RUN.fullmatch(path.name)) and path.name not in recorded:
            kind: Kind = "output of a run that no row has"
            yield Found(kind, path, None, f"{place}/{name['name']}")


def of_adapters(house: House) -> Iterator[Found]:
    """Adapters that runs delivered which were never recorded, whole and in part."""
    rows = house.ledger.campaigns()
    snapshots = [row.sha256 for row in house.ledger.substrates()]
    named = {one.sha256 for one in namings(house, rows, snapshots)}
    for path in listed(house.settings.folder, house.adapters):
        if is_unsealed(path):
            yield Found("unfinished adapter", path)
        elif _DIGEST.fullmatch(path.name) and path.name not in named:
            yield Found("adapter of a run that no row has", path)


def of_store(house: House, *, judges: bool = True) -> Iterator[Found]:
    """Snapshots, judges and bases that no campaign and no calibration was on.

    Without `judges`, which a calibration names when it ends, those stay. Bases stay as well where a
    snapshot that is needed cannot be read.
    """
    store, rows = house.store, house.ledger.campaigns()
    if not is_real(house.settings.folder, house.settings.store):
        return
    recorded = {row.sha256 for row in house.ledger.substrates()}
    recorded |= {row.substrate_sha256 for row in rows}
    unwanted = {folder for folder in store.folders("snapshots") if folder.name not in recorded}
    yield from (Found("snapshot that no row has", folder) for folder in sorted(unwanted))
    try:
        folders = [folder for folder in store.folders("snapshots") if folder not in unwanted]
        needed = [store.open(folder.name) for folder in folders]
    except SnapshotDamaged:
        return
    bases = {snapshot.manifest.base.sha256 for snapshot in needed}
    for folder in store.folders("bases"):
        if folder.name not in bases:
            yield Found("base that no snapshot has", folder)
    if judges:
        asked = {row.judge_sha256 for row in rows}
        for folder in store.folders("judges"):
            if folder.name not in asked and not _calibrated(house, needed, folder.name):
                yield Found("judge that no row has", folder)


def of_seals(house: House) -> Iterator[Found]:
    """What a process that died left of what it was sealing."""
    if is_real(house.settings.folder, house.settings.store):
        yield from (Found("unfinished seal", path) for path in house.store.leftovers())


def of_prefect(house: House) -> Iterator[Found]:
    """The logs of what `seedbed up` started, once it is down."""
    home = house.settings.prefect_home
    if is_real(house.settings.folder, home) and read_standing(home) is None:
        for path in (home / name for name in LOGS):
            if path.is_file() and not path.is_symlink():
                yield Found("log of a server that is down", path)


def of_trash(house: House) -> Iterator[Found]:
    """What a removal that was killed had put aside."""
    home = house.settings.folder
    yield from (Found("unfinished removal", path) for path in listed(home, home / TRASH))


def weigh(found: Iterable[Found]) -> dict[Path, Weight]:
    """What each of these takes, and how old it is. A file with several names counts once.

    It counts for the last of these that has it, and only where no other name of it stays.
    """
    weights, links = dict[Path, Weight](), dict[tuple[int, int], int]()
    for one in found:
        size, changed = 0, 0.0
        for path in _everything(one.path):
            try:
                info = path.lstat()
            except FileNotFoundError:
                continue  # somebody removes it
            if not stat.S_ISLNK(info.st_mode):
                changed = max(changed, info.st_mtime)
            if stat.S_ISREG(info.st_mode):
                inode = info.st_dev, info.st_ino
                links[inode] = links.get(inode, 0) + 1
                size += info.st_size if links[inode] == info.st_nlink else 0
        weights[one.path] = Weight(size, changed)
    return weights


def listed(home: Path, folder: Path) -> list[Path]:
    """The folders in a folder of the home, by name, if no link leads there; links are left out."""
    if not is_real(home, folder):
        return []
    paths = sorted(folder.iterdir())
    return [path for path in paths if path.is_dir() and not path.is_symlink()]


def is_real(home: Path, folder: Path) -> bool:
    """Whether there is such a folder in the home that no link leads to."""
    way = [home / part for part in _prefixes(folder.relative_to(home))]
    return all(step.is_dir() and not step.is_symlink() for step in way)


def links_out(house: House) -> list[Path]:
    """Links that stand where the home's own folders are wanted: what is behind them is left."""
    settings, home = house.settings, house.settings.folder
    places: Collection[Path] = (
        *(settings.store, settings.forks, settings.artifacts, settings.prefect_home),
        *(house.adapters, settings.forks / "calibration", settings.artifacts / "calibration"),
        *(settings.store / part for part in ("snapshots", "judges", "bases", "staging")),
        *(home / "exports", home / TRASH),
    )
    return [place for place in places if place.is_symlink()]


def _prefixes(path: Path) -> Iterator[Path]:
    yield from (Path(*path.parts[:count]) for count in range(1, 1 + len(path.parts)))


def _everything(path: Path) -> Iterator[Path]:
    if path.is_symlink() or not path.is_dir():
        return iter((path,))
    inside = (
        Path(folder, name) for folder, names, files in os.walk(path) for name in (*names, *files)
    )
    return chain((path,), inside)


def _calibrated(house: House, snapshots: Iterable[Snapshot], digest: str) -> bool:
    """Whether a calibration's external score may be this judge's: it names its version alone."""
    try:
        judge: Judge = house.store.open_judge(digest)
    except (SnapshotDamaged, OSError, ValueError):
        return True
    for snapshot in snapshots:
        rows = house.ledger.calibrations(snapshot.digest)
        version = external_version(snapshot, judge)
        if any(row.external and version in row.external for row in rows):
            return True
    return False
