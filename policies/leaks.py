"""Held-out text and secrets in what others wrote: found, and struck out.

Held-out problems are known here as grams only: hashes of eight words in a row, or of a whole text
that is shorter. Words are letters and digits in one case, so that punctuation and spacing hide
nothing. A gram that the trainable problems have too gives nothing away and is no gram.
"""

import base64
import binascii
import hashlib
import html
import json
import re
import unicodedata
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from policies.draft import Path

WORDS = 8  # of a gram
SHORTEST = 12  # letters of a whole text of fewer words
HELD_OUT, SECRET = "held-out text", "a secret"
STRUCK = "[struck out]"
# Says what a problem is, not what it asks.
LABELS = ("id", "domain")
ENCODED = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")


def held_out_grams(
    held_out: Iterable[Mapping[str, Any]], trainable: Iterable[Mapping[str, Any]]
) -> frozenset[int]:
    """The grams of held-out problems, those of trainable ones left out."""
    return frozenset(_grams_of(held_out)) - frozenset(_grams_of(trainable))


def find_leaks(value: Any, held_out: frozenset[int]) -> list[tuple[Path, str]]:
    """Where JSON values hold a secret or held-out text: in plain, escaped or encoded.

    Looked through are base64, base32 and hexadecimal, in one piece or in groups, percent signs,
    entities, escapes and letters that do not show, one inside the other.
    """
    return [
        (path, what)
        for path, text, _ in _texts(value, ())
        if (what := _leak(text, held_out)) is not None
    ]


def strike_out(value: Any, held_out: frozenset[int]) -> Any:
    """A copy of JSON values in which every text that leaks reads STRUCK."""
    if isinstance(value, str):
        return STRUCK if _leak(value, held_out) else value
    if isinstance(value, Mapping):
        return {strike_out(k, held_out): strike_out(v, held_out) for k, v in value.items()}
    if isinstance(value, list):
        if _leak(_joined(value), held_out):
            return [STRUCK]
        return [strike_out(item, held_out) for item in value]
    return value


# Secrets by their known prefixes, and by what announces them.
_SECRETS = re.compile(
    r"sk-(ant-|proj-|or-)?[A-Za-z0-9_-]{16,}"
    r"|(AKIA|ASIA)[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_-]{30,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|(hf|npm|pypi|xai|gsk|r8)[_-][A-Za-z0-9_-]{20,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|(?i:authorization\s*:\s*\w+\s+\S{8,}|bearer\s+[A-Za-z0-9._~+/-]{16,})"
    r"|(?i:(password|passwd|api[_-]?key|secret(_\w{1,40})?|access[_-]?token)[\"']?\s*[=:]\s*\S{6,})"
    r"|[a-z][a-z0-9+.-]*://[^/\s:@]+:[^/\s@]+@"
)
# A script without spaces has words of one letter.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]|[^\W_]+")


def _grams_of(problems: Iterable[Mapping[str, Any]]) -> set[int]:
    grams: set[int] = set()
    for problem in problems:
        content = {key: value for key, value in problem.items() if key not in LABELS}
        for _, text, is_whole in _texts(content, ()):
            words = read_words(text)
            if len(words) >= WORDS:
                grams |= {_hash(words[i : i + WORDS]) for i in range(len(words) - WORDS + 1)}
            elif is_whole and sum(map(len, words)) >= SHORTEST:
                grams.add(_hash(words))
    return grams


def _leak(text: str, held_out: frozenset[int]) -> str | None:
    for spelled in _spelled(text):
        if _SECRETS.search(unicodedata.normalize("NFKC", spelled)):
            return SECRET
        if held_out and not held_out.isdisjoint(_grams_within(spelled)):
            return HELD_OUT
    return None


def _grams_within(text: str) -> Iterator[int]:
    """Every run of one to eight words, as a gram."""
    words = read_words(text)
    for start in range(len(words)):
        for end in range(start + 1, min(start + WORDS, len(words)) + 1):
            yield _hash(words[start:end])


def texts_of(value: Any) -> Iterator[str]:
    """Every text in JSON values, keys left out."""
    return (text for _, text, is_whole in _texts(value, ()) if is_whole)


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str, bool]]:
    """Every text in JSON values, keys too; a list of texts also as one text, which is not whole."""
    if isinstance(value, str):
        yield path, value, True
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield (*path, key), key, False
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        if joined := _joined(value):
            yield path, joined, False
        for i, item in enumerate(value):
            yield from _texts(item, (*path, i))


def _joined(items: list[Any]) -> str:
    texts = list(_leaves(items))
    return " ".join(texts) if len(texts) > 1 else ""


def _leaves(items: list[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            yield from _leaves(item)


def _spelled(text: str) -> Iterator[str]:
    """The text in plain, as each way to hide it would be read, and what is encoded in it, twice."""
    seen: set[str] = set()
    todo = [(text, 0)]
    while todo:
        spelled, depth = todo.pop()
        if spelled in seen:
            continue
        seen.add(spelled)
        yield spelled
        if depth < 2:
            plain = _unescaped(spelled)
            inner = [plain, *_decoded(plain), *_decoded(_CHUNKED.sub("", plain))]
            todo += [(found, depth + 1) for found in inner]


def _unescaped(text: str) -> str:
    """Without letters that do not show, percent signs, entities and escapes."""
    text = html.unescape(urllib.parse.unquote(text, errors="replace"))
    text = _ESCAPE.sub(lambda found: chr(int(found[1] or found[2] or "20", 16)), text)
    return "".join(letter for letter in text if unicodedata.category(letter) != "Cf")


# `\u0020`, `\x20`, and the letters that stand for white space.
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|[nrt])")
# White space between groups of encoded letters: `V2hp Y2gg`, `57 68 69`.
_CHUNKED = re.compile(r"(?<=[A-Za-z0-9+/=])\s+(?=[A-Za-z0-9+/])")


def _decoded(text: str) -> Iterator[str]:
    for found in ENCODED.findall(text):
        for decode in (_from_base64, bytes.fromhex, _from_base32):
            try:
                plain = decode(found).decode("utf-8")
            except (ValueError, binascii.Error):
                continue
            yield plain


def _from_base32(text: str) -> bytes:
    plain = text.rstrip("=")
    return base64.b32decode(plain + "=" * (-len(plain) % 8), casefold=True)


def _from_base64(text: str) -> bytes:
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def read_words(text: str) -> list[str]:
    """The words of a text: letters and digits, in one case and one Unicode form."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _hash(words: list[str]) -> int:
    spelled = hashlib.blake2b(" ".join(words).encode("utf-8", "replace"), digest_size=8)
    return int.from_bytes(spelled.digest(), "big")


def read_problems(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The problems of a `.jsonl` file."""
    return (json.loads(line) for line in lines if line.strip())
