"""Planted secrets: looks for one, in six encodings, in every byte below a folder."""

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from agents.encodings import encodings

SQLITE = b"SQLite format 3\0"
GZIP = b"\x1f\x8b"


def places_of(secret: str, folder: Path) -> list[str]:
    """Each `file: encoding` that the secret is found in: names of files, their bytes, their rows.

    The rows of a SQLite database are read as well as its pages, over which a long value is strewn;
    what is packed with gzip is unpacked.
    """
    spellings = encodings(secret)
    found = []
    for name, data in _texts(folder):
        folded = data.lower()
        for encoding, needles in spellings.items():
            # Lower case finds what a program wrote in its own case; base64 has two, plainly.
            if any(needle in data or needle.lower() in folded for needle in needles):
                found.append(f"{name}: {encoding}")
    return found


def _texts(folder: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        yield f"name of {name}", name.encode()
        if file.is_symlink():
            yield f"target of {name}", str(file.readlink()).encode()
        elif file.is_file():
            data = file.read_bytes()
            yield name, data
            if data.startswith(SQLITE):
                yield f"rows of {name}", _rows(file)
            elif data.startswith(GZIP):
                yield f"unpacked {name}", zlib.decompressobj(wbits=31).decompress(data)


def _rows(file: Path) -> bytes:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        return "\n".join(database.iterdump()).encode("utf-8", "surrogatepass")
