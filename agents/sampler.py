"""The sampler: a worker without a language model. It draws one constant of its axis by seed."""

import math
import random

from agents.worker import HandIn, Workplace
from policies.canonical import canonical_json
from policies.policy import ChoiceKnob, Constant, NumberKnob
from substrate.fork import BadEdit, read_constants, set_constants

DIGITS = 4  # significant digits of a number that is drawn: the diff is the experiment


async def sampler(workplace: Workplace) -> HandIn:
    """Give one constant of the axis a new value, drawn by the workplace's seed.

    Where no knob has a value but the present one, nothing is changed. Raises BadEdit when a knob
    names a constant that the fork does not have.
    """
    dice = random.Random(workplace.seed)
    knobs = list(workplace.brief.knobs)
    dice.shuffle(knobs)
    for knob in knobs:
        path = workplace.fork.root / knob.file
        present = read_constants(path.read_text("utf-8")) if path.is_file() else {}
        if knob.constant not in present:
            raise BadEdit(
                f"wanted the constant `{knob.constant}` of a knob of axis "
                f"{workplace.brief.axis!r} in {knob.file}, found {sorted(present)}; "
                "correct the policy's knob"
            )
        old = present[knob.constant]
        value = draw(knob, old, dice)
        if not _is_same(value, old):
            set_constants(workplace.fork.root, {knob.file: {knob.constant: value}})
            change = f"{knob.constant} from {old!r} to {value!r} in {knob.file}"
            return HandIn(hypothesis=f"{change}: {workplace.brief.hypothesis}"[:2000], notes="")
    return HandIn(hypothesis="The axis has no value left but the present ones.", notes="")


def draw(knob: NumberKnob | ChoiceKnob, present: Constant, dice: random.Random) -> Constant:
    """A value of the knob other than `present`; `present` itself where there is no other.

    Numbers are uniform on the knob's scale; an int is rounded, a float has DIGITS digits.
    """
    if knob.kind == "choice":
        others = [choice for choice in knob.choices if not _is_same(choice, present)]
        return dice.choice(others) if others else present
    for _ in range(100):  # so that a range of a few values is exhausted without a list of them
        if knob.scale == "log":
            number = math.exp(dice.uniform(math.log(knob.low), math.log(knob.high)))
        else:
            number = dice.uniform(knob.low, knob.high)
        value: int | float
        if knob.kind == "int":
            value = min(math.floor(knob.high), max(math.ceil(knob.low), round(number)))
        else:
            value = min(knob.high, max(knob.low, float(f"{number:.{DIGITS}g}")))
        if not _is_same(value, present):
            return value
    return present


def _is_same(one: Constant, other: Constant) -> bool:
    return canonical_json(one) == canonical_json(other)  # True is 1 in Python, but not in a recipe
