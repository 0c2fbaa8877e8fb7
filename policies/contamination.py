"""Contamination: held-out problems in what a model was trained on, copied, derived or in part.

A passage is one text of a held-out problem: its question, its answer. It is known as grams, hashes
of tokens in a row, as long as they must be for most of them not to occur in the trainable problems:
8, 16 or 32 tokens, else the passage whole. A passage is found where OVERLAP of its grams stand
close together in a text, as they are or with names put for other names: so a copy is found in
another spelling, order or format, with its variables renamed, and a set of which a part is held out
by that part. What a program makes up in memory, and never writes, is not seen.

A problem or two can come about by chance, since honest recipes make up problems by the thousand:
FEWEST problems of a set, and SHARE of it, are contamination.
"""

import ast
import base64
import binascii
import bz2
import codecs
import contextlib
import json
import lzma
import re
import unicodedata
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.leaks import ENCODED, LABELS, texts_of

OVERLAP = 0.8  # of a passage's grams
OWN = 0.5  # share of a passage's grams that no trainable problem has; with fewer, grams are longer
LENGTHS = (8, 16, 32)  # tokens of a gram: each is twice the one before
ENDS = (1, 4, 8, 16, 32)  # last tokens by which a passage that only tells as a whole is looked for
SHORTEST = 12  # letters of a passage; what is shorter comes about by chance
FEWEST, SHARE = 3, 0.05
CHAIN = 3  # encodings that are taken off, one after the other
MOST_CHARACTERS = 16 << 20  # of one text: what a run writes is limited too
_PACKED = 24  # characters of the shortest text that is taken for an encoded one
_ESCAPED = re.compile(r"\\+[nrt\"\\]")  # as JSON and Python spell what ends a line
# Words, and the signs that programs and formulas are made of. A script without spaces has words of
# one letter.
_TOKEN = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]|[^\W_]+|[+*/%=<>&|^~\[\]{}]|(?<![a-z]{2})-"
)
_BASE = 0x9E3779B97F4A7C15  # odd: hashes are polynomials in it, modulo 2^64
_NEAR = 8  # tokens back to where a name was last, in the reading without names

_NO_NAMES = {"true", "false", "none", "null"}

Reading = np.ndarray  # a text as numbers, one for each token
Place = tuple[int, int]  # which reading, and how many tokens a gram has


@dataclass(frozen=True)
class Passage:
    """One text of a held-out problem, in one of the two readings."""

    problem: tuple[str, str]  # set and id
    tokens: int
    grams: int


class HeldOut:
    """The held-out problems, as hashes alone: no text can be read back from it."""

    def __init__(
        self,
        sets: Mapping[str, Iterable[Mapping[str, Any]]],
        trainable: Iterable[Mapping[str, Any]],
    ) -> None:
        """`sets` are held-out problems by the name of their set."""
        self.sizes: Counter[str] = Counter()
        self._passages: list[Passage] = []
        self._by_gram: dict[int, list[int]] = defaultdict(list)
        # Passages that only tell as a whole: by end, length and hash.
        self._ends: dict[int, dict[int, dict[int, set[tuple[str, str]]]]] = defaultdict(dict)
        grams: dict[Place, set[int]] = defaultdict(set)
        spans: list[tuple[tuple[str, str], int, int]] = []  # problem, first token and the one after
        tokens: list[str] = []
        for name, problems in sets.items():
            for problem in problems:
                self.sizes[name] += 1
                key = (name, str(problem.get("id", self.sizes[name])))
                for text in _texts_of_problem(problem):
                    passage = read_tokens(text)
                    if sum(map(len, passage)) >= SHORTEST:
                        spans.append((key, len(tokens), len(tokens) + len(passage)))
                        # So far apart that no name looks back into another passage.
                        tokens += [*passage, *["|"] * _NEAR]
        known = _known(trainable)
        for number, reading in enumerate(_readings(tokens)):
            runs = {length: _runs(reading, length) for length in LENGTHS}
            own = {n: ~_within(found, known[number, n]) for n, found in runs.items()}
            for problem, start, end in spans:
                length = _telling(own, start, end)
                if length is not None:
                    part = slice(start, end - length + 1)
                    telling = set(runs[length][part][own[length][part]].tolist())
                    for gram in telling:
                        self._by_gram[gram].append(len(self._passages))
                    self._passages.append(Passage(problem, end - start, len(telling)))
                    grams[number, length] |= telling
                elif number == 0:  # without its names a short passage would say next to nothing
                    last = max(n for n in ENDS if n <= end - start)
                    tail = int(_runs(reading[end - last : end], last)[0])
                    whole = int(_runs(reading[start:end], end - start)[0])
                    wholes = self._ends[tail].setdefault(end - start, {})
                    wholes.setdefault(whole, set()).add(problem)
                    grams[number, last].add(tail)
        self._grams = {place: np.array(sorted(own), np.uint64) for place, own in grams.items()}

    def find(self, text: str) -> set[tuple[str, str]]:
        """The problems, as (set, id), of which a passage stands in a text."""
        found: set[tuple[str, str]] = set()
        near: dict[int, deque[tuple[int, int]]] = defaultdict(deque)
        counts: dict[int, Counter[int]] = defaultdict(Counter)
        readings = _readings(read_tokens(_ESCAPED.sub(" ", text[:MOST_CHARACTERS])))
        for reading, place, end, gram in self._hits(readings):
            for length, wholes in self._ends.get(gram, {}).items():
                if length <= end:
                    found |= wholes.get(int(_runs(reading[end - length : end], length)[0]), set())
            for number in self._by_gram.get(gram, ()):
                passage, seen, count = self._passages[number], near[number], counts[number]
                seen.append((place, gram))
                count[gram] += 1
                while seen[0][0] < place - 2 * passage.tokens:
                    _, old = seen.popleft()
                    count[old] -= 1
                    if not count[old]:
                        del count[old]
                if len(count) >= OVERLAP * passage.grams:
                    found.add(passage.problem)
        return found

    def _hits(self, readings: Sequence[Reading]) -> Iterator[tuple[Reading, int, int, int]]:
        """The grams of passages in a text, and where each begins and ends, by length."""
        for (number, length), grams in self._grams.items():
            reading = readings[number]
            if length <= len(reading):
                runs = _runs(reading, length)
                for place in np.flatnonzero(_within(runs, grams)).tolist():
                    yield reading, place, place + length, int(runs[place])

    def contaminated(self, texts: Iterable[str]) -> dict[str, int]:
        """By set, how many of its problems are in texts, where these are too many for chance."""
        found: set[tuple[str, str]] = set()
        for text in texts:
            for spelled in unpacked(text):
                found |= self.find(spelled)
        counts = Counter(name for name, _ in found)
        return {
            name: count
            for name, count in sorted(counts.items())
            if count >= max(FEWEST, SHARE * self.sizes[name])
        }


def unpacked(text: str) -> Iterator[str]:
    """A text, and what comes out of it where it, or a part of it, is encoded or packed."""
    waiting = [(text, 0)]
    while waiting:
        plain, depth = waiting.pop()
        yield plain
        if depth == CHAIN:
            continue
        runs = {*ENCODED.findall(plain), plain.strip()} if len(plain) >= _PACKED else set()
        for run in runs:
            waiting += [(found, depth + 1) for found in _decoded(run)]
    yield text[::-1]
    yield codecs.encode(text, "rot13")


def code_texts(source: str, before: str = "") -> list[str]:
    """The literals of a program: each text by itself, and all in a row; those of `before` left out.

    Comments count: a recipe can read its own source.
    """
    try:
        tree, old = ast.parse(source), _literals(_parsed(before))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [source]
    new = [text for text in _literals(tree) if text not in set(old)]
    lines = set(before.splitlines())
    added = "\n".join(line for line in source.splitlines() if line not in lines)
    return [*new, " ".join(new), "".join(new), added]


def _parsed(source: str) -> ast.AST:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _literals(tree: ast.AST) -> list[str]:
    """Texts, bytes and sums of texts, in the order in which they are written."""
    found = []
    for node in ast.walk(tree):
        value = _folded(node)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str):
            place = (node.lineno, node.col_offset) if isinstance(node, ast.expr) else (0, 0)
            found.append((place, value))
    return [text for _, text in sorted(found, key=lambda pair: pair[0])]


def _folded(node: ast.AST) -> str | bytes | None:
    match node:
        case ast.Constant(value=str() | bytes() as value):
            return value
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            one, other = _folded(left), _folded(right)
            if isinstance(one, str) and isinstance(other, str):
                return one + other
            if isinstance(one, bytes) and isinstance(other, bytes):
                return one + other
    return None


def _decoded(run: str) -> Iterator[str]:
    for decode in (_base64, bytes.fromhex, base64.b85decode, base64.b32decode):
        try:
            data = decode(run)
        except (ValueError, binascii.Error):
            continue
        for plain in _inflated(data):
            with contextlib.suppress(UnicodeDecodeError):
                yield plain.decode("utf-8")


def _inflated(data: bytes) -> Iterator[bytes]:
    yield data
    for unpacker in (zlib.decompressobj(47), bz2.BZ2Decompressor(), lzma.LZMADecompressor()):
        with contextlib.suppress(OSError, EOFError, zlib.error, lzma.LZMAError):
            yield unpacker.decompress(data, MOST_CHARACTERS)  # of a bomb as much as of a text


def _base64(run: str) -> bytes:
    plain = run.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def read_tokens(text: str) -> list[str]:
    """The tokens of a text, in one case and one Unicode form; spaces and full stops are none."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


def _texts_of_problem(problem: Mapping[str, Any]) -> Iterator[str]:
    return texts_of({key: value for key, value in problem.items() if key not in LABELS})


def _known(problems: Iterable[Mapping[str, Any]]) -> dict[Place, np.ndarray]:
    """The grams of the trainable problems, all at once: those that span two texts do no harm."""
    texts = [text for problem in problems for text in _texts_of_problem(problem)]
    readings = _readings(read_tokens("\n".join(texts)))
    return {
        (number, length): np.sort(_runs(reading, length))
        for number, reading in enumerate(readings)
        for length in LENGTHS
    }


def _telling(own: Mapping[int, np.ndarray], start: int, end: int) -> int | None:
    """The least length of grams of which most are a passage's own, None where none is enough."""
    for length in LENGTHS:
        if length > end - start:
            break
        part = own[length][start : end - length + 1]
        if np.count_nonzero(part) >= OWN * len(part):
            return length
    return None


def _within(values: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    """Whether each value is one of the others."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    places = np.searchsorted(ascending, values)
    return ascending[np.minimum(places, len(ascending) - 1)] == values


def _readings(tokens: Sequence[str]) -> tuple[Reading, Reading]:
    """A text as numbers: as it is, and with each name replaced by how far back it was last."""
    numbers: dict[str, int] = {}
    ids_T = np.array([numbers.setdefault(token, len(numbers)) for token in tokens], np.int64)
    hashes = np.array([hash(token) & (1 << 64) - 1 for token in numbers], np.uint64)
    is_name = np.array([token.isalpha() and token not in _NO_NAMES for token in numbers], bool)
    order = np.argsort(ids_T, kind="stable")
    again = ids_T[order[1:]] == ids_T[order[:-1]]
    back_T = np.zeros(len(tokens), np.int64)
    back_T[order[1:][again]] = (order[1:] - order[:-1])[again]
    back_T[back_T > _NEAR] = 0
    as_is = hashes[ids_T] if len(tokens) else np.zeros(0, np.uint64)
    names = is_name[ids_T] if len(tokens) else np.zeros(0, bool)
    return as_is, np.where(names, back_T.astype(np.uint64), ~as_is)


def _runs(reading: Reading, length: int) -> np.ndarray:
    """The hash of each run of `length` tokens, by place: made of two halves, which overlap."""
    if length > len(reading):
        return np.zeros(0, np.uint64)
    if length == 1:
        return reading * np.uint64(_BASE) + np.uint64(length)
    half = (length + 1) // 2
    halves = _runs(reading, half)
    shift = np.uint64(pow(_BASE, length, 1 << 64))
    return halves[: len(reading) - length + 1] * shift + halves[length - half :]


def problems_of(text: str) -> list[Mapping[str, Any]]:
    """The problems of a JSON Lines file."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]
