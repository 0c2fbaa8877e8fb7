"""Reports as people and programs read them: Markdown and JSON."""

import json
from collections.abc import Sequence
from typing import Any

from policies.cells import blocks_markdown, cell_markdown
from policies.charts import LEGEND, picture, scores_chart
from policies.drawings import Direction, svg_data_uri
from policies.escape import code
from policies.findings import rates_line
from policies.isolation import isolation_banner
from policies.report import RoundReport
from policies.sections import report_sections, rounds_table, under_which
from policies.tables import Campaign


def report_markdown(report: RoundReport) -> str:
    """A round report as Markdown with the same sections and columns for every round.

    Equal reports have equal text. Whatever workers and models wrote is escaped and cut.
    """
    lines = [
        f"# Round {report.round} of {code(report.campaign)}",
        "",
        cell_markdown(under_which(report)),
        "",
        *_banner([report]),
    ]
    for section in report_sections(report):
        body = blocks_markdown(section.blocks) or ["None."]
        lines += [f"## {section.title}", "", *body, ""]
    return "\n".join(lines)


def campaign_markdown(
    campaign: Campaign, reports: Sequence[RoundReport], *, direction: Direction
) -> str:
    """A campaign as Markdown: one row for each round, and the scores drawn over the rounds."""
    ordered = in_order(campaign.id, reports)
    table = blocks_markdown([rounds_table(ordered, direction)])
    lines = [
        f"# Campaign {code(campaign.id)}",
        "",
        f"Substrate {code(campaign.substrate_name)} `{campaign.substrate_sha256[:12]}`, recipe "
        f"{code(campaign.recipe)}, worker {code(campaign.worker)}, seed {campaign.seed}.",
        "",
        *_banner(reports),
        *(table or ["No round is complete."]),
        "",
    ]
    if table:
        lines += [cell_markdown(rates_line(reports)), ""]
        drawing = picture(scores_chart(ordered, {}))
        lines += [f"![Scores by round]({svg_data_uri(drawing)})", "", LEGEND, ""]
    return "\n".join(lines)


def campaign_json(campaign: Campaign, reports: Sequence[RoundReport]) -> dict[str, Any]:
    """A campaign as JSON values: its pins, its plan, and `rounds`, each a report with `slots`.

    `slots` is `results.slots`, set beside `results` for whoever wants the trials only.
    """
    return {
        "schema_version": 1,
        "campaign": campaign.id,
        "name": campaign.name,
        "created_at": campaign.created_at.isoformat(),
        "seed": campaign.seed,
        "substrate": campaign.substrate_name,
        "substrate_sha256": campaign.substrate_sha256,
        "judge_sha256": campaign.judge_sha256,
        "constitution_sha256": campaign.constitution_sha256,
        "recipe": campaign.recipe,
        "worker": campaign.worker,
        "plan": json.loads(campaign.plan),
        "rounds": [
            {
                **(data := report.data()),
                "results_sha256": report.results_digest(),
                "slots": data["results"]["slots"],
            }
            for report in in_order(campaign.id, reports)
        ],
    }


def in_order(campaign_id: str, reports: Sequence[RoundReport]) -> list[RoundReport]:
    """The reports by round. Raises ValueError for one of another campaign."""
    strangers = {report.campaign for report in reports} - {campaign_id}
    if strangers:
        raise ValueError(f"wanted reports of {campaign_id}, found some of {sorted(strangers)}")
    return sorted(reports, key=lambda report: report.round)


def _banner(reports: Sequence[RoundReport]) -> list[str]:
    banner = isolation_banner(reports)
    return [f"> **{banner}**", ""] if banner else []
