"""Benchmark: what an append to the ledger costs, beside the same disk's bare durable insert."""

import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from policies.ledger import Ledger, verify_chain
from policies.tables import OVERALL, Attempt, Row, Score, Trial

WHAT = (
    "Appending to the ledger on SQLite, flushed to disk each time: one row, and a trial with its "
    "five scores, beside a bare `INSERT` by sqlite3 with the same pragmas. Medians over five "
    "repetitions."
)
REPETITIONS = 5
APPENDS = 200  # in a repetition
DIGEST = "0" * 64
DOMAINS = ("arithmetic", "strings", "lists", "logic")
ACCOUNT = {
    "attempts": 1,
    "reason": "ran and delivered",
    "notes": "",
    "seconds": {"fork": 0.01, "edit": 0.01, "run": 0.2, "measure": 0.1},
    "cpu_seconds": 0.3,
    "peak_memory_mb": 40.0,
    "rollouts": 128,
    "tokens": 0,
}


def run() -> dict[str, float]:
    """Figures by name, in ms and rows/s: medians over the repetitions.

    The three kinds of append take turns, so that all meet the same load and the same disk.
    `one_row_cpu_ms` is this process's own time for one row: what no faster disk would save.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Ledger(f"sqlite:///{Path(folder) / 'ledger.db'}")) as ledger,
        closing(_bare(Path(folder) / "bare.db")) as bare,
    ):
        repetitions = [_repetition(ledger, bare, number) for number in range(REPETITIONS)]
        rows = len(ledger.events())
        verify_seconds = _seconds(lambda: _verified(ledger))
    figures = {
        name: statistics.median(repetition[name] for repetition in repetitions)
        for name in repetitions[0]
    }
    return figures | {"verify_rows_per_s": rows / verify_seconds}


def _repetition(ledger: Ledger, bare: sqlite3.Connection, number: int) -> dict[str, float]:
    one, trial, baseline, cpu = [], [], [], []
    for i in range(APPENDS):
        key = number * APPENDS + i
        attempt = Attempt(campaign="bench", round=1, slot=key, attempt=1, kind="anchor", seed=key)
        rows = trial_rows(key)
        start = time.process_time()
        one.append(_seconds(lambda row=attempt: ledger.append(row)))
        cpu.append(time.process_time() - start)
        trial.append(_seconds(lambda rows=rows: ledger.append(*rows)))
        text = attempt.model_dump_json()
        baseline.append(_seconds(lambda t=text: bare.execute("INSERT INTO row VALUES (?)", (t,))))
    return {
        "one_row_p50_ms": _percentile(one, 50),
        "one_row_p95_ms": _percentile(one, 95),
        "one_row_cpu_ms": _percentile(cpu, 50),
        "trial_of_six_rows_p50_ms": _percentile(trial, 50),
        "trial_of_six_rows_p95_ms": _percentile(trial, 95),
        "rows_per_s": APPENDS * (1 + len(trial_rows(0))) / (sum(one) + sum(trial)),
        "bare_insert_p50_ms": _percentile(baseline, 50),
        "bare_insert_p95_ms": _percentile(baseline, 95),
        "one_row_over_bare_insert": _percentile(one, 50) / _percentile(baseline, 50),
    }


def trial_rows(slot: int) -> list[Row]:
    """A trial and its five scores on dev."""
    trial = Trial(
        campaign="bench",
        round=1,
        slot=slot,
        attempt=1,
        kind="explore",
        axis="learning-rate",
        outcome="evaluated",
        hypothesis="A smaller step forgets less.",
        edit='{"overrides":{"recipes/stub.py":{"LEARNING_RATE":0.003}},"patch":null}',
        diff_sha256=DIGEST,
        seed=slot,
        adapter_sha256=DIGEST,
        account=json.dumps(ACCOUNT),
    )
    scores = [
        Score(
            campaign="bench",
            round=1,
            slot=slot,
            problem_set="dev",
            domain=domain,
            value=0.5,
            n=64,
            metric="accuracy",
            metric_version=DIGEST,
            engine="bench 1",
        )
        for domain in (OVERALL, *DOMAINS)
    ]
    return [trial, *scores]


def _bare(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE row (text TEXT)")
    return connection


def _verified(ledger: Ledger) -> None:
    found = verify_chain(ledger)
    if found is not None:
        raise RuntimeError(f"wanted a chain that holds: found {found}")


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _percentile(seconds: list[float], percent: int) -> float:
    """In milliseconds, of at least two values."""
    return statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1] * 1000
