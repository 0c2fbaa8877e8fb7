"""Custody of labels: who has a set's problems graded asks the scorer, a process of its own.

It is there while it is needed, is asked over a Unix socket in a private folder, and dies with the
controller. See `substrate/scorer.py`.
"""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from substrate.dropin import ScoredSet
from substrate.interpreter import interpreter
from substrate.run import environment
from substrate.store import Snapshot

_SCORER = Path(__file__).with_name("scorer.py")
# Its user where the controller is root: no jail's, no recipe's, nobody's.
UID = 61999
MOST_REPLY = 256 << 20
START_SECONDS = 60.0


# Whose user a scorer is: one of its own, or the controller's. At either level the judge's files are
# the controller's alone, and a jail has neither them nor a way to the scorer.
Custody = Literal["own-user", "same-user"]


class ScorerFailed(RuntimeError):
    """The scorer did not start or did not answer: infrastructure, which says nothing of anybody."""


def custody_of(uid: int) -> Custody:
    """The level of a scorer that runs as this user."""
    return "same-user" if uid == os.geteuid() else "own-user"


def custody_here(store: Path) -> Custody:
    """The level that scorers of snapshots in this store have, as far as permissions tell."""
    is_open = all(folder.stat().st_mode & 0o001 for folder in (store, *store.parents))
    return custody_of(UID if os.geteuid() == 0 and is_open else os.geteuid())


@dataclass(frozen=True)
class Scorer:
    """A scorer that listens."""

    socket: Path
    seconds: float  # that an answer may take

    async def ask(self, what: str, **more: Any) -> dict[str, Any]:
        """One request. Raises ScorerFailed."""
        try:
            async with asyncio.timeout(self.seconds):
                reading, writing = await asyncio.open_unix_connection(
                    str(self.socket), limit=MOST_REPLY
                )
                try:
                    writing.write(json.dumps({"ask": what, **more}).encode() + b"\n")
                    await writing.drain()
                    line = await reading.readline()
                finally:
                    writing.close()
            return json.loads(line)
        except (OSError, ValueError, TimeoutError) as error:
            raise ScorerFailed(
                f"wanted the scorer's answer to {what!r}, found {type(error).__name__}; "
                "`evaluation/grade.py` may have raised: try it on one problem"
            ) from error


@contextlib.asynccontextmanager
async def scorer_of(
    snapshot: Snapshot, problems: Path, scored: ScoredSet, canaries: Collection[str]
) -> AsyncIterator[Scorer]:
    """A scorer of one set, gone at the end. Raises ScorerFailed."""
    manifest = snapshot.manifest
    desk = Path(tempfile.mkdtemp(prefix="seedbed-scorer-"))
    orders = {
        "snapshot": str(snapshot.root),
        "problems": str(problems),
        "canaries": sorted(canaries),
        "labels": scored.labels,
        "socket": str(desk / "scorer.sock"),
        "controller": os.getpid(),
        "uid": UID if os.geteuid() == 0 else None,
    }
    process = await asyncio.create_subprocess_exec(
        interpreter(manifest),
        *("-I", "-B", "-X", "utf8"),
        str(_SCORER),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={"PATH": os.defpath, **environment(manifest)},
        cwd=desk,
        start_new_session=True,
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(json.dumps(orders).encode() + b"\n")
            await process.stdin.drain()
        said = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                said = await process.stdout.readline()
        if said != b"ready\n":
            raise ScorerFailed(f"wanted a scorer, found none: {await _last_words(process)}")
        yield Scorer(desk / "scorer.sock", manifest.limits.seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
        shutil.rmtree(desk, ignore_errors=True)


async def _last_words(process: asyncio.subprocess.Process) -> str:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    _, errors = await process.communicate()
    lines = errors.decode(errors="replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "nothing on stderr")


async def graded(scorer: Scorer, answers: Sequence[str]) -> tuple[list[float], list[str]]:
    """The value of each answer, and the domain of its problem."""
    reply = await scorer.ask("grade", answers=list(answers))
    return reply["values"], reply["domains"]
