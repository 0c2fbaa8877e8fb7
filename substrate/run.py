"""One run of a recipe in its fork: orders in, a classified ending out."""

import asyncio
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from pydantic import ValidationError

from substrate.dropin import DropIn
from substrate.fork import COPIED, Fork, linked_paths
from substrate.interpreter import interpreter, python_places
from substrate.isolation import best_level
from substrate.jail import Ending, KeeperLost, Limits, run_jailed
from substrate.job import Budget, Job, MetricsRow, Result
from substrate.outcome import Outcome
from substrate.store import Snapshot
from substrate.walls import Level, Walls

OUT = "out"
RESULT_BYTES = 1 << 20
METRICS_TAIL = 64 << 10  # bytes, of which the last row is looked for
REASON_CHARACTERS = 500
WRAP_UP = 0.9  # share of the time limit after which a recipe is to wrap up by itself

# How the standard library, PyTorch, CUDA and the C++ runtime say that memory ran out.
_NO_MEMORY = re.compile(r"MemoryError|out of memory|OutOfMemoryError|bad_alloc", re.IGNORECASE)
_NEVER_RAN = Ending(
    exit_code=127,
    signal=None,
    limit=None,
    terminated=False,
    seconds=0.0,
    cpu_seconds=0.0,
    peak_memory_mb=0.0,
    log_dropped=0,
)


@dataclass(frozen=True)
class RunRecord:
    """How a run ended."""

    outcome: Outcome | None  # None: it ran and delivered an adapter; go on to measure
    reason: str  # why the outcome is what it is; "" with None
    result: Result | None  # what the recipe says of its run, where that is valid
    ending: Ending  # exit code 127 and zeros where it could not be started
    keeper_lost: bool = False  # what guards the run was killed


def job_for(
    snapshot: Snapshot, *, recipe: str, seed: int, rollouts: int | None, smoke: bool = False
) -> Job:
    """The orders for one run of `recipes/<recipe>.py`; `rollouts` None: the substrate's budget.

    Raises ValueError when `recipe` cannot be the name of a module.
    """
    if not recipe.isidentifier():
        raise ValueError(f"wanted the name of a module in recipes/, found {recipe!r}; rename it")
    manifest = snapshot.manifest
    return Job(
        recipe=f"recipes/{recipe}.py",
        seed=seed,
        budget=manifest.budget if rollouts is None else Budget(rollouts=rollouts),
        seconds=WRAP_UP * manifest.limits.seconds,
        threads=manifest.run.threads,
        device="cuda:0" if manifest.run.device == "cuda" else manifest.run.device,
        base=manifest.base.path,
        target=manifest.sets.target.path,
        adapter=manifest.adapter,
        smoke=smoke,
    )


async def run_recipe(fork: Fork, job: Job, *, level: Level | None = None) -> RunRecord:
    """Run a recipe in its fork until it ends or a limit ends it, and say how it ended.

    `level` None: the highest that stands here. `out/` is made anew with `job.json` in it;
    afterwards it has what the recipe wrote, and `run.log`. Whatever the recipe does is an outcome.
    On cancellation its processes are dead before CancelledError is raised.
    """
    manifest = fork.snapshot.manifest
    out = fork.root / OUT
    _remove(out)
    out.mkdir()
    (out / "job.json").write_text(job.model_dump_json(indent=2), encoding="utf-8")
    module = ".".join(PurePosixPath(job.recipe).with_suffix("").parts)
    with tempfile.TemporaryDirectory(prefix="seedbed-run-") as scratch:
        # The log grows where the recipe knows no name of it, so that no link leads it elsewhere.
        log = Path(scratch) / "run.log"
        try:
            python = interpreter(manifest)
            level = level or await asyncio.to_thread(best_level)
            ending = await run_jailed(
                [python, "-P", "-m", module],
                cwd=fork.root,
                env=environment(manifest) | _recipe_variables(fork),
                limits=jail_limits(manifest),
                log=log,
                walls=fork_walls(fork, python, level),
            )
        except RuntimeError as error:
            reason = quote(str(error), {fork.root: "<fork>"})
            lost = isinstance(error, KeeperLost)
            return RunRecord(Outcome.INFRASTRUCTURE, reason, None, _NEVER_RAN, lost)
        finally:
            last_line = last_line_of(log)
            _keep_log(log, out)
    return _classify(fork, job, ending, last_line)


def fork_walls(fork: Fork, python: str, level: Level) -> Walls:
    """What a program in a fork has: the fork, to do as it likes, and what the fork links to.

    Within bubblewrap's walls the fork's sealed copies are for reading alone, so that none is
    changed and put back. Landlock's rules only add up: behind it they can be written.
    """
    manifest = fork.snapshot.manifest
    linked = [fork.snapshot.root / path for path in linked_paths(fork.snapshot)]
    copies = [fork.root / path for path in COPIED if (fork.root / path).exists()]
    return Walls(
        level=level,
        writable=(fork.root,),
        readable=(*linked, *copies, *python_places(python)),
        cuda=manifest.run.device == "cuda",
    )


def environment(manifest: DropIn) -> dict[str, str]:
    """What recipe and scorer get on top of the jail's own variables."""
    threads = str(manifest.run.threads)
    kept = str(manifest.limits.memory_mb * 2**20 // 4)
    variables = {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "NUMEXPR_NUM_THREADS": threads,
        "RAYON_NUM_THREADS": threads,  # tokenizers, safetensors
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        # glibc gives large blocks back at once, and each step of training asks for them again: the
        # kernel clears these pages anew, which a small model's run would pay for at every step.
        "MALLOC_TRIM_THRESHOLD_": kept,
        "MALLOC_MMAP_THRESHOLD_": kept,
    }
    if manifest.run.device == "cpu":
        variables["CUDA_VISIBLE_DEVICES"] = ""  # one substrate, one kind of device, on any machine
    else:
        # Without it cuBLAS may add in another order each time, and PyTorch refuses to be exact:
        # https://docs.nvidia.com/cuda/cublas/#results-reproducibility
        variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    return variables


def jail_limits(manifest: DropIn) -> Limits:
    """The limits of one run and of one scoring."""
    limits = manifest.limits
    return Limits(
        seconds=limits.seconds,
        grace_seconds=limits.grace_seconds,
        memory_mb=limits.memory_mb,
        file_mb=limits.file_mb,
        log_bytes=1024 * limits.log_kb,
        processes=limits.processes,
    )


def open_folder(root: Path, relative: str) -> int:
    """A descriptor of a folder below `root`, which the caller closes.

    `relative` comes from a stranger: raises OSError where it leaves `root`, passes a link, or
    leads to anything but a folder.
    """
    parts = PurePosixPath(relative).parts
    if ".." in parts or relative.startswith("/") or not relative.isprintable():
        raise OSError(f"wanted a plain path inside the fork, found {relative[:200]!r}")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for name in parts:
        try:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def open_regular(folder: int, name: str) -> BinaryIO:
    """The file `name` of a folder of a stranger. Raises OSError where it is not a regular file."""
    # Without O_NONBLOCK a pipe laid there would keep the caller waiting for a writer.
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"wanted a regular file, found something else called {name!r}")
    return os.fdopen(file, "rb")


def last_line_of(log: Path) -> str:
    """The last line with text on it, "" if there is none."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 8192))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "")


def quote(text: str, names: Mapping[Path, str]) -> str:
    """`text` of a stranger as one printable line of bounded length, folders put by their names."""
    for path, name in names.items():
        for spelled in {str(path.resolve()), str(path.absolute()), str(path)}:
            text = text.replace(spelled, name)
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 1] + "…"


def _recipe_variables(fork: Fork) -> dict[str, str]:
    return {
        "PYTHONPATH": str(fork.root.absolute()),
        # Else what was printed before an exception comes behind it in the log.
        "PYTHONUNBUFFERED": "1",
    }


def _classify(fork: Fork, job: Job, ending: Ending, last_line: str) -> RunRecord:
    result, invalid = _read_result(fork.root)
    delivered = result if result is not None and result.state in ("finished", "stopped") else None
    said = (result and result.error) or last_line or "nothing in the log"
    ended = f"exit code {ending.exit_code}" if ending.signal is None else f"signal {ending.signal}"

    def record(outcome: Outcome | None, reason: str) -> RunRecord:
        return RunRecord(outcome, quote(reason, {fork.root: "<fork>"}), result, ending)

    limits = fork.snapshot.manifest.limits
    if ending.limit == "memory":
        return record(Outcome.OUT_OF_MEMORY, f"more than {limits.memory_mb} MiB resident")
    if ending.limit == "processes":
        return record(Outcome.CRASHED, f"more than {limits.processes} processes at one time")
    if ending.limit is None and ending.signal == 9:
        return record(Outcome.OUT_OF_MEMORY, "killed by signal 9, not by the jail: no memory left")
    if result is not None and result.state == "diverged":
        return record(Outcome.DIVERGED, said)
    if ending.limit == "seconds" and (delivered is None or delivered.adapter is None):
        allowed = f"{limits.seconds:g} s and {limits.grace_seconds:g} s of grace"
        return record(Outcome.TIMED_OUT, f"no result with an adapter within {allowed}")
    if ending.limit is None and ending.exit_code != 0 and _NO_MEMORY.search(said):
        return record(Outcome.OUT_OF_MEMORY, said)
    if ending.limit is None and ending.exit_code != 0:
        return record(Outcome.CRASHED, f"{ended}: {said}")
    if result is None:
        return record(Outcome.CRASHED, f"{ended}, but {invalid}; last in the log: {said}")
    if delivered is None:
        memory = _NO_MEMORY.search(said)
        return record(Outcome.OUT_OF_MEMORY if memory else Outcome.CRASHED, f"failed: {said}")
    if delivered.adapter is None:
        return record(Outcome.CRASHED, f"{delivered.state}, but result.json names no adapter")
    if delivered.rollouts > job.budget.rollouts:
        used = f"{delivered.rollouts} rollouts of {job.budget.rollouts}"
        return record(Outcome.OVER_BUDGET, used)
    if (counted := _last_count(fork.root)) > job.budget.rollouts:
        used = f"metrics.jsonl says {counted} rollouts of {job.budget.rollouts}"
        return record(Outcome.OVER_BUDGET, f"{used}, result.json {delivered.rollouts}")
    return record(None, "")


def _read_result(root: Path) -> tuple[Result | None, str]:
    """`out/result.json`, or None and what is wrong with it."""
    try:
        folder = open_folder(root, OUT)
        try:
            with open_regular(folder, "result.json") as file:
                text = file.read(RESULT_BYTES + 1)
        finally:
            os.close(folder)
    except OSError as error:
        return None, f"no out/result.json: {error.strerror or error}"
    if len(text) > RESULT_BYTES:
        return None, f"out/result.json has more than {RESULT_BYTES} bytes"
    try:
        return Result.model_validate_json(text), ""
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        return None, f"out/result.json is not valid: {where}: {first['msg']}"


def _last_count(root: Path) -> int:
    """The rollouts of the last row of `out/metrics.jsonl`; 0 where there is no such row."""
    try:
        folder = open_folder(root, OUT)
        try:
            with open_regular(folder, "metrics.jsonl") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - METRICS_TAIL))
                lines = file.read(METRICS_TAIL).splitlines()
        finally:
            os.close(folder)
        return MetricsRow.model_validate_json(lines[-1]).rollouts
    except (OSError, IndexError, ValidationError):
        return 0


def _keep_log(log: Path, out: Path) -> None:
    """Move the log to `out/run.log`, if the recipe left a folder of that name."""
    if log.is_file() and out.is_dir() and not out.is_symlink():
        _remove(out / "run.log")
        shutil.copyfile(log, out / "run.log")


def _remove(path: Path) -> None:
    """Remove a file, link or folder, if there is one; a link's target stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
