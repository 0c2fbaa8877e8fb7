"""The rows of a trial: itself, its stored diffs, its scores, and what it cost."""

import json
from datetime import UTC, datetime
from typing import Any, cast

from flows.house import House
from flows.inspection import adapter_row
from flows.record import Record
from flows.seed import derive_seed
from policies.canonical import canonical_json
from policies.policy import Assignment, Edit
from policies.report import OutcomeName, SetScore
from policies.tables import OVERALL, Patch, ProblemSet, Score, Trial

MOST_FILES = 64  # of training data, whose hashes are recorded


def trial_rows(
    house: House,
    campaign_id: str,
    number: int,
    assignment: Assignment,
    attempt: int,
    record: Record,
) -> list[Any]:
    """The rows of a finished trial: the trial, its stored diffs, its dev score."""
    rows: list[Any] = []
    stored: dict[str, str] = {}
    for text in (record.edit.patch, record.edit.diff):
        if text:
            patch = Patch.of(text)
            if patch.sha256 not in stored and house.ledger.patch(patch.sha256) is None:
                rows.append(patch)
            stored[text] = patch.sha256
    edit = Edit(
        overrides=record.edit.overrides,
        patch=stored[record.edit.patch] if record.edit.patch else None,
    )
    rows.append(
        Trial(
            campaign=campaign_id,
            round=number,
            slot=assignment.slot,
            attempt=attempt,
            kind=assignment.kind,
            axis=assignment.axis.id if assignment.axis else None,
            outcome=cast(OutcomeName, record.outcome.value),
            hypothesis=record.hand_in.hypothesis[:2000],
            edit=canonical_json(edit.model_dump(mode="json")),
            diff_sha256=stored[record.edit.diff] if record.edit.diff else None,
            seed=derive_seed(house.campaign(campaign_id).seed, number, assignment.slot),
            adapter_sha256=record.adapter_sha256,
            integrity=json.dumps([found.kind for found in record.integrity]),
            account=json.dumps(account_of(record, attempt)),
            finished_at=datetime.now(UTC),
        )
    )
    if record.dev is not None and record.made is not None:
        run = f"{campaign_id}/r{number}/s{assignment.slot}"
        rows += [adapter_row(record.made, run)]
        rows += score_rows(campaign_id, number, assignment.slot, "dev", record.dev)
    return rows


def score_rows(
    campaign_id: str, number: int, slot: int, problem_set: ProblemSet, score: SetScore
) -> list[Score]:
    """A score as rows: one for the whole set, one per domain."""
    parts = {OVERALL: (score.value, score.n)}
    parts |= {name: (part.value, part.n) for name, part in sorted(score.domains.items())}
    return [
        Score(
            campaign=campaign_id,
            round=number,
            slot=slot,
            problem_set=problem_set,
            domain=domain,
            value=value,
            n=n,
            metric=score.metric,
            metric_version=score.metric_version,
            engine=score.engine,
        )
        for domain, (value, n) in parts.items()
    ]


def account_of(record: Record, attempts: int) -> dict[str, Any]:
    """What a finished run cost, and why it ended as it did: the columns of a `SlotAccount`."""
    ending = record.run.ending if record.run else None
    result = record.run.result if record.run else None
    return {
        "attempts": attempts,
        "reason": record.reason[:2000],
        "notes": record.hand_in.notes[:8000],
        "seconds": record.clock.seconds,
        "cpu_seconds": ending.cpu_seconds if ending else 0.0,
        "peak_memory_mb": ending.peak_memory_mb if ending else 0.0,
        "rollouts": result.rollouts if result else 0,
        "tokens": result.tokens if result else 0,
        "data_sha256": dict(sorted(result.data_sha256.items())[:MOST_FILES]) if result else {},
        "isolation": record.level,
        "custody": record.custody,
    }
