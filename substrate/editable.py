"""Which paths of a fork a worker may change, and the reading and writing of what lies there."""

import os
import re
import stat
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path

from substrate.dropin import Files

# Sealed in every substrate, whatever its manifest says. Of a snapshot, `dev` is in no fork.
ALWAYS_SEALED = ("evaluation/**", "data/**", "base/**", "dev/**", "substrate.toml")
OUTPUT = "out"  # where runs write: neither sealed nor part of an edit

MOST_FILE_BYTES = 1 << 20  # of one file that an edit adds or changes
MOST_ADDED_BYTES = 8 << 20  # of all files that an edit adds


class BadEdit(ValueError):
    """An edit that cannot be used: the message says what was wanted, found, and what to do."""


def is_sealed(files: Files, path: str) -> bool:
    """Whether a worker may not touch `path`. Sealed wins over editable."""
    return is_sealed_by_glob(files, path) or not _matches(path, tuple(files.editable))


def is_sealed_by_glob(files: Files, path: str) -> bool:
    """Whether `path` is sealed by name, and not only left out of what is editable."""
    return _matches(path, (*ALWAYS_SEALED, *files.sealed))


def is_ignored(path: str) -> bool:
    """Whether `path` is no part of a tree's content: run output, byte code, hidden files."""
    parts = path.split("/")
    return (
        parts[0] == OUTPUT
        or any(part.startswith(".") or part == "__pycache__" for part in parts)
        or path.endswith((".pyc", ".pyo"))
    )


def check_paths(files: Files, paths: Collection[str]) -> None:
    """Raise BadEdit unless an edit may write every one of `paths`."""
    for path in paths:
        parts = path.split("/")
        if path.startswith("/") or {"", ".", ".."} & set(parts) or not path.isprintable():
            raise BadEdit(
                f"wanted a path inside the fork, found {path!r}; use a plain relative one"
            )
        if is_sealed(files, path):
            raise BadEdit(f"wanted a change of editable files only, found one of {path}: sealed")
        if is_ignored(path):
            raise BadEdit(
                f"wanted files that an edit can carry, found {path}: run output, byte code and "
                "hidden files are left out; give it another name"
            )


def read_editable(
    root: Path, files: Files, *, bound: Collection[str], known: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Content of every editable file of a fork, by path.

    `bound` are the links that the fork was made with; `known` is what its files were then. Nothing
    is followed or read that would lead out of the fork. Raises BadEdit for a link, a special file,
    a name that is not printable text, and what is too large to be an edit.
    """
    found: dict[str, bytes] = {}
    added = 0
    below = len(str(root)) + 1
    for folder, names, others in os.walk(root):
        inside = f"{folder}/"[below:]
        names[:] = sorted(name for name in names if not is_ignored(inside + name))
        links = [name for name in names if os.path.islink(f"{folder}/{name}")]
        for name in (*links, *others):
            path = inside + name
            if path in bound or is_ignored(path) or is_sealed(files, path):
                continue
            if not path.isprintable():
                raise BadEdit(f"wanted printable UTF-8 names, found {path!r}; rename that file")
            info = os.lstat(f"{root}/{path}")
            if not stat.S_ISREG(info.st_mode):
                raise BadEdit(f"wanted regular files, found a link or special file {path}; copy it")
            if info.st_size > max(MOST_FILE_BYTES, len(known.get(path, b""))):
                raise BadEdit(
                    f"wanted files of at most {MOST_FILE_BYTES} bytes, found {path} with "
                    f"{info.st_size}; write run output to {OUTPUT}/"
                )
            added += 0 if path in known else info.st_size
            if added > MOST_ADDED_BYTES:
                raise BadEdit(
                    f"wanted at most {MOST_ADDED_BYTES} bytes of added files, found more at "
                    f"{path}; write run output to {OUTPUT}/"
                )
            found[path] = (root / path).read_bytes()
    return found


def write_editable(root: Path, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> None:
    """Turn the files of a fork from what `before` says into what `after` says."""
    for path in before.keys() - after.keys():
        (root / path).unlink()
    changed = {path: content for path, content in after.items() if before.get(path) != content}
    for folder in {path.rpartition("/")[0] for path in changed}:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path, content in changed.items():
        with open(f"{root}/{path}", "wb") as file:
            file.write(content)


def _matches(path: str, globs: tuple[str, ...]) -> bool:
    return _pattern(globs).fullmatch(path) is not None


@lru_cache(maxsize=1024)
def _pattern(globs: tuple[str, ...]) -> re.Pattern[str]:
    """`*` and `?` stay within a folder, `**` does not; what names a folder names what is in it."""
    spelled = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    texts = []
    for glob in globs:
        tokens = re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", glob.removesuffix("/**"))
        texts.append("".join(spelled.get(t) or re.escape(t) for t in tokens) + "(?:/.*)?")
    return re.compile("|".join(texts) or "(?!)", re.S)
