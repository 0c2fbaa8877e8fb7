"""A campaign's page: whole, well formed, the same bytes each time, and of markup that is ours."""

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from policies.dossier import Dossier, End, Unfinished, promoted
from policies.draft import Violation
from policies.final import Effect
from policies.lineage import Version, read_lineage
from policies.page import STYLES, campaign_page
from policies.policy import SearchPolicy
from policies.purse import Spent
from policies.rejection import Rejection
from policies.report import RoundReport, SetScore
from policies.tables import Candidate, FinalRun, Opening, Policy, Round, Trial
from tests.policies.cases import PARENT
from tests.policies.reports import EVIL, campaign, report_data, score, slot

MARKUP = (
    "<script>alert(1)</script></svg></style></title><svg onload=alert(1)>]]>--><!--"
    "\"'><img src=x onerror=alert(1)>&lt;b&gt;&#60;\x00\x08\x1b[31m\u202e\u2066\u200b\ufffe\ud800"
)
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "nav", "main", "header", "section"),
    *("h1", "h2", "h3", "p", "a", "ul", "ol", "li", "dl", "dt", "dd", "div", "span", "small"),
    *("strong", "code", "blockquote", "details", "summary", "figure", "figcaption", "table"),
    *("thead", "tbody", "tr", "th", "td", "svg", "desc", "path", "text", "circle", "rect"),
}
SVG = "{http://www.w3.org/2000/svg}"
MOMENT = datetime(2030, 1, 1, tzinfo=UTC)


def rounds(*changes: dict[str, Any]) -> list[RoundReport]:
    """A report for each; changes may name fields of a report, of its results or its account."""
    found = []
    for number, each in enumerate(changes, start=1):
        data: dict[str, Any] = report_data() | {"round": number}
        for name, value in each.items():
            place = next(p for p in (data["results"], data["account"], data) if name in p)
            place[name] = value
        found.append(RoundReport.model_validate(data))
    return found


def version(number: int, after: int | None, parent: SearchPolicy | None, **changes: Any) -> Policy:
    """A row of a policy that follows `parent`."""
    digest = parent.digest() if parent else None
    data = PARENT.data() | {"version": number, "parent": digest} | changes
    policy = SearchPolicy.model_validate(data)
    return Policy(
        campaign="demo-1f2e",
        version=number,
        sha256=policy.digest(),
        parent=digest,
        body=policy.text(),
        author="reviser",
        round=after,
        created_at=MOMENT,
    )


def lineage(*changes: dict[str, Any]) -> list[Version]:
    rows: list[Policy] = []
    for number, each in enumerate(changes, start=1):
        parent = SearchPolicy.model_validate_json(rows[-1].body) if rows else None
        rows.append(version(number, number - 1 or None, parent, **each))
    return read_lineage(rows)


def dossier(reports: Sequence[RoundReport] = (), **changes: Any) -> Dossier:
    fields: dict[str, Any] = {
        "campaign": campaign(),
        "state": "complete",
        "paused": "",
        "rounds": 2,
        "direction": "maximise",
        "reports": reports,
        "unfinished": [],
        "lineage": lineage({}),
        "rejections": [],
        "spent": [],
        "end": End(),
    }
    return Dossier(**fields | changes)


def trial(number: int, outcome: str = "crashed") -> Trial:
    return Trial(
        campaign="demo-1f2e",
        round=1,
        slot=number,
        attempt=1,
        kind="explore" if number else "anchor",
        axis="rate" if number else None,
        outcome=outcome,  # pyright: ignore[reportArgumentType]
        hypothesis="",
        edit="{}",
        seed=1,
        account="{}",
    )


def whole_end() -> End:
    scored = SetScore.model_validate(score(0.6, 40, digits=(0.6, 40)))
    runs = [
        FinalRun(
            campaign="demo-1f2e",
            arm=arm,
            number=number,
            seed=number,
            outcome="evaluated",
            reason="",
            dev=scored.model_dump_json(),
            external=scored.model_dump_json(),
            account="{}",
        )
        for arm in ("candidate", "baseline")
        for number in (1, 2)
    ]
    return End(
        candidate=Candidate(
            campaign="demo-1f2e",
            rule="The newest.",
            policy_version=2,
            policy_sha256="3" * 64,
            standing_recipe="{}",
            chosen_at=MOMENT,
        ),
        runs=runs,
        external=Effect((2, 2), (0.6, 0.5), 0.1, 0.05, 0.15),
        opening=Opening(campaign="demo-1f2e", candidate_sha256="5" * 64, opened_at=MOMENT),
        lockbox={"candidate": scored},
        files={"adapter_model.safetensors": "7" * 64},
    )


REJECTED = Rejection(
    1, 1, "openai:m", "8" * 64, (Violation("C6", "noise: 0", "it is lowered"),), {}
)
BEGUN = Round(campaign="demo-1f2e", number=1, policy_version=1, started_at=MOMENT)
LOST = {
    "slots": [slot(n, "explore" if n else "anchor", outcome="crashed") for n in range(4)],
    "verdicts": [],
    "confirmations": [],
    "looks": [],
    "spread": dict.fromkeys(("dev", "external", "mean", "low", "high")) | {"n": 0},
}
WIDE = {
    "slots": [
        slot(n, "explore" if n else "anchor", dev=score(0.4 + n / 500, 60)) for n in range(100)
    ],
}
CAMPAIGNS = {
    "no round": dossier(),
    "a round that was interrupted": dossier(
        state="resumable", unfinished=[Unfinished(BEGUN, [trial(0)])]
    ),
    "a round without a trial": dossier(unfinished=[Unfinished(BEGUN, [])]),
    "failed trials only": dossier(rounds(LOST, LOST)),
    "no external look": dossier(rounds(WIDE)),
    "a hundred slots": dossier(rounds(WIDE, WIDE)),
    "one round": dossier(rounds({})),
    "all there is": dossier(
        rounds({}, LOST, {}),
        lineage=lineage({}, {"claims": []}, {"standing_recipe": {}}),
        rejections=[REJECTED],
        spent=[Spent("worker", "microdollars", 3, 2_500_000, 1)],
        end=whole_end(),
        paused="the cap of dollars",
    ),
}


def tree(page: str) -> ET.Element:
    """The page by a parser that takes nothing that is not well formed."""
    return ET.fromstring(page.partition("\n")[2])


def local(found: ET.Element) -> str:
    return found.tag.rpartition("}")[2]


class Balanced(HTMLParser):
    """Follows tags as a browser reads them, and notes those that do not close what was open."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_comment(self, data: str) -> None:
        self.wrong.append(data)


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_page_is_well_formed_and_all_of_its_links_lead_to_a_place_on_it(name: str) -> None:
    page = campaign_page(CAMPAIGNS[name])
    root, browser = tree(page), Balanced()
    browser.feed(page)
    assert (browser.wrong, browser.open) == ([], [])
    assert sorted(browser.seen) == sorted(local(found).lower() for found in root.iter())
    ids = [found.get("id") for found in root.iter() if found.get("id")]
    assert len(ids) == len(set(ids))
    links = {found.get("href") or "" for found in root.iter() if found.get("href")}
    assert links <= {f"#{place}" for place in ids}
    for table in root.iter("table"):
        assert all(cell.get("scope") for cell in table.iter("th"))
    for drawing in root.iter(f"{SVG}svg"):
        assert drawing.get("aria-hidden") or [local(child) for child in drawing][:2] == [
            "title",
            "desc",
        ]


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_equal_dossiers_have_equal_bytes(name: str) -> None:
    again = CAMPAIGNS[name]
    copies = [RoundReport.model_validate_json(r.model_dump_json()) for r in again.reports]
    assert campaign_page(again) == campaign_page(replace(again, reports=copies))


def test_a_browser_may_load_nothing_and_run_nothing() -> None:
    page = campaign_page(CAMPAIGNS["all there is"])
    root = tree(page)
    (rule,) = [m.get("content") for m in root.iter("meta") if m.get("http-equiv")]
    (style,) = [found.text or "" for found in root.iter("style")]
    sha256 = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert rule == (
        f"default-src 'none'; style-src 'sha256-{sha256}'; base-uri 'none'; form-action 'none'"
    )
    assert "url(" not in style and "@import" not in style
    names = {name for found in root.iter() for name in found.attrib}
    assert not [name for name in names if name.startswith("on") or name in ("src", "style")]
    assert {found.tag for found in root.iter()} & {"script", "link", "img", "iframe"} == set()
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("evil", [MARKUP, EVIL, "<b>" * 350_000])
def test_what_workers_and_models_write_becomes_no_markup(evil: str) -> None:
    text = evil.replace("\ud800", "")  # no record takes half of a surrogate pair
    short = text[:500]
    data = report_data()
    first = data["results"]["slots"][1]
    first |= {"hypothesis": text[:2000], "integrity": [text]}
    first["edit"] = {"overrides": {text: {text: text}}, "patch": None}
    for scored in (first["dev"], first["external"]):
        scored["domains"] = {text: {"value": 0.5, "n": 1}}
        scored |= {"metric": text, "engine": text}
    data["results"] |= {"narrative": text[:8000], "dead_ends": [text], "recipe": text}
    data["results"]["ignored"] = [text]
    for entry in data["results"]["decoupling"]:
        entry["domain"] = text
    data["account"]["slots"][1] |= {"reason": text[:2000], "notes": text[:8000]}
    data["account"] |= {"worker": text, "isolation": text, "started_at": text, "ended_at": text}
    data["account"] |= {"seconds": {text: 1.0}}
    event = {"slot": 0, "attempt": 1, "kind": text, "detail": short, "worker": text}
    data["account"]["integrity"] = [event]
    worded = {
        "objective": text[:2000],
        "rationale": text[:8000],
        "unchanged_because": short,
        "trust": {text: "suspect"},
        "evidence_ranking": [text],
        "claims": [{"id": "c", "text": short, "rows": ["r1/s1"]}],
    }
    axes = [
        axis | {"title": text[:120], "hypothesis": text[:2000]} for axis in PARENT.data()["axes"]
    ]
    ends = [{"id": "e", "axis": "rate", "title": text[:200], "effect": None, "rows": ["r1/s1"]}]
    violation = Violation(evil, evil, evil)
    row = campaign()
    row.substrate_name = row.recipe = row.worker = evil
    row.plan = json.dumps({"name": evil})
    end = whole_end()
    assert end.candidate is not None
    end.candidate.rule = end.runs[0].reason = evil
    versions = lineage({}, {"axes": axes, "dead_ends": ends} | worded)
    page = campaign_page(
        dossier(
            [RoundReport.model_validate(data)],
            campaign=row,
            paused=evil,
            lineage=[replace(each, author=evil, fault=evil) for each in versions],
            rejections=[Rejection(1, 1, evil, "8" * 64, (violation,), {})],
            spent=[Spent(evil, evil, 1, 1, 0)],
            end=replace(end, files={evil: "7" * 64}),
        )
    )
    browser = Balanced()
    browser.feed(page)
    assert set(browser.seen) <= ALLOWED and (browser.wrong, browser.open) == ([], [])
    assert {local(found) for found in tree(page).iter()} <= ALLOWED
    assert page.replace("\n", "").isprintable(), "no character is hidden"
    assert len(page) < 1_500_000
    if evil == MARKUP:
        words = "".join(tree(page).itertext())
        assert words.count("<script>alert(1)</script>") > 20, "it is shown as it was written"


def test_the_page_has_the_cells_of_the_markdown_report() -> None:
    root = tree(campaign_page(CAMPAIGNS["one round"]))
    found = {
        row.get("id"): ["".join(cell.itertext()) for cell in row]
        for row in root.iter("tr")
        if row.get("id")
    }
    patch = "LEARNING_RATE=0.003 + patch aaaaaaaaaaaa"
    scores = ["0.6250 (n=60)", "0.5000 (n=50)"]
    assert found["r1-s1"] == ["1", "explore", "rate", patch, "evaluated", *scores]
    assert found["r1-s2"][4:] == ["crashed", "not scored", "no look"]
    (section,) = [part for part in root.iter("div") if part.get("id") == "r1-verdicts"]
    assert "+0.0200 to +0.2500" in "".join(section.itertext())


def test_rows_are_links_only_where_the_page_has_them() -> None:
    root = tree(campaign_page(CAMPAIGNS["one round"]))
    rows = {found.text: found.get("href") for found in root.iter() if found.get("class") == "row"}
    # The claim and the report cite r1/s2, r1/s3, r2/s1 and others; the page has round 1 alone.
    assert rows["r1/s3"] == "#r1-s3" and rows["r2/s1"] is None


def test_a_promotion_is_told_with_its_bar_its_claims_and_its_end() -> None:
    rows = ["r1/s3/dev/overall", "r2/s3/dev/overall"]
    edit = {"overrides": {"recipes/sft.py": {"DECAY": 0.1}}, "patch": None}
    made = {"axis": "decay", "edit": edit, "effect": 0.05, "rows": rows}
    claim = {"id": "c1", "text": "It holds.", "rows": ["r2/s3/external/overall"]}
    other = {"id": "c2", "text": "Of another.", "rows": ["r2/s1"]}
    withdrawn = {"id": "c3", "text": "It misled.", "rows": ["r1/s3"]}
    versions = lineage(
        {"standing_recipe": {}, "claims": []},
        {"standing_recipe": {"provenance": [made]}, "claims": [claim, other]},
        {"standing_recipe": {"provenance": [made]}, "claims": []},
        {"standing_recipe": {}, "claims": [withdrawn]},
    )
    (found,) = promoted(versions, rounds({}, {}))
    assert (found.since.version, found.until and found.until.version) == (2, 4)
    assert [said.id for said in found.claims] == ["c1", "c3"]
    # Version 2 came of round 1: of the two reports with this edit it could know the first alone.
    assert found.confirmation is not None and found.confirmation.bar == 0.04
    page = campaign_page(dossier(rounds({}, {}), lineage=versions))
    assert "promoted: decay" in page and "no longer standing: decay" in page


def test_a_draft_that_was_rejected_is_shown_with_clause_and_quote() -> None:
    root = tree(campaign_page(CAMPAIGNS["all there is"]))
    (step,) = [found for found in root.iter("li") if found.get("class") == "rejected"]
    words = "".join(step.itertext())
    assert "openai:m after round 1 was rejected" in words
    assert "C6" in words and "it is lowered" in words and "noise: 0" in words


def test_an_end_is_told_as_far_as_it_went() -> None:
    def words(end: End) -> str:
        parts = tree(campaign_page(dossier(rounds({}), end=end))).iter("section")
        return "".join(next(part for part in parts if part.get("id") == "end").itertext())

    whole = whole_end()
    assert "no candidate was chosen" in words(End())
    chosen = words(End(candidate=whole.candidate))
    assert "The lockbox is shut." in chosen and "onfirmed" not in chosen
    assert "no score came of it" in words(replace(whole, lockbox={}))
    told = words(whole)
    assert "Confirmed on fresh seeds: +0.1000 on external" in told and "7" * 64 in told


def test_colours_of_text_stand_out_in_light_dark_and_on_paper() -> None:
    """Contrast as WCAG 2.1 has it: 4.5 to 1 for text, AA."""
    style = "".join(path.read_text(encoding="utf-8") for path in STYLES)
    themes = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    assert len(themes) == 3
    for theme in themes:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", theme))
        pairs = [(ink, paper) for ink in ("ink", "dim", "link") for paper in ("paper", "soft")]
        pairs += [(tone, f"{tone}-soft") for tone in ("good", "bad", "odd")]
        pairs += [(line, "paper") for line in ("dev", "external", "gap")]
        for ink, paper in [*pairs, ("ink", "bad-soft"), ("ink", "mark")]:
            one, two = sorted((luminance(colours[ink]), luminance(colours[paper])))
            assert (two + 0.05) / (one + 0.05) >= 4.5, (ink, paper, theme)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
