"""The store: sealed snapshots of substrates, and their judges, each under the hash of its content.

    snapshots/<digest>/tree/            one substrate: reference, overlay, data, base; read-only
    snapshots/<digest>/entries.jsonl    what lies in it; the digest is the hash of these lines
    bases/<base.sha256>/                the same for a base model: its snapshots share its files
    judges/<digest>/                    the external and the lockbox problems; 0400 in 0700

Among a judge's problems are canaries: made up when it is sealed, asked by nobody, each with a text
that is nowhere else. Where such a text turns up, somebody has read what nobody may read.

Nothing here is ever changed: permissions stop accidents, `verify` finds the rest, by content.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from substrate import sources
from substrate.check import base_hash_finding, check_parsed
from substrate.constants import set_constants
from substrate.dropin import BadDropIn, DropIn, DropInFolder, read_dropin
from substrate.tree import (
    BadFile,
    Entry,
    Progress,
    content_files,
    content_sha256,
    copy_file,
    entries_sha256,
    first_difference,
    hash_file,
    hash_tree,
    read_entries,
    remove_tree,
    silent,
    tree_sha256,
    write_entries,
)

__all__ = ["Entry", "Judge", "Snapshot", "SnapshotDamaged", "Store", "tree_sha256"]

_SNAPSHOT_TAG = "seedbed snapshot 1"  # part of what is hashed: another format is another digest
_JUDGE_TAG = "seedbed judge 1"
_ENTRIES = "entries.jsonl"
_SOURCE, _CANARIES = "source.json", "canaries.json"
CANARIES = 4  # in each set of a judge

Part = Literal["snapshots", "judges", "bases"]


class NoSnapshot(FileNotFoundError):
    """The store has no snapshot, or no judge, of that digest."""


class SnapshotDamaged(RuntimeError):
    """Something sealed is not what it was. The message names the first such path, and how."""


class StoreBusy(RuntimeError):
    """Somebody seals, or has sealed what is not on record yet: nothing can be discarded."""


@dataclass(frozen=True)
class Snapshot:
    """A sealed substrate."""

    digest: str
    root: Path
    manifest: DropIn  # resolved: its paths are relative to `root`
    entries: tuple[Entry, ...]  # sorted by path


@dataclass(frozen=True)
class Judge:
    """The sealed problems that no snapshot and no fork holds."""

    digest: str
    external: Path
    lockbox: Path
    canaries: frozenset[str]  # texts that are in these files and must be nowhere else


class Store:
    """Content-addressed, under one folder. Any number of processes may share it."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self._snapshots = self.root / "snapshots"
        self._bases = self.root / "bases"
        self._judges = self.root / "judges"
        self._staging = self.root / "staging"
        self._stamps: dict[Path, tuple[int, ...]] = {}  # of weights, as they were last looked at

    def seal(self, dropin: DropInFolder, progress: Progress = silent) -> Snapshot:
        """The snapshot of a drop-in, made when it is not there yet. A base is copied only once.

        Raises BadDropIn with every rule that the drop-in breaks, SnapshotDamaged where one that is
        there already is not what was sealed.
        """
        if findings := check_parsed(dropin):
            raise BadDropIn(*findings)
        with self._stage() as staged:
            base = self._seal_base(dropin, progress)
            tree = staged / "tree"
            _lay_out_code(dropin, tree)
            # After the overrides: they write in place, and these files are the base's own.
            known = _bind_base(base, tree / sources.BASE)
            _make_read_only(tree)
            entries = hash_tree(tree, known, progress)
            digest = entries_sha256(_SNAPSHOT_TAG, entries)
            write_entries(entries, staged / _ENTRIES)
            is_new = self._put(staged, self._snapshots / digest)
        snapshot = self.open(digest)
        if not is_new:
            self.verify(snapshot)
            os.utime(snapshot.root.parent)  # it is wanted again: see `seedbed gc --older-than`
        return snapshot

    def open(self, digest: str) -> Snapshot:
        """A snapshot as the store describes it, not verified.

        Raises NoSnapshot when there is none, SnapshotDamaged when it cannot be read.
        """
        folder = self._find(self._snapshots, digest, "snapshot")
        try:
            manifest = read_dropin(folder / "tree").manifest
            entries = read_entries(folder / _ENTRIES)
        except BadDropIn as error:
            raise _damaged(folder, "tree/substrate.toml", f"changed: {error}") from error
        except (OSError, ValueError, TypeError) as error:
            raise _damaged(folder, _ENTRIES, f"changed: {error}") from error
        return Snapshot(digest, folder / "tree", manifest, entries)

    def verify(
        self, snapshot: Snapshot, *, weights: bool = True, progress: Progress = silent
    ) -> None:
        """Compare a snapshot with its digest. Raises SnapshotDamaged.

        Every path, type, permission and size is compared, and the content of every file; with
        `weights=False` the content of the base model's files is read only where one was written to,
        by its inode and change time, since this process looked last.
        """
        folder = snapshot.root.parent
        found = entries_sha256(_SNAPSHOT_TAG, snapshot.entries)
        if found != snapshot.digest:
            raise _damaged(folder, _ENTRIES, f"changed: hash {found}, sealed as {snapshot.digest}")
        in_base = sources.BASE + "/"
        stamps = {
            entry.path: _stamp(snapshot.root / entry.path)
            for entry in snapshot.entries
            if entry.type == "file" and entry.path.startswith(in_base)
        }
        touched = {
            path
            for path, stamp in stamps.items()
            if self._stamps.get(snapshot.root / path, stamp) != stamp
        }
        difference = first_difference(
            snapshot.root,
            snapshot.entries,
            is_hashed=lambda path: weights or path not in stamps or path in touched,
            progress=progress,
        )
        if difference is None:
            self._stamps |= {snapshot.root / path: stamp for path, stamp in stamps.items()}
            return
        base = self._bases / snapshot.manifest.base.sha256
        raise _damaged(
            folder, *difference, shared=base if difference[0].startswith(in_base) else None
        )

    def seal_judge(self, dropin: DropInFolder) -> Judge:
        """The sealed copies of the external and the lockbox problems, readable by us alone.

        Canaries are drawn once: the same problems are the same judge ever after.
        """
        sets = dropin.manifest.sets
        files = {"external": dropin.file(sets.external.path)}
        files |= {"lockbox": dropin.file(sets.lockbox.path)}
        source = json.dumps({name: hash_file(path) for name, path in files.items()})
        with self._stage() as staged:
            for digest in sorted(os.listdir(self._judges)) if self._judges.is_dir() else []:
                known = self._judges / digest / _SOURCE
                if known.is_file() and known.read_text("ascii") == source:
                    os.utime(known.parent)
                    return self.open_judge(digest)
            canaries: list[str] = []
            for name, path in files.items():
                canaries += _copy_with_canaries(path, staged / f"{name}.jsonl")
            (staged / _CANARIES).write_text(json.dumps(canaries), "ascii")
            (staged / _SOURCE).write_text(source, "ascii")
            _make_read_only(staged, file_mode=0o400, folder_mode=0o700)
            digest = entries_sha256(_JUDGE_TAG, hash_tree(staged, {}))
            self._put(staged, self._judges / digest)
        return self.open_judge(digest)

    def open_judge(self, digest: str) -> Judge:
        """A judge, verified. Raises FileNotFoundError or SnapshotDamaged."""
        folder = self._find(self._judges, digest, "judge")
        try:
            found = entries_sha256(_JUDGE_TAG, hash_tree(folder, {}))
        except BadFile as error:
            raise _damaged(folder, error.path, f"changed: {error.found}") from error
        if found != digest:
            raise _damaged(folder, "the problems", f"changed: hash {found}")
        file = folder / _CANARIES
        canaries = json.loads(file.read_text("ascii")) if file.is_file() else []
        external, lockbox = folder / "external.jsonl", folder / "lockbox.jsonl"
        return Judge(digest, external, lockbox, frozenset(canaries))

    def snapshots(self) -> list[str]:
        """The digests of all snapshots."""
        return [folder.name for folder in self.folders("snapshots")]

    def folders(self, part: Part) -> list[Path]:
        """The sealed folders of one part of the store, by digest; links are none."""
        place = self.root / part
        names = os.listdir(place) if place.is_dir() and not place.is_symlink() else []
        folders = (place / name for name in sorted(filter(_is_digest, names)))
        return [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]

    def leftovers(self) -> list[Path]:
        """What processes that died while they sealed have left; nothing while one seals."""
        try:
            with (self.root / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return sorted(self._staging.iterdir()) if self._staging.is_dir() else []
        except (BlockingIOError, FileNotFoundError):
            return []

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Nothing is discarded meanwhile: for whoever seals something, until it is on record."""
        with (self.root / "held").open("a") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def discarding(self) -> Iterator[Callable[[Path], None]]:
        """What removes a sealed folder, whole or not at all. Nobody seals or holds meanwhile.

        Leftovers of sealing go as well. Raises StoreBusy where somebody does already.
        """
        with (self.root / "held").open("a") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreBusy(
                    f"wanted the store {self.root} for a moment, found a process that seals; "
                    "try again when it has"
                ) from error
            with self._stage() as staged:

                def discard(folder: Path) -> None:
                    folder.rename(staged / folder.name)

                yield discard

    def _seal_base(self, dropin: DropInFolder, progress: Progress) -> Path:
        """The folder of the drop-in's base in the store; it is the one that the manifest names."""
        sha256 = dropin.manifest.base.sha256
        place = self._bases / sha256
        if place.is_dir():
            os.utime(place)  # as old as the newest snapshot that shares it
            return place
        staged = Path(tempfile.mkdtemp(dir=self._staging))
        for name, source in content_files(dropin.file(dropin.manifest.base.path)).items():
            target = staged / "tree" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy_file(source, target)
        _make_read_only(staged / "tree")
        entries = hash_tree(staged / "tree", {}, progress)
        if (found := _content_of(entries)) != sha256:
            raise BadDropIn(base_hash_finding(dropin, found))
        write_entries(entries, staged / _ENTRIES)
        self._put(staged, place)
        return place

    def _put(self, staged: Path, place: Path) -> bool:
        """Make a staged folder visible, whole, under its hash; one that is there stays: False."""
        place.parent.mkdir(exist_ok=True)
        if place.is_dir():
            return False
        if place.parent != self._judges:
            (staged / _ENTRIES).chmod(0o444)
            staged.chmod(0o755)
        staged.rename(place)
        return True

    @contextlib.contextmanager
    def _stage(self) -> Iterator[Path]:
        """An empty folder to prepare something in, for one process at a time.

        Whatever is in the staging folder while the lock is held was left by a process that died.
        """
        with (self.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            remove_tree(self._staging)
            self._staging.mkdir(mode=0o700)
            try:
                yield Path(tempfile.mkdtemp(dir=self._staging))
            finally:
                remove_tree(self._staging)

    def _find(self, place: Path, digest: str, kind: str) -> Path:
        if not _is_digest(digest) or not (place / digest).is_dir():
            raise NoSnapshot(
                f"wanted {kind} {digest} in the store {self.root}, found none; "
                "`seedbed substrate seal NAME` makes it from its drop-in"
            )
        if (place / digest).is_symlink():
            raise _damaged(place / digest, ".", "changed: a link, sealed as a folder")
        return place / digest


def _copy_with_canaries(problems: Path, target: Path) -> list[str]:
    """Copy a set of problems with CANARIES more among them; the texts of these.

    One is a problem's likeness, in which every text is the canary's own.
    """
    lines = problems.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
    canaries = [secrets.token_hex(12) for _ in range(CANARIES)]
    for canary in canaries:
        like = json.loads(secrets.choice(lines))
        texts = {key: canary for key, value in like.items() if isinstance(value, str)}
        row = json.dumps({**like, **texts, "domain": like["domain"]})
        lines.insert(secrets.randbelow(len(lines) + 1), f"{row}\n".encode())
    target.write_bytes(b"".join(lines))
    return canaries


def _lay_out_code(dropin: DropInFolder, tree: Path) -> None:
    """Everything of a snapshot but its base, with the manifest's overrides applied."""
    sets = dropin.manifest.sets
    files = sources.code_files(dropin)
    files[sources.TARGET] = dropin.file(sets.target.path)
    files[sources.DEV] = dropin.file(sets.dev.path)
    for name, source in files.items():
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        copy_file(source, target)
        if name not in (sources.TARGET, sources.DEV) and source.stat().st_mode & stat.S_IXUSR:
            target.chmod(0o755)
    set_constants(tree, dropin.manifest.overrides)
    manifest = sources.manifest_toml(sources.resolve(dropin.manifest))
    (tree / "substrate.toml").write_text(manifest, encoding="utf-8")


def _bind_base(base: Path, folder: Path) -> dict[str, str]:
    """Put the sealed files of a base into `folder` without copying them; their hashes by path."""
    entries = read_entries(base / _ENTRIES)
    if (found := _content_of(entries)) != base.name:
        raise _damaged(base, _ENTRIES, f"changed: hash {found}")
    known: dict[str, str] = {}
    for entry in entries:
        if entry.sha256 is None:
            (folder / entry.path).mkdir()
        else:
            os.link(base / "tree" / entry.path, folder / entry.path)
            known[f"{sources.BASE}/{entry.path}"] = entry.sha256
    return known


def _content_of(entries: Iterable[Entry]) -> str:
    return content_sha256((e.path, e.size, e.sha256) for e in entries if e.sha256)


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file is written to, unless the clock is turned back; () if it is gone."""
    try:
        info = path.lstat()
    except OSError:
        return ()
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _make_read_only(
    folder: Path, *, file_mode: int | None = None, folder_mode: int = 0o555
) -> None:
    """Without `file_mode`, a file that may be run stays so."""
    for inside, _, files in os.walk(folder, topdown=False):
        for name in files:
            path = Path(inside, name)
            runs = path.stat().st_mode & stat.S_IXUSR
            path.chmod(file_mode or (0o555 if runs else 0o444))
        os.chmod(inside, folder_mode)


def _damaged(folder: Path, path: str, how: str, shared: Path | None = None) -> SnapshotDamaged:
    those = f"{folder}, and {shared} with which it shares that file" if shared else f"{folder}"
    return SnapshotDamaged(
        f"wanted {folder.parent.name}/{folder.name} as it was sealed, found {path} {how}; "
        f"find out who wrote there, remove {those}, and seal again"
    )


def _is_digest(name: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{64}", name) is not None
