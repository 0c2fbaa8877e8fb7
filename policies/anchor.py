"""The anchor: heads of the hash chain, kept in a file outside of the database.

A chain that was rewritten to its end, or cut short, is consistent in itself; a head that was kept
elsewhere shows both. Each line of the file is the place, the hash and the time of what was then the
last event. After a line is on disk, a note in the chain says so: a line that is taken away, or
altered, is missed. A line that no note speaks of was being written when its process died.

Whoever can write the database and this file can forge both, up to the newest copy of the file that
is out of their reach: another user's, append-only (`chattr +a`), or another machine's.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from policies.canonical import canonical_json
from policies.chain import EVENT
from policies.ledger import Ledger
from policies.tables import utc_now

ANCHORED = "ledger.anchored"


@dataclass(frozen=True)
class Head:
    """What was the last event of the chain at some moment."""

    seq: int
    hash: str


def drop_anchor(ledger: Ledger, file: Path) -> Head | None:
    """Write the chain's head to the anchor, flushed to disk, and note that; None if it is empty.

    Any number of processes may do so at once. Raises OSError where the file cannot be written.
    """
    last = ledger.last_event()
    if last is None:
        return None
    head = Head(last.seq, last.hash)
    line = canonical_json({"at": utc_now().isoformat(), "hash": head.hash, "seq": head.seq})
    _append(file, line)
    ledger.note(None, ANCHORED, str(head.seq), {"hash": head.hash})
    return head


def read_anchor(file: Path) -> list[Head]:
    """The heads in an anchor, in the order of the file. A line that is none is left out.

    Raises OSError where there is no such file, or something else in its place.
    """
    if file.exists() and not file.is_file():  # a pipe or a device has no end
        raise OSError(f"wanted a file at {file}, found something else; put back a copy of it")
    heads = []
    for line in file.read_bytes().splitlines():
        try:
            match json.loads(line):
                case {"seq": int(seq), "hash": str(hash)}:
                    heads.append(Head(seq, hash))
        except (ValueError, RecursionError):
            continue  # cut off when its process died, or altered: then the chain misses it
    return heads


def first_drift(ledger: Ledger, file: Path, *, complete: bool = True) -> str | None:
    """The first thing that the chain and an anchor do not agree on, or None.

    Every head must be an event of the chain; and, where the anchor is `complete` and not an earlier
    copy, it must have every head that the chain says was written. A file that is not there has no
    heads. Campaigns may go on meanwhile: the notes are read before the file, the chain after it.
    """
    with ledger.read() as connection:
        noted = connection.execute(_NOTES).all() if complete else []
    heads = read_anchor(file) if file.exists() else []
    with ledger.read() as connection:
        hashes = {row.seq: row.hash for row in connection.execute(_HASHES)}
    for head in heads:
        if head.seq not in hashes:
            return (
                f"the anchor has event {head.seq}, the ledger ends at event "
                f"{max(hashes, default=0)}: it was cut"
            )
        if hashes[head.seq] != head.hash:
            return (
                f"event {head.seq} has hash {hashes[head.seq]}, the anchor has {head.hash}: the "
                "ledger was rewritten, or the anchor replaced"
            )
    kept = {(str(head.seq), head.hash) for head in heads}
    for seq, subject, body in noted:
        if (subject, json.loads(body).get("hash")) not in kept:
            return (
                f"the anchor lacks event {subject}, of which event {seq} says that it was "
                "anchored: a line was removed or altered"
            )
    return None


_HASHES = select(EVENT.c.seq, EVENT.c.hash)
_NOTES = (
    select(EVENT.c.seq, EVENT.c.subject, EVENT.c.body)
    .where(EVENT.c.kind == ANCHORED)
    .order_by(EVENT.c.seq)
)


def _append(file: Path, line: str) -> None:
    """One line in one write, behind whatever is there: a line that was cut off keeps its own."""
    is_new = not file.exists()
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, f"{chr(10) if torn else ''}{line}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
