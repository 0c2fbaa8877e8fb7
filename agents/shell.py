"""A worker's own programs: run in its fork, in the jail, with nothing of the host's environment."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from substrate.fork import Fork
from substrate.isolation import best_level
from substrate.jail import Ending, Limits, run_jailed
from substrate.run import environment, fork_walls, interpreter, jail_limits
from substrate.walls import Level

LOG_BYTES = 200_000


@dataclass(frozen=True)
class Ran:
    """How a program ended, and the start and end of what it wrote."""

    ending: Ending
    output: str


async def run_in_fork(
    fork: Fork,
    argv: Sequence[str],
    *,
    seconds: float,
    level: Level | None = None,
    readable: Sequence[Path] = (),
    stdin: bytes = b"",
) -> Ran:
    """Run a program in a fork until it ends or a limit ends it; nothing of it is left alive.

    It stands within the walls of a run of the recipe, at this level or, if None, at the highest
    there is, and may read `readable` besides; memory, processes and file sizes are limited as that
    run's are. Raises RuntimeError where the jail failed, which says nothing about the program.
    """
    manifest = fork.snapshot.manifest
    level = level or await asyncio.to_thread(best_level)
    most = jail_limits(manifest)
    limits = Limits(
        seconds=seconds,
        grace_seconds=min(1.0, most.grace_seconds),
        memory_mb=most.memory_mb,
        file_mb=most.file_mb,
        processes=most.processes,
        log_bytes=LOG_BYTES,
    )
    walls = fork_walls(fork, interpreter(manifest), level)
    with tempfile.TemporaryDirectory(prefix="seedbed-shell-") as scratch:
        log = Path(scratch) / "shell.log"  # where the program knows no name of it
        ending = await run_jailed(
            argv,
            cwd=fork.root,
            env=environment(manifest) | {"PYTHONPATH": str(fork.root.absolute())},
            limits=limits,
            log=log,
            walls=replace(walls, readable=(*walls.readable, *readable)),
            stdin=stdin,
        )
        output = log.read_bytes().decode("utf-8", "replace")
    return Ran(ending, output.replace(str(fork.root), "<fork>"))


def spell(ending: Ending) -> str:
    """How a program ended, in a few words."""
    if ending.limit is not None:
        return f"ended by the limit on {ending.limit}"
    if ending.signal is not None:
        return f"killed by signal {ending.signal}"
    return f"exit code {ending.exit_code}"
