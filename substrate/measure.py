"""Measuring: a delivered adapter is sealed, checked and scored by the snapshot's own evaluation."""

import asyncio
import hashlib
import json
import math
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from substrate.dropin import ScoredSet
from substrate.fork import Fork
from substrate.interpreter import interpreter, python_places
from substrate.isolation import best_level
from substrate.jail import run_jailed
from substrate.job import Result
from substrate.outcome import Outcome
from substrate.run import (
    environment,
    jail_limits,
    last_line_of,
    open_folder,
    open_regular,
    quote,
)
from substrate.store import Snapshot, tree_sha256
from substrate.walls import Level, Walls

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
CONFIG_BYTES = 64 << 10
UNSEALED = ".unsealed-"  # how the name of a folder begins that is about to become an adapter
IGNORED = "README.md"  # PEFT writes one beside every adapter


@dataclass(frozen=True)
class SealedAdapter:
    """An adapter that nobody changes any more."""

    path: Path  # read-only folder with two files
    sha256: str  # tree hash of that folder, and its name


@dataclass(frozen=True)
class Measured:
    """What measuring an adapter came to."""

    outcome: Outcome
    reason: str  # why, "" for `evaluated`
    score: dict[str, Any] | None  # value, n, domains, metric, metric_version, engine


class _Reply(BaseModel):
    """`score.json`, as `evaluation/score.py` writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    outcome: Literal["evaluated", "no_change", "invalid_adapter"]
    reason: str = ""
    engine: str = ""
    values: list[FiniteFloat] = []


def seal_adapter(fork: Fork, result: Result, into: Path) -> SealedAdapter | Measured:
    """Copy the adapter that a run delivered to `into/<sha256>/`, read-only.

    The folder must have `adapter_config.json` and `adapter_model.safetensors`, as regular files
    that no link leads to, and beside them at most a README.md, which is left out. Anything else is
    `invalid_adapter`; what is in the two files is checked by `measure`.
    """
    into.mkdir(parents=True, exist_ok=True)
    unsealed = into / f"{UNSEALED}{secrets.token_hex(8)}"
    unsealed.mkdir()
    try:
        _copy_adapter(fork, result.adapter or "", unsealed)
        return seal_folder(unsealed, into)
    except _NotAnAdapter as error:
        return Measured(Outcome.INVALID_ADAPTER, quote(str(error), {fork.root: "<fork>"}), None)
    finally:
        shutil.rmtree(unsealed, ignore_errors=True)


def seal_folder(unsealed: Path, into: Path) -> SealedAdapter:
    """Rename a folder in `into` that has the two files of an adapter to its hash, read-only."""
    sha256 = tree_sha256(unsealed)
    sealed = into / sha256
    if not sealed.exists():
        for name in (CONFIG, WEIGHTS):
            (unsealed / name).chmod(0o444)
        unsealed.chmod(0o555)  # before it has its name: a process may die in between
        unsealed.rename(sealed)
    return SealedAdapter(sealed, sha256)


def adapter_damage(folder: Path, sha256: str) -> str | None:
    """How a folder is not the sealed adapter of that hash, or None."""
    if folder.is_symlink() or not folder.is_dir():
        return "wanted its folder, found " + ("a link" if folder.is_symlink() else "none")
    if (names := set(os.listdir(folder))) != {CONFIG, WEIGHTS}:
        return f"wanted {CONFIG} and {WEIGHTS} alone, found {sorted(names)[:5]}"
    for path, mode in ((folder, 0o555), (folder / CONFIG, 0o444), (folder / WEIGHTS, 0o444)):
        info = path.lstat()
        if not (stat.S_ISDIR if path is folder else stat.S_ISREG)(info.st_mode):
            return f"wanted {path.name} as a regular file, found a link or something else"
        if stat.S_IMODE(info.st_mode) != mode:
            return (
                f"wanted permissions {mode:04o} of {path.name}, found {info.st_mode & 0o7777:04o}"
            )
    found = tree_sha256(folder)
    return None if found == sha256 else f"its files have hash {found}"


def is_unsealed(folder: Path) -> bool:
    """Whether a folder beside the sealed adapters is what a run that died left."""
    return folder.name.startswith(UNSEALED)


async def measure(
    snapshot: Snapshot,
    adapter: SealedAdapter,
    problems: Path,
    scored: ScoredSet,
    *,
    level: Level | None = None,
) -> Measured:
    """Check a sealed adapter and score it on one set of problems (a JSON Lines file).

    The snapshot's `evaluation/score.py` does both, in a fresh jail that has the snapshot, the
    adapter, the problems and nothing else; `level` None: the highest that stands here. An adapter
    that fails a check is `invalid_adapter`, one that changes nothing `no_change`. Whatever goes
    wrong with the scorer itself is `infrastructure`, never a score.
    """
    manifest = snapshot.manifest
    if await asyncio.to_thread(tree_sha256, adapter.path) != adapter.sha256:
        reason = f"wanted the adapter of hash {adapter.sha256}, found another; seal it anew"
        return Measured(Outcome.INFRASTRUCTURE, reason, None)
    orders = {
        "base": str(snapshot.root / manifest.base.path),
        "adapter": str(adapter.path),
        "base_sha256": manifest.base.sha256,
        **manifest.adapter.model_dump(mode="json"),
    }
    folders = {adapter.path: "<adapter>"}
    return await _score(snapshot, "evaluation/score.py", orders, problems, scored, folders, level)


async def measure_completion(
    snapshot: Snapshot,
    completion: str,
    problems: Path,
    scored: ScoredSet,
    *,
    level: Level | None = None,
) -> Measured:
    """Score one and the same completion of every problem: what a model without a mind is worth."""
    orders = {"completion": completion}
    return await _score(snapshot, "evaluation/blind.py", orders, problems, scored, {}, level)


async def _score(
    snapshot: Snapshot,
    program: str,
    orders: Mapping[str, Any],
    problems: Path,
    scored: ScoredSet,
    names: Mapping[Path, str],
    level: Level | None,
) -> Measured:
    """Have a program of the snapshot's evaluation score a set of problems, in a fresh jail."""
    manifest = snapshot.manifest
    folders = {snapshot.root: "<snapshot>", problems: "<problems>", **names}

    def failed(reason: str) -> Measured:
        return Measured(Outcome.INFRASTRUCTURE, quote(reason, folders), None)

    text = problems.read_bytes()
    with tempfile.TemporaryDirectory(prefix="seedbed-measure-") as scratch:
        folders[Path(scratch)] = "<scratch>"
        desk, log = Path(scratch) / "desk", Path(scratch) / "score.log"
        desk.mkdir()
        # A copy, since those of the judge are for the controller's user alone to read.
        copied = Path(scratch) / "problems.jsonl"
        copied.write_bytes(text)
        folders[copied] = "<problems>"
        try:
            python = interpreter(manifest)
            level = level or await asyncio.to_thread(best_level)
            ending = await run_jailed(
                [python, "-I", "-B", str(snapshot.root / program)],
                cwd=desk,
                env=environment(manifest),
                limits=jail_limits(manifest),
                log=log,
                walls=Walls(
                    level=level,
                    writable=(desk,),
                    readable=(snapshot.root, copied, *names, *python_places(python)),
                    cuda=manifest.run.device == "cuda",
                ),
                stdin=json.dumps({**orders, "problems": str(copied)}).encode(),
            )
        except RuntimeError as error:
            return failed(str(error))
        if ending.limit is not None or ending.exit_code != 0:
            how = ending.limit or (ending.signal and f"signal {ending.signal}") or "an exception"
            return failed(f"the scorer was ended by {how}: {last_line_of(log)}")
        try:
            reply = _Reply.model_validate_json((desk / "score.json").read_bytes())
        except (OSError, ValidationError) as error:
            return failed(f"the scorer left no valid score.json: {error}")

    if reply.outcome != "evaluated":
        return Measured(Outcome(reply.outcome), quote(reply.reason, folders), None)
    domains = [json.loads(line)["domain"] for line in text.splitlines() if line.strip()]
    least, greatest = scored.range
    if len(reply.values) != len(domains) or not domains:
        found = f"found {len(reply.values)} values for {len(domains)} problems"
        return failed(f"wanted at least one problem and one value for each, {found}")
    if not all(least <= value <= greatest for value in reply.values):
        return failed(f"wanted values from {least} to {greatest}, found others: see sets' range")
    score = {
        **_mean(reply.values),
        "domains": {
            domain: _mean([v for v, d in zip(reply.values, domains, strict=True) if d == domain])
            for domain in sorted(set(domains))
        },
        "metric": scored.metric,
        "metric_version": _metric_version(snapshot, text),
        "engine": reply.engine,
    }
    return Measured(Outcome.EVALUATED, "", score)


class _NotAnAdapter(Exception):
    """What was delivered is not a folder with the two files of an adapter."""


def _copy_adapter(fork: Fork, delivered: str, copy: Path) -> None:
    most = {CONFIG: CONFIG_BYTES, WEIGHTS: fork.snapshot.manifest.limits.file_mb << 20}
    try:
        folder = open_folder(fork.root, delivered)
    except OSError as error:
        raise _NotAnAdapter(
            f"adapter-folder: wanted a folder inside the fork, reached without a link, found "
            f"{delivered[:200]!r}: {error.strerror or error}"
        ) from error
    try:
        extra = sorted(set(os.listdir(folder)) - {CONFIG, WEIGHTS, IGNORED})
        if extra:
            raise _NotAnAdapter(
                f"adapter-files: wanted {CONFIG} and {WEIGHTS} alone, found {extra[:5]} as well"
            )
        for name, limit in most.items():
            with _open_delivered(folder, name) as source, (copy / name).open("xb") as target:
                size = os.fstat(source.fileno()).st_size
                if size > limit:
                    raise _NotAnAdapter(
                        f"adapter-size: wanted at most {limit} bytes of {name}, found {size}"
                    )
                shutil.copyfileobj(source, target)
    finally:
        os.close(folder)


def _open_delivered(folder: int, name: str) -> BinaryIO:
    try:
        return open_regular(folder, name)
    except OSError as error:
        raise _NotAnAdapter(
            f"adapter-files: wanted {name} as a regular file, found {error.strerror or error}"
        ) from error


def _mean(values: Sequence[float]) -> dict[str, Any]:
    return {"value": math.fsum(values) / len(values), "n": len(values)}


def _metric_version(snapshot: Snapshot, problems: bytes) -> str:
    """Hash of the evaluation's code and of the problems: scores of two versions do not compare.

    `training/` counts: an evaluation may import what it needs from it.
    """
    digest = hashlib.sha256()
    for entry in snapshot.entries:
        if entry.path.startswith(("evaluation/", "training/")) and entry.sha256 is not None:
            digest.update(f"{entry.path} {entry.sha256}\n".encode())
    digest.update(f"problems {hashlib.sha256(problems).hexdigest()}\n".encode())
    return digest.hexdigest()
