"""Rejected drafts: what the ledger keeps of each, and how it is shown."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from policies.cells import Code, Said, Table, blocks_markdown
from policies.chain import Note
from policies.draft import Violation
from policies.ruling import Ruling
from policies.tables import Event

REJECTED = "policy.rejected"


@dataclass(frozen=True)
class Rejection:
    """A draft that was not let in: after which round, whose it was, and the clauses it broke."""

    round: int
    parent: int  # version of the policy that stays in force
    author: str
    reply_sha256: str
    violations: tuple[Violation, ...]
    draft: Any  # without what C13 forbids

    def data(self) -> dict[str, Any]:
        """The rejection as JSON values."""
        return asdict(self)


def rejection_of(ruling: Ruling, *, round: int, parent: int, author: str) -> Rejection:
    """What is kept of a ruling that let nothing in."""
    return Rejection(round, parent, author, ruling.reply_sha256, ruling.violations, ruling.kept)


def rejection_note(campaign: str, rejection: Rejection) -> Note:
    """The rejection as a note for the ledger."""
    return Note(campaign, REJECTED, f"r{rejection.round}", rejection.data())


def read_rejections(events: Iterable[Event]) -> list[Rejection]:
    """The rejections among a campaign's notes, oldest first."""
    bodies = (json.loads(event.body) for event in events if event.kind == REJECTED)
    return [
        Rejection(**body | {"violations": tuple(Violation(**each) for each in body["violations"])})
        for body in bodies
    ]


def rejections_markdown(rejections: Sequence[Rejection]) -> str:
    """A section of a report: each violation in a row; empty where no draft was rejected."""
    lines = blocks_markdown([rejections_table(rejections)])
    return "\n".join(["## Rejected drafts", "", *lines, ""]) if lines else ""


def rejections_table(rejections: Sequence[Rejection]) -> Table:
    """Each violation in a row."""
    rows = [
        (
            str(item.round),
            Code(item.author),
            found.clause,
            Said(found.reason),
            Code(found.quote),
            Code(item.reply_sha256[:12]),
        )
        for item in rejections
        for found in item.violations
    ]
    return Table(("round", "author", "clause", "reason", "in the draft", "reply"), rows)
