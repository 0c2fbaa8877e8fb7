"""The frame of a plot over the rounds: where a round and a value stand, with rules and numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from policies.element import Element, Node, element

INNER = 0.72  # share of a round's column in which its trials stand side by side


@dataclass(frozen=True)
class Frame:
    """A plot of `rounds` columns and of values from `low` to `high`, in units of the drawing."""

    rounds: Sequence[int]
    low: float
    high: float
    width: float
    height: float
    left: float = 56
    right: float = 12
    top: float = 14
    bottom: float = 44

    @property
    def column(self) -> float:
        """Width of a round's column."""
        return (self.width - self.left - self.right) / max(1, len(self.rounds))

    @property
    def floor(self) -> float:
        """Where the least value stands."""
        return self.height - self.bottom

    def x(self, i: int, slot: int = 0, slots: int = 1) -> float:
        """The middle of the i-th round's column, or the place of one of its slots beside it."""
        beside = (slot / (slots - 1) - 0.5) * INNER * self.column if slots > 1 else 0.0
        return self.left + (i + 0.5) * self.column + beside

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.floor - share * (self.floor - self.top)

    def rules(self, ticks: int = 4) -> list[Element]:
        """Horizontal rules with their values, the rounds below, each as a link to its section."""
        shapes: list[Element] = []
        step, decimals = _step((self.high - self.low) / ticks)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        for k in range(first, last + 1):
            value = k * step
            y = self.y(value)
            shapes.append(line(self.left, y, self.width - self.right, y, "rule"))
            text = f"{value:,.{decimals}f}"
            shapes.append(words(self.left - 7, y + 4, text, "end"))
        every = max(1, math.ceil(26 / self.column))
        for i, number in enumerate(self.rounds):
            if i % every == 0:
                shown = words(self.x(i), self.floor + 18, f"{number}", "middle")
                shapes.append(element("a", shown, href=f"#r{number}", tabindex=-1))
        return shapes

    def drawn(self, title: str, said: str, shapes: Sequence[Node], name: str) -> Element:
        """The whole plot, with its title and what it shows for who hears it."""
        return element(
            "svg",
            element("title", title, id=f"{name}-title"),
            element("desc", said, id=f"{name}-desc"),
            *shapes,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {self.width:g} {self.height:g}",
            width=f"{self.width:g}",
            height=f"{self.height:g}",
            role="img",
            aria_labelledby=f"{name}-title {name}-desc",
        )


def around(values: Sequence[float], *, least: float = 0.0) -> tuple[float, float]:
    """A range around the values, `least` wide or more."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = max(0.06 * (high - low), (least - (high - low)) / 2, 0.0)
    margin = margin or 0.05 * abs(high) or 0.05
    return low - margin, high + margin


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Element:
    return element("path", d=f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", class_=kind)


def words(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> Element:
    return element(
        "text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=kind or None
    )


def curve(points: Sequence[tuple[float, float] | None], kind: str) -> Element:
    """A line through points, broken where one is missing."""
    d = "".join(
        f"{'L' if i and points[i - 1] else 'M'}{point[0]:.1f} {point[1]:.1f}"
        for i, point in enumerate(points)
        if point
    )
    return element("path", d=d or "M0 0", class_=kind)


def error_bar(x: float, low: float, high: float, kind: str) -> Element:
    d = f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8"
    return element("path", d=d, class_=kind)


def _step(rough: float) -> tuple[float, int]:
    """The next round number above `rough`, 1, 2 or 5 times a power of ten, and its decimals."""
    power = math.floor(math.log10(rough)) if rough > 0 else 0
    factor = next(f for f in (1, 2, 5, 10) if rough <= f * 10.0**power * (1 + 1e-9))
    if factor == 10:
        factor, power = 1, power + 1
    return factor * 10.0**power, max(0, -power)
