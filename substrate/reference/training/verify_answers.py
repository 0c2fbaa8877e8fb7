"""Whether a response answers a question rightly: multiple choice by the option's index, free form
by the value.

    chosen_option(r"... so \\boxed{(B)}", ["Co", "CO"])      1
    with FreeFormChecker() as checker:
        checker.right(r"... so \\boxed{0.5}", r"\\frac{1}{2}")  True

The answer is what the response's last \\boxed{} has. Mathematics is compared by math-verify, in a
child process that is ended when it takes too long or too much memory, for an answer such as
9^{9^{9^9}} comes to no end.

Units are compared where both sides have one, and not converted: 5 km is neither 5 m nor 5000 m, but
both 5 km and 5 kilometres, and 5 where the reference is 5.
"""

import json
import math
import re
import resource
import select
import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from types import TracebackType
from typing import Self

SECONDS = 5  # of processor time for comparing two answers: verdicts do not depend on other load
WAITING_SECONDS = 300.0  # by the clock, for the child to start or to answer
MEMORY_BYTES = 2**31  # that the child may take
LONGEST = 400  # characters of an answer; longer ones are wrong
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_WRAPPER = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:bf|it|rm|sf|tt)|mbox|ce)\s*\{([^{}]*)\}"
)
_SPACES = re.compile(r"(?:\\[ ,;:!]|\\q?quad(?![a-zA-Z])|~|\s)+")
_NUMBER = re.compile(r"([+-]?)(\d{1,40})?(?:\.(\d{1,40}))?(?:/(\d{1,40}))?")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:,|\{,\})\d{3})+(?![\d,])")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SIGNS = {
    "−": "-",
    "–": "-",
    "×": r"\times ",
    "·": r"\cdot ",
    "÷": "/",
    "\u2044": "/",
    "π": r"\pi ",
    "√": r"\sqrt",
    "∞": r"\infty ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "\u222a": r"\cup ",
    "°": r"^\circ",
}
_UNITS = {
    "m": "m meter metre",
    "cm": "cm centimeter centimetre",
    "mm": "mm millimeter millimetre",
    "km": "km kilometer kilometre",
    "nm": "nm nanometer nanometre",
    "g": "g gram",
    "mg": "mg milligram",
    "kg": "kg kilogram",
    "s": "s sec second",
    "ms": "ms millisecond",
    "min": "min minute",
    "h": "h hr hour",
    "day": "day",
    "year": "year yr",
    "N": "N newton",
    "J": "J joule",
    "kJ": "kJ kilojoule",
    "W": "W watt",
    "kW": "kW kilowatt",
    "V": "V volt",
    "A": "A amp ampere",
    "K": "K kelvin",
    "Pa": "Pa pascal",
    "kPa": "kPa kilopascal",
    "Hz": "Hz hertz",
    "eV": "eV electronvolt",
    "mol": "mol mole",
    "L": "L l liter litre",
    "mL": "mL ml milliliter millilitre",
    "degree": "degree deg",
    "dollar": "dollar",
}
_UNIT_OF = {
    name: unit
    for unit, names in _UNITS.items()
    for single in names.split()
    for name in ([single, single + "s"] if len(single) > 2 else [single])
}
_UNIT = re.compile(r"[A-Za-z]+(?:\^?-?\d)?(?:[/*][A-Za-z]+(?:\^?-?\d)?)*")


def boxed(response: str) -> str | None:
    """What the last \\boxed{} of a response has; None where there is none, or it is cut off."""
    start = response.rfind("\\boxed")
    if start < 0:
        return None
    rest = response[start + len("\\boxed") :].lstrip()
    if not rest.startswith("{"):
        return None
    depth, escaped = 0, False
    for place, character in enumerate(rest):
        if escaped:  # \{ and \} are signs of the answer
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return rest[1:place].strip()
    return None


def chosen_option(response: str, options: Sequence[str]) -> int | None:
    """The index of the option that a response boxes; None where it boxes none of them, or two.

    Options are lettered A, B, C, ... in their order. The box may have the letter, the letter and
    the option, or the option. A capital letter is an option's letter even where another option
    consists of it, since letters are what is asked for; everything else that is an option word for
    word is that option. Upper and lower case differ (Co, CO) unless no option is then meant.
    """
    answer = boxed(response)
    if answer is None or len(answer) > LONGEST:
        return None
    letters = LETTERS[: len(options)]
    said = _words(answer)
    texts = [_words(option) for option in options]
    bare = _bare_letter(said)
    if bare in letters:
        return letters.index(bare)
    if said in texts:
        return texts.index(said) if texts.count(said) == 1 else None
    if bare.upper() in letters:
        return letters.index(bare.upper())
    labelled = re.fullmatch(r"\(?([A-Z])\s*[).:]\s*(.+)", said)
    if labelled and labelled[1] in letters:
        index, rest = letters.index(labelled[1]), labelled[2]
        return index if rest.casefold() == texts[index].casefold() else None
    alike = [index for index, text in enumerate(texts) if text.casefold() == said.casefold()]
    return alike[0] if len(alike) == 1 else None


def right_option(response: str, options: Sequence[str], correct: int) -> bool | None:
    """Whether the response boxes the correct option, by its index; None where it boxes none."""
    chosen = chosen_option(response, options)
    return None if chosen is None else chosen == correct


class FreeFormChecker:
    """Compares free-form answers, with a child process for mathematics.

    `spoiled` counts the comparisons that the child did not survive; those answers are wrong.
    """

    def __init__(self, *, seconds: int = SECONDS) -> None:
        self.seconds = seconds
        self.spoiled = 0
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def right(self, response: str, reference: str) -> bool | None:
        """Whether the response boxes the reference's value; None where it boxes nothing."""
        answer = boxed(response)
        return None if answer is None else self.same(answer, reference)

    def same(self, answer: str, reference: str) -> bool:
        """Whether two answers have the same value."""
        if max(len(answer), len(reference)) > LONGEST:
            return False
        (one, one_unit), (other, other_unit) = _with_unit(answer), _with_unit(reference)
        if one_unit and other_unit and one_unit != other_unit:
            return False
        if one == other:
            return one != ""
        numbers = _number(one), _number(other)
        if numbers[0] is not None and numbers[1] is not None:
            return numbers[0] == numbers[1]
        if _is_text(answer) or _is_text(reference):
            return _same_text(_words(answer), _words(reference))
        return self._ask([one, other])

    def readable(self, reference: str) -> bool:
        """Whether a reference is mathematics that answers can be compared with."""
        if len(reference) > LONGEST or _is_text(reference):
            return False
        value, _ = _with_unit(reference)
        return _number(value) is not None or (value != "" and self._ask([value]))

    def _ask(self, values: list[str]) -> bool:
        child = self._child or self._start()
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(values).encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it has died, which `_line` finds
        found = _line(child)
        if found is None:
            self.spoiled += 1
            self._end()
        return found == b"true\n"

    def _start(self) -> subprocess.Popen[bytes]:
        """Raises RuntimeError where the child does not come up."""
        self._child = subprocess.Popen(
            [sys.executable, "-I", __file__, str(self.seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        if _line(self._child) != b"ready\n":
            self._end()
            raise RuntimeError(
                "wanted a child process that compares mathematics, found that it does not start; "
                "install math-verify for this Python"
            )
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


def _line(child: subprocess.Popen[bytes]) -> bytes | None:
    """The child's next line; None where it dies or takes too long."""
    assert child.stdout is not None
    ready, _, _ = select.select([child.stdout], [], [], WAITING_SECONDS)
    return (child.stdout.readline() or None) if ready else None


def _words(text: str) -> str:
    """Text without what only decorates it: fonts, dollar signs, doubled spaces, a full stop."""
    text = unicodedata.normalize("NFC", text)
    while (plain := _WRAPPER.sub(r"\1", text)) != text:
        text = plain
    text = _SPACES.sub(" ", text.replace("**", "")).strip()
    text = text.removeprefix("$").removesuffix("$") if text.count("$") == 2 else text
    return text.strip().removesuffix(".").strip()


def _bare_letter(said: str) -> str:
    """The letter that an answer consists of, as in (B), B. and Option B; "-" where it does not."""
    said = unicodedata.normalize("NFKC", said)  # full-width letters
    said = re.sub(r"^(?:option|answer|choice)\s*:?\s*", "", said, flags=re.IGNORECASE)
    found = re.fullmatch(r"[(\[{]?\s*([A-Za-z])\s*[)\]}.:]*", said)
    return found[1] if found else "-"


def _with_unit(answer: str) -> tuple[str, str]:
    """An answer in plain LaTeX, and its unit; "" where it has none."""
    text = _plain(answer)
    money = text.startswith("\\$")
    text = _plain(text.removeprefix("\\$"))
    degrees = re.fullmatch(r"(.*[\d)}])\s*\^\s*\{?\s*\\circ\s*\}?", text)
    if degrees:
        return degrees[1].strip(), "degree"
    wrapped = re.fullmatch(r"(.*[\d)}])\s*\\(?:text|mathrm|mbox|textrm)\s*\{([^{}]+)\}(.*)", text)
    if wrapped:
        value, unit = wrapped[1], wrapped[2] + wrapped[3]
    elif spaced := re.fullmatch(r"(.*[\d)}]) (\S+(?: ?[/*] ?\S+)*)", text):
        value, unit = spaced[1], spaced[2]
    else:
        return text, "dollar" if money else ""
    unit = re.sub(r"[{}^ .]|\\cdot", "", unit.replace(r"\cdot", "*"))
    known = [_UNIT_OF.get(word) for word in re.findall(r"[A-Za-z]+", unit)]
    if not _UNIT.fullmatch(unit) or (None in known and not wrapped):
        return text, ""
    unit = re.sub(r"[A-Za-z]+", lambda word: _UNIT_OF.get(word[0], word[0]), unit)
    return value.strip(), unit


def _plain(answer: str) -> str:
    """An answer in LaTeX with ASCII digits and signs, without what only decorates it."""
    text = "".join(_sign(character) for character in unicodedata.normalize("NFC", answer))
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda m: f"^{{{m[0].translate(_SUPERSCRIPTS)}}}", text)
    text = text.replace(r"\left", "").replace(r"\right", "").replace(r"\dfrac", r"\frac")
    text = _SPACES.sub(" ", text).strip().removesuffix(".").strip()
    if len(text) > 1 and text[0] == text[-1] == "$" and text.count("$") == 2:
        text = text[1:-1].strip()
    text = re.sub(r"^\{(.*)\}$", r"\\{\1\\}", text)  # a set whose braces were not escaped
    return _THOUSANDS.sub(lambda m: re.sub(r"[^\d]", "", m[0]), text)


def _sign(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    if unicodedata.category(character) == "Nd":  # a digit of any script; not a superscript
        return str(unicodedata.decimal(character))
    if unicodedata.category(character) == "No" and "\u2044" in unicodedata.normalize(
        "NFKC", character
    ):
        return "(" + unicodedata.normalize("NFKC", character).replace("\u2044", "/") + ")"
    return character


def _number(text: str) -> Fraction | None:
    """The value of a plain number or fraction, exactly."""
    text = re.sub(r"^([+-]?)\\frac\{(\d+)\}\{(\d+)\}$", r"\1\2/\3", text.strip("()"))
    found = _NUMBER.fullmatch(text)
    if not found or (found[2] is None and found[3] is None):
        return None
    if found[4] is not None and not int(found[4]):
        return None
    value = Fraction(f"{found[2] or 0}.{found[3] or 0}") / int(found[4] or 1)
    return -value if found[1] == "-" else value


def _is_text(answer: str) -> bool:
    """Whether an answer is words or a chemical formula, not a product of letters."""
    plain = _words(answer)
    if re.search(r"\\(?:ce|text|mathrm|mbox)", answer) and not re.match(r"[-+\\({]*\d", plain):
        return True
    words = re.split(r"[ '-]+", plain)
    product = len(words) == 1 and (len(plain) == 1 or (len(plain) == 2 and plain.islower()))
    return all(word.isalpha() for word in words) and not product


def _same_text(one: str, other: str) -> bool:
    """Word for word. Case counts in one short word and where capitals stand inside: CO, NaCl."""
    words, wanted = one.split(), other.split()
    if len(words) != len(wanted):
        return False
    for word, want in zip(words, wanted, strict=True):
        inside = want[1:]
        short = len(wanted) == 1 and len(want) < 3
        ordinary = not short and (inside.islower() or want.isupper() or len(want) == 1)
        if word != want and not (ordinary and word.casefold() == want.casefold()):
            return False
    return True


def _serve(seconds: int) -> None:
    """The child: a line with two answers in, whether they are the same out; with one, whether it is
    mathematics.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from math_verify import parse, verify

    output = sys.stdout.buffer
    output.write(b"ready\n")
    output.flush()
    for line in sys.stdin.buffer:
        # The system ends this process at its limit, even where Python would not see a signal.
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = math.ceil(used.ru_utime + used.ru_stime) + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        parsed = [parse(f"${value}$", parsing_timeout=None) for value in json.loads(line)]  # pyright: ignore[reportArgumentType]
        same = all(parsed)
        if same and len(parsed) == 2:
            answer, reference = parsed
            same = verify(reference, answer, timeout_seconds=None)
        output.write(b"true\n" if same else b"false\n")
        output.flush()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
