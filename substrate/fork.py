"""A fork: the plain folder that one worker edits and one run reads, made from a sealed snapshot.

Editable files are copies, and so are `evaluation/` and `substrate.toml`, which are small: a run
that writes to them spoils its own fork and not the snapshot. Other sealed files, data and weights
above all, are links to the snapshot's read-only files, one for each top-level folder that is
sealed as a whole, so that a fork of any size takes milliseconds. A fork serves one worker or one
run and is then thrown away; what lasts is its edit.
"""

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from substrate.constants import (
    changed_constants,
    is_same_program,
    override,
    read_constants,
    same_constants,
    set_constants,
)
from substrate.dropin import Files, Overrides
from substrate.editable import (
    ALWAYS_SEALED,
    OUTPUT,
    BadEdit,
    check_paths,
    is_ignored,
    is_sealed,
    is_sealed_by_glob,
    read_editable,
    write_editable,
)
from substrate.patch import apply_patch, make_patch, patched_paths
from substrate.store import Snapshot, SnapshotDamaged
from substrate.tree import Entry, copy_file, hash_file

__all__ = [
    "ALWAYS_SEALED",
    "COPIED",
    "BadEdit",
    "Fork",
    "ForkEdit",
    "apply_edit",
    "editable_files",
    "is_idle",
    "linked_paths",
    "make_fork",
    "read_constants",
    "read_edit",
    "sealed_changes",
    "set_constants",
]

COPIED = ("evaluation", "substrate.toml")  # sealed, and copied all the same
_COPY_MODE = 0o444
_ABSENT = "dev"  # the one part of a snapshot that is in no fork
_PROBE = "a-file-that-is-not-there"


@dataclass(frozen=True)
class Fork:
    """A fork as it was made."""

    root: Path
    snapshot: Snapshot
    patched: Mapping[str, bytes]  # the editable files after the standing patches
    prepared: Mapping[str, bytes]  # and after the standing overrides: what the worker finds
    standing: Overrides  # those overrides


@dataclass(frozen=True)
class ForkEdit:
    """What was changed in a fork: for `apply_edit`, and for people."""

    overrides: Overrides  # new values of constants, by file and name
    patch: str | None  # everything else: a unified diff against the fork's `patched`
    diff: str  # unified diff from `prepared` to what is there; "" when nothing changed


def make_fork(
    snapshot: Snapshot, root: Path, *, overrides: Overrides, patches: Sequence[str]
) -> Fork:
    """Fork a snapshot and apply the standing recipe: patches in order, then overrides.

    The snapshot is the caller's to verify; the editable files are compared with it as they are
    read. Raises BadEdit when the standing recipe does not apply, SnapshotDamaged, FileExistsError
    when `root` is there; all before anything is written.
    """
    files = snapshot.manifest.files
    patched = _editable_of(snapshot)
    for patch in patches:
        check_paths(files, patched_paths(patch))
        patched = apply_patch(patched, patch)
    check_paths(files, overrides)
    prepared = override(patched, overrides)

    root.mkdir(parents=True)
    root = root.resolve()
    for entry in _copied(snapshot):
        (root / entry.path).parent.mkdir(parents=True, exist_ok=True)
        copy_file(snapshot.root / entry.path, root / entry.path)
        (root / entry.path).chmod(_COPY_MODE)
    for path in linked_paths(snapshot):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(snapshot.root / path)
    write_editable(root, {}, prepared)
    for entry in snapshot.entries:
        if entry.path in prepared and entry.mode & 0o100:
            (root / entry.path).chmod(0o755)
    return Fork(root, snapshot, patched, prepared, overrides)


def apply_edit(fork: Fork, overrides: Overrides, patch: str | None) -> None:
    """Apply an edit, as `read_edit` gives it, to a fork as `make_fork` left it.

    The patch is applied to the files as they are without the standing overrides; then these, but
    for constants that the patch itself changed; then the edit's own. Raises BadEdit, and the fork
    is as it was.
    """
    files = fork.snapshot.manifest.files
    edited = dict(fork.patched)
    if patch is not None:
        check_paths(files, patched_paths(patch))
        edited = apply_patch(edited, patch)
    check_paths(files, overrides)
    merged = _untouched(fork.standing, fork.patched, edited)
    for name, values in overrides.items():
        merged[name] = merged.get(name, {}) | values
    edited = override(edited, merged)
    write_editable(fork.root, fork.prepared, edited)


def read_edit(fork: Fork) -> ForkEdit:
    """What was changed in a fork since it was made.

    New values of constants are overrides, so that edits of different constants never conflict; the
    rest is a patch. `apply_edit` with these gives the same files in a fork with the same standing
    recipe, byte for byte but for the spelling of a rewritten constant (`3e-3` becomes `0.003`).
    Raises BadEdit for what an edit cannot carry: links, binary files, files that are too large.
    """
    now = editable_files(fork)
    overrides: Overrides = {}
    rest = dict(now)
    for path in sorted(fork.patched.keys() & now.keys()):
        if now[path] == fork.prepared[path]:
            rest[path] = fork.patched[path]
        elif path.endswith(".py"):
            try:
                texts = [files[path].decode() for files in (fork.patched, fork.prepared, now)]
            except UnicodeDecodeError:
                continue  # the patch below says what is wrong with it
            edit = changed_constants(*texts)
            rest[path] = edit.rest.encode()
            if edit.values:
                overrides[path] = edit.values
    patch = make_patch(fork.patched, rest) or None
    diff = make_patch(fork.prepared, now) if overrides or patch else ""
    return ForkEdit(overrides, patch, diff)


def editable_files(fork: Fork) -> dict[str, bytes]:
    """The content of a fork's editable files, by path. Raises BadEdit as `read_edit` does."""
    bound = set(linked_paths(fork.snapshot))
    return read_editable(fork.root, fork.snapshot.manifest.files, bound=bound, known=fork.prepared)


def is_idle(fork: Fork) -> bool:
    """Whether what was changed in a fork since it was made changes no program: comments, spaces.

    Raises BadEdit as `read_edit` does.
    """
    now = editable_files(fork)
    return now.keys() == fork.prepared.keys() and all(
        now[path] == before or (path.endswith(".py") and is_same_program(now[path], before))
        for path, before in fork.prepared.items()
    )


def sealed_changes(fork: Fork) -> list[str]:
    """Sealed paths of a fork that are not as it was made with, added ones included.

    Copies are compared by content and mode. What lies behind an unbroken link is the snapshot
    itself: `Store.verify` compares that.
    """
    files = fork.snapshot.manifest.files
    bound = set(linked_paths(fork.snapshot))
    changed = {path for path in bound if not _leads_to(fork.root / path, fork.snapshot.root / path)}
    copied = {entry.path: entry for entry in _copied(fork.snapshot)}
    changed |= {path for path, entry in copied.items() if not _is_copy(fork.root / path, entry)}
    bound |= copied.keys()
    for folder, names, others in os.walk(fork.root):
        inside = f"{folder}/"[len(str(fork.root)) + 1 :]
        links = [name for name in names if os.path.islink(f"{folder}/{name}")]
        for name in (*links, *others):
            path = inside + name
            if path not in bound and _may_not_be_there(files, path):
                changed.add(path)
    return sorted(changed)


def linked_paths(snapshot: Snapshot) -> list[str]:
    """The paths at which a fork has links to the snapshot."""
    files = snapshot.manifest.files
    by_top: dict[str, list[str]] = {}
    for entry in snapshot.entries:
        if entry.type == "file":
            by_top.setdefault(entry.path.partition("/")[0], []).append(entry.path)
    for top in (_ABSENT, *COPIED):
        by_top.pop(top, None)
    bound: list[str] = []
    for top, paths in sorted(by_top.items()):
        # A folder with room for editable files is a real folder. One that is sealed whatever its
        # files are called need not be searched: a base may have thousands.
        is_whole = top != paths[0] and is_sealed(files, f"{top}/{_PROBE}")
        if is_whole and (
            f"{top}/**" in (*ALWAYS_SEALED, *files.sealed)
            or all(is_sealed(files, path) for path in paths)
        ):
            bound.append(top)
        else:
            bound += [path for path in paths if is_sealed(files, path)]
    return bound


def _editable_of(snapshot: Snapshot) -> dict[str, bytes]:
    """Content of the snapshot's editable files, by path."""
    bound = set(linked_paths(snapshot))
    found: dict[str, bytes] = {}
    for entry in snapshot.entries:
        top = entry.path.partition("/")[0]
        if entry.type != "file" or top in (_ABSENT, *COPIED):
            continue
        if top in bound or entry.path in bound:
            continue
        try:
            content = (snapshot.root / entry.path).read_bytes()
        except OSError:
            content = None
        if content is None or hashlib.sha256(content).hexdigest() != entry.sha256:
            raise SnapshotDamaged(
                f"wanted snapshot {snapshot.digest} as it was sealed, found {entry.path} changed "
                f"or missing; find out who wrote there, remove {snapshot.root.parent}, seal again"
            )
        found[entry.path] = content
    return found


def _copied(snapshot: Snapshot) -> list[Entry]:
    """The sealed files of which a fork has copies."""
    return [
        entry
        for entry in snapshot.entries
        if entry.type == "file" and entry.path.partition("/")[0] in COPIED
    ]


def _is_copy(path: Path, entry: Entry) -> bool:
    """Whether the regular file that the fork was made with is there, and no link leads to it."""
    try:
        info = path.lstat()
        if path.parent.is_symlink() or info.st_mode != stat.S_IFREG | _COPY_MODE:
            return False
        return info.st_size == entry.size and hash_file(path) == entry.sha256
    except OSError:
        return False


def _untouched(
    standing: Overrides, before: Mapping[str, bytes], after: Mapping[str, bytes]
) -> Overrides:
    """The standing overrides of the constants that a patch left as they were."""
    kept: Overrides = {}
    for name, values in standing.items():
        if after.get(name) == before.get(name):
            kept[name] = dict(values)
        elif name in after:
            same = same_constants(before[name].decode(), after[name].decode())
            kept[name] = {key: value for key, value in values.items() if key in same}
    return kept


def _leads_to(link: Path, target: Path) -> bool:
    return link.is_symlink() and os.readlink(link) == str(target)


def _may_not_be_there(files: Files, path: str) -> bool:
    # A file in a sealed place is a difference, byte code too: it would be imported. Elsewhere
    # byte code is nobody's edit.
    if path.partition("/")[0] == OUTPUT:
        return False
    return is_sealed_by_glob(files, path) or (is_sealed(files, path) and not is_ignored(path))
