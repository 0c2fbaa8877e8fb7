"""A campaign's dossier read from the ledger, and its page written to a file."""

import os
from contextlib import suppress
from pathlib import Path

from flows.export import end_effect, exported
from flows.finale import lockbox_scores
from flows.house import House
from flows.screen import state_of, why_paused
from policies.dossier import Dossier, End, Unfinished
from policies.ledger import NotInLedger
from policies.lineage import read_lineage
from policies.page import campaign_page
from policies.purse import spent_by_role
from policies.rejection import REJECTED, read_rejections
from substrate.dropin import DropIn


class BadPlace(RuntimeError):
    """A page cannot be written to where it was asked for."""


def read_dossier(house: House, campaign_id: str) -> Dossier:
    """Everything on record of a campaign. Reads the ledger alone: no snapshot, no file of a run."""
    ledger, campaign = house.ledger, house.campaign(campaign_id)
    reports = house.reports(campaign_id)
    substrate = ledger.substrate(campaign.substrate_sha256)
    if substrate is None:
        raise NotInLedger(
            f"wanted the substrate of {campaign_id}, found no row {campaign.substrate_sha256}; "
            "`seedbed verify` says what else is missing"
        )
    sets = DropIn.model_validate_json(substrate.manifest).sets
    reported = {report.round for report in reports}
    runs, exports = ledger.final_runs(campaign_id), exported(house, campaign_id)
    opening = ledger.opening(campaign_id)
    return Dossier(
        campaign=campaign,
        state=state_of(house, campaign_id),
        paused=why_paused(house, campaign_id),
        rounds=house.plan(campaign_id).rounds,
        direction=sets.external.direction,
        reports=reports,
        unfinished=[
            Unfinished(begun, ledger.trials(campaign_id, begun.number))
            for begun in ledger.rounds(campaign_id)
            if begun.number not in reported
        ],
        lineage=read_lineage(ledger.policies(campaign_id)),
        rejections=read_rejections(ledger.events(campaign_id, REJECTED)),
        spent=spent_by_role(ledger.spends(campaign_id)),
        end=End(
            candidate=ledger.candidate(campaign_id),
            runs=runs,
            external=end_effect(runs, "external", sets.external.direction),
            opening=opening,
            lockbox=lockbox_scores(house, campaign_id),
            files=None if exports is None else exports["files"],
        ),
    )


def write_page(house: House, campaign_id: str, to: str) -> str:
    """Write the campaign's page to the file `to`, or below its artifacts. Returns where it is.

    Raises BadPlace.
    """
    page = campaign_page(read_dossier(house, campaign_id))
    place = Path(to) if to else house.settings.artifacts / campaign_id / "report.html"
    staged = place.with_name(f".{place.name}-{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        staged.write_text(page, encoding="utf-8")
        staged.replace(place)
    except OSError as error:
        with suppress(OSError):
            staged.unlink()
        raise BadPlace(
            f"wanted to write the page of {campaign_id} to {place}, found: {error}; name a file "
            "in a folder that you may write to, or `-` for standard output"
        ) from error
    return str(place)
