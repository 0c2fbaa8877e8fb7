"""The page of a campaign: all of its record in one HTML file that needs no network and no script.

Equal dossiers give equal bytes. Whatever workers and models wrote is text on it (see
`policies/element.py`), and a content security policy forbids the browser all but the one style
sheet: no script, no image, no request.
"""

import base64
import hashlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path

from policies.ancestry import ancestry, promotions, standing
from policies.caps import amount_text
from policies.cells import Block, Cell, Code, Items, Mark, Paragraph, Said, Table
from policies.chapter import chapter, tracking_table, unfinished_chapter
from policies.charts import CHARTS, cost_charts, gap_charts, scores_chart
from policies.dossier import Dossier, End, promoted
from policies.element import Element, Node, element, markup
from policies.endings import end_scores, end_verdict, lockbox_blocks
from policies.escape import one_line
from policies.findings import rates_line
from policies.hypertext import blocks_html, cell_html
from policies.integrity import rates
from policies.isolation import isolation_banner
from policies.policy import SearchPolicy
from policies.purse import spent_text
from policies.report import RoundReport, SetScore
from policies.sections import OUTCOME_TONES, rounds_table

STYLES = (CHARTS, Path(__file__).with_name("page.css"))


def campaign_page(dossier: Dossier) -> str:
    """The page, as the text of an HTML file."""
    style = "".join(path.read_text(encoding="utf-8") for path in STYLES)
    sha256 = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    allowed = (
        f"default-src 'none'; style-src 'sha256-{sha256}'; base-uri 'none'; form-action 'none'"
    )
    places = _places(dossier)
    parts = [
        ("overview", "Overview", _overview(dossier)),
        ("scores", "Scores", _scores(dossier)),
        ("tracking", "Dev against external", _tracking(dossier)),
        ("promotions", "Promotions", _promotions(dossier, places)),
        ("policy", "Policy", _policy(dossier, places)),
        ("cost", "Cost", _cost(dossier)),
        ("end", "End", _end(dossier.end, places)),
        ("rounds", "Rounds", _rounds(dossier)),
    ]
    page = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=allowed),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="referrer", content="no-referrer"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", f"{dossier.campaign.id}: campaign"),
            element("style", style),
        ),
        element(
            "body",
            element("a", "Skip to the report", href="#overview", class_="skip"),
            _contents(dossier, [(place, title) for place, title, _ in parts]),
            element(
                "main",
                _head(dossier),
                *[
                    element("section", element("h2", title), *body, id=place)
                    for place, title, body in parts
                ],
                *[chapter(report, dossier, places) for report in dossier.reports],
                *[unfinished_chapter(each, places) for each in dossier.unfinished],
            ),
        ),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{markup(page)}\n"


def _places(dossier: Dossier) -> frozenset[str]:
    """The anchors of rounds and trials that the page has."""
    trials = {(r.round, slot.slot) for r in dossier.reports for slot in r.results.slots}
    trials |= {(u.round.number, trial.slot) for u in dossier.unfinished for trial in u.trials}
    rounds = {r.round for r in dossier.reports} | {u.round.number for u in dossier.unfinished}
    return frozenset({f"r{n}-s{slot}" for n, slot in trials} | {f"r{n}" for n in rounds})


def _contents(dossier: Dossier, parts: Sequence[tuple[str, str]]) -> Element:
    numbers = [report.round for report in dossier.reports]
    numbers += [each.round.number for each in dossier.unfinished]
    rounds = [element("a", f"{number}", href=f"#r{number}") for number in numbers]
    return element(
        "nav",
        element("p", "Seedbed", class_="brand"),
        element(
            "ul",
            *[element("li", element("a", title, href=f"#{place}")) for place, title in parts],
        ),
        element("p", *rounds, class_="numbers", aria_label="Rounds") if rounds else None,
        aria_label="Contents",
    )


def _head(dossier: Dossier) -> Element:
    campaign, reports = dossier.campaign, dossier.reports
    banner = isolation_banner(reports)
    paused = f"Paused: {one_line(dossier.paused, 1000)}" if dossier.paused else ""
    return element(
        "header",
        element("h1", campaign.id),
        element(
            "p",
            *cell_html(
                (
                    "Substrate ",
                    Code(campaign.substrate_name),
                    ", recipe ",
                    Code(campaign.recipe),
                    ", worker ",
                    Code(campaign.worker),
                    f", seed {campaign.seed}, begun ",
                    campaign.created_at.isoformat(timespec="seconds"),
                    ".",
                ),
                (),
            ),
            class_="under",
        ),
        element("p", banner, class_="banner", role="note") if banner else None,
        element("p", paused, class_="banner", role="note") if paused else None,
    )


def _overview(dossier: Dossier) -> list[Element]:
    reports = dossier.reports
    policy = dossier.lineage[-1].policy if dossier.lineage else None
    flagged = sum(some for _, some, _ in rates(reports))
    trials = sum(len(report.results.slots) for report in reports)
    made = promoted(dossier.lineage, reports)
    cpu = sum(slot.cpu_seconds for report in reports for slot in report.account.slots)
    models = [
        amount_text(item.unit, item.amount)
        for item in dossier.spent
        if item.unit in ("microdollars", "gpu_seconds")
    ]
    misled = [] if policy is None else [n for n, t in policy.trust.items() if t != "trusted"]
    facts: list[tuple[str, str, str]] = [
        ("state", dossier.state, ""),
        ("rounds", f"{len(reports)} of {dossier.rounds}", ""),
        ("trials", f"{trials}", f"{flagged} flagged"),
        ("standing recipe, dev", *_course(reports)),
        ("promoted", f"{len(made)}", f"{sum(item.until is None for item in made)} stand"),
        ("dead ends", f"{0 if policy is None else len(policy.dead_ends)}", ""),
        ("dev misleads in", f"{len(misled) or 'none'}", one_line(", ".join(misled))),
        ("external looks", f"{sum(len(report.results.looks) for report in reports)}", ""),
        ("CPU seconds", f"{cpu:,.1f}", ", ".join(models)),
    ]
    cards = [
        element(
            "div",
            element("dt", name),
            element("dd", value, element("small", more) if more else None),
        )
        for name, value, more in facts
    ]
    campaign = dossier.campaign
    digests: list[tuple[Cell, Cell]] = [
        ("substrate", Code(campaign.substrate_sha256)),
        ("judge", Code(campaign.judge_sha256)),
        ("constitution", Code(campaign.constitution_sha256)),
    ]
    if dossier.lineage:
        newest = dossier.lineage[-1]
        digests.append((f"policy {newest.version}", Code(newest.sha256)))
    if reports:
        last = reports[-1]
        digests.append((f"results of round {last.round}", Code(last.results_digest())))
        if head := last.account.ledger_hash:
            digests.append((f"ledger, event {last.account.ledger_seq}", Code(head)))
    plan = json.dumps(json.loads(campaign.plan), indent=2, ensure_ascii=False).splitlines()
    return [
        element("dl", *cards, class_="facts"),
        element("p", *cell_html(rates_line(reports), ())) if reports else element("p", NOTHING),
        element(
            "details",
            element("summary", "Digests"),
            *blocks_html([Table(("what", "sha256"), digests)], (), "Digests"),
        ),
        element(
            "details",
            element("summary", "Plan"),
            element("div", *[element("div", line) for line in plan], class_="diff"),
        ),
    ]


NOTHING = "No round is complete."


def _course(reports: Sequence[RoundReport]) -> tuple[str, str]:
    """Where the mean dev score of the standing recipe went from the first round to the last."""
    means = [r.results.spread.mean for r in reports if r.results.spread.mean is not None]
    if not means:
        return "unknown", ""
    return f"{means[-1]:.4f}", f"from {means[0]:.4f}"


def _scores(dossier: Dossier) -> list[Element]:
    reports = dossier.reports
    if not reports:
        return [element("p", NOTHING)]
    axes: dict[int, list[str]] = {}
    for item in promoted(dossier.lineage, reports):
        if item.since.round is not None:
            axes.setdefault(item.since.round, []).append(item.promotion.axis)
    better = "Higher" if dossier.direction == "maximise" else "Lower"
    keys = [
        _key("dev", "anchor, dev"),
        _key("external", "anchor, external"),
        _key("trial", "trial, dev"),
        _key("diamond", "trial, external"),
        _key("lost", "trial without a score"),
    ]
    caption = element(
        "figcaption",
        element("span", *keys, class_="keys"),
        f"{better} is better. Bars are one standard deviation of one trial, as the round's report "
        "has it. Slots stand side by side.",
    )
    figure = element(
        "figure", _scrolled(scores_chart(reports, axes), "Scores by round"), caption, class_="wide"
    )
    table = blocks_html([rounds_table(reports, dossier.direction)], (), "Rounds")
    return [figure, *table]


def _tracking(dossier: Dossier) -> list[Element]:
    gaps = gap_charts(dossier.reports)
    table = tracking_table(dossier.reports)
    found: list[Element] = []
    if gaps:
        away = "above" if dossier.direction == "maximise" else "below"
        caption = element(
            "figcaption",
            f"Dev minus external, by domain and round: the anchor as a line, every trial with both "
            f"scores as a dot. A gap that grows {away} zero is dev that misleads.",
        )
        figure = [_scrolled(drawing, "Dev minus external") for drawing in gaps]
        found.append(element("figure", element("div", *figure, class_="panels"), caption))
    if table is not None:
        told = "✓ tracking, ✕ decoupled, · too little to say. Each column is a round."
        found += [element("h3", "Verdicts by round"), table, element("p", told, class_="aside")]
    return found or [element("p", "No trial has both a dev and an external score.")]


def _promotions(dossier: Dossier, places: Collection[str]) -> list[Element]:
    found = promotions(promoted(dossier.lineage, dossier.reports), places)
    return found or [element("p", "Nothing was promoted.")]


def _policy(dossier: Dossier, places: Collection[str]) -> list[Element]:
    if not dossier.lineage:
        return [element("p", "There is no policy.")]
    policy: SearchPolicy = dossier.lineage[-1].policy
    return [
        element("p", one_line(policy.objective, 2000)),
        element("div", *standing(policy, places), class_="standing"),
        element("h3", "Lineage"),
        ancestry(dossier, promoted(dossier.lineage, dossier.reports), places),
    ]


def _cost(dossier: Dossier) -> list[Element]:
    charts = [_scrolled(drawing, "Cost by round") for drawing in cost_charts(dossier.reports)]
    found: list[Element] = []
    if charts:
        found.append(element("figure", element("div", *charts, class_="panels")))
    if dossier.spent:
        lines: list[Block] = [Items([Said(spent_text(item)) for item in dossier.spent])]
        found += [element("h3", "Spent by role"), *blocks_html(lines, (), "Spent")]
    return found or [element("p", "Nothing is on record.")]


def _end(end: End, places: Collection[str]) -> list[Element]:
    """The end as far as it went: candidate, confirmation, lockbox, export."""
    if end.candidate is None:
        return [element("p", "The campaign was not ended: no candidate was chosen.")]
    chosen = end.candidate
    said: list[Cell] = [
        (
            f"Candidate: the standing recipe of policy {chosen.policy_version} ",
            Code(chosen.policy_sha256[:12]),
            f", chosen {chosen.chosen_at.isoformat(timespec='seconds')}.",
        ),
        ("Rule: ", Said(chosen.rule, 2000)),
    ]
    if end.runs:
        said.append(end_verdict(end.runs, end.external))
    blocks: list[Block] = [Paragraph([line]) for line in said]
    rows: list[tuple[Cell, ...]] = [
        (
            f"{run.arm} {run.number}",
            Code(f"{run.seed}"),
            Mark(run.outcome, OUTCOME_TONES.get(run.outcome, "odd")),
            _value(run.dev),
            _value(run.external),
            Said(run.reason) if run.reason else "",
        )
        for run in end.runs
    ]
    lockbox = end.lockbox or {}
    blocks += [
        Table(("run", "seed", "outcome", "dev", "external", "reason"), rows),
        end_scores(end.runs, lockbox),
    ]
    if end.opening is None:
        blocks.append(Paragraph(["The lockbox is shut."]))
    else:
        opened = (
            f"The lockbox was opened once, {end.opening.opened_at.isoformat(timespec='seconds')}."
        )
        blocks += [Paragraph([opened]), *lockbox_blocks(lockbox)]
    if end.files is not None:
        files = [(Said(name), Code(sha256)) for name, sha256 in sorted(end.files.items())]
        blocks.append(Table(("exported file", "sha256"), files))
    else:
        blocks.append(Paragraph(["Nothing was exported."]))
    return blocks_html(blocks, places, "The campaign's end")


def _rounds(dossier: Dossier) -> list[Element]:
    if not dossier.reports and not dossier.unfinished:
        return [element("p", "No round was begun.")]
    return [element("p", "Each has the same parts. Rows elsewhere on this page link to its slots.")]


def _value(score: str | None) -> str:
    return f"{SetScore.model_validate_json(score).value:.4f}" if score else "not scored"


def _scrolled(drawing: Element, name: str) -> Element:
    return element("div", drawing, class_="plot", tabindex=0, role="region", aria_label=name)


def _key(kind: str, words: str) -> Node:
    shape = element("span", class_=f"swatch {kind}", aria_hidden="true")
    return element("span", shape, words, class_="key")
