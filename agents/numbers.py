"""Numbers that stand in a text, however they are written, held against the numbers of a record."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

_COUNTED = """two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty"""
_TENS = "thirty forty fifty sixty seventy eighty ninety"
_WORDS: dict[str, float] = {
    **{word: float(number) for number, word in enumerate(_COUNTED.split(), start=2)},
    **{word: 10.0 * number for number, word in enumerate(_TENS.split(), start=3)},
    **{"zero": 0, "dozen": 12, "hundred": 100, "thousand": 1000, "twice": 2, "double": 2},
    **{"doubled": 2, "triple": 3, "tripled": 3, "half": 0.5, "halved": 0.5, "quarter": 0.25},
}
_NUMBER = re.compile(
    r"(?P<sign>(?<![^\s(\[=:])[-+−–])?"
    r"(?P<digits>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?P<power>e[-+]?\d+)?"
    r"(?P<percent>\s*(?:%|per\s?cent|percentage|pp\b))?",
    re.IGNORECASE,
)
_WORD = re.compile(rf"(?i)\b({'|'.join(_WORDS)})\b")


@dataclass(frozen=True)
class Number:
    """A number as it was written, and what it may stand for."""

    text: str
    value: float
    sign: int  # of a sign that was written; 0: none was, and it may be a size
    slack: float  # half of its last digit; 0: it is exact

    def is_among(self, values: Iterable[float]) -> bool:
        """Whether one of the values reads like this."""
        for value in values:
            there = value if self.sign else abs(value)
            if abs(self.value - there) <= self.slack * 1.000001 + 1e-12 * abs(there):
                return True
        return False


def numbers_in(text: str) -> list[Number]:
    """Every number in a text: digits of any script, percentages, fractions, number words.

    One that is written with fewer than two decimals stands for itself alone, but for percentages.
    """
    plain = "".join(map(_digit, text))
    for sign in plain:
        if unicodedata.category(sign) in ("No", "Nl"):
            plain = plain.replace(sign, f" {unicodedata.numeric(sign):g} ")
    found = [_number(match) for match in _NUMBER.finditer(unicodedata.normalize("NFKC", plain))]
    words = [Number(match[0], _WORDS[match[0].lower()], 0, 0.0) for match in _WORD.finditer(text)]
    return found + words


def values_in(data: Any) -> Iterator[float]:
    """Every number of JSON values."""
    match data:
        case bool() | None | str():
            return
        case int() | float():
            yield float(data)
        case dict():
            for item in data.values():
                yield from values_in(item)
        case list() | tuple():
            for item in data:
                yield from values_in(item)


def _digit(sign: str) -> str:
    return str(unicodedata.decimal(sign)) if unicodedata.category(sign) == "Nd" else sign


def _number(match: re.Match[str]) -> Number:
    digits = Decimal(match["digits"].replace(",", "") + (match["power"] or ""))
    exponent = digits.as_tuple().exponent
    decimals = -exponent if isinstance(exponent, int) else 0
    share = 100.0 if match["percent"] else 1.0
    sign = 0 if match["sign"] is None else 1 if match["sign"] == "+" else -1
    is_rounded = decimals >= 2 or bool(match["percent"])
    slack = 0.5 * 10.0**-decimals / share if is_rounded else 0.0
    return Number(match[0].strip(), (sign or 1) * float(digits) / share, sign, slack)
