"""Charts over the rounds: each mark where its number is, each trial once, whatever is missing."""

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from policies.charts import cost_charts, gap_charts, interval_bar, picture, scores_chart
from policies.element import Element, markup
from policies.frame import Frame, around
from policies.report import RoundReport
from tests.policies.reports import report_data, score, slot

SVG = "{http://www.w3.org/2000/svg}"
NO_NOISE = {"sigma": None, "degrees": 0, "external_sigma": None, "threshold": None}


def drawn(chart: Element) -> ET.Element:
    return ET.fromstring(markup(chart))


def marks(chart: ET.Element, tag: str, kind: str) -> list[ET.Element]:
    """What of a kind is in a chart: whose class begins with that."""
    found = chart.iter(f"{SVG}{tag}")
    return [each for each in found if (each.get("class") or "").startswith(kind)]


def report(number: int, dev: float | None, *slots: dict[str, Any], **spread: Any) -> RoundReport:
    data: dict[str, Any] = report_data() | {"round": number}
    data["results"] |= {"noise": NO_NOISE, "verdicts": [], "looks": [], "confirmations": []}
    data["results"]["spread"] |= {"dev": dev, "external": None} | spread
    data["results"]["slots"] = [slot(0, "anchor"), *slots]
    return RoundReport.model_validate(data)


def test_the_anchor_is_a_line_that_breaks_where_a_score_is_missing() -> None:
    reports = [report(n, dev) for n, dev in enumerate((0.5, 0.6, None, 0.7), start=1)]
    chart = drawn(scores_chart(reports, {}))
    # 0.5 to 0.7 and 6 hundredths of that around: 0.488 to 0.712, from y = 282 up to y = 26. Four
    # columns of (960 - 56 - 12) / 4 = 223 from x = 56.
    (curve,) = marks(chart, "path", "curve dev")
    assert curve.get("d") == "M167.5 268.3L390.5 154.0M836.5 39.7"
    points = [(c.get("cx"), c.get("cy")) for c in marks(chart, "circle", "dot dev")]
    assert points == [("167.5", "268.3"), ("390.5", "154.0"), ("836.5", "39.7")]
    assert marks(chart, "path", "error") == [], "nothing is known of the noise"


def test_an_error_bar_is_one_standard_deviation_of_one_trial() -> None:
    first = report(1, 0.5)
    noisy = first.results.noise.model_copy(update={"sigma": 0.1})
    results = first.results.model_copy(update={"noise": noisy})
    chart = drawn(scores_chart([first.model_copy(update={"results": results})], {}))
    # 0.4 to 0.6 and 0.012 around, 256 high: one is 1142.86, so that 0.1 is 114.3 from y = 154.
    (bar,) = marks(chart, "path", "error dev")
    assert (bar.get("d") or "").startswith("M502.0 268.3V39.7")


def test_every_trial_is_drawn_once_by_its_score_or_by_its_outcome() -> None:
    tried = [
        slot(1, "explore", dev=score(0.5, 9), external=score(0.4, 9)),
        slot(2, "replicate", dev=score(0.6, 9)),
        slot(3, "explore", outcome="crashed"),
        slot(4, "explore", outcome="tampered"),
    ]
    chart = drawn(scores_chart([report(3, 0.5, *tried)], {}))
    assert len(marks(chart, "circle", "dot trial explore")) == 1
    assert len(marks(chart, "circle", "dot trial replicate")) == 1
    assert len(marks(chart, "path", "diamond")) == 1
    assert [each.get("class") for each in marks(chart, "path", "lost")] == ["lost", "lost foul"]
    links = [each.get("href") for each in chart.iter(f"{SVG}a")]
    assert links == ["#r3", "#r3-s1", "#r3-s2", "#r3-s3", "#r3-s4"]
    names = [each.text for each in marks(chart, "text", "note")]
    assert names == ["crashed", "tampered", "round"]


def test_a_promotion_stands_between_its_round_and_the_next() -> None:
    reports = [report(1, 0.5), report(2, 0.6)]
    chart = drawn(scores_chart(reports, {1: ["rate", "rank"]}))
    (line,) = marks(chart, "path", "promotion")
    assert (line.get("d") or "").startswith("M502.0 ")  # half of 892, after 56
    assert "rate promoted and 1 more" in "".join(chart.itertext())


@pytest.mark.parametrize("reports", [[], [report(1, None)]])
def test_a_chart_without_a_score_says_so(reports: list[RoundReport]) -> None:
    chart = drawn(scores_chart(reports, {}))
    assert "no scores" in [each.text for each in chart.iter(f"{SVG}text")]


def test_a_gap_is_dev_minus_external_in_each_domain() -> None:
    anchor = slot(
        0,
        "anchor",
        dev=score(0.6, 9, lists=(0.7, 5), bits=(0.5, 4)),
        external=score(0.5, 9, lists=(0.4, 5)),
    )
    first = report(1, 0.6)
    slots = [RoundReport.model_validate(first.data()).results.slots[0].model_validate(anchor)]
    results = first.results.model_copy(update={"slots": slots})
    charts = [drawn(c) for c in gap_charts([first.model_copy(update={"results": results})])]
    titles = [chart.findtext(f"{SVG}title") for chart in charts]
    assert titles == ["Gap in overall", "Gap in lists"], "bits have no external score"
    said = [dot.findtext(f"{SVG}title") for c in charts for dot in marks(c, "circle", "dot gap")]
    assert said == ["round 1, slot 0: +0.1000", "round 1, slot 0: +0.3000"]
    assert gap_charts([first]) == []


def test_a_round_costs_what_was_charged_since_the_report_before() -> None:
    def after(number: int, *amounts: int) -> RoundReport:
        data: dict[str, Any] = report_data() | {"round": number}
        data["account"]["spend"] = [
            {"role": "meta", "unit": "microdollars", "calls": 1, "amount": each, "at_worst": 0}
            for each in amounts
        ]
        return RoundReport.model_validate(data)

    charts = [drawn(c) for c in cost_charts([after(1, 1_000_000), after(2, 1_000_000, 500_000)])]
    said = {chart.findtext(f"{SVG}title"): chart.findtext(f"{SVG}desc") for chart in charts}
    assert said["dollars for models by round"] == "round 1: 1.00; round 2: 0.50"
    assert said["CPU seconds by round"] == "round 1: 0.80; round 2: 0.80"  # four slots of 0.2
    assert "GPU seconds by round" not in said


def test_an_interval_is_drawn_around_zero_as_far_as_its_neighbours_reach() -> None:
    drawing = drawn(interval_bar(0.1, 0.0, 0.2, 0.2))
    # 132 wide: zero at 66, and 0.2 is 61 from there.
    (interval,) = marks(drawing, "path", "interval unresolved")
    assert interval.get("d") == "M66.0 8.0L127.0 8.0"
    (dot,) = marks(drawing, "circle", "dot")
    assert dot.get("cx") == "96.5"
    assert marks(drawn(interval_bar(0.1, 0.05, 0.2, 0.2)), "path", "interval better")
    assert marks(drawn(interval_bar(-0.1, -0.2, -0.05, 0.2)), "path", "interval worse")
    assert marks(drawn(interval_bar(None, None, None, 0.0)), "path", "interval") == []


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.0, 1.0, ["0.0", "0.5", "1.0"]),
        (0.41, 0.59, ["0.45", "0.50", "0.55"]),
        (-3.0, 3.0, ["-2", "0", "2"]),
        (0.0, 25_000.0, ["0", "10,000", "20,000"]),
    ],
)
def test_rules_stand_at_round_numbers(low: float, high: float, said: list[str]) -> None:
    rules = Frame([], low, high, 300, 200).rules(4)
    assert [str(rule.children[0]) for rule in rules if rule.name == "text"] == said


def test_a_range_of_one_value_or_of_none_has_room() -> None:
    assert around([]) == (-0.06, 1.06)
    low, high = around([2.0, 2.0])
    assert low == pytest.approx(1.9) and high == pytest.approx(2.1)
    assert around([0.0]) == (-0.05, 0.05)


def test_a_picture_is_a_file_of_its_own_with_its_style() -> None:
    tried = slot(1, "explore", dev=score(0.5, 9))
    root = ET.fromstring(picture(scores_chart([report(1, 0.5, tried)], {})))
    assert list(root.iter(f"{SVG}a")) == [] and len(marks(root, "circle", "dot trial")) == 1
    assert [child.tag.rpartition("}")[2] for child in root][:4] == [
        "title",
        "desc",
        "style",
        "rect",
    ]
    assert "--dev: #" in (root.findtext(f"{SVG}style") or "")
