"""Drafting: what a worker may cause besides editing, each use on record before it begins.

A run of the recipe in the worker's own fork, on a seed that the counted run does not have; a dev
score, by the measuring of the counted run. The caps are per attempt at a trial, of which there is
one unless infrastructure fails.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from agents.worker import CapReached, Caps, Drafts
from flows.gpu_seconds import Run
from flows.house import House
from flows.seed import derive_seed
from policies.chain import Note
from policies.tables import Spend
from substrate.fork import Fork
from substrate.job import Result
from substrate.measure import Measured, measure, seal_adapter
from substrate.outcome import Outcome
from substrate.run import RunRecord, job_for
from substrate.walls import Level

SCORED = "draft.scored"
RAN = "draft.ran"

# Units of `Spend`.
SMOKES, DRAFTS, SCORES = "smokes", "drafts", "dev_scores"
ONE_OF = {SMOKES: "smoke", DRAFTS: "draft", SCORES: "score"}  # how a subject names it


@dataclass(frozen=True)
class Attempted:
    """The attempt at a trial that drafts belong to."""

    campaign: str
    round: int
    slot: int
    attempt: int

    @property
    def subject(self) -> str:
        return f"r{self.round}/s{self.slot}/a{self.attempt}"


def drafts_in(
    house: House,
    attempted: Attempted,
    fork: Fork,
    *,
    recipe: str,
    rollouts: int | None,
    seed: int,
    caps: Caps,
    level: Level,
    run_in: Run,
) -> Drafts:
    """The drafts of one attempt, in the worker's fork."""
    snapshot, campaign = fork.snapshot, attempted.campaign
    used = {SMOKES: 0, DRAFTS: 0, SCORES: 0}
    most = {SMOKES: caps.smokes, DRAFTS: caps.drafts, SCORES: caps.dev_scores}

    def reserve(unit: str) -> str:
        if used[unit] >= most[unit]:
            raise CapReached(
                f"wanted one more of the {unit.replace('_', ' ')}, found all {most[unit]} used; "
                "go on without, and hand in"
            )
        used[unit] += 1
        subject = f"{attempted.subject}/{ONE_OF[unit]}/{used[unit]}"
        house.ledger.append(
            Spend(campaign=campaign, subject=subject, unit=unit, state="reserved", amount=1)
        )
        return subject

    def settled(subject: str, unit: str, amount: float) -> Spend:
        return Spend(campaign=campaign, subject=subject, unit=unit, state="settled", amount=amount)

    async def run(is_smoke: bool) -> RunRecord:
        unit = SMOKES if is_smoke else DRAFTS
        subject = reserve(unit)
        job = job_for(
            snapshot,
            recipe=recipe,
            seed=derive_seed(seed, unit, used[unit]),
            rollouts=rollouts,
            smoke=is_smoke,
        )
        record = await run_in(fork, job, level)
        said = {
            "outcome": record.outcome.value if record.outcome else "ran",
            "rollouts": record.result.rollouts if record.result else 0,
            "tokens": record.result.tokens if record.result else 0,
            "cpu_seconds": record.ending.cpu_seconds,
            "seconds": record.ending.seconds,
        }
        note = Note(campaign, RAN, subject, said)
        house.ledger.append(settled(subject, unit, 1), note)
        return record

    async def score(folder: str) -> Measured:
        subject = reserve(SCORES)
        result = Result(state="finished", rollouts=0, tokens=0, adapter=folder)
        with tempfile.TemporaryDirectory(prefix="seedbed-draft-") as scratch:
            adapter = seal_adapter(fork, result, Path(scratch))
            if isinstance(adapter, Measured):
                measured = adapter
            else:
                house.store.verify(snapshot, weights=False)
                dev = snapshot.manifest.sets.dev
                measured = await measure(
                    snapshot, adapter, snapshot.root / dev.path, dev, level=level
                )
        value = measured.score["value"] if measured.score else None
        note = Note(campaign, SCORED, subject, {"outcome": measured.outcome, "dev": value})
        was_used = measured.outcome is not Outcome.INFRASTRUCTURE
        house.ledger.append(settled(subject, SCORES, int(was_used)), note)
        return measured

    budget = snapshot.manifest.budget.rollouts if rollouts is None else rollouts
    return Drafts(recipe=recipe, rollouts=budget, run=run, score=score)
