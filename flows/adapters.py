"""Sealed adapters: the rows that name each, and those that were removed on record.

An adapter that a row names is checked by `seedbed verify` for ever, unless `seedbed gc --adapters`
noted in the chain, before it removed it, that the campaign does without. Only a trial's adapter can
go, once the campaign has all its reports: those of a campaign's end and of calibrations stay.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from flows.house import House
from policies.tables import Campaign

REMOVED = "adapters.removed"


@dataclass(frozen=True)
class Naming:
    """A row that names an adapter. `campaign` is that of a trial, whose adapter may go."""

    sha256: str
    subject: str
    campaign: str | None = None


def namings(house: House, rows: Collection[Campaign], snapshots: list[str]) -> Iterator[Naming]:
    """Every row of these campaigns and calibrations that names an adapter."""
    for row in rows:
        for trial in house.ledger.trials(row.id):
            if trial.adapter_sha256:
                subject = f"{row.id}/r{trial.round}/s{trial.slot}"
                yield Naming(trial.adapter_sha256, subject, row.id)
        for run in house.ledger.final_runs(row.id):
            if run.adapter_sha256:
                yield Naming(run.adapter_sha256, f"{row.id}/{run.arm}/{run.number}")
        if opening := house.ledger.opening(row.id):
            for sha256 in filter(None, (opening.candidate_sha256, opening.baseline_sha256)):
                yield Naming(sha256, f"the opening of {row.id}'s lockbox")
    for sha256 in snapshots:
        for run in house.ledger.calibrations(sha256):
            if run.adapter_sha256:
                subject = f"the calibration's {run.probe} {run.number}"
                yield Naming(run.adapter_sha256, subject)


def removed(house: House) -> set[tuple[str, str]]:
    """Campaign and adapter of every removal on record, of campaigns that have all their reports."""
    found, known = set[tuple[str, str]](), {row.id for row in house.ledger.campaigns()}
    for event in house.ledger.events(kind=REMOVED):
        if event.campaign in known and has_all_reports(house, event.campaign):
            found |= {(event.campaign, sha256) for sha256 in json.loads(event.body)["adapters"]}
    return found


def removable(house: House, rows: Collection[Campaign], live: Collection[str]) -> set[str]:
    """Adapters that these campaigns can do without, and nothing else needs.

    They are trials' of campaigns with all their reports, whose ids are not among `live`, and no
    promotion rests on them.
    """
    done = {row.id for row in rows if row.id not in live and has_all_reports(house, row.id)}
    everything, snapshots = house.ledger.campaigns(), house.ledger.substrates()
    promoted = {subject for row in everything for subject in _promoted(house, row.id)}
    named = list(namings(house, everything, [row.sha256 for row in snapshots]))
    needed = {one.sha256 for one in named if one.campaign not in done or one.subject in promoted}
    return {one.sha256 for one in named} - needed


def has_all_reports(house: House, campaign_id: str) -> bool:
    return len(house.ledger.reports(campaign_id)) >= house.plan(campaign_id).rounds


def _promoted(house: House, campaign_id: str) -> Iterator[str]:
    """The trials that what the newest policy promotes rests on."""
    for promotion in house.policy(campaign_id).standing_recipe.provenance:
        for row in promotion.rows:
            number, slot = row.split("/")[:2]
            yield f"{campaign_id}/{number}/{slot}"
