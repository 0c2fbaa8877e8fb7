"""A campaign run again from its start, with every model answered for by the campaign's journal.

The new campaign has the plan, the seed, the sealed substrate and judge and the first policy of the
old one, and is on record as its rerun. Nothing is asked of a provider; recipes are run and scored
again. Equal policies at the end show that the journal, the seeds and the rows hold all that the old
campaign depended on. Decisions alone are made again by `flows/replay.py`, which runs nothing.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from agents.journal import Exchange, ReplayDiverged, replay
from agents.messages import Converse, ProviderFailure, Reply, Request, SpendCapReached
from flows.calibrate import PINNED
from flows.calling import Answerer, Journal, Speaker
from flows.house import House
from flows.narration import UNUSED
from flows.round import ASKED
from policies.chain import Note
from policies.ledger import NotInLedger
from policies.tables import Campaign, Policy, Row
from substrate.outcome import Outcome

RERUN = "campaign.rerun"


@dataclass(frozen=True)
class Step:
    """One thing that both campaigns have: a round's results or a version of the policy."""

    name: str
    recorded: str  # digest
    found: str  # digest of the rerun; "" where there is none

    @property
    def is_same(self) -> bool:
        return self.recorded == self.found


def begin_rerun(house: House, campaign_id: str) -> str:
    """Record a campaign that runs a finished one again. Returns its id.

    It runs rounds alone: the lockbox is opened by no rerun. Raises NotInLedger where the old one is
    not finished.
    """
    old, plan, now = house.campaign(campaign_id), house.plan(campaign_id), datetime.now(UTC)
    done = len(house.ledger.reports(campaign_id))
    if done < plan.rounds:
        raise NotInLedger(
            f"wanted {campaign_id} to be finished, found {done} of {plan.rounds} rounds done; "
            f"`seedbed resume {campaign_id}` runs the others"
        )
    end = plan.end.model_copy(update={"at_once": False})
    new_id = f"{campaign_id[:48]}-rerun-{secrets.token_hex(3)}"
    new_plan = plan.model_copy(update={"end": end}).model_dump_json()
    changed = {"id": new_id, "plan": new_plan, "flow_run_id": None, "created_at": now}
    first = house.ledger.policy(campaign_id, 1)
    rows: list[Row | Note] = [
        Campaign.model_validate(old.model_dump() | changed),
        Policy.model_validate(first.model_dump() | {"campaign": new_id, "created_at": now}),
        Note(new_id, RERUN, new_id, {"of": campaign_id}),
    ]
    rows += [
        Note(new_id, PINNED, event.subject.replace(campaign_id, new_id), json.loads(event.body))
        for event in house.ledger.events(campaign_id, PINNED)
    ]
    house.ledger.append(*rows)
    return new_id


def is_rerun(house: House, campaign_id: str) -> bool:
    """Whether a campaign runs another one again."""
    return bool(house.ledger.events(campaign_id, RERUN))


def answers_of(old: str, journal: Journal, house: House) -> Answerer:
    """Answers as campaign `old` got them.

    Of an attempt at a trial that is the one that was recorded then: what infrastructure failed
    before is not failed again. What collector and meta-agent are asked must be what they were asked
    then, or ReplayDiverged is raised. A worker's answers are given in their order: what its tools
    show has times and numbers of processes in it, and what counts is measured anew.
    """
    attempts = {(row.round, row.slot): row.attempt for row in house.ledger.trials(old)}

    def answerer(_house: House, speaker: Speaker) -> Converse:
        attempt = 1 if speaker.slot is None else attempts.get((speaker.round, speaker.slot), 1)
        then = Speaker(old, speaker.role, speaker.model, speaker.round, speaker.slot, attempt)
        exchanges = journal(then)
        if speaker.role == "worker":
            answers = _in_order(exchanges)
        else:
            # One that was broken off and begun again is answered as it was the last time.
            begun = [at for at, one in enumerate(exchanges) if len(one.request.messages) == 1]
            exchanges = exchanges[begun[-1] :] if begun else exchanges
            answers = replay(exchanges)
        if _was_refused(house, then, len(exchanges)):
            return _capped_after(len(exchanges), answers)
        return answers

    return answerer


def compare_rerun(house: House, old: str, new: str) -> list[Step]:
    """What the two campaigns have in common, step by step, by digest."""
    found = {row.version: row.sha256 for row in house.ledger.policies(new)}
    steps = [
        Step(f"policy {row.version}", row.sha256, found.get(row.version, ""))
        for row in house.ledger.policies(old)
    ]
    results = {row.round: row.results_sha256 for row in house.ledger.reports(new)}
    steps += [
        Step(f"results of round {row.round}", row.results_sha256, results.get(row.round, ""))
        for row in house.ledger.reports(old)
    ]
    return steps


def _was_refused(house: House, then: Speaker, answers: int) -> bool:
    """Whether a cap refused the call after these answers: such a call is in no journal."""
    subject = f"r{then.round}"
    if then.slot is not None:
        trials = house.ledger.trials(then.campaign, then.round)
        return any((row.slot, row.outcome) == (then.slot, Outcome.OVER_BUDGET) for row in trials)
    if then.role == "collector":
        unused = house.ledger.events(then.campaign, UNUSED)
        return answers == 0 and subject in {event.subject for event in unused}
    asked = [e for e in house.ledger.events(then.campaign, ASKED) if e.subject == subject]
    return any(json.loads(event.body)["turns"] > answers for event in asked)


def _capped_after(count: int, converse: Converse) -> Converse:
    """The first `count` answers, and then a cap that leaves no room, as it did then."""
    asked = 0

    async def capped(request: Request) -> Reply:
        nonlocal asked
        asked += 1
        if asked > count:
            raise SpendCapReached("a cap refused this call in the campaign that is rerun", "trial")
        return await converse(request)

    return capped


def _in_order(exchanges: Sequence[Exchange]) -> Converse:
    """Answers in order, whatever is asked; a failure fails again."""
    left = iter(exchanges)

    async def converse(_request: Request) -> Reply:
        recorded = next(left, None)
        if recorded is None:
            raise ReplayDiverged(
                f"wanted one more answer, found that the journal has {len(exchanges)}; the code or "
                "the plan asks for more than it did then"
            )
        if isinstance(recorded.outcome, ProviderFailure):
            raise recorded.outcome
        return recorded.outcome

    return converse
