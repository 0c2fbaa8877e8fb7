"""A trial: one slot's work in one round, from the fork to the recorded, measured result."""

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from agents.exchange import ends_campaign
from agents.messages import ProviderFailure, SpendCapReached
from agents.model import is_model
from agents.worker import HandIn, WorkEnded, Workplace, find_worker
from flows.calling import Speaker, converse_with
from flows.clock import Clock
from flows.drafting import Attempted, drafts_in
from flows.gpu_seconds import Run, run_charged
from flows.house import House, open_house
from flows.inspection import (
    Made,
    inspect_adapter,
    inspect_data,
    inspect_edit,
    inspect_hand_in,
    inspect_run,
    inspect_score,
)
from flows.record import Record, changed_seals, incident_rows, worker_of
from flows.seed import derive_seed
from flows.trial_rows import trial_rows
from policies.canonical import digest
from policies.evidence import recipe_digest
from policies.integrity import Incident
from policies.policy import Assignment, Edit, SearchPolicy, StandingRecipe
from policies.report import SetScore
from policies.tables import Attempt, sha256_of
from substrate.fork import (
    BadEdit,
    Fork,
    ForkEdit,
    apply_edit,
    editable_files,
    is_idle,
    make_fork,
    read_edit,
    sealed_changes,
)
from substrate.isolation import level_for
from substrate.measure import Measured, measure, seal_adapter
from substrate.outcome import Outcome
from substrate.run import job_for, open_folder, open_regular
from substrate.store import Judge, Snapshot
from substrate.walls import Level

KEPT_BYTES = 16 * 2**20  # of each file of a run's output


async def run_trial(campaign_id: str, number: int, slot: int) -> str:
    """Do the work of one slot and record it once; tried again while infrastructure fails.

    Returns the outcome. Raises SnapshotDamaged when the substrate is not what it was, and
    ProviderFailure or SpendCapReached where no worker can be asked: nothing is recorded then.
    """
    house = open_house()
    campaign, plan = house.campaign(campaign_id), house.plan(campaign_id)
    policy = house.policy_of_round(campaign_id, number)
    assignment = policy.assignments(plan.width)[slot]
    worker = worker_of(assignment.kind, campaign.worker)
    seed = derive_seed(campaign.seed, number, slot)
    level = await asyncio.to_thread(level_for, plan.isolation)
    clock = Clock()
    for failures in range(1, plan.budget.attempts + 1):
        row = Attempt(
            campaign=campaign_id,
            round=number,
            slot=slot,
            attempt=1 + len(house.ledger.attempts(campaign_id, number, slot)),
            kind=assignment.kind,
            axis=assignment.axis.id if assignment.axis else None,
            seed=seed,
            started_at=datetime.now(UTC),
        )
        house.ledger.append(row)
        attempt = row.attempt
        folder = house.settings.forks / campaign_id / f"r{number}-s{slot}-a{attempt}"
        run = run_charged(house, campaign_id, f"r{number}/s{slot}/a{attempt}")

        def workplace(draft: Fork, attempt: int = attempt, run: Run = run) -> Workplace:
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
                    run_in=run,
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
                snapshot=house.snapshot(campaign_id),
                judge=house.judge(campaign_id),
                recipe=campaign.recipe,
                rollouts=plan.budget.rollouts or None,
                worker=campaign.worker,
                workplace=workplace,
                level=level,
                run=run,
                seed=seed,
                folder=folder,
                keep=house.trial_folder(campaign_id, number, slot),
                clock=clock,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        rows = incident_rows(row, worker, record.integrity, discarded=record.discarded)
        if record.outcome is not Outcome.INFRASTRUCTURE or failures == plan.budget.attempts:
            trial = trial_rows(house, campaign_id, number, assignment, attempt, record)
            house.ledger.append(*rows, *trial)
            return record.outcome
        house.ledger.append(*rows)
    raise AssertionError("a plan has at least one attempt")


async def attempt_trial(
    house: House,
    policy: SearchPolicy,
    assignment: Assignment,
    *,
    snapshot: Snapshot,
    judge: Judge,
    recipe: str,
    rollouts: int | None,
    worker: str,
    workplace: Callable[[Fork], Workplace],
    level: Level,
    run: Run,
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

    phase = record.clock.phase
    try:
        if assignment.kind == "explore":
            with phase("fork"):
                draft = fork_named("draft")
            with phase("edit"):
                place = workplace(draft)
                try:
                    ended = await _work(record, worker, place)
                finally:
                    record.flag(*(Incident("tamper_attempt", said) for said in place.attempts))
                if changed := sealed_changes(draft):
                    return record.flag(changed_seals(changed)).settle()
                if ended is not None:
                    return record.end(ended.outcome, ended.reason).settle()
                record.edit, handed = read_edit(draft), editable_files(draft)
                shutil.rmtree(draft.root)
            if not record.edit.diff:
                reason = "the worker handed in an empty edit"
                return record.end(Outcome.NO_CHANGE, reason).settle()
            with phase("fork"):  # only now: no worker ever saw the fork that counts
                counted = fork_named("counted")
                apply_edit(counted, record.edit.overrides, record.edit.patch)
            with phase("inspect"):
                record.edit = read_edit(counted)
                record.flag(*inspect_hand_in(handed, editable_files(counted)))
                record.flag(*inspect_edit(record.edit, judge.canaries))
                if is_idle(counted):
                    reason = "the edit changes comments, docstrings and spaces alone"
                    return record.end(Outcome.NO_CHANGE, reason).settle()
        else:
            with phase("fork"):
                counted = fork_named("counted")
                if (edit := assignment.edit) is not None:
                    patch = house.ledger.patch_text(edit.patch) if edit.patch else None
                    apply_edit(counted, edit.overrides, patch)
                    record.edit = read_edit(counted)
                    record.hand_in = HandIn(hypothesis="A stored edit on a fresh seed.", notes="")
    except BadEdit as error:
        return record.end(Outcome.CRASHED, f"the edit cannot be used: {error}").settle()

    return await counted_run(
        house,
        record,
        counted,
        judge=judge,
        standing=policy.standing_recipe,
        recipe=recipe,
        rollouts=rollouts,
        seed=seed,
        keep=keep,
        run=run,
    )


async def _work(record: Record, worker: str, workplace: Workplace) -> WorkEnded | None:
    """Have the worker work, and keep what it hands in; how it ended where that is nothing.

    Raises ProviderFailure where no try will help, and SpendCapReached where the campaign pauses.
    """
    try:
        record.hand_in = await find_worker(worker)(workplace)
        return None
    except WorkEnded as error:
        ended = error
    except (ProviderFailure, SpendCapReached) as failure:
        if ends_campaign(failure):
            raise
        is_cap = isinstance(failure, SpendCapReached)
        outcome = Outcome.OVER_BUDGET if is_cap else Outcome.INFRASTRUCTURE
        ended = WorkEnded(outcome, str(failure))
    record.hand_in = HandIn(hypothesis="Nothing was handed in.", notes=ended.notes)
    return ended


async def counted_run(
    house: House,
    record: Record,
    counted: Fork,
    *,
    judge: Judge,
    standing: StandingRecipe,
    recipe: str,
    rollouts: int | None,
    seed: int,
    keep: Path,
    run: Run,
) -> Record:
    """The controller's own run in a fork that nobody touches any more, sealed and scored on dev.

    A score counts only where `flows/inspection.py` finds nothing.
    """
    snapshot = counted.snapshot
    before = editable_files(counted)
    with record.clock.phase("run"):
        job = job_for(snapshot, recipe=recipe, seed=seed, rollouts=rollouts)
        record.run = await run(counted, job, record.level)
        _keep_output(counted, keep)
    with record.clock.phase("inspect"):
        if record.run.keeper_lost:
            record.flag(Incident("keeper_lost", record.run.reason))
        if changed := sealed_changes(counted):
            return record.flag(changed_seals(changed)).settle()
        declared = record.run.result.data_sha256 if record.run.result else {}
        record.flag(*inspect_run(counted, before, declared, judge.canaries))
        record.flag(*await inspect_data(counted, record.edit, judge))
    if record.run.outcome is not None:
        return record.end(record.run.outcome, record.run.reason).settle()
    assert record.run.result is not None

    with record.clock.phase("measure"):
        house.store.verify(snapshot, weights=False)
        adapter = seal_adapter(counted, record.run.result, house.adapters)
        if isinstance(adapter, Measured):
            return record.end(adapter.outcome, adapter.reason).settle()
        record.adapter_sha256 = adapter.sha256
        scored = snapshot.manifest.sets.dev
        problems = snapshot.root / scored.path
        measured = await measure(snapshot, adapter, problems, scored, level=record.level)
    note_strangers(house, counted.root.parent.name, measured)
    record.end(measured.outcome, measured.reason)
    record.custody = measured.custody or ""
    if measured.score is not None:
        with record.clock.phase("inspect"):
            record.dev = SetScore.model_validate(measured.score)
            record.made = Made(adapter, _ran(snapshot, recipe, standing, record.edit), seed)
            is_edited = bool(record.edit.diff)
            record.flag(*inspect_adapter(house, snapshot, record.made, is_edited=is_edited))
            record.flag(*inspect_score(record.dev, scored, "dev"))
    return record.settle()


def note_strangers(house: House, subject: str, measured: Measured) -> None:
    """Have on record that others spoke to the scorer; who, of trials side by side, nobody knows."""
    if measured.strangers:
        house.ledger.note(None, "scorer.strangers", subject, {"peers": measured.strangers})


def _ran(snapshot: Snapshot, recipe: str, standing: StandingRecipe, edit: ForkEdit) -> str:
    """Digest of what ran, but for its seed: substrate, recipe, standing recipe and edit."""
    patch = sha256_of(edit.patch) if edit.patch else None
    text = recipe_digest(standing, Edit(overrides=edit.overrides, patch=patch))
    return digest([snapshot.digest, recipe, text])


def runs_at_once(snapshot: Snapshot) -> int:
    """As many runs as the processors have room for at the substrate's threads a run."""
    return max(1, len(os.sched_getaffinity(0)) // snapshot.manifest.run.threads)


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
