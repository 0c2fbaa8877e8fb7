"""A trial record: what one attempt found, filled in as it goes on, and its integrity events."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agents.worker import HandIn
from flows.clock import Clock
from flows.inspection import Made
from policies.escape import one_line
from policies.integrity import CONTROLLER, DETAIL, Incident, is_flagged
from policies.report import Kind, SetScore
from policies.tables import Attempt, Integrity
from substrate.fork import ForkEdit
from substrate.outcome import Outcome
from substrate.run import RunRecord
from substrate.walls import Level

NO_EDIT = ForkEdit(overrides={}, patch=None, diff="")
ANCHOR = HandIn(hypothesis="The standing recipe, unchanged.", notes="")


@dataclass
class Record:
    """What one attempt found, filled in as it goes on."""

    level: Level  # of the walls around whatever it ran
    outcome: Outcome = Outcome.INFRASTRUCTURE
    reason: str = ""
    hand_in: HandIn = ANCHOR
    edit: ForkEdit = NO_EDIT
    run: RunRecord | None = None
    adapter_sha256: str | None = None
    made: Made | None = None  # the adapter of a trial that was measured
    dev: SetScore | None = None
    integrity: list[Incident] = field(default_factory=list)
    custody: str = ""  # of the scorer that gave the dev score
    discarded: SetScore | None = None  # the dev score of a trial that was flagged
    clock: Clock = field(default_factory=Clock)

    def end(self, outcome: Outcome, reason: str) -> "Record":
        self.outcome, self.reason = outcome, reason
        return self

    def flag(self, *incidents: Incident) -> "Record":
        self.integrity += incidents
        return self

    def settle(self) -> "Record":
        """Discard the score of a trial with an integrity event, whatever else became of it."""
        if is_flagged(found.kind for found in self.integrity):
            first = next(found for found in self.integrity if is_flagged([found.kind]))
            self.end(Outcome.TAMPERED, f"{first.kind}: {first.detail}")
            self.dev, self.discarded = None, self.dev or self.discarded
        return self


def changed_seals(paths: list[str]) -> Incident:
    return Incident("sealed_files_changed", f"{len(paths)} sealed paths: {paths[:5]}")


def incident_rows(
    attempt: Attempt, worker: str, found: Sequence[Incident], *, discarded: SetScore | None = None
) -> list[Integrity]:
    """The integrity events of one attempt; the score that they discarded is with the first."""
    return [
        Integrity(
            campaign=attempt.campaign,
            round=attempt.round,
            slot=attempt.slot,
            attempt=attempt.attempt,
            number=number,
            kind=one.kind,
            detail=one_line(one.detail, DETAIL),
            worker=worker,
            discarded=discarded.model_dump_json() if discarded and number == 1 else None,
        )
        for number, one in enumerate(found, start=1)
    ]


def worker_of(kind: Kind, worker: str) -> str:
    """Who had the fork of a trial to edit."""
    return worker if kind == "explore" else CONTROLLER
