"""The chapter of a round: its report as a part of the campaign's page."""

from collections.abc import Collection, Sequence

from policies.cells import Block, Code, Mark, Section, Table
from policies.dossier import Dossier, Unfinished
from policies.element import Element, Node, element
from policies.escape import one_line
from policies.findings import toned
from policies.hypertext import blocks_html, cell_html
from policies.isolation import isolation_banner
from policies.rejection import rejections_table
from policies.report import RoundReport
from policies.sections import OUTCOME_TONES, report_sections, under_which

# What is long and looked up, not read: folded away until someone opens it.
FOLDED = {"Scores by domain", "Words of the workers", "Cost", "Digests"}
FIRST = "Narrative"


def chapter(report: RoundReport, dossier: Dossier, places: Collection[str]) -> Element:
    """A round with the same sections for every round, and what it led to."""
    number = report.round
    sections = report_sections(report)
    sections.sort(key=lambda section: section.title != FIRST)  # the rest in their order
    banner = isolation_banner([report])
    return element(
        "section",
        element("h2", f"Round {number} ", _top(number), class_="round"),
        element("p", *cell_html(under_which(report), places), class_="under"),
        element("p", banner, class_="banner", role="note") if banner else None,
        element("p", *_led_to(report, dossier)),
        *[_section(section, number, places) for section in sections],
        *_rejected(report, dossier, places),
        id=f"r{number}",
        class_="chapter",
    )


def unfinished_chapter(unfinished: Unfinished, places: Collection[str]) -> Element:
    """A round without a report: what ended of it so far."""
    begun, trials = unfinished.round, unfinished.trials
    rows = [
        (
            str(trial.slot),
            trial.kind,
            Code(trial.axis) if trial.axis else "none",
            Mark(trial.outcome, OUTCOME_TONES.get(trial.outcome, "odd")),
        )
        for trial in trials
    ]
    named = [f"r{begun.number}/s{trial.slot}" for trial in trials]
    table = Table(("slot", "kind", "axis", "outcome"), rows, named)
    ended = f"{len(trials)} trials have ended" if len(trials) != 1 else "1 trial has ended"
    said = f"Begun under policy version {begun.policy_version}; {ended}. It has no report yet."
    return element(
        "section",
        element("h2", f"Round {begun.number}, not finished", class_="round"),
        element("p", said, class_="under"),
        *blocks_html([table], places, f"Trials of round {begun.number}"),
        id=f"r{begun.number}",
        class_="chapter",
    )


def tracking_table(reports: Sequence[RoundReport]) -> Element | None:
    """Whether dev tracks external, by domain and round; None where nothing was tested."""
    domains = list(
        dict.fromkeys(entry.domain for report in reports for entry in report.results.decoupling)
    )
    if not domains:
        return None
    signs = {"tracking": "✓", "decoupled": "✕", "insufficient": "·"}
    heads = [
        element("th", element("a", f"{report.round}", href=f"#r{report.round}"), scope="col")
        for report in reports
    ]
    rows = []
    for domain in domains:
        cells, shown = [], one_line(domain, 80)
        for report in reports:
            entry = next((e for e in report.results.decoupling if e.domain == domain), None)
            if entry is None:
                cells.append(element("td"))
                continue
            tone = toned(entry.verdict).tone
            chance = "" if entry.probability is None else f", chance {entry.probability:.2g}"
            said = f"{shown}, round {report.round}: {entry.verdict}{chance}"
            sign = element("span", signs[entry.verdict], aria_hidden="true")
            told = element("span", entry.verdict, class_="heard")
            cells.append(element("td", sign, told, class_=f"verdict {tone}", title=said))
        rows.append(element("tr", element("th", shown, scope="row"), *cells))
    name = "Whether dev tracks external, by round"
    table = element(
        "table",
        element("thead", element("tr", element("th", "domain", scope="col"), *heads)),
        element("tbody", *rows),
        aria_label=name,
        class_="matrix",
    )
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=name)


def _section(section: Section, number: int, places: Collection[str]) -> Element:
    name = f"{section.title} of round {number}"
    body = blocks_html(section.blocks, places, name)
    place = f"r{number}-{section.title.lower().replace(' ', '-')}"
    if not body:
        title = element("h3", section.title)
        return element("div", title, element("p", "None."), id=place, class_="none")
    if section.title in FOLDED:
        summary = element("summary", element("h3", section.title))
        return element("details", summary, *body, id=place)
    return element("div", element("h3", section.title), *body, id=place)


def _led_to(report: RoundReport, dossier: Dossier) -> list[Node]:
    """Links to the policy before and after, and to the rounds beside."""
    number = report.round
    said: list[Node] = []
    for version in dossier.lineage:
        if version.version == report.results.policy_version:
            said += [" · ", _to(f"p{version.version}", "The policy it ran under")]
    for version in dossier.lineage:
        if version.round == number:
            said += [" · ", _to(f"p{version.version}", f"Policy {version.version} came of it")]
    rounds = {other.round for other in dossier.reports}
    if number - 1 in rounds:
        said += [" · ", _to(f"r{number - 1}", "Round before")]
    if number + 1 in rounds:
        said += [" · ", _to(f"r{number + 1}", "Next round")]
    return said[1:]


def _rejected(report: RoundReport, dossier: Dossier, places: Collection[str]) -> list[Element]:
    found = [item for item in dossier.rejections if item.round == report.round]
    if not found:
        return []
    table: list[Block] = [rejections_table(found)]
    name = f"Rejected drafts after round {report.round}"
    body = blocks_html(table, places, name)
    return [element("div", element("h3", "Rejected drafts"), *body, class_="rejected")]


def _top(number: int) -> Element:
    return element("a", "#", href=f"#r{number}", class_="here", aria_label="Link to this round")


def _to(place: str, words: str) -> Element:
    return element("a", words, href=f"#{place}")
