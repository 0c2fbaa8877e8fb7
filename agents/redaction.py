"""Redaction: what no text may hold when it leaves us, known keys and whatever looks like one.

The process that redacts does not have the keys. It has marks of their spellings, which the broker
made (`agents/marks.py`). Every window of a text is hashed at once; one whose hash fits is confirmed
by its digest. Redaction is the last line of defence, not the design: keys are kept where no text is
made of them.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from agents.marks import NO_MARKS, Marks

REDACTED = "[redacted]"
PATTERNS = re.compile(
    r"sk-[A-Za-z0-9_-]{16,}"  # Anthropic, OpenAI and many that speak as they do
    r"|hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}"
    r"|(?<=bearer )[A-Za-z0-9._~+/-]{12,}=*"
    r"|(?<=x-api-key: )[^\s'\",]{8,}|(?<=x-api-key': ')[^\s'\",]{8,}"
    r"|(?<=://)[^\s/@:'\"]+:[^\s/@'\"]+(?=@)",  # user and password in a URL
    re.IGNORECASE,
)


def redact(text: str, marks: Marks = NO_MARKS) -> str:
    """The text without what is known to be a key, and without what looks like one."""
    data = text.encode("utf-8", "surrogatepass")
    spans = _known(data, marks)
    if spans:
        parts, at = [], 0
        for start, end in spans:
            if end > at:
                parts += [data[at : max(at, start)], REDACTED.encode()]
                at = end
        text = b"".join([*parts, data[at:]]).decode("utf-8", "replace")
    return PATTERNS.sub(REDACTED, text)


def redacted(value: Any, marks: Marks = NO_MARKS) -> Any:
    """A JSON value whose strings, keys too, are redacted."""
    if isinstance(value, str):
        return redact(value, marks)
    if isinstance(value, dict):
        return {redact(str(key), marks): redacted(item, marks) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item, marks) for item in value]
    return value


@contextmanager
def redacted_logs(marks: Marks) -> Iterator[None]:
    """Redact every record of `logging` as it is made, whichever logger and handler it is for."""
    before = logging.getLogRecordFactory()

    def make(*args: Any, **named: Any) -> logging.LogRecord:
        record = before(*args, **named)
        _redact_record(record, marks)
        return record

    logging.setLogRecordFactory(make)
    try:
        yield
    finally:
        logging.setLogRecordFactory(before)


def _redact_record(record: logging.LogRecord, marks: Marks) -> None:
    """Message, arguments, traceback and stack. Formatters may want the arguments' own types."""
    record.msg = _plain(record.msg, marks)
    if isinstance(record.args, tuple):
        record.args = tuple(_plain(argument, marks) for argument in record.args)
    elif record.args:
        record.args = {name: _plain(value, marks) for name, value in record.args.items()}
    if record.exc_info:
        record.exc_text = redact(_FORMAT.formatException(record.exc_info), marks)
        record.exc_info = None  # a handler of its own mind would print the exception itself
    if record.stack_info:
        record.stack_info = redact(record.stack_info, marks)


def _plain(value: Any, marks: Marks) -> Any:
    """The value itself where its text holds no key, else that text without it."""
    if isinstance(value, int | float | None):
        return value
    text = str(value)
    without = redact(text, marks)
    return value if without == text else without


_FORMAT = logging.Formatter()


def _known(data: bytes, marks: Marks) -> list[tuple[int, int]]:
    """Where the spellings stand, in order; they may overlap."""
    if not marks.marks or len(data) < min(mark.length for mark in marks.marks):
        return []
    values = np.frombuffer(data, dtype=np.uint8).astype(np.uint64)
    powers = np.full(len(data), marks.base, dtype=np.uint64)
    powers[0] = 1
    powers = np.cumprod(powers, dtype=np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values * powers, dtype=np.uint64)])
    found = []
    for mark in marks.marks:
        if mark.length > len(data):
            continue
        windows = sums[mark.length :] - sums[: -mark.length]
        fits = windows == np.uint64(mark.hash) * powers[: len(windows)]
        for start in np.flatnonzero(fits).tolist():
            window = data[start : start + mark.length]
            if marks.digest(window) == mark.digest:
                found.append((start, start + mark.length))
    return sorted(found)
