"""The doctor: what this installation has, what is wrong with it, and how to mend it."""

import os
import shutil
import sys
from dataclasses import dataclass

from flows.house import open_house
from flows.lease import is_dead, lease_name
from flows.settings import Settings
from policies.database import UnknownSchema
from policies.ledger import verify_chain
from substrate.cgroup_parents import why_no_cgroups
from substrate.custody import custody_here
from substrate.isolation import LEVELS, NoWalls, best_level, how_to_raise, why_not
from substrate.store import SnapshotDamaged

FREE_GB = 2.0
MEND_SNAPSHOT = "remove the folder that it names, then `seedbed substrate seal NAME`"


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    what: str
    ok: bool
    found: str
    todo: str


def examine() -> list[Finding]:
    """Look at what every campaign needs: Python, walls, home, disk, ledger, snapshots, leases.

    Starts nothing; a home that is not there yet is made.
    """
    findings = [_python(), _writable(), _disk()]
    usable = all(finding.ok for finding in findings)
    findings[1:1] = [_isolation(), _jail_limits(), _custody()]
    if usable:
        try:
            findings += [_chain(), *_snapshots(), *_campaigns()]
        except UnknownSchema as error:
            todo = "put back a copy of the database, or set SEEDBED_DATABASE_URL"
            findings.append(Finding("ledger", False, str(error), todo))
    return findings


def _python() -> Finding:
    found = ".".join(str(part) for part in sys.version_info[:3])
    return Finding(
        "Python", sys.version_info >= (3, 11), found, "install Python 3.11 or newer; `make clean`"
    )


def _isolation() -> Finding:
    """The highest level that stands here, why those above it do not, and what raises it."""
    try:
        level = best_level()
    except NoWalls as error:
        return Finding("isolation", False, "none", str(error))
    found = f"{level}, tried with six probes"
    for higher in LEVELS[: LEVELS.index(level)]:
        found += f"; not {higher}: {why_not(higher)}; to raise it, {how_to_raise(higher)}"
    return Finding("isolation", True, found, "")


def _jail_limits() -> Finding:
    """Who holds a jail's memory and processes to their limits; either will do."""
    reason = why_no_cgroups()
    found = "control groups, and 20 looks a second"
    if reason is not None:
        found = f"20 looks a second; no control groups: {reason}"
    return Finding("limits", True, found, "")


def _custody() -> Finding:
    """Whose user a scorer is here. Either will do: no jail has the judge in it."""
    there = Settings().store
    while not there.exists():
        there = there.parent
    custody = custody_here(there.resolve())
    found = f"{custody}: scorers have a user of their own"
    if custody == "same-user":
        found = (
            f"{custody}: scorers run as the controller's user; to raise it, be root, with a home "
            "that others may pass through"
        )
    return Finding("custody", True, found, "")


def _writable() -> Finding:
    folder = Settings().folder
    there = folder
    while not there.exists():
        there = there.parent
    return Finding(
        "home",
        there.is_dir() and os.access(there, os.W_OK),
        str(folder),
        "set SEEDBED_HOME to a folder that you may write",
    )


def _disk() -> Finding:
    there = Settings().folder
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free / 2**30
    todo = f"free at least {FREE_GB:g} GiB; `seedbed gc` says what nothing needs any more"
    return Finding("disk", free >= FREE_GB, f"{free:.1f} GiB free", todo)


def _chain() -> Finding:
    broken = verify_chain(open_house().ledger)
    return Finding(
        "ledger",
        broken is None,
        broken or open_house().settings.url.rpartition("@")[2],
        "restore the database from a copy: its rows are not what was recorded",
    )


def _snapshots() -> list[Finding]:
    house = open_house()
    findings = []
    for digest in house.store.snapshots():
        try:
            house.store.verify(house.store.open(digest))
            found, ok = "intact", True
        except SnapshotDamaged as damage:
            found, ok = str(damage), False
        findings.append(
            Finding(
                f"snapshot {digest[:12]}",
                ok,
                found,
                MEND_SNAPSHOT,
            )
        )
    return findings


def _campaigns() -> list[Finding]:
    """Campaigns that a process was conducting when it died: they can be resumed."""
    house = open_house()
    findings = []
    for row in house.ledger.campaigns():
        holder = house.ledger.lease_holder(lease_name(row.id))
        if holder is not None and is_dead(holder):
            findings.append(
                Finding(
                    f"campaign {row.id}",
                    False,
                    f"its process {holder} is gone",
                    f"`seedbed resume {row.id}`",
                )
            )
    return findings
