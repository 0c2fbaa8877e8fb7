"""A person's rollback of a campaign's policy, within the constitution."""

import asyncio

from flows.house import House
from flows.lease import held
from flows.publish import rollback_rows
from flows.revision import facts_of, policy_rows, ruled
from policies.chain import Note
from policies.constitution import hold_constitution
from policies.draft import Violation
from policies.policy import SearchPolicy
from policies.rollback import AUTHOR, ROLLED_BACK, BadRollback, rolled_back


def roll_back(house: House, campaign_id: str, version: int, reason: str) -> SearchPolicy:
    """Put the decisions of an old version in force again, as a new one. Returns it.

    A round that is under way ends under the policy that it began with, and does not revise.
    Raises BadRollback with the clauses that it would break, NotInLedger for a version that is not
    there, Busy while the campaign runs.
    """

    async def alone() -> SearchPolicy:
        async with held(house, campaign_id):
            return _roll_back(house, campaign_id, version, reason)

    return asyncio.run(alone())


def _roll_back(house: House, campaign_id: str, version: int, reason: str) -> SearchPolicy:
    hold_constitution(campaign_id, house.campaign(campaign_id).constitution_sha256)
    current, target = house.policy(campaign_id), house.policy(campaign_id, version)
    if version == current.version or not reason.strip():
        wanted = "a version before the one in force" if reason.strip() else "a reason"
        raise BadRollback(
            f"wanted {wanted} to roll {campaign_id} back, found version {version} and the reason "
            f"{reason!r}; `seedbed policy history {campaign_id}` lists what there is"
        )
    facts = facts_of(house, campaign_id, [])
    most = min(facts.looks_per_round, facts.looks_left)
    draft = rolled_back(target, current, facts.rows, reason=reason, most_looks=most)
    # Half a character, as the shell gives it: what no policy keeps, and C12 refuses.
    ruling = ruled(house, campaign_id, current, [], draft.text().encode("utf-8", "surrogatepass"))
    if ruling.policy is None:
        raise BadRollback(
            f"wanted {campaign_id} rolled back to version {version}, found that the constitution "
            f"does not allow it: {spell(list(ruling.violations))}; choose another version or reason"
        )
    report = house.reports(campaign_id)[-1]
    rolled = {"version": draft.version, "to": version, "reason": reason, "round": report.round}
    house.ledger.append(
        *policy_rows(campaign_id, draft, current, author=AUTHOR, round=report.round),
        *rollback_rows(house.campaign(campaign_id), report, current, draft),
        Note(campaign_id, ROLLED_BACK, f"p{draft.version}", rolled),
    )
    return draft


def spell(violations: list[Violation]) -> str:
    """Violations as one line."""
    return "; ".join(
        f"{found.clause}, {found.reason}" + (f" ({found.quote})" if found.quote else "")
        for found in violations
    )
