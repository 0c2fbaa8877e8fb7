"""Knobs held to a substrate: what an axis turns must be a constant that is there, of that type."""

from policies.policy import Constant, Knob
from substrate.constants import set_constants
from substrate.fork import Fork


def turn(knob: Knob, scratch: Fork) -> None:
    """Set a knob's constant to each of its choices, or to both ends of its range.

    Raises substrate.editable.BadEdit where that cannot be. The fork is of no use afterwards.
    """
    ends: list[Constant] = (
        knob.choices
        if knob.kind == "choice"
        else [int(end) if knob.kind == "int" else end for end in (knob.low, knob.high)]
    )
    for value in ends:
        set_constants(scratch.root, {knob.file: {knob.constant: value}})
