"""Neighbours of an input: other arguments like it, on which two programs may part ways.

Programs that agree on one input are often different ones: half of all predicates are true of 6. So
what a program does (`behaviour` in training/codetasks.py) is looked up on a few neighbours too,
always the same for an input, and hardly larger than it, so that a program which ends on the input
mostly ends on them.
"""

from typing import Any

from training.canonical import decode, encode
from training.literals import Call

WAYS = 4  # neighbours of an input


def neighbours(call: Call) -> list[Call]:
    """The arguments of a call, all of them moved, in each of WAYS ways. Some may be as they were.

    Numbers move by 1, 2, 3, 4: towards zero where they are larger than that, else away from it.
    Sequences lose their last part, are reversed, lose their first part, have their parts moved by 1
    (texts: their case swapped). A dict loses its last or first key or has its values moved, a set
    loses a part or has them moved.
    """
    arguments, named = call
    return [
        (
            tuple(_moved(value, way) for value in arguments),
            {name: _moved(value, way) for name, value in named.items()},
        )
        for way in range(1, WAYS + 1)
    ]


def spelled(call: Call) -> str:
    """The arguments as Python writes them: one spelling for all texts that mean the same."""
    arguments, named = call
    parts = [decode(encode(value)).text for value in arguments]
    parts += [f"{name}={decode(encode(value)).text}" for name, value in named.items()]
    return ", ".join(parts)


def _moved(value: Any, way: int) -> Any:
    if isinstance(value, bool):
        return value ^ (way % 2 == 1)
    if isinstance(value, int | float):
        sign = -1 if value < 0 else 1
        return value - sign * way if abs(value) > way else value + sign * way
    if isinstance(value, str | bytes | list | tuple):
        return _sequence_moved(value, way)
    if isinstance(value, dict):
        items = list(value.items())
        if way in (2, 4):
            return {key: _moved(item, way // 2) for key, item in items}
        return dict(items[:-1] if way == 1 else items[1:])
    if isinstance(value, set):
        parts = sorted(value, key=encode)
        if way == WAYS:
            return {_moved(part, 1) for part in parts}
        return set(parts[: way - 1] + parts[way:])
    return value


def _sequence_moved(value: Any, way: int) -> Any:
    match way:
        case 1:
            return value[:-1]
        case 2:
            return value[::-1]
        case 3:
            return value[1:]
    if isinstance(value, str | bytes):
        return value.swapcase()
    return type(value)(_moved(part, 1) for part in value)
