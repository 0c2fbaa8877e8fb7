"""The narrative of a report: a model's where the plan has one and its words hold, else code's."""

import json

from agents.narrator import narrate
from flows.calling import Speaker, converse_with
from flows.house import House
from flows.revision import facts_of
from policies.ladder import for_readers
from policies.leaks import find_leaks
from policies.report import RoundReport

BY_CODE = "code"
NARRATED, UNUSED = "round.narrated", "narrative.unused"


async def narrate_round(house: House, campaign_id: str, report: RoundReport) -> None:
    """Ask the plan's model for the narrative of `report`, once, and note what came of it."""
    kind, subject = house.plan(campaign_id).collector, f"r{report.round}"
    if kind == BY_CODE or _said(house, campaign_id, subject):
        return
    facts = facts_of(house, campaign_id, [report])
    shown = for_readers([*house.reports(campaign_id), report], facts.direction)
    speaker = Speaker(campaign_id, "collector", kind, report.round)
    came = await narrate(converse_with(house, speaker), shown[-1])
    leaks = find_leaks(came.text, facts.held_out) if came.text else []
    said = {"author": kind, "model": came.model, "prompt": came.prompt}
    if came.text is None or leaks:
        fault = f"it holds {leaks[0][1]}" if leaks else came.fault
        house.ledger.note(campaign_id, UNUSED, subject, {**said, "fault": fault})
    else:
        house.ledger.note(campaign_id, NARRATED, subject, {**said, "narrative": came.text})


def narrative_of(house: House, campaign_id: str, number: int) -> str | None:
    """The narrative that a model wrote of a round; None: code's stands."""
    found = [
        json.loads(event.body)["narrative"]
        for event in house.ledger.events(campaign_id, NARRATED)
        if event.subject == f"r{number}"
    ]
    return found[0] if found else None


def _said(house: House, campaign_id: str, subject: str) -> bool:
    events = [
        event for kind in (NARRATED, UNUSED) for event in house.ledger.events(campaign_id, kind)
    ]
    return any(event.subject == subject for event in events)
