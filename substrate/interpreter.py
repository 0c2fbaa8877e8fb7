"""The interpreter of recipes and scorers, and the places that it has its modules from."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from substrate.dropin import DropIn

_ASK = """
import json, os, sys
sites = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
prefixes = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
print(json.dumps([prefixes, sites]))
"""
# Of an environment: what installers put there. Beside it may lie anything, a whole project even.
_PARTS = ("bin", "lib", "lib32", "lib64", "libexec", "include", "share", "nvvm", "pyvenv.cfg")


def interpreter(manifest: DropIn) -> str:
    """The training environment's Python. Raises RuntimeError where there is none."""
    wanted = manifest.run.python or sys.executable
    found = shutil.which(wanted)
    if found is None:
        raise RuntimeError(
            f"wanted the Python {wanted!r} of substrate.toml's run.python, found no such program; "
            "install substrate/reference into an environment and name its Python there"
        )
    return os.path.abspath(found)  # not resolved: in a virtual environment it is a link


@cache
def python_places(python: str) -> tuple[Path, ...]:
    """What a jailed program has to read of this Python's environment and of the one below it.

    Folders that a .pth file adds to the path count where they hold installed packages, as those of
    an environment within another do; the working tree of an editable install does not. Asks the
    interpreter, once for each process. Raises RuntimeError where it does not answer.
    """
    run = subprocess.run(
        [python, "-I", "-c", _ASK], env={}, capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        raise RuntimeError(
            f"wanted the folders of {python!r}, found exit code {run.returncode} and "
            f"{run.stderr.strip()[-200:]!r}; name another Python"
        )
    prefixes, sites = json.loads(run.stdout)
    places = [Path(prefix) / part for prefix in prefixes for part in _PARTS]
    places += [Path(python), *map(Path, sites)]
    spelled = [place for place in places if place.exists()]
    return tuple(dict.fromkeys([*spelled, *(place.resolve() for place in spelled)]))
