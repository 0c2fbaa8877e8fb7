"""What a snapshot is made of: where each file of its code comes from, and its resolved manifest."""

import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from substrate.dropin import DropIn, DropInFolder
from substrate.editable import is_ignored

REFERENCE = Path(__file__).parent / "reference"

# Where the parts of a snapshot lie in it. The judge's problems never do: their names are those of
# the copies that the store keeps elsewhere.
BASE = "base"
TARGET = "data/target.jsonl"
DEV = "dev/problems.jsonl"
EXTERNAL = "judge/external.jsonl"
LOCKBOX = "judge/lockbox.jsonl"

# At the top of the reference and of an overlay: they belong to the repo, not to the code.
_NOT_CODE = ("pyproject.toml", "README.md", "tests")


def code_files(dropin: DropInFolder) -> dict[str, Path]:
    """Every file of the code by its path in the snapshot: the reference's, then the overlay's.

    Hidden files, byte code and what belongs to the repo alone are left out.
    """
    return _code_below(REFERENCE) | overlay_files(dropin)


def overlay_files(dropin: DropInFolder) -> dict[str, Path]:
    """The files that the drop-in adds to the reference, or puts in the place of its files."""
    return _code_below(dropin.path / "overlay")


def resolve(manifest: DropIn) -> DropIn:
    """The manifest with its paths as they are in a snapshot."""
    sets = manifest.sets
    return manifest.model_copy(
        update={
            "base": manifest.base.model_copy(update={"path": BASE}),
            "sets": sets.model_copy(
                update={
                    "target": sets.target.model_copy(update={"path": TARGET}),
                    "dev": sets.dev.model_copy(update={"path": DEV}),
                    "external": sets.external.model_copy(update={"path": EXTERNAL}),
                    "lockbox": sets.lockbox.model_copy(update={"path": LOCKBOX}),
                }
            ),
        }
    )


def manifest_toml(manifest: DropIn) -> str:
    """`substrate.toml` of a manifest: `read_dropin` reads the same manifest from it."""
    return "\n".join(_table_lines("", manifest.model_dump(exclude_none=True))).lstrip("\n") + "\n"


def _code_below(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for inside, names, files in os.walk(folder):
        names.sort()
        for name in files:
            path = Path(inside, name).relative_to(folder).as_posix()
            top = PurePosixPath(path).parts[0]
            if top not in _NOT_CODE and not is_ignored(path):
                found[path] = Path(inside, name)
    return dict(sorted(found.items()))


def _table_lines(name: str, table: dict[str, Any]) -> list[str]:
    """TOML of one table: its values first, then the tables below it, as TOML asks."""
    lines = ["", f"[{name}]"] if name else []
    below: list[str] = []
    for key, value in table.items():
        spelled = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string(key)
        if isinstance(value, dict):
            below += _table_lines(f"{name}.{spelled}" if name else spelled, value)
        else:
            lines.append(f"{spelled} = {_value(value)}")
    return lines + below


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _string(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
    raise ValueError(f"wanted a value that TOML can say, found {value!r}; remove it")


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
