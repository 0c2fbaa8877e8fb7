"""Decisions made again from what was recorded, and compared with what was decided."""

import json
from dataclasses import dataclass
from typing import Literal

from flows.house import House
from flows.revision import REVISER, decide, facts_of
from policies.rejection import REJECTED, Rejection, read_rejections
from policies.rollback import AUTHOR, ROLLED_BACK, rolled_back
from policies.ruling import rule
from policies.tables import Policy


@dataclass(frozen=True)
class Replayed:
    """One decision: what was recorded, what comes out today, and whether they are the same."""

    decision: str  # such as `p3`, or `r2, rejected`
    author: str
    state: Literal["same", "differs", "not replayed"]
    recorded: str
    found: str


def replay(house: House, campaign_id: str, version: int = 0) -> list[Replayed]:
    """Make a campaign's decisions again, in order: one version, or all and the rejected too.

    The inputs are the recorded parent and reports; what is compared are digests. A version that
    neither the reviser's rules nor a rollback made is not replayed. Raises NotInLedger.
    """
    if version:
        rows, rejections = [house.ledger.policy(campaign_id, version)], []
    else:
        rows = house.ledger.policies(campaign_id)
        rejections = read_rejections(house.ledger.events(campaign_id, REJECTED))
    done = [_version(house, campaign_id, row) for row in rows if row.version > 1]
    return done + [_rejection(house, campaign_id, item) for item in rejections]


def _version(house: House, campaign_id: str, row: Policy) -> Replayed:
    name = f"p{row.version}"
    if row.round is None or row.author not in (REVISER, AUTHOR):
        return Replayed(name, row.author, "not replayed", row.sha256, "not made by rules")
    parent = house.policy(campaign_id, row.version - 1)
    facts = facts_of(house, campaign_id, [], last=row.round)
    if row.author == REVISER:
        reply = _reply(house, campaign_id, row.round)
    else:
        (note,) = [
            json.loads(event.body)
            for event in house.ledger.events(campaign_id, ROLLED_BACK)
            if event.subject == name
        ]
        most = min(facts.looks_per_round, facts.looks_left)
        target = house.policy(campaign_id, note["to"])
        reason = note["reason"]
        draft = rolled_back(target, parent, facts.rows, reason=reason, most_looks=most)
        reply = draft.text().encode()
    ruling = rule(reply, parent, facts)
    if ruling.policy is None:
        found = ", ".join(violation.clause for violation in ruling.violations)
        return Replayed(name, row.author, "differs", row.sha256, f"rejected by {found}")
    digest = ruling.policy.digest()
    state = "same" if digest == row.sha256 else "differs"
    return Replayed(name, row.author, state, row.sha256, digest)


def _rejection(house: House, campaign_id: str, item: Rejection) -> Replayed:
    name = f"r{item.round}, rejected"
    if item.author != REVISER:
        return Replayed(name, item.author, "not replayed", item.reply_sha256, "not made by rules")
    parent = house.policy(campaign_id, item.parent)
    facts = facts_of(house, campaign_id, [], last=item.round)
    ruling = rule(_reply(house, campaign_id, item.round), parent, facts)
    state = "same" if ruling.reply_sha256 == item.reply_sha256 else "differs"
    return Replayed(name, item.author, state, item.reply_sha256, ruling.reply_sha256)


def _reply(house: House, campaign_id: str, number: int) -> bytes:
    reports = {report.round: report for report in house.reports(campaign_id)}
    history = [report for report in reports.values() if report.round < number]
    return decide(house.policy_of_round(campaign_id, number), reports[number], history)
