"""Marks: what a key is recognised by in a process that does not have it.

For each spelling of a key its length, a polynomial hash of its bytes modulo 2**64 (Karp and Rabin
1987) at an odd base drawn for this run, and a keyed BLAKE2 digest. Standard library only.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

WORD = 2**64


@dataclass(frozen=True)
class Mark:
    """What one spelling of a key is recognised by."""

    length: int
    hash: int
    digest: str


@dataclass(frozen=True)
class Marks:
    """The marks of all keys, with what they were made with."""

    base: int
    salt: str
    marks: tuple[Mark, ...]

    def data(self) -> dict[str, Any]:
        marks = [[mark.length, mark.hash, mark.digest] for mark in self.marks]
        return {"base": self.base, "salt": self.salt, "marks": marks}

    @classmethod
    def of(cls, data: dict[str, Any]) -> "Marks":
        return cls(data["base"], data["salt"], tuple(Mark(*mark) for mark in data["marks"]))

    def digest(self, data: bytes) -> str:
        return hashlib.blake2b(data, key=self.salt.encode(), digest_size=16).hexdigest()


NO_MARKS = Marks(1, "", ())


def make_marks(spellings: Iterable[bytes]) -> Marks:
    """Marks with a base and a salt of their own: two runs have nothing in common."""
    empty = Marks(secrets.randbits(64) | 1, secrets.token_hex(16), ())
    marks = []
    for spelling in spellings:
        total, power = 0, 1
        for byte in spelling:
            total, power = (total + byte * power) % WORD, power * empty.base % WORD
        marks.append(Mark(len(spelling), total, empty.digest(spelling)))
    return Marks(empty.base, empty.salt, tuple(marks))
