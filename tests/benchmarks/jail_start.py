"""How long a jail takes from its order to its Ending, at every level, against a plain process."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPEATS = 100

WHAT = (
    "A jailed `/bin/true`, from the call to its Ending, at each level of isolation, and a plain "
    "subprocess of the same, in turns in one run; milliseconds at the 50th and 95th percentile of "
    f"{REPEATS}. `inside` is the part that the keeper measures: walls, program, death of the tree."
)


def run() -> dict[str, Any]:
    return asyncio.run(_run())


async def _run() -> dict[str, Any]:
    from substrate.interpreter import python_places
    from substrate.isolation import why_not
    from substrate.jail import Limits, run_jailed
    from substrate.walls import NO_WALLS, Level, Walls

    seconds: dict[str, list[float]] = {}

    def took(name: str, value: float) -> None:
        seconds.setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory() as scratch:
        desk = Path(scratch) / "desk"
        desk.mkdir()
        levels: tuple[Level, ...] = ("bubblewrap", "landlock")
        walls = {"none": NO_WALLS}
        for level in levels:
            if why_not(level) is None:
                places = python_places(sys.executable)
                walls[level] = Walls(level=level, writable=(desk,), readable=places)
        for _ in range(REPEATS):
            started = time.perf_counter()
            process = await asyncio.create_subprocess_exec("/bin/true", env={})
            await process.wait()
            took("plain process", time.perf_counter() - started)
            for name, around in walls.items():
                started = time.perf_counter()
                ending = await run_jailed(
                    ["/bin/true"],
                    cwd=desk,
                    env={},
                    limits=Limits(seconds=30, memory_mb=256, file_mb=1),
                    log=Path(scratch) / "log",
                    walls=around,
                )
                took(name, time.perf_counter() - started)
                took(f"{name}, inside", ending.seconds)
                assert ending.exit_code == 0
    return {name: _percentiles(values) for name, values in seconds.items()}


def _percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(1000 * value for value in values)
    last = len(ordered) - 1
    return {
        "p50_ms": round(ordered[round(0.50 * last)], 1),
        "p95_ms": round(ordered[round(0.95 * last)], 1),
    }
