"""A trial: one slot's work in one round, from the fork to the recorded, measured result."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from agents.messages import ProviderFailure
from agents.worker import HandIn, WorkEnded, Workplace, find_worker, is_model
from flows.calling import Speaker, converse_with
from flows.clock import Clock
from flows.drafting import Attempted, drafts_in
from flows.house import House, open_house
from flows.seed import derive_seed
from policies.canonical import canonical_json
from policies.escape import one_line
from policies.integrity import CONTROLLER, DETAIL, Incident, is_flagged
from policies.policy import Assignment, Edit, SearchPolicy
from policies.report import OutcomeName, SetScore
from policies.tables import OVERALL, Attempt, Integrity, Patch, ProblemSet, Score, Trial
from substrate.fork import (
    BadEdit,
    Fork,
    ForkEdit,
    apply_edit,
    is_idle,
    make_fork,
    read_edit,
    sealed_changes,
)
from substrate.isolation import level_for
from substrate.measure import Measured, measure, seal_adapter
from substrate.outcome import Outcome
from substrate.run import RunRecord, job_for, open_folder, open_regular, run_recipe
from substrate.store import Snapshot
from substrate.walls import Level

KEPT_BYTES = 16 * 2**20  # of each file of a run's output
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
    dev: SetScore | None = None
    integrity: list[Incident] = field(default_factory=list)
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


async def run_trial(campaign_id: str, number: int, slot: int) -> str:
    """Do the work of one slot and record it once; tried again while infrastructure fails.

    Returns the outcome. Raises SnapshotDamaged when the substrate is not what it was, and
    ProviderFailure or SpendCapReached where no worker can be asked: nothing is recorded then.
    """
    house = open_house()
    campaign, plan = house.campaign(campaign_id), house.plan(campaign_id)
    policy = house.policy_of_round(campaign_id, number)
    assignment = policy.assignments(plan.width)[slot]
    worker = campaign.worker if assignment.kind == "explore" else CONTROLLER
    seed = derive_seed(campaign.seed, number, slot)
    level = await asyncio.to_thread(level_for, plan.isolation)
    clock = Clock()
    for failures in range(1, plan.budget.attempts + 1):
        attempt = 1 + len(house.ledger.attempts(campaign_id, number, slot))
        house.ledger.append(
            Attempt(
                campaign=campaign_id,
                round=number,
                slot=slot,
                attempt=attempt,
                kind=assignment.kind,
                axis=assignment.axis.id if assignment.axis else None,
                seed=seed,
                started_at=datetime.now(UTC),
            )
        )
        folder = house.settings.forks / campaign_id / f"r{number}-s{slot}-a{attempt}"

        def workplace(draft: Fork, attempt: int = attempt) -> Workplace:
            assert assignment.axis is not None, "an exploration explores an axis"
            kind, rollouts = campaign.worker, plan.budget.rollouts or None
            attempted = Attempted(campaign_id, number, slot, attempt)
            speaker = Speaker(campaign_id, "worker", kind, number, slot, attempt)
            return Workplace(
                fork=draft,
                brief=policy.brief(assignment.axis),
                seed=seed,
                drafts=drafts_in(
                    house,
                    attempted,
                    draft,
                    recipe=campaign.recipe,
                    rollouts=rollouts,
                    seed=seed,
                    caps=plan.work,
                    level=level,
                ),
                converse=converse_with(house, speaker) if is_model(kind) else None,
                level=level,
                caps=plan.work,
            )

        try:
            record = await attempt_trial(
                house,
                policy,
                assignment,
                snapshot=house.store.open(campaign.substrate_sha256),
                recipe=campaign.recipe,
                rollouts=plan.budget.rollouts or None,
                worker=campaign.worker,
                workplace=workplace,
                level=level,
                seed=seed,
                folder=folder,
                keep=house.trial_folder(campaign_id, number, slot),
                clock=clock,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        rows = _incident_rows(campaign_id, number, assignment, attempt, worker, record)
        if record.outcome is not Outcome.INFRASTRUCTURE or failures == plan.budget.attempts:
            rows += _rows(house, campaign_id, number, assignment, attempt, record)
            house.ledger.append(*rows)
            return record.outcome
        house.ledger.append(*rows)
    raise AssertionError("a plan has at least one attempt")


async def attempt_trial(
    house: House,
    policy: SearchPolicy,
    assignment: Assignment,
    *,
    snapshot: Snapshot,
    recipe: str,
    rollouts: int | None,
    worker: str,
    workplace: Callable[[Fork], Workplace],
    level: Level,
    seed: int,
    folder: Path,
    keep: Path,
    clock: Clock,
) -> Record:
    """Fork, work, seal and measure, once. The worker's fork and the counted run's are two."""
    record = Record(level, clock=clock)

    def fork_named(name: str) -> Fork:
        house.store.verify(snapshot, weights=False)
        standing = policy.standing_recipe
        patches = [house.ledger.patch_text(patch) for patch in standing.patches]
        return make_fork(snapshot, folder / name, overrides=standing.overrides, patches=patches)

    with record.clock.phase("fork"):
        counted = fork_named("counted")
    with record.clock.phase("edit"):
        try:
            if assignment.kind == "explore":
                draft = fork_named("draft")
                ended = await _work(record, worker, workplace(draft))
                if changed := sealed_changes(draft):
                    return record.flag(changed_seals(changed)).settle()
                if ended is not None:
                    return record.end(ended.outcome, ended.reason)
                record.edit = read_edit(draft)
                apply_edit(counted, record.edit.overrides, record.edit.patch)
                if not record.edit.diff:
                    return record.end(Outcome.NO_CHANGE, "the worker handed in an empty edit")
                if is_idle(counted):
                    return record.end(Outcome.NO_CHANGE, "the edit changes comments and spaces")
            elif assignment.edit is not None:
                edit = assignment.edit
                patch = house.ledger.patch_text(edit.patch) if edit.patch else None
                apply_edit(counted, edit.overrides, patch)
                record.edit = read_edit(counted)
                record.hand_in = HandIn(hypothesis="A stored edit on a fresh seed.", notes="")
        except BadEdit as error:
            return record.end(Outcome.CRASHED, f"the edit cannot be used: {error}")

    return await counted_run(
        house, record, counted, recipe=recipe, rollouts=rollouts, seed=seed, keep=keep
    )


async def _work(record: Record, worker: str, workplace: Workplace) -> WorkEnded | None:
    """Have the worker work, and keep what it hands in; how it ended where that is nothing.

    Raises ProviderFailure where no try will help, and SpendCapReached.
    """
    try:
        record.hand_in = await find_worker(worker)(workplace)
        return None
    except WorkEnded as error:
        ended = error
    except ProviderFailure as failure:
        if failure.permanent:
            raise
        ended = WorkEnded(Outcome.INFRASTRUCTURE, str(failure))
    record.hand_in = HandIn(hypothesis="Nothing was handed in.", notes=ended.notes)
    return ended


async def counted_run(
    house: House,
    record: Record,
    counted: Fork,
    *,
    recipe: str,
    rollouts: int | None,
    seed: int,
    keep: Path,
) -> Record:
    """The controller's own run in a fork that nobody touches any more, sealed and scored on dev."""
    snapshot = counted.snapshot
    with record.clock.phase("run"):
        job = job_for(snapshot, recipe=recipe, seed=seed, rollouts=rollouts)
        record.run = await run_recipe(counted, job, level=record.level)
        _keep_output(counted, keep)
    if changed := sealed_changes(counted):
        return record.flag(changed_seals(changed)).settle()
    if record.run.outcome is not None:
        return record.end(record.run.outcome, record.run.reason)
    assert record.run.result is not None

    with record.clock.phase("measure"):
        house.store.verify(snapshot, weights=False)
        adapter = seal_adapter(counted, record.run.result, house.adapters)
        if isinstance(adapter, Measured):
            return record.end(adapter.outcome, adapter.reason)
        record.adapter_sha256 = adapter.sha256
        problems = snapshot.root / snapshot.manifest.sets.dev.path
        scored = snapshot.manifest.sets.dev
        measured = await measure(snapshot, adapter, problems, scored, level=record.level)
    if measured.score is not None:
        record.dev = SetScore.model_validate(measured.score)
    return record.end(measured.outcome, measured.reason)


def runs_at_once(snapshot: Snapshot) -> int:
    """As many runs as the processors have room for at the substrate's threads a run."""
    return max(1, len(os.sched_getaffinity(0)) // snapshot.manifest.run.threads)


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
        "isolation": record.level,
    }


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


def changed_seals(paths: list[str]) -> Incident:
    return Incident("sealed_files_changed", f"{len(paths)} sealed paths: {paths[:5]}")


def _incident_rows(
    campaign_id: str,
    number: int,
    assignment: Assignment,
    attempt: int,
    worker: str,
    record: Record,
) -> list[Any]:
    """The integrity events of one attempt; the score that they discarded is with the first."""
    return [
        Integrity(
            campaign=campaign_id,
            round=number,
            slot=assignment.slot,
            attempt=attempt,
            number=place,
            kind=found.kind,
            detail=one_line(found.detail, DETAIL),
            worker=worker,
            discarded=record.discarded.model_dump_json()
            if place == 1 and record.discarded
            else None,
        )
        for place, found in enumerate(record.integrity, start=1)
    ]


def _rows(
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
    if record.dev is not None:
        rows += score_rows(campaign_id, number, assignment.slot, "dev", record.dev)
    return rows


def _keep_output(fork: Fork, keep: Path) -> None:
    """Keep what explains a run, of its last attempt; the adapter is sealed elsewhere."""
    shutil.rmtree(keep, ignore_errors=True)
    keep.mkdir(parents=True)
    try:
        out = open_folder(fork.root, "out")
    except OSError:
        return  # a recipe may have put anything there
    try:
        for name in ("job.json", "result.json", "metrics.jsonl", "run.log"):
            with suppress(OSError), open_regular(out, name) as source:
                (keep / name).write_bytes(source.read(KEPT_BYTES))
    finally:
        os.close(out)
