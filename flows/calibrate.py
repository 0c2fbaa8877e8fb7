"""Calibration: the unmodified recipe run on fresh seeds, and probes that must not beat it.

Runs and scores as those of anchors: a clean fork of the sealed snapshot, the controller's own run,
the snapshot's own evaluation. What was recorded is never done again, so that an interrupted
calibration goes on where it stopped, and asking for more runs adds to those that there are. One
process at a time calibrates a subject: it holds a lease.
"""

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flows.clean_run import Bench, clean_run, score_text
from flows.house import House
from flows.lease import leased
from flows.seed import derive_seed
from flows.trial import runs_at_once
from policies.baseline import is_run, score_of, set_baseline
from policies.chain import Note
from policies.evidence import Calibration as Run
from policies.policy import StandingRecipe
from policies.tables import Calibration, Probe, Substrate
from substrate.check import check_dropin, find_dropin
from substrate.dropin import BadDropIn, read_dropin
from substrate.isolation import best_level
from substrate.measure import SealedAdapter, measure, measure_completion
from substrate.probe import commonest_answer, make_adapter
from substrate.store import Judge, Snapshot

RUNS = 8  # of the recipe: sigma is then known to within a quarter
PINNED = "campaign.calibrated"
PROBES: tuple[Probe, ...] = ("base", "random", "constant", "empty")


@dataclass(frozen=True)
class Subject:
    """What is calibrated: a sealed snapshot, one of its recipes, a budget."""

    snapshot: Snapshot
    judge: Judge
    recipe: str
    rollouts: int

    @property
    def name(self) -> str:
        """Of its lease, and how the names of its runs begin."""
        return f"calibration/{self.snapshot.digest[:12]}-{self.recipe}-{self.rollouts}"

    def seed(self, probe: Probe, number: int) -> int:
        return derive_seed(0, self.snapshot.digest, self.recipe, self.rollouts, probe, number)


def find_subject(house: House, substrate: str, recipe: str, rollouts: int) -> Subject:
    """Check, seal and record what is to be calibrated; `recipe` "", `rollouts` 0: the drop-in's.

    Raises BadDropIn with the rules that it breaks.
    """
    folder = find_dropin(substrate)
    if findings := check_dropin(folder):
        raise BadDropIn("\n".join(str(finding) for finding in findings))
    dropin = read_dropin(folder)
    with house.store.hold():  # until what is sealed is on record
        snapshot = house.store.seal(dropin)
        recipe = recipe or snapshot.manifest.recipe
        if not (snapshot.root / "recipes" / f"{recipe}.py").is_file():
            there = sorted(path.stem for path in (snapshot.root / "recipes").glob("*.py"))
            raise BadDropIn(f"wanted recipe {recipe!r}, found {there} in the substrate; choose one")
        judge = house.store.seal_judge(dropin)
        if house.ledger.substrate(snapshot.digest) is None:
            manifest, name = snapshot.manifest.model_dump_json(), snapshot.manifest.name
            house.ledger.append(Substrate(sha256=snapshot.digest, name=name, manifest=manifest))
    return Subject(snapshot, judge, recipe, rollouts or snapshot.manifest.budget.rollouts)


async def calibrate(
    house: House, subject: Subject, *, runs: int = RUNS, at_once: int = 0
) -> list[Calibration]:
    """Have `runs` runs of the recipe and every probe on record. Returns all rows of the subject.

    Raises flows.lease.Busy while another process does that, LeaseLost where one took over,
    flows.clean_run.RunFailed where infrastructure keeps failing, SnapshotDamaged.
    """
    snapshot = subject.snapshot
    task = f"calibrate {snapshot.manifest.name} ({subject.recipe}, {subject.rollouts} rollouts)"
    otherwise = "end that process: what it has recorded stays"
    async with leased(house.ledger, subject.name, task=task, otherwise=otherwise):
        for left in house.settings.forks.glob(f"{subject.name}-*"):  # of one that was killed
            shutil.rmtree(left, ignore_errors=True)
        await _calibrate(house, subject, runs, at_once or runs_at_once(snapshot))
    return recorded(house, subject)


def recorded(house: House, subject: Subject) -> list[Calibration]:
    return house.ledger.calibrations(subject.snapshot.digest, subject.recipe, subject.rollouts)


def pin_calibration(
    house: House, campaign_id: str, snapshot: Snapshot, recipe: str, rollouts: int
) -> Note | None:
    """What a campaign's evidence begins with: the scored runs that there are when it starts.

    None where there are none. Runs that are added later change nothing in a campaign's reports.
    """
    rollouts = rollouts or snapshot.manifest.budget.rollouts
    rows = house.ledger.calibrations(snapshot.digest, recipe, rollouts)
    numbers = [row.number for row in rows if is_run(row) and row.dev]
    if not numbers:
        return None
    return Note(campaign_id, PINNED, campaign_id, {"rollouts": rollouts, "numbers": numbers})


def calibration_of(house: House, campaign_id: str) -> list[Run]:
    """The calibration that was pinned when the campaign started, as evidence takes it."""
    events = house.ledger.events(campaign_id, kind=PINNED)
    if not events:
        return []
    pinned, campaign = json.loads(events[0].body), house.campaign(campaign_id)
    rows = house.ledger.calibrations(campaign.substrate_sha256, campaign.recipe, pinned["rollouts"])
    return [
        Run(seed=row.seed, dev=dev, external=score_of(row, "external"))
        for row in rows
        if is_run(row) and row.number in pinned["numbers"] and (dev := score_of(row, "dev"))
    ]


def calibration_text(house: House, campaign_id: str) -> str:
    """What a campaign knows of its noise before its first round, for whoever started it."""
    if runs := calibration_of(house, campaign_id):
        return f"calibrated by {len(runs)} runs of the recipe as it is"
    plan, recipe = house.plan(campaign_id), house.campaign(campaign_id).recipe
    budget = f" --rollouts {plan.budget.rollouts}" if plan.budget.rollouts else ""
    return (
        "not calibrated: how noisy scores are is a guess until rounds repeat recipes, so that "
        "promotions and alarms come late; before the next campaign, run "
        f"`seedbed substrate calibrate {plan.substrate} --recipe {recipe}{budget}`"
    )


@dataclass(frozen=True)
class Summary:
    """What was calibrated of one snapshot, recipe and budget."""

    substrate_sha256: str
    recipe: str
    rollouts: int
    runs: int  # of the recipe that have a dev score
    mean: float | None
    sigma: float | None
    external_mean: float | None
    external_sigma: float | None
    probes: dict[str, float | None]  # dev score by name; None where it was refused or failed

    def __str__(self) -> str:
        mean = "no score" if self.mean is None else f"{self.mean:.4f}"
        sigma = "unknown" if self.sigma is None else f"{self.sigma:.4f}"
        best = max((score for score in self.probes.values() if score is not None), default=None)
        probed = "" if best is None else f", probes at most {best:.4f}"
        return (
            f"{self.substrate_sha256[:12]} {self.recipe} at {self.rollouts} rollouts: dev {mean}, "
            f"sigma {sigma} over {self.runs} runs{probed}"
        )


def calibrations_of(house: House, name: str) -> list[Summary]:
    """Every calibration of the snapshots that bear a drop-in's name, oldest snapshot first."""
    return [
        _summary(rows)
        for sealed in house.ledger.substrates(name)
        for rows in _by_budget(house.ledger.calibrations(sealed.sha256))
    ]


def _by_budget(rows: Sequence[Calibration]) -> list[list[Calibration]]:
    found: dict[tuple[str, int], list[Calibration]] = {}
    for row in rows:
        found.setdefault((row.recipe, row.rollouts), []).append(row)
    return list(found.values())


def _summary(rows: Sequence[Calibration]) -> Summary:
    dev, external = (set_baseline(rows, which) for which in ("dev", "external"))
    return Summary(
        substrate_sha256=rows[0].substrate_sha256,
        recipe=rows[0].recipe,
        rollouts=rows[0].rollouts,
        runs=dev.n if dev else 0,
        mean=dev.mean if dev else None,
        sigma=dev.sigma if dev else None,
        external_mean=external.mean if external else None,
        external_sigma=external.sigma if external else None,
        probes={
            row.probe: score.value if (score := score_of(row, "dev")) else None
            for row in rows
            if not is_run(row)
        },
    )


async def _calibrate(house: House, subject: Subject, runs: int, at_once: int) -> None:
    snapshot = subject.snapshot
    await asyncio.to_thread(house.store.verify, snapshot)
    there = {(row.probe, row.number) for row in recorded(house, subject)}
    gate = asyncio.Semaphore(at_once)

    async def through_gate(number: int) -> None:
        async with gate:
            await _run(house, subject, number)

    async with asyncio.TaskGroup() as group:
        for number in range(1, runs + 1):
            if ("recipe", number) not in there:
                group.create_task(through_gate(number))
    for probe in PROBES:
        if (probe, 1) not in there:
            await _probe(house, subject, probe)
    house.drop_anchor()


async def _run(house: House, subject: Subject, number: int) -> None:
    """One run of the unmodified recipe, recorded with its dev and its external score."""
    rollouts = subject.rollouts
    columns = await clean_run(
        house,
        # The manifest's own budget may have a bound on tokens too, as that of a trial has then.
        Bench(
            subject.snapshot,
            subject.judge,
            subject.recipe,
            None if rollouts == subject.snapshot.manifest.budget.rollouts else rollouts,
            await asyncio.to_thread(best_level),
        ),
        StandingRecipe(),
        seed=subject.seed("recipe", number),
        name=f"{subject.name}-{number}",
    )
    house.ledger.append(Calibration(**_key(subject, "recipe", number), **columns))


async def _probe(house: House, subject: Subject, probe: Probe) -> None:
    """One degenerate probe on dev. `base` and `random` have the shape of a run's adapter."""
    snapshot, seed = subject.snapshot, subject.seed(probe, 1)
    scored = snapshot.manifest.sets.dev
    problems = snapshot.root / scored.path
    sha256 = None
    if probe in ("base", "random"):
        runs = [row for row in recorded(house, subject) if is_run(row) and row.dev]
        like = next((row.adapter_sha256 for row in runs), None)
        if like is None:
            return  # no run delivered an adapter: there is no baseline to beat either
        sealed = SealedAdapter(house.adapters / like, like)
        kind = "base" if probe == "base" else "random"
        adapter = await asyncio.to_thread(make_adapter, kind, sealed, seed, house.adapters)
        sha256 = adapter.sha256
        measured = await measure(snapshot, adapter, problems, scored)
    else:
        completion = commonest_answer(snapshot) if probe == "constant" else ""
        measured = await measure_completion(snapshot, completion, problems, scored)
    house.ledger.append(
        Calibration(
            **_key(subject, probe, 1),
            seed=seed,
            outcome=measured.outcome.value,
            reason=measured.reason[:2000],
            adapter_sha256=sha256,
            dev=score_text(measured),
            account="{}",
        )
    )


def _key(subject: Subject, probe: Probe, number: int) -> dict[str, Any]:
    return {
        "substrate_sha256": subject.snapshot.digest,
        "recipe": subject.recipe,
        "rollouts": subject.rollouts,
        "probe": probe,
        "number": number,
    }
