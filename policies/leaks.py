"""Held-out text and secrets in what others wrote: found, and struck out.

Held-out problems are known here as grams only: hashes of eight words in a row, or of a whole text
that is shorter. Words are letters and digits in one case, so that punctuation and spacing hide
nothing. A gram that the trainable problems have too gives nothing away and is no gram.
"""

import base64
import hashlib
import html
import json
import re
import sys
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
    entities, escapes and letters that do not show, one inside the other. Held-out text that only
    the fields of one object have together, or one field of the objects in a list, is found in
    plain.
    """
    found = [
        (path, what)
        for path, text, _ in _texts(value, ())
        if (what := _leak(text, held_out)) is not None
    ]
    return found + [(path, HELD_OUT) for path in _splits(value, (), held_out)]


def strike_out(value: Any, held_out: frozenset[int]) -> Any:
    """A copy of JSON values in which every text that leaks reads STRUCK."""
    return _struck(value, held_out, in_list=False)


def _struck(value: Any, held_out: frozenset[int], *, in_list: bool) -> Any:
    if isinstance(value, str):
        return STRUCK if _leak(value, held_out) else value
    if isinstance(value, Mapping):
        texts = [item for item in value.values() if isinstance(item, str)]
        is_split = _is_split(texts, held_out)
        return {
            strike_out(key, held_out): STRUCK
            if is_split and isinstance(item, str)
            else strike_out(item, held_out)
            for key, item in value.items()
        }
    if isinstance(value, list):
        if not in_list and _leak(_joined(value), held_out):
            return [STRUCK]
        columns = _columns(value)
        if split := {key for key, column in columns.items() if _is_split(column, held_out)}:
            value = [
                {**item, **dict.fromkeys(split & item.keys(), STRUCK)}
                if isinstance(item, Mapping)
                else item
                for item in value
            ]
        return [_struck(item, held_out, in_list=True) for item in value]
    return value


# Secrets by their known prefixes, and by what announces them. Where words could follow a prefix, a
# digit must. What more must follow is short, or no other match can begin in it: so no text is read
# over and over.
_DIGIT = r"(?=[A-Za-z._~+/-]{0,99}\d)"
_SET = r"[\"']?\s*[=:]\s*[\"']?(?=[a-z]{0,99}\d)(?=\d{0,99}[a-z])"
_SECRETS = re.compile(
    rf"(?<![A-Za-z0-9])(sk|pypi|xai)-{_DIGIT}[A-Za-z0-9_-]{{16,}}"
    r"|(?<![A-Za-z0-9])((hf|npm|gsk|r8|glsa)_[A-Za-z0-9]{20,}|[sr]k_(live|test)_[A-Za-z0-9]{16,})"
    r"|(AKIA|ASIA)[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|SG\.[A-Za-z0-9_-]{16,99}\.[A-Za-z0-9_-]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{10,400}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    rf"|(?i:authorization\s*:\s*\w+\s+\S{{8,}}|bearer\s+{_DIGIT}[A-Za-z0-9._~+/-]{{16,}})"
    r"|(?i:(password|passwd|api[_-]?key|secret(_\w{1,40})?|access[_-]?token)[\"']?\s*[=:]\s*\S{6,})"
    # Words of which prose is full: only before a value of letters and digits, mixed.
    rf"|(?i:(pwd{_SET}[a-z0-9]{{8,}}|(passphrase|token|private[_-]?key){_SET}[a-z0-9]{{12,}}))"
    r"|://[^/\s:@]+:[^/\s@]+@"
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
                grams |= _fragments(words)
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


def _texts(value: Any, path: Path, *, in_list: bool = False) -> Iterator[tuple[Path, str, bool]]:
    """Every text in JSON values, keys too; a list of texts also as one text, which is not whole.

    What is in a list in a list stands in the text of the outer one.
    """
    if isinstance(value, str):
        yield path, value, True
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield (*path, key), key, False
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        if not in_list and (joined := _joined(value)):
            yield path, joined, False
        for i, item in enumerate(value):
            yield from _texts(item, (*path, i), in_list=True)


def _joined(items: list[Any]) -> str:
    texts = list(_leaves(items))
    return " ".join(texts) if len(texts) > 1 else ""


def _leaves(items: list[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            yield from _leaves(item)


def _splits(value: Any, path: Path, held_out: frozenset[int]) -> Iterator[Path]:
    """Objects and lists of objects whose texts together hold eight held-out words in a row."""
    if isinstance(value, Mapping):
        if _is_split([item for item in value.values() if isinstance(item, str)], held_out):
            yield path
        for key, item in value.items():
            yield from _splits(item, (*path, key), held_out)
    elif isinstance(value, list):
        if any(_is_split(column, held_out) for column in _columns(value).values()):
            yield path
        for i, item in enumerate(value):
            yield from _splits(item, (*path, i), held_out)


def _columns(items: list[Any]) -> dict[str, list[Any]]:
    """What the objects in a list have under each key."""
    columns: dict[str, list[Any]] = {}
    for item in items:
        if isinstance(item, Mapping):
            for key, value in item.items():
                columns.setdefault(key, []).append(value)
    return columns


def _is_split(items: list[Any], held_out: frozenset[int]) -> bool:
    """Whether items hold a fragment together that none of them holds by itself."""
    texts = [" ".join(_leaves([item])) for item in items] if held_out else []
    if len(texts) < 2:
        return False
    alone = frozenset[int]().union(*(_fragments(read_words(text)) for text in texts))
    return not held_out.isdisjoint(_fragments(read_words(" ".join(texts))) - alone)


def _fragments(words: list[str]) -> frozenset[int]:
    """Every eight words in a row, as a gram: fewer would meet by chance where texts are joined."""
    return frozenset(_hash(words[i : i + WORDS]) for i in range(len(words) - WORDS + 1))


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
            todo += [(found, depth + 1) for found in (plain, *_decoded(plain))]


def _unescaped(text: str) -> str:
    """Without letters that do not show, percent signs, entities and escapes."""
    text = html.unescape(_DECIMAL.sub(r"&#\1", urllib.parse.unquote(text, errors="replace")))
    text = _ESCAPE.sub(_letter, text)
    if text.isascii() and text.isprintable():
        return text
    shown = (c for c in text if c in "\t\n\v\f\r" or unicodedata.category(c) not in _UNSEEN)
    return "".join(shown)


# Formats and controls, and marks on the letter before: accents, variation selectors, joiners.
_UNSEEN = ("Cf", "Cc", "Mn", "Me")
# A number of thousands of digits is no number to Python: eight are more than any letter has.
_DECIMAL = re.compile(r"&#0*([0-9]{1,8})[0-9]*")
# `\157`, `\u{20}`, `\U00000020`, `\u0020`, `\x20`, and the letters that stand for white space.
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|u\{([0-9a-fA-F]{1,6})\}|U([0-9a-fA-F]{8})|u([0-9a-fA-F]{4})"
    r"|x([0-9a-fA-F]{2})|[nrt])"
)


def _letter(escape: re.Match[str]) -> str:
    if escape.lastindex is None:
        return " "
    code = int(escape[escape.lastindex], 8 if escape.lastindex == 1 else 16)
    return chr(code) if code <= sys.maxunicode else "\ufffd"


def _decoded(text: str) -> Iterator[str]:
    """What can be read of runs of encoded letters, in one piece or in groups, from any letter on.

    From any, since a letter before it moves a whole run.
    """
    if len(text) < _ENCODED_LETTERS:
        return
    for letters, between, group, zero, decode in _ENCODINGS:
        for found in (*letters.findall(text), *letters.findall(between.sub("", text))):
            for start in range(group):
                run = found[start:].rstrip("=")
                data = decode(run + zero * (-len(run) % group))
                # Every second byte of UTF-16 is zero, in a language of Latin letters.
                plain = data.replace(b"\0", b"").decode("utf-8", "replace")
                yield " ".join(_READABLE.findall(plain))


def _from_base64(run: str) -> bytes:
    return base64.b64decode(run.replace("-", "+").replace("_", "/"))


def _from_base32(run: str) -> bytes:
    return base64.b32decode(run, casefold=True)


_ENCODED_LETTERS = 24
# Runs of letters, what may stand between two groups of them, how many make whole bytes, and which
# one is zero.
_ENCODINGS = (
    (ENCODED, re.compile(r"[^A-Za-z0-9+/_-]+"), 4, "A", _from_base64),
    (re.compile(r"[0-9A-Fa-f]{24,}"), re.compile(r"(?:[\W_]|0[xX])+"), 2, "0", bytes.fromhex),
    (re.compile(r"[A-Za-z2-7]{24,}"), re.compile(r"[\W_]+"), 8, "A", _from_base32),
)
# Other bytes than those of a text seldom have as many letters in a row.
_READABLE = re.compile(r"[^\ufffd\x00-\x08\x0e-\x1f\x7f-\x9f]{8,}")


def read_words(text: str) -> list[str]:
    """The words of a text: letters and digits, in one case and one Unicode form."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _hash(words: list[str]) -> int:
    spelled = hashlib.blake2b(" ".join(words).encode("utf-8", "replace"), digest_size=8)
    return int.from_bytes(spelled.digest(), "big")


def read_problems(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The problems of a `.jsonl` file."""
    return (json.loads(line) for line in lines if line.strip())
