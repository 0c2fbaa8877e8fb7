"""A tree of files as a list of entries: hashed, written down, compared."""

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_BLOCK = 4 << 20  # bytes read at a time: weights are files of GBs
_CONTENT_TAG = "seedbed content 1"

Progress = Callable[[int], None]  # is told the bytes hashed since the last call


@dataclass(frozen=True)
class Entry:
    """One thing in a tree. Neither time nor owner is part of it: they prove nothing."""

    path: str  # relative, with slashes; "." is the tree's own folder
    type: Literal["file", "dir", "link"]
    mode: int  # permission bits
    size: int  # bytes of a file, else 0
    sha256: str | None  # of a file's content
    target: str | None  # of a link


class BadFile(ValueError):
    """A path where a regular file or a folder was wanted and something else was found."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(f"wanted a regular file or a folder at {path}, found {found}")
        self.path = path
        self.found = found


def silent(_: int) -> None:
    """The progress that nobody watches."""


def list_tree(root: Path) -> dict[str, Entry]:
    """Everything below `root`, and `root` itself, by path, without hashes; links are not followed.

    Raises BadFile for what is neither file nor folder nor link.
    """
    found = {".": _look(str(root), ".")}
    below = len(str(root)) + 1
    for folder, names, files in os.walk(root, onerror=_raise):
        for name in (*names, *files):
            path = f"{folder}/{name}"
            found[path[below:]] = _look(path, path[below:])
    return dict(sorted(found.items()))


def hash_file(path: Path | str, progress: Progress = silent) -> str:
    """sha256 (hex) of a regular file's content. Raises OSError when `path` is a link."""
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        # A small file is read in one go, and nearly all files are small.
        while block := os.read(descriptor, _BLOCK):
            digest.update(block)
            progress(len(block))
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def tree_sha256(folder: Path, progress: Progress = silent) -> str:
    """Hash of a folder's content: path, size and sha256 of every file, and nothing else.

    Permissions, times and empty folders do not count, nor do hidden files (`.git`, `.cache`), so
    that one model has one hash on every machine. A link to a file counts as that file: model hubs'
    caches are made of such links. Raises BadFile for a link that leads to no file.
    """
    files = content_files(folder)
    hashes = {name: hash_file(path.resolve(), progress) for name, path in files.items()}
    return content_sha256((n, files[n].stat().st_size, hashes[n]) for n in files)


def content_files(folder: Path) -> dict[str, Path]:
    """The files that `tree_sha256` counts, by their path below `folder`."""
    found: dict[str, Path] = {}
    for inside, names, files in os.walk(folder, onerror=_raise):
        names[:] = [name for name in names if not name.startswith(".")]
        links = [name for name in names if os.path.islink(os.path.join(inside, name))]
        for name in (*links, *files):
            path = Path(inside, name)
            if name.startswith("."):
                continue
            if not path.is_file():
                raise BadFile(str(path), "a link that leads to no file, or a special file")
            found[path.relative_to(folder).as_posix()] = path
    return dict(sorted(found.items()))


def content_sha256(files: Iterable[tuple[str, int, str]]) -> str:
    """The hash that `tree_sha256` gives, from (path, size in bytes, sha256) of each file."""
    return _sha256_of_lines(_CONTENT_TAG, (json.dumps(file) for file in sorted(files)))


def entries_sha256(tag: str, entries: Iterable[Entry]) -> str:
    """Hash of a list of entries under a version tag: the identity of the tree that it describes."""
    return _sha256_of_lines(tag, map(_line, entries))


def write_entries(entries: Iterable[Entry], path: Path) -> None:
    """Write the canonical lines, one entry a line."""
    path.write_text("".join(_line(entry) + "\n" for entry in entries), encoding="ascii")


def read_entries(path: Path) -> tuple[Entry, ...]:
    """What `write_entries` wrote. Raises OSError, ValueError or TypeError for something else."""
    if path.exists() and not path.is_file():  # a pipe has no end
        raise ValueError(f"wanted a file at {path}, found something else")
    lines = path.read_text(encoding="ascii").splitlines()
    try:
        return tuple(Entry(**json.loads(line)) for line in lines)
    except RecursionError as error:
        raise ValueError("an entry is nested without end") from error


def hash_tree(root: Path, known: Mapping[str, str], progress: Progress = silent) -> list[Entry]:
    """The entries of `root` with hashes; those of the paths in `known` are taken from there."""
    entries = []
    for path, entry in list_tree(root).items():
        sha256 = None
        if entry.type == "file":
            sha256 = known[path] if path in known else hash_file(root / path, progress)
        entries.append(Entry(path, entry.type, entry.mode, entry.size, sha256, entry.target))
    return entries


def first_difference(
    root: Path,
    entries: Iterable[Entry],
    *,
    is_hashed: Callable[[str], bool],
    progress: Progress = silent,
) -> tuple[str, str] | None:
    """The first path of the tree that is not as its entry says, and how; None if all is well.

    Content is read only where `is_hashed(path)`. Everything else is looked at first: it is cheap.
    """
    wanted = {entry.path: entry for entry in entries}
    if not root.is_dir() or root.is_symlink():
        return ".", "missing"
    try:
        found = list_tree(root)
    except BadFile as error:
        return error.path, f"changed: {error.found}"
    for path in sorted(wanted.keys() | found.keys()):
        if path not in found:
            return path, "missing"
        if path not in wanted:
            return path, "added"
        if how := _difference(wanted[path], found[path]):
            return path, how
    for path, entry in wanted.items():
        if entry.type == "file" and is_hashed(path):
            sha256 = hash_file(f"{root}/{path}", progress)
            if sha256 != entry.sha256:
                return path, f"changed: sha256 {sha256}, sealed as {entry.sha256}"
    return None


def copy_file(source: Path, target: Path) -> None:
    """Copy content only. Shares blocks (reflink) where the file system can.

    The copy is what gets hashed, afterwards: a source that changes meanwhile deceives nobody.
    """
    with source.open("rb") as reading, target.open("xb") as writing:
        with contextlib.suppress(OSError):  # other file systems, old kernels: an ordinary copy
            while os.copy_file_range(reading.fileno(), writing.fileno(), 1 << 30):
                pass
        # The descriptor's own position moved with what was copied above, also where it failed.
        while block := os.read(reading.fileno(), _BLOCK):
            writing.write(block)


def remove_tree(folder: Path) -> None:
    """Remove a folder of which parts may be read-only, following no link; one that is gone is fine.

    Files keep their permissions until they are gone: another folder may have them too.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    if not folder.exists():
        return
    folder.chmod(0o700)
    for inside, names, _ in os.walk(folder):
        for name in names:
            path = Path(inside, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder)


def _look(path: str, name: str) -> Entry:
    info = os.lstat(path)
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISREG(info.st_mode):
        return Entry(name, "file", mode, info.st_size, None, None)
    if stat.S_ISDIR(info.st_mode):
        return Entry(name, "dir", mode, 0, None, None)
    if stat.S_ISLNK(info.st_mode):
        return Entry(name, "link", mode, 0, None, os.readlink(path))
    raise BadFile(name, "a special file")


def _difference(wanted: Entry, found: Entry) -> str | None:
    if found.type != wanted.type:
        return f"changed: a {found.type}, sealed as a {wanted.type}"
    if found.mode != wanted.mode:
        return f"changed: permissions {found.mode:04o}, sealed as {wanted.mode:04o}"
    if found.size != wanted.size:
        return f"changed: {found.size} bytes, sealed as {wanted.size}"
    if found.target != wanted.target:
        return f"changed: a link to {found.target}, sealed as one to {wanted.target}"
    return None


def _line(entry: Entry) -> str:
    return json.dumps(vars(entry), sort_keys=True, separators=(",", ":"))


def _sha256_of_lines(tag: str, lines: Iterable[str]) -> str:
    text = "".join(f"{line}\n" for line in (tag, *lines))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _raise(error: OSError) -> None:
    raise error  # os.walk leaves out, without a word, a folder that it cannot read
