"""Leakage: a judge's canaries, and held-out problems, in what campaigns have written.

Looked through are every text of the ledger (hypotheses, notes, edits, policies, reports, what waits
to be published), the logs and metrics of runs, adapters with their metadata, exports, and what
Prefect keeps. A canary is looked for as it is, in base64 and in hexadecimal.
"""

import base64
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from flows.house import House
from flows.inspection import held_out
from policies.tables import Campaign
from policies.texts import every_text

BLOCK = 8 << 20  # bytes that are read at a time
MOST_TEXT = 16 << 20  # of a file that is read for held-out problems


def first_leak(house: House, rows: list[Campaign]) -> str | None:
    """Where the first canary of these campaigns' judges is, or the first file of problems."""
    canaries = frozenset(c for row in rows for c in house.judge(row.id).canaries)
    needles = {spelled for canary in canaries for spelled in _spellings(canary)}
    for table, text in every_text(house.ledger):
        if _holds(text.encode("utf-8", "replace"), needles):
            return f"a canary of the judge is in a row of {table}"
    for path in _files(house):
        if _file_holds(path, needles):
            return f"a canary of the judge is in {path}"
    for row in rows:
        known = held_out(house.snapshot(row.id), house.judge(row.id))
        for path in _kept(house, row.id):
            text = path.read_bytes()[:MOST_TEXT].decode("utf-8", "replace")
            if found := known.contaminated([text]):
                said = ", ".join(f"{count} problems of {name}" for name, count in found.items())
                return f"{said} are in {path}"
    return None


def _spellings(canary: str) -> Iterator[bytes]:
    """A text as it is and encoded; in base64 it has three spellings, by where it stands."""
    plain = canary.encode()
    yield plain
    yield plain.hex().encode()
    for before in range(3):
        spelled = base64.b64encode(b"\0" * before + plain)
        yield spelled[(0, 2, 3)[before] : -4]  # the ends depend on what is beside it


def _files(house: House) -> Iterator[Path]:
    settings = house.settings
    for folder in (settings.artifacts, settings.folder / "exports", settings.prefect_home):
        yield from _files_below(folder)


def _kept(house: House, campaign_id: str) -> Iterable[Path]:
    """What is kept of a campaign's runs."""
    return _files_below(house.settings.artifacts / campaign_id)


def _files_below(folder: Path) -> Iterator[Path]:
    for inside, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(inside, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _file_holds(path: Path, needles: Iterable[bytes]) -> bool:
    overlap = b""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            if _holds(overlap + block, needles):
                return True
            overlap = block[-256:]
    return False


def _holds(data: bytes, needles: Iterable[bytes]) -> bool:
    return any(needle in data for needle in needles)
