"""The canonical form of a value: bytes that leave the jail in its place.

A value is None, or a bool, int of at most 8,192 bits, float, complex, str, bytes, list, tuple,
dict, set or frozenset by exact type, whose parts are values: at most 60 deep, 20,000 of them in
all, and 64 KiB of bytes. An instance of a subclass is not a value.

Two values are equal if types and contents are: 1, 1.0 and True are three values, so are 0.0 and
-0.0; nan equals nan; the order of a dict's entries does not count, at any depth, and that of a list
does. `Value.canonical` says it in bytes: equal values have equal bytes and no others do.

`encode` runs in the jail, beside code that may have changed anything that can be changed. It asks a
value for nothing but its exact type and calls no method that a program can define. `decode` runs in
the trainer and takes the bytes for a forgery until they have proved otherwise. No repr, pickle,
marshal or JSON of a program's objects is ever read.
"""

import ast
import functools
import math
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

MOST_BITS = 8192  # of an int
MOST_DEPTH = 60
MOST_PARTS = 20_000
MOST_BYTES = 65536

_FLOAT = struct.Struct(">d")
_LENGTH = struct.Struct(">I")
_NAN = _FLOAT.pack(math.nan)
_NONE = type(None)


class NotAValue(Exception):
    """This object has no canonical form. `kind` is the verdict: the wrong type, or too much."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Malformed(ValueError):
    """These bytes are not what `encode` writes."""


@dataclass(frozen=True)
class Value:
    """A value as the trainer knows it. Compare `canonical`; `text` is for people and models."""

    text: str  # as a Python expression: dicts in the order they were made in, sets sorted
    canonical: bytes
    is_literal: bool  # `text` reads back as this value: not so for nan, frozensets, complex -0.0


def encode(value: object) -> bytes:
    """The bytes of `value`, dicts in their own order. Raises NotAValue.

    At most MOST_BYTES of them are built, whatever the value's own size.
    """
    parts: list[bytes] = []
    room = [MOST_BYTES, MOST_PARTS]
    _encode(value, parts, room, MOST_DEPTH)
    return b"".join(parts)


@functools.lru_cache(maxsize=64)  # interpreters that agree say the same bytes
def decode(raw: bytes) -> Value:
    """The value whose `encode` wrote `raw`. Raises Malformed."""
    if len(raw) > MOST_BYTES:
        raise Malformed(f"wanted at most {MOST_BYTES} bytes, found {len(raw)}")
    reader = _Reader(raw)
    try:
        text, canonical, _ = reader.read(MOST_DEPTH)
    except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
        raise Malformed(str(error)) from error
    if reader.at != len(raw):
        raise Malformed(f"wanted {reader.at} bytes, found {len(raw)}")
    return Value(text, canonical, reader.is_literal)


def _encode(value: Any, parts: list[bytes], room: list[int], depth: int) -> None:
    room[1] -= 1
    if room[1] < 0:
        raise NotAValue("output_limit", f"more than {MOST_PARTS} parts")
    kind = type(value)
    # `is` and no lookup by type: a metaclass can define __hash__ and __eq__.
    if kind is _NONE:
        encoded = b"N"
    elif kind is bool:
        encoded = b"T" if value else b"F"
    elif kind is int:
        bits = value.bit_length()
        if bits > MOST_BITS:
            raise NotAValue("unserializable_output", f"an int of {bits} bits, at most {MOST_BITS}")
        magnitude = abs(value).to_bytes((bits + 7) // 8, "big")
        encoded = (b"-" if value < 0 else b"i") + _LENGTH.pack(len(magnitude)) + magnitude
    elif kind is float:
        encoded = b"d" + _float_bytes(value)
    elif kind is complex:
        encoded = b"c" + _float_bytes(value.real) + _float_bytes(value.imag)
    elif kind is str or kind is bytes:
        if len(value) > room[0]:
            raise NotAValue("output_limit", f"more than {MOST_BYTES} bytes")
        data = value.encode("utf-8", "surrogatepass") if kind is str else value
        encoded = (b"s" if kind is str else b"b") + _LENGTH.pack(len(data)) + data
    elif kind is list or kind is tuple:
        encoded = (b"l" if kind is list else b"t") + _LENGTH.pack(len(value))
    elif kind is dict:
        encoded = b"m" + _LENGTH.pack(len(value))
    elif kind is set or kind is frozenset:
        encoded = (b"e" if kind is set else b"z") + _LENGTH.pack(len(value))
    else:
        raise NotAValue("unserializable_output", "not of a plain built-in type")
    room[0] -= len(encoded)
    if room[0] < 0:
        raise NotAValue("output_limit", f"more than {MOST_BYTES} bytes")
    parts.append(encoded)

    if encoded[0] not in b"ltmez":
        return
    if depth == 0:
        raise NotAValue("unserializable_output", f"nested more than {MOST_DEPTH} deep")
    if len(value) > room[1]:
        raise NotAValue("output_limit", f"more than {MOST_PARTS} parts")
    if kind is dict:
        for key, item in value.items():
            _encode(key, parts, room, depth - 1)
            _encode(item, parts, room, depth - 1)
    elif kind is list or kind is tuple:
        for item in value:
            _encode(item, parts, room, depth - 1)
    else:
        elements = []
        for item in value:
            element: list[bytes] = []
            _encode(item, element, room, depth - 1)
            elements.append(b"".join(element))
        parts += sorted(elements)


def _float_bytes(number: float) -> bytes:
    return _FLOAT.pack(number) if number == number else _NAN


# What is read of a value: its text, its canonical bytes, and as a key or element of a set a text
# that two of them share if Python takes them for one, as 1 and True; None if it cannot be one.
_Found = tuple[str, bytes, str | None]


class _Reader:
    """Reads `raw` from the front."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0
        self.parts = 0
        self.is_literal = True

    def read(self, depth: int) -> _Found:
        start = self.at
        tag = self.take(1)
        self.parts += 1
        if depth < 0 or self.parts > MOST_PARTS:
            raise Malformed("nested too deep, or too many parts")
        if tag in b"ltmez":
            return self.read_container(tag, depth)
        if tag in b"i-":
            text = key = self.read_int(negative=tag == b"-")
        elif tag in b"dc":
            number = self.read_number(2 if tag == b"c" else 1)
            text = repr(number).replace("inf", "1e999")  # which reads back as inf
            key = self.key_of(number)
        elif tag in b"TF":
            text, key = ("True", "1") if tag == b"T" else ("False", "0")
        elif tag == b"N":
            text = key = "None"
        elif tag == b"s":
            text = key = repr(self.take_counted().decode("utf-8", "surrogatepass"))
        elif tag == b"b":
            text = key = repr(self.take_counted())
        else:
            raise Malformed(f"wanted the tag of a type, found {tag!r}")
        return text, self.raw[start : self.at], key

    def read_container(self, tag: bytes, depth: int) -> _Found:
        (count,) = _LENGTH.unpack(self.take(4))
        if count > len(self.raw) - self.at:
            raise Malformed(f"wanted at least a byte for each of {count} parts")
        head = tag + _LENGTH.pack(count)
        if tag == b"m":
            entries = []
            for _ in range(count):
                entries.append((self.read(depth - 1), self.read(depth - 1)))
            _check_keys([key for key, _ in entries])
            text = "{" + ", ".join(f"{key[0]}: {value[0]}" for key, value in entries) + "}"
            return text, head + b"".join(sorted(k[1] + v[1] for k, v in entries)), None
        items = [self.read(depth - 1) for _ in range(count)]
        text = ", ".join(item[0] for item in items)
        data = [item[1] for item in items]
        canonical = head + b"".join(data)
        if tag in b"lt":
            text = f"[{text}]" if tag == b"l" else f"({text},)" if count == 1 else f"({text})"
            keys = [item[2] for item in items if item[2] is not None]
            hashable = tag == b"t" and len(keys) == count
            return text, canonical, f"({', '.join(keys)},)" if hashable else None
        keys = _check_keys(items)
        if data != sorted(data):
            raise Malformed("wanted the elements of a set in order")
        text = f"{{{text}}}" if items else ""
        if tag == b"e":
            return text or "set()", canonical, None
        self.is_literal = False
        return f"frozenset({text})", canonical, f"{{{', '.join(keys)}}}"

    def read_int(self, *, negative: bool) -> str:
        magnitude = self.take_counted()
        number = int.from_bytes(magnitude, "big")
        if magnitude[:1] == b"\0" or len(magnitude) * 8 > MOST_BITS or (negative and not number):
            raise Malformed("wanted the shortest form of an int")
        return str(-number if negative else number)

    def read_number(self, parts: int) -> float | complex:
        data = self.take(8 * parts)
        numbers = [_FLOAT.unpack(data[at : at + 8])[0] for at in range(0, 8 * parts, 8)]
        if b"".join(map(_float_bytes, numbers)) != data:
            raise Malformed("wanted the one nan")
        number = numbers[0] if parts == 1 else complex(*numbers)
        if number != number or (isinstance(number, complex) and not _reads_back(number, data)):
            self.is_literal = False
        return number

    def key_of(self, number: float | complex) -> str:
        if number != number:
            return f"nan {self.at}"  # every nan is another key
        if number.imag:
            return repr(number + 0)  # a -0.0 in it is no other key than a 0.0
        real = float(number.real)
        return str(int(real)) if real.is_integer() else repr(real)

    def take(self, count: int) -> bytes:
        data = self.raw[self.at : self.at + count]
        if len(data) != count:
            raise Malformed("wanted more bytes")
        self.at += count
        return data

    def take_counted(self) -> bytes:
        return self.take(_LENGTH.unpack(self.take(4))[0])


def _check_keys(found: list[_Found]) -> list[str]:
    """The keys in an order of their own. Raises Malformed if one container cannot have them all."""
    keys = sorted(key for _, _, key in found if key is not None)
    if len(keys) < len(found) or any(one == next_one for one, next_one in pairwise(keys)):
        raise Malformed("wanted keys or elements that are hashable and different")
    return keys


def _reads_back(number: complex, data: bytes) -> bool:
    """Whether the text of a number is a literal of just this one: signs of zeros may be lost."""
    again = ast.literal_eval(repr(number).replace("inf", "1e999"))
    return _FLOAT.pack(again.real) + _FLOAT.pack(again.imag) == data
