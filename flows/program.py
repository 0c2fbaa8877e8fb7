"""The program: the digest of the code that decides what a campaign does and what a report says.

A report can be made again from the rows, to the byte, by the program that made it; another one may
say the same things in other words.
"""

import hashlib
from functools import cache
from pathlib import Path

ROOMS = ("agents", "flows", "policies")  # those that are digested whole
_ROOT = Path(__file__).parent.parent


@cache
def program_sha256() -> str:
    """sha256 over path and content of every module of the four rooms, and of the constitution."""
    digest = hashlib.sha256()
    for path in (*_modules(), _ROOT / "policies" / "constitution.md"):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(_ROOT).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def _modules() -> list[Path]:
    """Not those below `substrate/`: they are in the snapshots, which have digests of their own."""
    whole = (path for room in ROOMS for path in (_ROOT / room).rglob("*.py"))
    return sorted([*whole, *(_ROOT / "substrate").glob("*.py")])
