"""Chunks: a Markdown or plain text cut along its own structure, by tokens.

    for chunk in cut(text, count, minimum=200, maximum=2048):
        print(chunk.headings, chunk.tokens)

Joined, the chunks are the text. What fits is one chunk. Where more is left, the chunk ends at the
strongest break that leaves `minimum` tokens on both sides, of equal ones at the last: before a
heading, the higher the stronger; between paragraphs, fenced code and tables; between sentences, or
lines of code and tables; between words; in a word. A weak break is made only in what is longer than
`maximum` with its headings: fenced code and tables that fit stay whole.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

Count = Callable[[str], int]  # the tokens of a text: lambda text: len(tokenizer.tokenize(text))

TITLE_CHARACTERS = 200  # of a heading that a chunk carries
# Longer texts are taken to be too long without being counted: tokens are shorter on average.
CHARACTERS_PER_TOKEN = 16
# Paragraphs and sentences of fewer characters than `maximum` divided by this are joined: where a
# text is nothing but full stops, they are not counted one by one.
PARTS = 16

# Strengths of a break, the smaller the stronger. Before a heading: its level, 1 to 6.
_BLOCK, _SENTENCE, _WORD, _INSIDE = 7, 8, 9, 10

_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_ATX = re.compile(r" {0,3}(#{1,6})(?=[ \t\n]|$)")
_FENCE = re.compile(r" {0,3}(?:(`{3,})[^`\n]*|(~{3,})[^\n]*)$")
_LINE_END = re.compile(r"\n")
_SENTENCE_END = re.compile(
    r"[.!?][\"'\u201d\u2019)\]]*\s+"
    "|[\u3002\uff01\uff1f]"  # of Chinese and Japanese
    "|\n(?=[ \t]*(?:[-*+\u2022]|[0-9]{1,3}[.)])[ \t])"  # an item of a list follows
)

_Kind = tuple[str, int]  # of a line: a name, and a heading's level or a fence's or table's number


@dataclass(frozen=True)
class Chunk:
    headings: tuple[str, ...]  # that stand over its beginning, from the highest down
    text: str
    tokens: int


@dataclass(frozen=True)
class _Block:
    head: str  # its headings
    body: str
    strength: int  # of the break before it
    headings: tuple[str, ...]
    seam: re.Pattern[str]  # where it is cut first


@dataclass(frozen=True)
class _Piece:
    """What is not cut any further."""

    text: str
    tokens: int
    strength: int
    headings: tuple[str, ...]


def cut(text: str, count: Count, *, minimum: int, maximum: int) -> list[Chunk]:
    """The chunks of a text, each of at most `maximum` tokens. One may have less than `minimum`
    where the text, or what stands before a long block, has no more.

    Raises ValueError unless 1 <= minimum <= maximum.
    """
    if not 1 <= minimum <= maximum:
        raise ValueError(f"wanted 1 <= minimum <= maximum, found {minimum} and {maximum}")
    blocks = _blocks(text, maximum // PARTS)
    pieces = [piece for block in blocks for piece in _pieces(block, count, maximum)]
    sums = [0, *accumulate(piece.tokens for piece in pieces)]
    chunks = []
    start = 0
    while start < len(pieces):
        end = _end(pieces, sums, start, minimum, maximum)
        tokens = count(joined := _joined(pieces, start, end))
        while tokens > maximum and end > start + 1:  # together they need more tokens than apart
            end -= 1
            tokens = count(joined := _joined(pieces, start, end))
        chunks.append(Chunk(pieces[start].headings, joined, tokens))
        start = end
    return chunks


def _end(pieces: list[_Piece], sums: list[int], start: int, minimum: int, maximum: int) -> int:
    """Where the chunk that begins at `start` ends."""
    if sums[-1] - sums[start] <= maximum:
        return len(pieces)
    last = max(start + 1, bisect_right(sums, sums[start] + maximum) - 1)
    fair = (
        place
        for place in range(start + 1, last + 1)
        if min(sums[place] - sums[start], sums[-1] - sums[place]) >= minimum
    )
    return min(fair, key=lambda place: (pieces[place].strength, -place), default=last)


def _joined(pieces: list[_Piece], start: int, end: int) -> str:
    return "".join(piece.text for piece in pieces[start:end])


def _blocks(text: str, shortest: int) -> Iterator[_Block]:
    """Paragraphs, fenced code and tables, each with the headings right above it and the blank lines
    below. A paragraph of fewer characters than the shortest takes in the next.
    """
    lines = _LINES.findall(text)
    kinds = _kinds(lines)
    path: dict[int, str] = {}  # the heading of each level that is in force
    head: list[str] = []
    body: list[str] = []
    strength, before, blank = _BLOCK, ("blank", 0), False
    for line, kind in zip(lines, kinds, strict=True):
        if kind[0] == "blank":
            (body or head).append(line)
            blank = True
            continue
        # A heading belongs to what follows it, be it another heading.
        if body and (kind != before or (blank and sum(map(len, body)) >= shortest)):
            yield _block(head, body, strength, path, before)
            head, body, strength = [], [], _BLOCK
        if kind[0] == "heading":
            strength = min(strength, kind[1])
            if title := _title(line):
                path = {level: above for level, above in path.items() if level < kind[1]}
                path[kind[1]] = title
        (head if kind[0] == "heading" else body).append(line)
        before, blank = kind, False
    if head or body:
        yield _block(head, body, strength, path, before)


def _block(
    head: list[str], body: list[str], strength: int, path: dict[int, str], kind: _Kind
) -> _Block:
    seam = _LINE_END if kind[0] in ("fence", "table") else _SENTENCE_END
    return _Block("".join(head), "".join(body), strength, tuple(path.values()), seam)


def _kinds(lines: list[str]) -> list[_Kind]:
    """What each line is part of."""
    kinds: list[_Kind] = []
    closing = ""  # of the fence that is open
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        before = kinds[-1] if kinds else ("blank", 0)
        bare = line.strip()
        if closing:
            kinds.append(before)
            if bare.startswith(closing) and not bare.strip(closing[0]):
                closing = ""
        elif fence := _FENCE.match(line.rstrip()):
            closing = fence[1] or fence[2]
            kinds.append(("fence", number))
        elif not bare:
            kinds.append(("blank", 0))
        elif atx := _ATX.match(line):
            kinds.append(("heading", len(atx[1])))
        elif before[0] == "heading" and not _title(line):
            kinds.append(before)  # the line under an underlined heading
        elif before[0] != "text" and (level := _underlined(following)):
            kinds.append(("heading", level))
        elif before[0] == "table" and "|" in bare:
            kinds.append(before)
        elif "|" in bare and _is_delimiter_row(following):
            kinds.append(("table", number))
        else:
            kinds.append(("text", 0))
    return kinds


def _title(line: str) -> str:
    """A heading's words; "" for the line that underlines it."""
    if _underlined(line):
        return ""
    title = line.strip().lstrip("#")
    unclosed = title.rstrip("#")
    if unclosed.endswith((" ", "\t")):  # otherwise its last # is a letter: C#
        title = unclosed
    return title.strip(" \t*_")[:TITLE_CHARACTERS]


def _underlined(following: str) -> int:
    """The level of a heading that has this line below it, 0 where it makes none."""
    bare = following.strip()
    return {"=": 1, "-": 2}[bare[0]] if len(bare) > 2 and set(bare) in ({"="}, {"-"}) else 0


def _is_delimiter_row(line: str) -> bool:
    return "|" in line and "-" in line and set(line.strip()) <= set("|-: \t")


def _pieces(block: _Block, count: Count, maximum: int) -> Iterator[_Piece]:
    whole = block.head + block.body
    tokens = _tokens(whole, count, maximum)
    if tokens is not None:
        yield _Piece(whole, tokens, block.strength, block.headings)
        return
    strength = block.strength
    room = maximum
    for part, tokens, inner in _parts(block.head, strength, block.seam, count, maximum):
        yield _Piece(part, tokens, inner, block.headings)
        strength = _INSIDE  # a heading is not parted from its block where that can be helped
        if block.seam is _SENTENCE_END:
            room = max(maximum // 2, maximum - tokens)  # its first sentences fit beside it
    for part, tokens, inner in _parts(block.body, strength, block.seam, count, room):
        yield _Piece(part, tokens, inner, block.headings)


def _parts(
    text: str, strength: int, seam: re.Pattern[str] | None, count: Count, maximum: int
) -> Iterator[tuple[str, int, int]]:
    """Parts of a text that fit, each with its tokens and the strength of the break before it."""
    if not text:
        return
    tokens = _tokens(text, count, maximum)
    if tokens is not None or len(text) == 1:
        yield text, count(text) if tokens is None else tokens, strength
        return
    if seam is None:
        smaller, between = _halves(text)
    else:
        smaller, between = _parted(text, seam, maximum // PARTS), _SENTENCE
    for part in smaller:
        yield from _parts(part, strength, None, count, maximum)
        strength = between


def _tokens(text: str, count: Count, maximum: int) -> int | None:
    """The tokens of a text that fits; None where it does not."""
    if len(text) > CHARACTERS_PER_TOKEN * maximum:
        return None
    tokens = count(text)
    return tokens if tokens <= maximum else None


def _parted(text: str, seam: re.Pattern[str], shortest: int) -> list[str]:
    ends = [0]
    for found in seam.finditer(text):
        if found.end() - ends[-1] >= shortest:
            ends.append(found.end())
    return [text[a:b] for a, b in pairwise([*ends, len(text)]) if a < b]


def _halves(text: str) -> tuple[list[str], int]:
    """Two parts of a text, cut at a space where it has one, and the strength of that break."""
    middle = len(text) // 2
    space = max(text.rfind(sign, 0, middle) for sign in " \t\n") + 1
    place, strength = (space, _WORD) if space else (middle, _INSIDE)
    return [text[:place], text[place:]], strength
