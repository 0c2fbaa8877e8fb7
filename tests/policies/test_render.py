"""Reports as Markdown, JSON and drawings: golden text, and what workers write made harmless."""

import base64
import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from markdown_it import MarkdownIt

from policies.drawings import diff_svg, svg_data_uri
from policies.edits import edit_text
from policies.escape import code, markdown, one_line
from policies.isolation import isolation_banner
from policies.policy import Edit
from policies.render import (
    campaign_json,
    campaign_markdown,
    report_markdown,
)
from policies.report import RoundReport
from tests.policies.reports import EVIL, campaign, report, report_data

SVG = "{http://www.w3.org/2000/svg}"

GOLDEN = f"""\
# Round 2 of `demo-1f2e`

Policy version 2, recipe `sft`, worker `sampler`, isolation `bubblewrap`.

## Trials

| slot | kind | axis | edit | outcome | dev | external |
| --- | --- | --- | --- | --- | --- | --- |
| 0 | anchor | none | none | evaluated | 0.5000 (n=60) | not scored |
| 1 | explore | `rate` | `LEARNING_RATE=0.003 + patch aaaaaaaaaaaa` | evaluated | 0.6250 (n=60) \
| 0.5000 (n=50) |
| 2 | explore | `decay` | none | crashed | not scored | no look |
| 3 | replicate | none | `DECAY=0.1` | evaluated | not scored | no look |

## Scores by domain

| slot | set | domain | score | problems |
| --- | --- | --- | --- | --- |
| 0 | dev | digits | 0.6000 | 20 |
| 0 | dev | strings | 0.4500 | 40 |
| 1 | external | digits | 0.5000 | 50 |

## Anchor and noise

- This round's anchor: dev 0.5000, external not scored
- Runs of the standing recipe so far: 2, mean dev 0.4900, from 0.4800 to 0.5000
- Noise of one trial on dev: standard deviation 0.0141 (1 degrees of freedom), threshold unknown, \
calibration runs used: 8
- Noise of one trial on external: standard deviation 0.0200 (3 degrees of freedom)

## Verdicts

| slot | axis | effect on dev | interval | verdict | effect on external | rows |
| --- | --- | --- | --- | --- | --- | --- |
| 1 | `rate` | +0.1350 | +0.0200 to +0.2500 | better | +0.0100 ± 0.0300 | r2/s1 r2/s0 |
| 2 | `decay` | unknown | unknown to unknown | unresolved | unknown | r2/s2 |

## Replicated edits

| axis | fresh runs | mean effect | bar | share of errors | confirmed | rows |
| --- | --- | --- | --- | --- | --- | --- |
| `decay` | 4 | +0.0500 | 0.0400 | 0.013 | yes | r1/s3 r2/s3 |

## Dev against external

| domain | dev | chance if it tracks | alarm at | largest shortfall on | pairs | change on dev | \
change on external |
| --- | --- | --- | --- | --- | --- | --- | --- |
| overall | insufficient | none | none | none | 0 | unknown | unknown |
| strings | decoupled | 0.0004 | 0.005 | `rate` | 2 | +0.2000 | -0.0100 ± 0.0200 |

No verdict counts dev in: strings.

## External looks

2: slots 1, 0.

## Integrity

- slot 2: log\\_cut

Flagged trials: 1 of 4 (`controller` 0 of 2, `sampler` 1 of 2).

## Dead ends

- A rate above 1

## Words of the workers

| slot | hypothesis | reason for the outcome | notes |
| --- | --- | --- | --- |
| 1 | A higher rate learns faster. |  | Tried 0.1 first. |
| 2 |  | KeyError: 'RATE' |  |

## Narrative

> The rate helped.

## Cost

| slot | attempts | seconds | CPU seconds | peak MB | rollouts | tokens |
| --- | --- | --- | --- | --- | --- | --- |
| 0 | 1 | 0.25 | 0.20 | 21 | 64 | 640 |
| 1 | 2 | 0.25 | 0.20 | 21 | 64 | 640 |
| 2 | 1 | 0.25 | 0.20 | 21 | 0 | 0 |
| 3 | 1 | 0.25 | 0.20 | 21 | 64 | 640 |
| all | 5 | 1.00 | 0.80 | 21 | 192 | 1920 |

From 2030-01-01T00:00:00+00:00 to 2030-01-01T00:00:09+00:00. Seconds of the round by phase: \
fork 0.50, work 8.50.

## Digests

| what | sha256 |
| --- | --- |
| results | `{report().results_digest()}` |
| substrate | `{"1" * 64}` |
| constitution | `{"2" * 64}` |
| policy 2 | `{"3" * 64}` |
| slot 1, diff | `{"4" * 64}` |
| slot 1, adapter | `{"5" * 64}` |
| dev: accuracy by stub 1 | `{"e" * 64}` |
| external: accuracy by stub 1 | `{"e" * 64}` |
"""


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("## ")]


def rendered(text: str) -> list[Any]:
    """Every token of the Markdown, by a parser that lets raw HTML and any link through."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    parser.validateLink = lambda url: True
    tokens = parser.parse(text)
    return [token for block in tokens for token in (block, *(block.children or []))]


def test_a_report_is_this_markdown() -> None:
    assert report_markdown(report()) == GOLDEN


def test_a_round_that_lost_everything_has_the_same_sections() -> None:
    data = report_data()
    data["results"] |= {"slots": [], "looks": [], "verdicts": [], "dead_ends": [], "narrative": ""}
    data["results"] |= {"confirmations": [], "decoupling": [], "ignored": []}
    data["results"]["spread"] = dict.fromkeys(("dev", "external", "mean", "low", "high")) | {"n": 0}
    data["account"] |= {"slots": [], "seconds": {}}
    text = report_markdown(RoundReport.model_validate(data))
    assert headings(text) == headings(GOLDEN)
    assert "- This round's anchor: dev not scored, external unknown" in text
    assert "| all | 0 | 0.00 | 0.00 | 0 | 0 | 0 |" in text


def test_what_workers_and_models_write_stays_text() -> None:
    data = report_data()
    trial = data["results"]["slots"][1]
    trial["hypothesis"] = trial["integrity"] = EVIL
    trial["integrity"] = [EVIL]
    trial["edit"]["overrides"] = {EVIL: {EVIL: EVIL}}
    trial["external"]["domains"] = {EVIL: {"value": 0.5, "n": 1}}
    trial["external"] |= {"metric": EVIL, "engine": EVIL}
    data["results"] |= {"narrative": EVIL, "dead_ends": [EVIL], "recipe": EVIL}
    data["account"]["slots"][1] |= {"reason": EVIL, "notes": EVIL}
    data["account"] |= {"worker": EVIL, "isolation": EVIL, "started_at": EVIL, "ended_at": EVIL}
    data["account"]["integrity"] = [
        {"slot": 0, "attempt": 1, "kind": EVIL, "detail": EVIL[:500], "worker": EVIL}
    ]
    data["account"]["seconds"] = {EVIL: 1.0}
    data["campaign"] = EVIL
    text = report_markdown(RoundReport.model_validate(data))

    assert "<" not in text.replace("&lt;", "") and "\x1b" not in text and "\u202e" not in text
    outside_code = re.sub(r"`[^`\n]*`", "", text)
    assert "://" not in outside_code and "www." not in outside_code
    tokens = rendered(text)
    assert {t.type for t in tokens} & {"image", "link_open", "html_inline", "html_block"} == set()
    assert [t.type for t in tokens].count("fence") == 0
    assert headings(text) == headings(GOLDEN)
    columns = [line.count("|") - line.count("\\|") for line in text.splitlines() if line[:1] == "|"]
    golden = [line.count("|") for line in GOLDEN.splitlines() if line[:1] == "|"]
    assert columns == golden


def test_long_text_is_cut_in_tables() -> None:
    data = report_data()
    data["account"]["slots"][0]["notes"] = "x" * 8000
    text = report_markdown(RoundReport.model_validate(data))
    assert "x" * 299 + "…" in text and "x" * 300 not in text


@pytest.mark.parametrize(
    ("text", "as_markdown", "as_code"),
    [
        ("plain", "plain", "`plain`"),
        ("", "", ""),
        ("a|b", "a\\|b", "`a\\u007cb`"),
        ("a\\|b", "a\\\\\\|b", "`a\\\\u007cb`"),
        ("`x` _y_ *z*", "\\`x\\` \\_y\\_ \\*z\\*", "`\\u0060x\\u0060 _y_ *z*`"),
        ("<b>&lt;", "&lt;b&gt;&amp;lt;", "`\\u003cb\\u003e&lt;`"),
        ("two\n  lines\u2028more", "two lines more", "`two lines more`"),
        ("\ufffe\ufdd0", "\\\\ufffe\\\\ufdd0", "`\\ufffe\\ufdd0`"),
        ("\x1b[31m\u202e", "\\\\u001b\\[31m\\\\u202e", "`\\u001b[31m\\u202e`"),
    ],
)
def test_text_is_escaped_for_where_it_stands(text: str, as_markdown: str, as_code: str) -> None:
    assert (markdown(text), code(text)) == (as_markdown, as_code)


def test_a_cut_line_has_the_length_that_was_asked_for() -> None:
    assert one_line("abcdef", 6) == "abcdef"
    assert one_line("abcdefg", 6) == "abcde…"
    assert one_line("abc\x1b\x1b\x1b", 6) == "abc\\u…"


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        ({}, ""),
        ({"overrides": {"recipes/sft.py": {}}}, ""),
        ({"overrides": {"recipes/sft.py": {"RATE": 0.003}}}, "RATE=0.003"),
        ({"overrides": {"a.py": {"B": [1, True], "A": "x"}}}, 'A="x", B=[1, true]'),
        ({"overrides": {"b.py": {"N": None}, "a.py": {"N": 1}}}, "a.py N=1, b.py N=null"),
        ({"patch": "a" * 64}, "patch aaaaaaaaaaaa"),
        ({"overrides": {"a.py": {"N": 1}}, "patch": "b" * 64}, "N=1 + patch bbbbbbbbbbbb"),
        ({"overrides": {"a.py": {"\x1b": "\x1b\u202e"}}}, '\\u001b="\\u001b\\u202e"'),
    ],
)
def test_an_edit_is_told_in_short(edit: dict[str, Any], text: str) -> None:
    assert edit_text(Edit.model_validate(edit)) == text


def test_a_campaign_as_json_has_rounds_each_with_slots() -> None:
    first, second = report(round=1), report(round=2)
    found = campaign_json(campaign(), [second, first])
    assert json.loads(json.dumps(found)) == found
    assert [part["round"] for part in found["rounds"]] == [1, 2]
    assert found["rounds"][0]["slots"] == first.data()["results"]["slots"]
    assert found["rounds"][0]["results"] == first.data()["results"]
    assert found["rounds"][0]["account"] == first.data()["account"]
    assert found["rounds"][1]["results_sha256"] == second.results_digest()
    assert (found["campaign"], found["plan"]["width"], found["seed"]) == ("demo-1f2e", 4, 7)
    assert campaign_json(campaign(), [])["rounds"] == []


def test_reports_of_another_campaign_are_refused() -> None:
    with pytest.raises(ValueError, match=r"wanted reports of demo-1f2e, found some of .*other"):
        campaign_json(campaign(), [report(campaign="other")])


def test_a_campaign_as_markdown_has_a_row_for_each_round_and_a_drawing() -> None:
    text = campaign_markdown(campaign(), [report()], direction="maximise")
    row = "| 2 | 2 `333333333333` | 0.5000 | no look | 0.6250 | 1 crashed, 3 evaluated | 2 | 0.8 |"
    assert row in text
    (image,) = [token for token in rendered(text) if token.type == "image"]
    assert str(image.attrs["src"]).startswith("data:image/svg+xml;base64,")
    worst = campaign_markdown(campaign(), [report()], direction="minimise")
    assert "| 0.5000 | no look | 0.5000 |" in worst
    assert "No round is complete." in campaign_markdown(campaign(), [], direction="maximise")


def test_a_diff_is_drawn_in_colours_with_all_of_its_text() -> None:
    long = "word " * 60
    lines = [(" ", "axes"), ("-", "status: <active> & \x1b"), ("+", long)]
    drawing = ET.fromstring(diff_svg(lines))
    texts = list(drawing.iter(f"{SVG}text"))
    assert [text.text for text in texts[:2]] == ["  axes", "- status: <active> & \\u001b"]
    assert len({text.get("fill") for text in texts}) == 3
    assert "".join((text.text or "")[2:] for text in texts[2:]) == long
    assert int(drawing.get("height") or 0) == 16 + 18 * len(texts)


def test_a_data_uri_holds_the_drawing() -> None:
    drawing = diff_svg([("+", "größer")])
    head, _, body = svg_data_uri(drawing).partition(",")
    assert head == "data:image/svg+xml;base64"
    assert base64.b64decode(body).decode() == drawing


def walled(*levels: str) -> list[RoundReport]:
    """A report for each, whose trials had that level, or those."""
    account = report_data()["account"]
    return [report(account=account | {"isolation": level}) for level in levels]


@pytest.mark.parametrize("level", ["none", "bubblewrap; none", "a level that we do not know"])
def test_a_report_of_trials_without_walls_says_so_before_anything_else(level: str) -> None:
    first = report_markdown(walled(level)[0]).split("## ")[0]
    assert "NO ISOLATION" in first and "do not take their scores for earned" in first


def test_scores_from_behind_different_walls_are_not_compared_silently() -> None:
    within_one = report_markdown(walled("bubblewrap; landlock")[0])
    assert "ISOLATION DIFFERS" in within_one and "bubblewrap and landlock" in within_one
    apart = walled("bubblewrap", "landlock")
    assert "ISOLATION DIFFERS" in isolation_banner(apart)
    assert not any("ISOLATION" in report_markdown(one) for one in apart)


def test_equal_walls_need_no_banner() -> None:
    assert isolation_banner(walled("landlock", "landlock")) == ""
