"""Charts of a campaign over its rounds: scores, the gap of dev and external, and cost."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from policies.element import Element, Node, element, markup
from policies.escape import one_line
from policies.frame import Frame, around, curve, error_bar, line, words
from policies.report import RoundReport, SetScore, SlotResult

CHARTS = Path(__file__).with_name("charts.css")
LEGEND = (
    "Lines are the anchor, on dev whole and blue, on external broken and red, with one standard "
    "deviation of one trial. Circles are trials on dev, diamonds on external, crosses trials "
    "without a score."
)
BAR = (132.0, 16.0)  # size of an interval's drawing, in units
_CROSS = "M{0:.1f} {1:.1f}l7 7m0 -7l-7 7"


def scores_chart(reports: Sequence[RoundReport], promoted: Mapping[int, Sequence[str]]) -> Element:
    """The anchor's scores with one trial's noise, and every trial: its score, or its outcome.

    `promoted` has the axes whose edits became standing after a round.
    """
    lost = sorted(
        {s.outcome for report in reports for s in report.results.slots if s.dev is None}
        - {"evaluated"}
    )
    values = list(_scores_of(reports))
    height = 330.0 + 18 * len(lost)
    low, high = around(values, least=1e-6)
    rounds = [report.round for report in reports]
    left = 100 if lost else 56
    frame = Frame(rounds, low, high, 960, height, left=left, top=26, bottom=48 + 18 * len(lost))
    shapes: list[Node] = [*frame.rules(5)]
    for i, report in enumerate(reports):
        for axis in promoted.get(report.round, ())[:1]:
            x = frame.x(i) + frame.column / 2
            shapes.append(line(x, frame.top - 6, x, frame.floor, "promotion"))
            more = len(promoted[report.round]) - 1
            label = f"{axis} promoted" + (f" and {more} more" if more else "")
            anchor = "end" if i + 1 == len(reports) else "middle"
            shapes.append(words(x, frame.top - 11, label, anchor, "note"))
    for i, report in enumerate(reports):
        shapes += _trials(frame, i, report, lost)
    for kind in ("external", "dev"):
        shapes.append(curve(_anchors(frame, reports, kind), f"curve {kind}"))
    for i, report in enumerate(reports):
        shapes += _anchor(frame, i, report)
    for k, outcome in enumerate(lost):
        shapes.append(words(frame.left - 8, frame.floor + 44 + 18 * k, outcome, "end", "note"))
    shapes.append(words(frame.width / 2, frame.height - 2, "round", "middle", "note"))
    if not values:
        shapes.append(words(frame.width / 2, frame.height / 2, "no scores", "middle"))
    count = sum(len(report.results.slots) for report in reports)
    said = f"{count} trials in {len(reports)} rounds. {LEGEND}"
    return frame.drawn("Scores by round", said, shapes, "scores")


def picture(chart: Element) -> str:
    """A chart as an SVG file of its own, in light colours on paper, without links and their words:
    pages show it as an image.
    """
    style = element("style", CHARTS.read_text(encoding="utf-8"))
    paper = element("rect", width="100%", height="100%", class_="paper")
    title, desc, *shapes = chart.children
    shown = [mark for shape in shapes for mark in _unlinked(shape)]
    return markup(replace(chart, children=(title, desc, style, paper, *shown))) + "\n"


def gap_charts(reports: Sequence[RoundReport], most: int = 12) -> list[Element]:
    """Dev minus external in each domain, `overall` first, on one scale; none without both."""
    found = {name: _gaps(reports, name) for name in ["", *_domains(reports)]}
    found = {name: gaps for name, gaps in found.items() if any(gaps)}
    values = [gap for gaps in found.values() for each in gaps for _, gap in each]
    low, high = around([*values, 0.0])
    rounds = [report.round for report in reports]
    drawings = []
    for number, (name, gaps) in enumerate(list(found.items())[:most]):
        frame = Frame(rounds, low, high, 250, 180, left=50, bottom=26, top=30)
        shapes: list[Node] = [*frame.rules(4)]
        shapes.append(line(frame.left, frame.y(0), frame.width - frame.right, frame.y(0), "zero"))
        title = one_line(name or "overall", 32)
        shapes.append(words(frame.left, 16, title))
        points = [
            next(((frame.x(i), frame.y(gap)) for slot, gap in each if slot.slot == 0), None)
            for i, each in enumerate(gaps)
        ]
        shapes.append(curve(points, "curve gap"))
        for i, each in enumerate(gaps):
            for slot, gap in each:
                slots = len(reports[i].results.slots)
                x = frame.x(i) if slot.slot == 0 else frame.x(i, slot.slot, slots)
                dot = element(
                    "circle",
                    element("title", f"round {rounds[i]}, slot {slot.slot}: {gap:+.4f}"),
                    cx=f"{x:.1f}",
                    cy=f"{frame.y(gap):.1f}",
                    r=4 if slot.slot == 0 else 2.5,
                    class_="dot gap" if slot.slot == 0 else "dot gap trial",
                )
                shapes.append(dot)
        said = "Dev minus external by round; the line is the anchor, dots are trials with both."
        drawings.append(frame.drawn(f"Gap in {title}", said, shapes, f"gap-{number}"))
    return drawings


def cost_charts(reports: Sequence[RoundReport]) -> list[Element]:
    """What each round took of what anything was taken of, as bars."""
    spent = {unit: _spent(reports, unit) for unit in ("microdollars", "tokens", "gpu_seconds")}
    series = {
        "CPU seconds": [sum(s.cpu_seconds for s in r.account.slots) for r in reports],
        "seconds elapsed": [r.account.seconds.get("elapsed", 0.0) for r in reports],
        "rollouts": [float(sum(s.rollouts for s in r.account.slots)) for r in reports],
        "external looks": [float(len(r.results.looks)) for r in reports],
        "dollars for models": [amount / 1e6 for amount in spent["microdollars"]],
        "tokens of models": spent["tokens"],
        "GPU seconds": spent["gpu_seconds"],
    }
    rounds = [report.round for report in reports]
    drawings = []
    for number, (title, values) in enumerate(series.items()):
        if not any(values):
            continue
        frame = Frame(rounds, 0.0, 1.08 * max(values), 250, 160, left=50, bottom=26, top=30)
        shapes: list[Node] = [*frame.rules(3), words(frame.left, 16, title)]
        for i, value in enumerate(values):
            width, y = min(40.0, 0.66 * frame.column), frame.y(value)
            bar = element(
                "rect",
                element("title", f"round {rounds[i]}: {value:,.2f}"),
                x=f"{frame.x(i) - width / 2:.1f}",
                y=f"{y:.1f}",
                width=f"{width:.1f}",
                height=f"{frame.floor - y:.1f}",
                class_="bar",
            )
            shapes.append(bar)
        said = "; ".join(f"round {r}: {v:,.2f}" for r, v in zip(rounds, values, strict=True))
        drawings.append(frame.drawn(f"{title} by round", said, shapes, f"cost-{number}"))
    return drawings


def interval_bar(
    effect: float | None, low: float | None, high: float | None, reach: float
) -> Element:
    """An interval around zero as a small drawing; `reach` is where it ends on both sides."""
    width, height = BAR
    middle = width / 2

    def x(value: float) -> float:
        return middle + (width / 2 - 5) * value / (reach or 1.0)

    shapes: list[Node] = [line(middle, 0, middle, height, "zero")]
    if low is not None and high is not None:
        kind = "better" if low > 0 else "worse" if high < 0 else "unresolved"
        shapes.append(line(x(low), height / 2, x(high), height / 2, f"interval {kind}"))
    if effect is not None:
        shapes.append(element("circle", cx=f"{x(effect):.1f}", cy=height / 2, r=3.5, class_="dot"))
    return element(
        "svg",
        *shapes,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        aria_hidden="true",
        class_="forest",
    )


def _unlinked(shape: Node) -> list[Node]:
    if isinstance(shape, str) or shape.name != "a":
        return [shape]
    return [mark for mark in shape.children if isinstance(mark, str) or mark.name != "title"]


def _scores_of(reports: Sequence[RoundReport]) -> list[float]:
    """Every value that the chart of scores draws, ends of error bars too."""
    found: list[float] = []
    for report in reports:
        spread, noise = report.results.spread, report.results.noise
        for value, sigma in (
            (spread.dev, noise.sigma),
            (spread.external, noise.external_sigma),
        ):
            if value is not None:
                found += [value - (sigma or 0.0), value + (sigma or 0.0)]
        for slot in report.results.slots:
            found += [score.value for score in (slot.dev, slot.external) if score]
    return found


def _trials(frame: Frame, i: int, report: RoundReport, lost: Sequence[str]) -> list[Node]:
    slots = report.results.slots
    size = min(4.0, max(1.5, 0.4 * frame.column / max(1, len(slots))))  # of a dot that has room
    shapes: list[Node] = []
    for k, slot in enumerate(slots):
        x = frame.x(i, k, len(slots))
        marks: list[Node] = []
        if slot.dev and slot.kind != "anchor":
            y = frame.y(slot.dev.value)
            kind = f"dot trial {slot.kind}"
            marks.append(element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=size, class_=kind))
        elif slot.outcome in lost:
            y = frame.floor + 36.5 + 18 * lost.index(slot.outcome)
            kind = "lost foul" if slot.outcome == "tampered" else "lost"
            marks.append(element("path", d=_CROSS.format(x - 3.5, y), class_=kind))
        if slot.external and slot.kind != "anchor":
            y = frame.y(slot.external.value)
            d = f"M{x:.1f} {y - 4.5:.1f}l4.5 4.5l-4.5 4.5l-4.5 -4.5z"
            marks.append(element("path", d=d, class_="diamond"))
        if marks:
            shapes.append(_linked(report, slot, marks))
    return shapes


def _anchor(frame: Frame, i: int, report: RoundReport) -> list[Node]:
    """The anchor's two scores with one trial's noise."""
    spread, noise, shapes = report.results.spread, report.results.noise, list[Node]()
    for kind, value, sigma in (
        ("external", spread.external, noise.external_sigma),
        ("dev", spread.dev, noise.sigma),
    ):
        if value is None:
            continue
        x = frame.x(i)
        if sigma is not None:
            bar = error_bar(x, frame.y(value - sigma), frame.y(value + sigma), f"error {kind}")
            shapes.append(bar)
        said = f"round {report.round}, anchor, {kind}: {value:.4f}"
        shapes.append(
            element(
                "circle",
                element("title", said),
                cx=f"{x:.1f}",
                cy=f"{frame.y(value):.1f}",
                r=5,
                class_=f"dot {kind}",
            )
        )
    return shapes


def _linked(report: RoundReport, slot: SlotResult, marks: Sequence[Node]) -> Element:
    axis = f", {slot.axis}" if slot.axis else ""
    scores = "".join(
        f", {name} {score.value:.4f}"
        for name, score in (("dev", slot.dev), ("external", slot.external))
        if score
    )
    said = f"round {report.round}, slot {slot.slot}, {slot.kind}{axis}: {slot.outcome}{scores}"
    place = f"#r{report.round}-s{slot.slot}"
    return element("a", element("title", said), *marks, href=place, tabindex=-1)


def _anchors(
    frame: Frame, reports: Sequence[RoundReport], which: str
) -> list[tuple[float, float] | None]:
    spreads = [report.results.spread for report in reports]
    values = [spread.dev if which == "dev" else spread.external for spread in spreads]
    return [
        None if value is None else (frame.x(i), frame.y(value)) for i, value in enumerate(values)
    ]


def _domains(reports: Sequence[RoundReport]) -> list[str]:
    scores = [slot.dev for report in reports for slot in report.results.slots if slot.dev]
    return sorted({name for score in scores for name in score.domains})


def _gaps(reports: Sequence[RoundReport], domain: str) -> list[list[tuple[SlotResult, float]]]:
    """By round, the trials with both scores in a domain, and how far dev is above external."""
    found = []
    for report in reports:
        pairs = [
            (slot, _value(slot.dev, domain), _value(slot.external, domain))
            for slot in report.results.slots
            if slot.dev and slot.external
        ]
        found.append([(s, d - e) for s, d, e in pairs if d is not None and e is not None])
    return found


def _value(score: SetScore, domain: str) -> float | None:
    if not domain:
        return score.value
    part = score.domains.get(domain)
    return part.value if part else None


def _spent(reports: Sequence[RoundReport], unit: str) -> list[float]:
    """What was charged from one report to the next: a report has the sum so far."""
    sums = [sum(r.amount for r in report.account.spend if r.unit == unit) for report in reports]
    return [float(now - before) for before, now in zip([0, *sums], sums, strict=False)]
