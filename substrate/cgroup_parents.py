"""Where on this machine the control groups of jails can be made; found by trying.

Version 1 of cgroups(7): below this process's own group in the hierarchies of memory and of pids.
Version 2: below the nearest group above this process that passes both on to those in it, since a
group that has processes itself can pass on nothing. Each may be in another version.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

from substrate.cgroup import PREFIX, Cgroup
from substrate.walls import HIDDEN, is_hidden

CONTROLLERS = ("memory", "pids")


def cgroup_parents() -> tuple[str, ...]:
    """The groups below which a jail's are made; none where that cannot be done here."""
    return () if is_hidden("cgroups") else _tried()[0]


def why_no_cgroups() -> str | None:
    """Why jails have no control groups here; None if they have. Tried out once for a process."""
    return f"hidden by {HIDDEN}" if is_hidden("cgroups") else _tried()[1]


@cache
def _tried() -> tuple[tuple[str, ...], str | None]:
    try:
        parents = _parents()
        _try(parents)
    except OSError as error:
        return (), str(error)
    return parents, None


def _try(parents: tuple[str, ...]) -> None:
    """Make a group, move a process into it and remove it. Raises OSError."""
    name = f"{PREFIX}{os.urandom(8).hex()}"
    group = Cgroup(parents, name, memory_bytes=64 << 20, tasks=8)
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            group.enter(process.pid)
        found = {file.name for folder in group.folders for file in Path(folder).iterdir()}
        if "pids.max" not in found or not {"memory.max", "memory.limit_in_bytes"} & found:
            raise OSError(f"the groups made in {', '.join(parents)} have no limits")
    finally:
        group.remove()


def _parents() -> tuple[str, ...]:
    """One folder for each hierarchy that has one of the controllers, or both. Raises OSError."""
    own = {}  # of this process: its group in the hierarchy of each controller, "" for version 2
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), group)
    mounts = _mounts()
    old = [name for name in CONTROLLERS if name in mounts and name in own]
    parents = [_within(mounts[name], own[name]) for name in old]
    new = {name for name in CONTROLLERS if name not in old}
    if new:
        if "" not in mounts or "" not in own:
            raise OSError(f"no hierarchy of control groups has {' and '.join(sorted(new))}")
        top, group = mounts[""][1], _within(mounts[""], own[""])
        parents.append(_passing_on(new, Path(top), Path(group)))
    for parent in parents:
        if not os.access(parent, os.W_OK):
            raise OSError(f"no right to make control groups in {parent}")
    return tuple(dict.fromkeys(parents))


def _passing_on(controllers: set[str], top: Path, group: Path) -> str:
    for folder in (group, *group.parents):
        if not folder.is_relative_to(top):
            break
        passed = (folder / "cgroup.subtree_control").read_text().split()
        if controllers <= set(passed) and os.access(folder, os.W_OK):
            return str(folder)
    raise OSError(
        f"no control group from {group} up is ours to write and passes on "
        f"{' and '.join(sorted(controllers))} (cgroup.subtree_control)"
    )


def _mounts() -> dict[str, tuple[str, str]]:
    """Root and place of the mount of each controller's hierarchy, "" for that of version 2."""
    found: dict[str, tuple[str, str]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, place = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            found.setdefault("", (root, place))
        elif kind == "cgroup":
            for name in options.split(","):
                found.setdefault(name, (root, place))
    return found


def _within(mount: tuple[str, str], group: str) -> str:
    """The folder of a group in a mount, of which a container may have but a part."""
    root, place = mount
    inner = group.removeprefix(root) if root != "/" else group
    return os.path.normpath(f"{place}/{inner}")
