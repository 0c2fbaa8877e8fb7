"""Confirmation: whether fresh runs of an edit show that it is better than the standing recipe.

The trial that made an edit a candidate was selected for its score and never counts. What counts are
its replicates on the standing recipe in force, on seeds that the controller drew. Their mean is
held against Student's t at the level that `policies/spending.py` gives to the edit and to the look,
so that a campaign in which nothing helps promotes something about one time in twenty at most,
however long it is and whatever is tried. An edit of nothing but seeds is never confirmed: it is
another draw of the noise, not another recipe.

Where dev misleads in some domain, an edit may be confirmed by external too, each at half the level:
external is what the campaign is after.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from policies.evidence import Record, Run
from policies.noise import threshold
from policies.policy import Edit, NoiseModel
from policies.report import Confirmation
from policies.spending import BUDGET, level, look

HALF = 2  # candidates that half of the budget is for
FEWEST = 2  # fresh runs that a confirmation takes

_SEED = re.compile(r"(.*_)?SEEDS?(_.*)?", re.IGNORECASE)


@dataclass
class Candidate:
    """An edit under test on one standing recipe, with its fresh runs."""

    axis: str
    edit: Edit
    level: float
    runs: list[Run] = field(default_factory=list)  # scored, oldest first
    last: int = 0  # newest round that gave it a slot

    @property
    def looks(self) -> int:
        return len({run.round for run in self.runs})


def confirmations(record: Record, noise: NoiseModel) -> list[Confirmation]:
    """What is known of every edit that the last round replicated, in the order of its slots."""
    number = record.rounds[-1].number
    return [
        _confirmation(record, candidate, noise, record.groups.get(record.rounds[-1].recipe, []))
        for candidate in candidates(record)
        if candidate.last == number
    ]


def candidates(record: Record) -> list[Candidate]:
    """Every edit that was ever replicated, with the share of the budget that it was given.

    In the order in which they were begun; those that were begun in one round share alike. One edit
    on two standing recipes is two candidates.
    """
    scored = {(run.round, run.slot): run for run in record.runs}
    found: dict[tuple[str, str], Candidate] = {}
    inherited = 0.0
    for past, following in zip(record.rounds, [*record.rounds[1:], None], strict=True):
        begun = {again.key: again for again in past.replicates}
        begun = {key: each for key, each in begun.items() if (past.recipe, key) not in found}
        if begun:
            places = range(len(found) + 1, len(found) + 1 + len(begun))
            whole = BUDGET * sum(level(place, half=HALF) for place in places) + inherited
            inherited = 0.0
            for key, each in begun.items():
                found[past.recipe, key] = Candidate(each.axis, each.edit, whole / len(begun))
        for again in past.replicates:
            candidate = found[past.recipe, again.key]
            candidate.last = past.number
            if run := scored.get((past.number, again.slot)):
                candidate.runs.append(run)
        if following is not None:
            new = following.promoted - past.promoted
            inherited += sum(
                candidate.level
                for (standing, _), candidate in found.items()
                if standing == past.recipe and new & {run.row for run in candidate.runs}
            )
    return list(found.values())


def changes_seeds_alone(edit: Edit) -> bool:
    """Whether an edit sets nothing but constants that are named as seeds are."""
    names = [name for values in edit.overrides.values() for name in values]
    return edit.patch is None and bool(names) and all(_SEED.fullmatch(name) for name in names)


def _confirmation(
    record: Record, candidate: Candidate, noise: NoiseModel, base: Sequence[Run]
) -> Confirmation:
    runs = candidate.runs
    dev = _Mean([_dev(record, run) for run in runs], [_dev(record, run) for run in base])
    external = _Mean([_external(run) for run in runs], [_external(run) for run in base])
    bar = external_bar = None
    if runs and runs[-1].round == record.rounds[-1].number:
        share = candidate.level * look(candidate.looks) / (2 if record.ignored else 1)
        bar = dev.bar(noise, share)
        if record.ignored:
            channel = NoiseModel(sigma=noise.external_sigma, degrees=noise.external_degrees)
            external_bar = external.bar(channel, share)
    effect, external_effect = dev.effect(record), external.effect(record)
    is_better = _is_above(effect, bar) or _is_above(external_effect, external_bar)
    return Confirmation(
        axis=candidate.axis,
        edit=candidate.edit,
        runs=len(runs),
        effect=effect,
        bar=bar,
        external_runs=len(external.runs),
        external_effect=external_effect,
        external_bar=external_bar,
        level=candidate.level,
        is_confirmed=is_better and not changes_seeds_alone(candidate.edit),
        rows=[f"{run.row}/dev/overall" for run in runs],
    )


class _Mean:
    """The mean of some runs against that of the standing recipe's."""

    def __init__(self, runs: Iterable[float | None], base: Iterable[float | None]) -> None:
        self.runs = [value for value in runs if value is not None]
        self.base = [value for value in base if value is not None]

    def effect(self, record: Record) -> float | None:
        if not self.runs or not self.base:
            return None
        return record.sign * (fmean(self.runs) - fmean(self.base))

    def bar(self, noise: NoiseModel, share: float) -> float | None:
        if len(self.runs) < FEWEST:
            return None
        counts = {"runs": len(self.runs), "standing": len(self.base)}
        return threshold(noise, comparisons=1, level=share, **counts)


def _is_above(effect: float | None, bar: float | None) -> bool:
    return effect is not None and bar is not None and effect > bar


def _dev(record: Record, run: Run) -> float | None:
    return record.dev(run.dev)


def _external(run: Run) -> float | None:
    return None if run.external is None else run.external.value
