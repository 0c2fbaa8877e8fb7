"""Files of a fork as a worker's tools reach them: inside it, and through no link of a worker's.

The links that a fork was made with lead to the snapshot's sealed data and weights; these are read
there. Every other link is refused. What is sealed can be read and not written.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from substrate.editable import MOST_FILE_BYTES, OUTPUT, BadEdit, check_paths, is_ignored, is_sealed
from substrate.fork import Fork, linked_paths
from substrate.run import open_folder, open_regular

MOST_READ = 4 << 20  # bytes of a file that is read
MOST_ENTRIES = 400  # of a folder that is listed
MOST_SEARCHED = 4000  # entries of one search
MOST_SEARCHED_BYTES = 64 << 20
MOST_HITS = 80


@dataclass(frozen=True)
class Item:
    """One entry of a folder."""

    path: str
    kind: str  # file, folder, or link, which is followed only where the fork was made with it
    size: int
    is_sealed: bool


def list_folder(fork: Fork, path: str = ".") -> list[Item]:
    """The entries of a folder, hidden ones and byte code left out. Raises OSError."""
    here = _clean(path)
    with _folder(_root_of(fork, here), here) as folder:
        found = []
        for name in sorted(os.listdir(folder)):
            inside = str(PurePosixPath(here) / name)
            if is_ignored(inside) and inside.partition("/")[0] != OUTPUT:
                continue
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            sealed = is_sealed(fork.snapshot.manifest.files, inside)
            found.append(Item(inside, _kind(info.st_mode), info.st_size, sealed))
    return found[:MOST_ENTRIES]


def read_file(fork: Fork, path: str) -> bytes:
    """The first MOST_READ bytes of a file. Raises OSError."""
    where = PurePosixPath(_clean(path))
    with (
        _folder(_root_of(fork, str(where)), str(where.parent)) as folder,
        open_regular(folder, where.name) as source,
    ):
        return source.read(MOST_READ)


def write_file(fork: Fork, path: str, content: bytes) -> None:
    """Put a file in its place, in new folders where there are none. Raises BadEdit, OSError."""
    check_paths(fork.snapshot.manifest.files, [path])
    if len(content) > MOST_FILE_BYTES:
        raise BadEdit(
            f"wanted at most {MOST_FILE_BYTES} bytes, found {len(content)} for {path}; an edit "
            "carries no more"
        )
    where = PurePosixPath(path)
    folder = _make_folders(fork.root, where.parent.parts)
    try:
        mode = 0o644
        with suppress(FileNotFoundError):
            info = os.stat(where.name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(info.st_mode):
                raise OSError(f"wanted a regular file, found something else at {path!r}")
            mode = stat.S_IMODE(info.st_mode)
        unfinished = f".{secrets.token_hex(8)}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(unfinished, flags, mode, dir_fd=folder), "wb") as target:
            target.write(content)
        os.rename(unfinished, where.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


def remove_file(fork: Fork, path: str) -> None:
    """Remove a file. Raises BadEdit, OSError."""
    check_paths(fork.snapshot.manifest.files, [path])
    where = PurePosixPath(path)
    folder = open_folder(fork.root, str(where.parent))
    try:
        os.unlink(where.name, dir_fd=folder)
    finally:
        os.close(folder)


def search_files(fork: Fork, text: str, path: str = ".") -> list[tuple[str, int, str]]:
    """Where `text` stands, to the letter: file, line number, line.

    At most MOST_HITS, among at most MOST_SEARCHED_BYTES.
    """
    hits: list[tuple[str, int, str]] = []
    left = MOST_SEARCHED_BYTES
    for file in _walk(fork, path):
        try:
            content = read_file(fork, file)
            left -= len(content)
            lines = content.decode("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue  # binary, or a worker's link
        if left < 0:
            break
        for number, line in enumerate(lines, start=1):
            if text in line:
                hits.append((file, number, line))
                if len(hits) == MOST_HITS:
                    return hits
    return hits


def _walk(fork: Fork, path: str) -> Iterator[str]:
    links, seen = set(linked_paths(fork.snapshot)), 0
    rest = [_clean(path)]
    while rest and seen < MOST_SEARCHED:
        here = rest.pop()
        try:
            items = list_folder(fork, here)
        except NotADirectoryError:
            yield here
            continue
        for item in items:
            seen += 1
            is_folder = item.kind == "folder" or item.path in links
            if item.kind == "file":
                yield item.path
            elif is_folder:
                rest.append(item.path)


def _clean(path: str) -> str:
    """A plain relative path. Raises OSError for what leads out of the fork."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not path.isprintable():
        raise OSError(f"wanted a plain path inside the fork, found {path[:200]!r}")
    return "/".join(parts) or "."


def _root_of(fork: Fork, path: str) -> Path:
    """Where a path is read: in the fork, or in the snapshot behind a link of the fork's own."""
    behind = any(
        path == link or path.startswith(f"{link}/") for link in linked_paths(fork.snapshot)
    )
    return fork.snapshot.root if behind else fork.root


@contextmanager
def _folder(root: Path, path: str) -> Iterator[int]:
    folder = open_folder(root, path)
    try:
        yield folder
    finally:
        os.close(folder)


def _make_folders(root: Path, parts: tuple[str, ...]) -> int:
    """A descriptor of a folder below `root`, made where it is not there; no link is followed."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for name in parts:
        try:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=folder)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISREG(mode):
        return "file"
    return "link" if stat.S_ISLNK(mode) else "other"
