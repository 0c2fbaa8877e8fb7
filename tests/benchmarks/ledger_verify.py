"""Benchmark: what it costs to verify a ledger of 100,000 rows."""

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from policies.anchor import drop_anchor, first_drift
from policies.ledger import Ledger, verify_chain
from policies.schema import first_schema_fault
from policies.tables import Row
from tests.benchmarks.ledger_append import trial_rows

WHAT = (
    "Verifying a ledger of 100,000 rows on SQLite, with an anchor after each 1,000: schema and "
    "file, the hash chain with every row's digest, and the anchor; seconds of the wall and of this "
    "process. Medians over three repetitions. `seedbed verify` reads snapshots, adapters and "
    "reports besides."
)
ROWS = 100_000
BATCH = 1_000  # rows of an append, and between two anchors
REPETITIONS = 3


def run() -> dict[str, float]:
    """Figures by name, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        anchor = Path(folder) / "ledger.anchor"
        with closing(Ledger(f"sqlite:///{Path(folder) / 'ledger.db'}")) as ledger:
            _fill(ledger, anchor)
            checks: dict[str, Callable[[], str | None]] = {
                "schema": lambda: first_schema_fault(ledger),
                "chain": lambda: verify_chain(ledger),
                "anchor": lambda: first_drift(ledger, anchor),
            }
            repetitions = [
                {name: _seconds(check) for name, check in checks.items()}
                for _ in range(REPETITIONS)
            ]
            last = ledger.last_event()
    figures = {
        f"{name}_{kind}_s": statistics.median(found[name][place] for found in repetitions)
        for name in repetitions[0]
        for place, kind in enumerate(("wall", "cpu"))
    }
    totals = {
        f"all_{kind}_s": statistics.median(
            sum(found[place] for found in repetition.values()) for repetition in repetitions
        )
        for place, kind in enumerate(("wall", "cpu"))
    }
    return {"events": float(last.seq if last else 0), **figures, **totals}


def _fill(ledger: Ledger, anchor: Path) -> None:
    waiting: list[Row] = []
    slot = 0
    for _ in range(ROWS // BATCH):
        while len(waiting) < BATCH:
            waiting += trial_rows(slot)
            slot += 1
        ledger.append(*waiting[:BATCH])
        del waiting[:BATCH]
        drop_anchor(ledger, anchor)


def _seconds(check: Callable[[], str | None]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    if (found := check()) is not None:
        raise RuntimeError(f"wanted a ledger that holds: found {found}")
    return time.perf_counter() - wall, time.process_time() - cpu
