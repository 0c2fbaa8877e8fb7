"""How long `seedbed --help` takes, beside an interpreter that does nothing."""

import statistics
import subprocess
import sys
import time

REPEATS = 11

WHAT = "`seedbed --help` as a process, beside `python -c pass`. Medians of 11, in turn."


def run() -> dict[str, float]:
    shown = [_seconds("-m", "flows.cli", "--help") for _ in range(REPEATS)]
    bare = [_seconds("-c", "pass") for _ in range(REPEATS)]
    return {
        "seedbed --help, ms": 1000 * statistics.median(shown),
        "python -c pass, ms": 1000 * statistics.median(bare),
        "ratio": statistics.median(shown) / statistics.median(bare),
    }


def _seconds(*arguments: str) -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started
