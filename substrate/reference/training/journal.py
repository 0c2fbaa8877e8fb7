"""A recipe's side of the exchange with its host: one file of orders in, two files out.

    job = read_job()
    with Journal(job) as journal:
        problems = journal.read_problems(job.target)
        while not journal.should_stop():
            ...  # one step, of at most `journal.rollouts_left` rollouts
            journal.count(rollouts=16, tokens=512)
            journal.step(loss=loss)
        save(model, journal.adapter)
        journal.deliver()

Orders are read from `out/job.json`, metrics go to `out/metrics.jsonl`. However the block is left,
`out/result.json` says how. The budget is counted in rollouts, so that a run is reproducible; wall
time and SIGTERM are the safety net, and a run that they stop still delivers its adapter. SIGKILL
leaves no result, which says enough.

The host publishes the files' schemas. This is the standard library alone: it runs in whatever
environment trains.
"""

import hashlib
import json
import math
import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

OUT = Path("out")  # relative to the fork's root, where every recipe is started
_METRICS = OUT / "metrics.jsonl"
_COUNTS = "journal.json"  # in a checkpoint
SMOKE_STEPS = 2
ERROR_CHARACTERS = 500  # of an exception's text that result.json keeps


class Diverged(ArithmeticError):
    """A loss was not finite. The journal records it and ends the run."""


@dataclass(frozen=True)
class Job:
    """The orders of one run. Paths are relative to the fork's root."""

    recipe: str
    seed: int  # the one source of random numbers of this run
    rollouts: int  # budget: completions that may be sampled, but for those of mere measurements
    tokens: int | None  # budget: sampled tokens after which no further step is begun
    seconds: float  # wall time after which to wrap up
    threads: int  # CPU threads; results depend on it
    device: str  # `cpu` or `cuda:N`
    base: Path  # folder of the base model
    target: Path  # JSON Lines: labelled problems that may be trained on
    rank: int  # of the LoRA adapter to deliver
    alpha: float
    target_modules: tuple[str, ...]  # names (last path component) of the modules to adapt
    checkpoint: Path | None  # folder of a checkpoint of this same run to go on from
    smoke: bool  # two steps only: does the recipe run at all?


def read_job(path: Path = OUT / "job.json") -> Job:
    """The host's orders. Raises OSError if there are none, KeyError if one is missing."""
    job = json.loads(path.read_text(encoding="utf-8"))
    return Job(
        recipe=job["recipe"],
        seed=job["seed"],
        rollouts=job["budget"]["rollouts"],
        tokens=job["budget"]["tokens"],
        seconds=job["seconds"],
        threads=job["threads"],
        device=job["device"],
        base=Path(job["base"]),
        target=Path(job["target"]),
        rank=job["adapter"]["rank"],
        alpha=job["adapter"]["alpha"],
        target_modules=tuple(job["adapter"]["target_modules"]),
        checkpoint=Path(job["checkpoint"]) if job["checkpoint"] else None,
        smoke=job["smoke"],
    )


class Journal:
    """The record of one run: counts what is used, says when to stop, writes what the host reads."""

    adapter = OUT / "adapter"  # where the recipe saves its adapter, before `deliver`

    def __init__(self, job: Job) -> None:
        self.rollouts = 0
        self.tokens = 0
        self.steps = 0
        self._job = job
        self._stopped = False
        self._terminated = False
        self._delivered = False
        self._data_sha256: dict[str, str] = {}
        self._checkpoints: list[str] = []

    def __enter__(self) -> "Journal":
        self._deadline = time.monotonic() + self._job.seconds
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._metrics = _METRICS.open("w", encoding="utf-8", buffering=1)
        return self

    @property
    def rollouts_left(self) -> int:
        return self._job.rollouts - self.rollouts

    def read_problems(self, path: Path) -> list[dict[str, Any]]:
        """The problems of a JSON Lines file of training data; its hash goes into the result."""
        data = path.read_bytes()
        self._data_sha256[str(path)] = hashlib.sha256(data).hexdigest()
        return [json.loads(line) for line in data.splitlines() if line.strip()]

    def count(self, *, rollouts: int, tokens: int = 0) -> None:
        """Note rollouts (completions) and tokens that were sampled."""
        self.rollouts += rollouts
        self.tokens += tokens

    def step(self, *, loss: float, **metrics: Any) -> None:
        """Write one row of metrics. Raises Diverged when the loss is not finite: let it pass."""
        row = {"step": self.steps, "rollouts": self.rollouts, "loss": loss, **metrics}
        self._metrics.write(json.dumps({key: _finite(value) for key, value in row.items()}) + "\n")
        self.steps += 1
        if not math.isfinite(loss):
            raise Diverged(f"wanted a finite loss, found {loss} in step {self.steps - 1}")

    def should_stop(self) -> bool:
        """True when the budget or the time is used up, or SIGTERM came; in a smoke run, after two
        steps.
        """
        tokens_used_up = self._job.tokens is not None and self.tokens >= self._job.tokens
        if self.rollouts_left <= 0 or tokens_used_up:
            return True
        if self._job.smoke and self.steps >= SMOKE_STEPS:
            return True
        self._stopped = self._terminated or time.monotonic() >= self._deadline
        return self._stopped

    def deliver(self) -> None:
        """The adapter in `journal.adapter` is complete: name it in the result."""
        self._delivered = True

    def checkpoint(self, folder: Path) -> None:
        """This folder is a checkpoint, and the only one: name it in the result."""
        self._checkpoints = [str(folder)]

    def save(self, folder: Path) -> None:
        """Keep in a checkpoint's folder what was counted and written so far."""
        counts = {"rollouts": self.rollouts, "tokens": self.tokens, "steps": self.steps}
        (folder / _COUNTS).write_text(json.dumps(counts), encoding="utf-8")
        shutil.copyfile(_METRICS, folder / _METRICS.name)

    def restore(self, folder: Path) -> None:
        """Go on from where the journal was when it was saved there: rows after it are dropped."""
        counts = json.loads((folder / _COUNTS).read_text(encoding="utf-8"))
        self.rollouts, self.tokens = counts["rollouts"], counts["tokens"]
        self.steps = counts["steps"]
        self._metrics.write((folder / _METRICS.name).read_text(encoding="utf-8"))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._metrics.close()
        if error is None:
            self._write_result("stopped" if self._stopped else "finished")
            return True
        if isinstance(error, Diverged):
            self._write_result("diverged", str(error))
            return True
        self._write_result("failed", f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS])
        return False

    def _write_result(self, state: str, error: str | None = None) -> None:
        delivered = self._delivered and state in ("finished", "stopped")
        result = {
            "schema_version": 1,
            "state": state,
            "rollouts": self.rollouts,
            "tokens": self.tokens,
            "adapter": str(self.adapter) if delivered else None,
            "checkpoints": self._checkpoints,
            "data_sha256": self._data_sha256,
            "error": error,
        }
        # In one move: the host never finds half a result, whenever it kills this process.
        unfinished = OUT / "result.json.unfinished"
        unfinished.write_text(json.dumps(result), encoding="utf-8")
        os.replace(unfinished, OUT / "result.json")

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._terminated = True


def _finite(value: Any) -> Any:
    """JSON has no NaN: a number that is not finite is a missing value, in lists and dicts too."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
