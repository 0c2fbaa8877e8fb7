"""What people see in Prefect: artifacts and events, written to the outbox, published from there.

`outbox_rows` says what a round has to show; the rows land in one transaction with the round itself.
`publish_outbox` takes them to the server, at least once: a row is marked only after the server has
taken it, so one may be published twice and none is lost. The ledger is the truth, and all of this
can be made again from it.
"""

import json
import logging
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.sorting import ArtifactSort
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.plan import artifact_key
from policies.charts import LEGEND, picture, scores_chart
from policies.diff import diff_lines, diff_markdown, diff_policies
from policies.draft import Violation
from policies.drawings import Direction, diff_svg, svg_data_uri
from policies.edits import edit_text
from policies.escape import code, markdown, one_line
from policies.integrity import rates
from policies.ledger import Ledger
from policies.policy import SearchPolicy
from policies.render import campaign_markdown, report_markdown
from policies.report import RoundReport, SlotResult
from policies.tables import Campaign, Outbox

ROUND_COMPLETED = "seedbed.round.completed"
POLICY_REVISED = "seedbed.policy.revised"
POLICY_REJECTED = "seedbed.policy.rejected"
INTEGRITY = "seedbed.integrity"
PROGRESS = "progress"  # kind of row whose newest alone is published

MOST_BYTES = 900_000  # of an artifact; Prefect drops the event of one that is not well below 1 MB
MOST_DRAWING_BYTES = 600_000  # of a picture in it; the text says the same
COLUMNS = 72  # of the drawn policy diff: an artifact's page shows it at its own size
MOST_ROWS = 1000  # of the score table; 2000 slots would be above MOST_BYTES
# Names this program's events, so that one that is published twice is one event to the server.
_EVENTS = uuid.UUID("6d3c1c1e-5d0b-5f0e-9a56-2f6f2f9f7c11")
_SECONDS = 30.0  # for one request to a server that is there but does not answer

logger = logging.getLogger(__name__)


def outbox_rows(
    *,
    campaign: Campaign,
    report: RoundReport,
    history: Sequence[RoundReport],
    old: SearchPolicy,
    new: SearchPolicy | None,
    violations: Sequence[Violation],
    direction: Direction,
) -> list[Outbox]:
    """Everything that a round shows, in the order in which it is published.

    `history` is the reports before this one, `old` the policy in force. `new` is None where it
    stays: `violations` says why the draft was rejected; without any, a person put it in force.
    """
    reports = [*history, report]
    links = _links(campaign.id)
    title = f"Round {report.round}"
    shown = [
        ("markdown", "report", title, _report(report, reports, links)),
        ("table", "scores", title, _scores(report)),
        (
            "markdown",
            "policy-diff",
            title,
            _accepted(report, old, new, links)
            if new is not None
            else _kept(report, old, violations, links),
        ),
        (
            "markdown",
            "index",
            f"{len(reports)} rounds",
            _fitted(
                f"{links}\n\n{campaign_markdown(campaign, reports, direction=direction)}", report
            ),
        ),
    ]
    rows = [
        Outbox(
            campaign=campaign.id,
            kind=kind,
            key=artifact_key(campaign.id, what),
            body=json.dumps({"description": f"{campaign.id}: {words}", "data": data}),
        )
        for kind, what, words, data in shown
    ]
    return rows + _events(report, old, new, violations)


def rollback_rows(
    campaign: Campaign, report: RoundReport, old: SearchPolicy, new: SearchPolicy
) -> list[Outbox]:
    """What a rollback after `report`'s round shows: the policy diff."""
    description = f"{campaign.id}: version {new.version}"
    data = _accepted(report, old, new, _links(campaign.id))
    return [
        Outbox(
            campaign=campaign.id,
            kind="markdown",
            key=artifact_key(campaign.id, "policy-diff"),
            body=json.dumps({"description": description, "data": data}),
        )
    ]


async def publish_outbox(ledger: Ledger, campaign: str) -> int:
    """Publish what waits in a campaign's outbox, oldest first. Returns how many rows it was.

    Artifacts belong to the flow run that this is called in. A server that cannot be reached, or
    refuses a row, is logged and never raises: what was not published waits for the next call.
    """
    waiting, published = ledger.unpublished(campaign), 0
    newest = {row.key: row.id for row in waiting if row.kind == PROGRESS}
    if not waiting:
        return published
    if not PREFECT_API_URL.value():
        logger.warning("%s: no Prefect server; %d rows wait in the outbox", campaign, len(waiting))
        return published
    # Enough for a busy database. Waiting for a lost server is what the outbox is for.
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 2}):
        try:
            async with get_client(httpx_settings={"timeout": _SECONDS}) as client:
                for row in waiting:
                    assert row.id is not None
                    if row.id != newest.get(row.key, row.id):
                        ledger.mark_published(row.id)  # a later one says more
                    elif await _publish(client, row):
                        ledger.mark_published(row.id)
                        published += 1
        except (httpx.HTTPError, OSError) as error:
            logger.warning(
                "%s: wanted to publish %d rows, published %d, then found no Prefect server at %s "
                "(%s: %s); the rest waits in the outbox for the next round",
                *(campaign, len(waiting), published, PREFECT_API_URL.value()),
                *(type(error).__name__, error),
            )
    return published


async def _publish(client: PrefectClient, row: Outbox) -> bool:
    """Publish one row. False if the server answers, but does not take it."""
    body: dict[str, Any] = json.loads(row.body)
    run: str | None = flow_run.get_id()
    try:
        if row.kind == "event":
            if run is not None:
                resource = {"prefect.resource.id": f"prefect.flow-run.{run}"}
                body["related"] = [{**resource, "prefect.resource.role": "flow-run"}]
            await client.request("POST", "/events", json=[body])
        elif (shown := await _shown(client, row, run)) is not None:
            await client.update_artifact(shown, ArtifactUpdate(**body))
        else:
            artifact = ArtifactCreate(
                key=row.key,
                type=row.kind,
                description=body["description"],
                data=body["data"],
                flow_run_id=uuid.UUID(run) if run else None,
            )
            await client.create_artifact(artifact)
    except httpx.HTTPStatusError as error:
        if error.response.is_server_error:
            raise  # a later row must not overtake this one
        logger.error("%s: Prefect does not take %s %s: %s", row.campaign, row.kind, row.key, error)
        return False
    return True


async def _shown(client: PrefectClient, row: Outbox, run: str | None) -> uuid.UUID | None:
    """The artifact that a row of progress changes: the newest, where it is this flow run's."""
    if row.kind != PROGRESS:
        return None
    wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[row.key]))
    newest = ArtifactSort.CREATED_DESC
    for found in await client.read_artifacts(artifact_filter=wanted, sort=newest, limit=1):
        if found.flow_run_id == (uuid.UUID(run) if run else None):
            return found.id
    return None


def _links(campaign_id: str) -> str:
    names = {"index": "All rounds", "report": "Report", "scores": "Scores"}
    names |= {"policy-diff": "Policy diff", "progress": "Progress"}
    return " · ".join(
        f"[{words}](/v2/artifacts/key/{artifact_key(campaign_id, what)})"
        for what, words in names.items()
    )


def _report(report: RoundReport, reports: Sequence[RoundReport], links: str) -> str:
    chart = _picture("Scores by round", picture(scores_chart(reports, {})))
    text = report_markdown(report)
    return _fitted(f"{links}\n\n{text}\n## Scores by round\n\n{chart}{LEGEND}\n", report)


def _scores(report: RoundReport) -> str:
    domains = sorted({name for slot in report.results.slots for name in _domains(slot)})
    rows = [
        {
            "slot": slot.slot,
            "kind": slot.kind,
            "axis": slot.axis or "none",
            "edit": one_line(edit_text(slot.edit)) or "none",
            "outcome": slot.outcome,
            "dev": slot.dev.value if slot.dev else None,
            "external": slot.external.value if slot.external else None,
            **{f"dev, {name}": _domains(slot).get(name) for name in domains},
        }
        for slot in report.results.slots[:MOST_ROWS]
    ]
    return json.dumps(rows)


def _domains(slot: SlotResult) -> dict[str, float]:
    return {name: part.value for name, part in slot.dev.domains.items()} if slot.dev else {}


def _accepted(report: RoundReport, old: SearchPolicy, new: SearchPolicy, links: str) -> str:
    changes = diff_policies(old, new)
    drawing = diff_svg(diff_lines(changes), columns=COLUMNS) if changes else ""
    text = [
        links,
        f"# Policy version {old.version} to {new.version}, after round {report.round}",
        f"> {markdown(new.rationale, 8000)}" if new.rationale else "",
        _picture("What changed", drawing) if drawing else "",
        "<details><summary>As text, with digests</summary>",
        diff_markdown(changes, old, new),
        "</details>",
    ]
    return _fitted("\n\n".join(part for part in text if part), report)


def _kept(
    report: RoundReport, old: SearchPolicy, violations: Sequence[Violation], links: str
) -> str:
    stays = f"# Policy version {old.version} stays"
    if not violations:
        return f"{links}\n\n{stays}: it was put in force after round {report.round} began\n"
    rows = [
        f"| {markdown(found.clause)} | {markdown(found.reason)} | {code(found.quote)} |"
        for found in violations
    ]
    text = [
        links,
        "",
        f"{stays}: the draft after round {report.round} was rejected",
        "",
        "| clause | reason | in the draft |",
        "| --- | --- | --- |",
        *rows,
    ]
    return _fitted("\n".join(text), report)


def _events(
    report: RoundReport,
    old: SearchPolicy,
    new: SearchPolicy | None,
    violations: Sequence[Violation],
) -> list[Outbox]:
    outcomes: dict[str, int] = {}
    for slot in report.results.slots:
        outcomes[slot.outcome] = outcomes.get(slot.outcome, 0) + 1
    happened: list[tuple[str, dict[str, Any]]] = [
        (
            ROUND_COMPLETED,
            {
                "policy_version": report.results.policy_version,
                "results_sha256": report.results_digest(),
                "outcomes": outcomes,
                "anchor_dev": report.results.spread.dev,
                "anchor_external": report.results.spread.external,
            },
        )
    ]
    if new is not None:
        revised = {"from_version": old.version, "version": new.version, "sha256": new.digest()}
        happened.append((POLICY_REVISED, revised))
    elif violations:
        rejected = {"version": old.version, "clauses": [found.clause for found in violations]}
        happened.append((POLICY_REJECTED, rejected))
    found = {slot.slot: slot.integrity for slot in report.results.slots if slot.integrity}
    if found:
        by_worker = {worker: [some, of] for worker, some, of in rates([report]) if some}
        happened.append((INTEGRITY, {"slots": found, "flagged": by_worker}))
    return [
        Outbox(
            campaign=report.campaign,
            kind="event",
            key=name,
            body=json.dumps(_event(report, name, payload)),
        )
        for name, payload in happened
    ]


def _event(report: RoundReport, name: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid5(_EVENTS, f"{report.campaign}/r{report.round}/{name}")),
        "occurred": datetime.fromisoformat(report.account.ended_at).isoformat(),
        "event": name,
        "resource": {
            "prefect.resource.id": f"seedbed.campaign.{report.campaign}",
            "prefect.resource.name": report.campaign,
        },
        "payload": {"campaign": report.campaign, "round": report.round, **payload},
    }


def _picture(title: str, drawing: str) -> str:
    uri = svg_data_uri(drawing)
    return f"![{title}]({uri})\n\n" if len(uri) <= MOST_DRAWING_BYTES else ""


def _fitted(text: str, report: RoundReport) -> str:
    """`text`, or as many of its first lines as Prefect takes, with a word on where the rest is."""
    whole = text.encode()
    if len(whole) <= MOST_BYTES:
        return text
    kept = whole[:MOST_BYTES].rpartition(b"\n")[0].decode()
    return (
        f"{kept}\n\n**Cut here**, at {len(kept.encode())} of {len(whole)} bytes. The whole: "
        f"`seedbed report {report.campaign} --round {report.round} --markdown`\n"
    )
