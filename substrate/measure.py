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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from substrate.custody import Custody, Scorer, ScorerFailed, custody_of, graded, scorer_of
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
from substrate.scorer import read_problems
from substrate.store import Judge, Snapshot, tree_sha256
from substrate.tree import remove_tree
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
    strangers: int = 0  # peers beside the controller that spoke to the scorer meanwhile
    custody: Custody | None = None  # of the scorer that gave the score


class _Reply(BaseModel):
    """`score.json`, as `evaluation/score.py` writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    outcome: Literal["evaluated", "no_change", "invalid_adapter"]
    reason: str = ""
    engine: str = ""
    answers: list[str] = []


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
    try:
        os.utime(sealed)  # so that `discard_adapter` leaves it
    except FileNotFoundError:
        for name in (CONFIG, WEIGHTS):
            (unsealed / name).chmod(0o444)
        unsealed.chmod(0o555)  # before it has its name: a process may die in between
        unsealed.rename(sealed)
    return SealedAdapter(sealed, sha256)


def discard_adapter(sealed: Path, since: float) -> bool:
    """Remove a sealed adapter that no run has delivered since then (seconds of the epoch).

    False where one has, also in this moment: it is put aside, looked at again, and put back.
    """
    if sealed.lstat().st_mtime >= since:
        return False
    aside = sealed.with_name(f"{UNSEALED}{secrets.token_hex(8)}")
    sealed.rename(aside)
    if aside.lstat().st_mtime >= since and not sealed.exists():
        aside.rename(sealed)
        return False
    remove_tree(aside)
    return True


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
    canaries: Collection[str] = (),
    *,
    level: Level | None = None,
) -> Measured:
    """Check a sealed adapter and score it on one set of problems (a JSON Lines file).

    Two processes do it. The snapshot's `evaluation/score.py`, in a fresh jail that sees no fork,
    has the adapter and the questions, and never a label; the scorer (`substrate/scorer.py`) has the
    labels and the answers, and never an adapter. Problems with a text of `canaries` are not asked.
    `level` None: the highest that stands here.

    An adapter that fails a check is `invalid_adapter`, one that changes nothing `no_change`.
    Whatever goes wrong with the evaluation itself is `infrastructure`, never a score.
    """
    if await asyncio.to_thread(tree_sha256, adapter.path) != adapter.sha256:
        reason = f"wanted the adapter of hash {adapter.sha256}, found another; seal it anew"
        return Measured(Outcome.INFRASTRUCTURE, reason, None)
    try:
        async with scorer_of(snapshot, problems, scored, canaries) as scorer:
            asked = await scorer.ask("questions")
            reply = await _answers(snapshot, adapter, asked["questions"], level)
            if isinstance(reply, Measured):
                return reply
            found = await _score(snapshot, scorer, reply, asked["sha256"], scored)
            said = await scorer.ask("count")
            return replace(found, strangers=said["strangers"], custody=custody_of(said["uid"]))
    except (ScorerFailed, RuntimeError, KeyError) as error:
        names = {snapshot.root: "<snapshot>", problems: "<problems>"}
        return Measured(Outcome.INFRASTRUCTURE, quote(str(error), names), None)


async def measure_completion(
    snapshot: Snapshot,
    completion: str,
    problems: Path,
    scored: ScoredSet,
    *,
    level: Level | None = None,
) -> Measured:
    """Score one and the same completion of every problem: what a model without a mind is worth."""
    try:
        async with scorer_of(snapshot, problems, scored, ()) as scorer:
            asked = await scorer.ask("questions")
            answers = [completion] * len(asked["questions"])
            reply = _Reply(outcome="evaluated", engine="one completion for all", answers=answers)
            return await _score(snapshot, scorer, reply, asked["sha256"], scored)
    except (ScorerFailed, RuntimeError, KeyError) as error:
        names = {snapshot.root: "<snapshot>", problems: "<problems>"}
        return Measured(Outcome.INFRASTRUCTURE, quote(str(error), names), None)


def metric_version(snapshot: Snapshot, problems_sha256: str) -> str:
    """Hash of the evaluation's code and of the problems: scores of two versions do not compare.

    `training/` counts: an evaluation may import what it needs from it.
    """
    digest = hashlib.sha256()
    for entry in snapshot.entries:
        if entry.path.startswith(("evaluation/", "training/")) and entry.sha256 is not None:
            digest.update(f"{entry.path} {entry.sha256}\n".encode())
    digest.update(f"problems {problems_sha256}\n".encode())
    return digest.hexdigest()


def external_version(snapshot: Snapshot, judge: Judge) -> str:
    """The `metric_version` of external scores that this judge gives on this snapshot."""
    _, sha256 = read_problems(str(judge.external), set(judge.canaries))
    return metric_version(snapshot, sha256)


async def _answers(
    snapshot: Snapshot,
    adapter: SealedAdapter,
    questions: Sequence[Mapping[str, Any]],
    level: Level | None,
) -> _Reply | Measured:
    """The adapter's answers to questions, from a fresh jail."""
    manifest = snapshot.manifest
    folders = {snapshot.root: "<snapshot>", adapter.path: "<adapter>"}

    def failed(reason: str) -> Measured:
        return Measured(Outcome.INFRASTRUCTURE, quote(reason, folders), None)

    with tempfile.TemporaryDirectory(prefix="seedbed-measure-") as scratch:
        folders[Path(scratch)] = "<scratch>"
        desk, log = Path(scratch) / "desk", Path(scratch) / "score.log"
        desk.mkdir()
        asked = desk / "questions.jsonl"
        asked.write_text("".join(json.dumps(one) + "\n" for one in questions), "utf-8")
        orders = {
            "base": str(snapshot.root / manifest.base.path),
            "adapter": str(adapter.path),
            "base_sha256": manifest.base.sha256,
            "questions": str(asked),
            **manifest.adapter.model_dump(mode="json"),
        }
        python = interpreter(manifest)
        level = level or await asyncio.to_thread(best_level)
        # Not the dev set: its labels.
        parts = [part for part in snapshot.root.iterdir() if part.name != "dev"]
        ending = await run_jailed(
            [python, "-I", "-B", str(snapshot.root / "evaluation" / "score.py")],
            cwd=desk,
            env=environment(manifest),
            limits=jail_limits(manifest),
            log=log,
            walls=Walls(
                level=level,
                writable=(desk,),
                readable=(*parts, adapter.path, *python_places(python)),
                listed=(snapshot.root,),
                cuda=manifest.run.device == "cuda",
            ),
            stdin=json.dumps(orders).encode(),
        )
        if ending.limit is not None or ending.exit_code != 0:
            how = ending.limit or (ending.signal and f"signal {ending.signal}") or "an exception"
            return failed(f"the scorer was ended by {how}: {last_line_of(log)}")
        try:
            reply = _Reply.model_validate_json((desk / "score.json").read_bytes())
        except (OSError, ValidationError) as error:
            return failed(f"the scorer left no valid score.json: {error}")
    if reply.outcome != "evaluated":
        return Measured(Outcome(reply.outcome), quote(reply.reason, folders), None)
    if len(reply.answers) != len(questions):
        found = f"{len(reply.answers)} answers to {len(questions)} questions"
        return failed(f"wanted an answer to each question, found {found}")
    return reply


async def _score(
    snapshot: Snapshot, scorer: Scorer, reply: _Reply, problems_sha256: str, scored: ScoredSet
) -> Measured:
    """The score of answers, as the scorer's values make it."""
    values, domains = await graded(scorer, reply.answers)
    least, greatest = scored.range
    if not values or not all(least <= value <= greatest for value in values):
        wanted = f"wanted at least one value, all from {least} to {greatest}"
        reason = f"{wanted}, found others or none: see sets' range"
        return Measured(Outcome.INFRASTRUCTURE, reason, None)
    score = {
        **_mean(values),
        "domains": {
            domain: _mean([v for v, d in zip(values, domains, strict=True) if d == domain])
            for domain in sorted(set(domains))
        },
        "metric": scored.metric,
        "metric_version": metric_version(snapshot, problems_sha256),
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
