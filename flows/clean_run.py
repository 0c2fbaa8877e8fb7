"""A clean run: the controller's own outside of any round, scored on dev and external.

As an anchor is run: in a clean fork of the sealed snapshot with a standing recipe, and scored by
the snapshot's own evaluation. Calibration and the end of a campaign are made of these.
"""

import json
import os
import shutil
from dataclasses import dataclass
from typing import Any

from flows.gpu_seconds import Run, run_uncharged
from flows.house import House
from flows.inspection import adapter_row
from flows.record import Record
from flows.trial import counted_run
from flows.trial_rows import account_of
from policies.policy import StandingRecipe
from policies.report import SetScore
from substrate.fork import make_fork
from substrate.measure import Measured, SealedAdapter, measure
from substrate.outcome import Outcome
from substrate.store import Judge, Snapshot
from substrate.walls import Level

LOOK = "judge.look"  # a look at external outside of a round, noted before it is made
TRIES = 3  # at a run that infrastructure failed


class RunFailed(RuntimeError):
    """A clean run that infrastructure keeps failing. What was recorded stays."""


@dataclass(frozen=True)
class Bench:
    """What clean runs are made of."""

    snapshot: Snapshot
    judge: Judge
    recipe: str
    rollouts: int | None  # None: the substrate's budget
    level: Level  # of the walls around the runs
    run: Run = run_uncharged


async def clean_run(
    house: House, bench: Bench, standing: StandingRecipe, *, seed: int, name: str
) -> dict[str, Any]:
    """Run and score it once. Returns columns of `policies.tables.CleanRun`.

    `name` is unique to the run, as the path of its fork and of the output that is kept. Raises
    RunFailed, SnapshotDamaged, substrate.fork.BadEdit.
    """
    patches = [house.ledger.patch_text(patch) for patch in standing.patches]
    attempt = 0
    while True:
        attempt += 1
        folder = house.settings.forks / f"{name}-{os.getpid()}"
        try:
            house.store.verify(bench.snapshot, weights=False)
            record = await counted_run(
                house,
                Record(bench.level),
                make_fork(bench.snapshot, folder, overrides=standing.overrides, patches=patches),
                judge=bench.judge,
                standing=standing,
                recipe=bench.recipe,
                rollouts=bench.rollouts,
                seed=seed,
                keep=house.settings.artifacts / name,
                run=bench.run,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if record.outcome is not Outcome.INFRASTRUCTURE:
            break
        if attempt == TRIES:
            raise RunFailed(
                f"wanted {name} to be run and measured, found after {TRIES} tries: "
                f"{record.reason}; mend that, then the same command goes on"
            )
    external = None
    if record.made is not None and record.dev is not None:
        row, sha256 = adapter_row(record.made, name), record.made.adapter.sha256
        if all(maker.run != name for maker in house.ledger.makers(sha256, row.tensors_sha256)):
            house.ledger.append(row)
    if record.dev is not None and record.adapter_sha256 is not None:
        adapter = SealedAdapter(house.adapters / record.adapter_sha256, record.adapter_sha256)
        scored = bench.snapshot.manifest.sets.external
        house.ledger.note(None, LOOK, name, {"adapter": record.adapter_sha256})
        judge, level = bench.judge, bench.level
        external = await measure(
            bench.snapshot, adapter, judge.external, scored, judge.canaries, level=level
        )
    return {
        "seed": seed,
        "outcome": record.outcome.value,
        "reason": record.reason[:2000],
        "adapter_sha256": record.adapter_sha256,
        "dev": record.dev.model_dump_json() if record.dev else None,
        "external": score_text(external),
        "account": json.dumps(account_of(record, attempt)),
    }


def score_text(measured: Measured | None) -> str | None:
    """A score as its column takes it; None where there is none."""
    if measured is None or measured.score is None:
        return None
    return SetScore.model_validate(measured.score).model_dump_json()
