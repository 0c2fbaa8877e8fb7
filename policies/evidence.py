"""Evidence: what scores say once the noise between runs of one recipe is taken into account.

Pure functions over the record of one campaign. Noise is the pooled standard deviation of runs
about the mean of their own group, a group being the anchors, replicates and calibration runs of one
recipe, that is of one standing recipe with one edit: explored edits are left out, since those that
come back do so because they scored well. An effect is a trial's dev score minus the mean of the
standing recipe's runs, signed so that positive is better. Its interval uses Student's t and
Bonferroni's bound over the trials of the round, so that a round in which nothing helps calls some
edit better about one time in twenty; the same for worse. Errors over a whole campaign are bounded
where something lasting follows: in `policies/confirmation.py` and `policies/decoupling.py`.

Only finite scores of evaluated trials and of one metric version are compared.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Literal

from policies.canonical import canonical_json, digest
from policies.noise import Deviation, binomial_error, moderated, pooled, threshold
from policies.policy import Edit, NoiseModel, SearchPolicy, StandingRecipe, Trust
from policies.report import DomainEffect, SetScore, SlotResult, Spread, Verdict

Direction = Literal["maximise", "minimise"]

OVERALL = "overall"  # in the place of a domain's name: all of them
ROWS = 64  # most row references that a noise model lists, newest kept
PRIOR = 2  # degrees of freedom that dev's noise counts for as a first guess of external's


@dataclass(frozen=True)
class Calibration:
    """A run of the unmodified recipe on a seed of its own, from before the campaign's round 1."""

    seed: int
    dev: SetScore
    external: SetScore | None = None


@dataclass(frozen=True)
class Run:
    """One evaluated trial, or calibration run, with the recipe that it ran."""

    round: int  # 0 for calibration
    slot: int
    kind: Literal["calibration", "anchor", "explore", "replicate"]
    axis: str | None
    recipe: str  # digest of the standing recipe with the edit
    standing: str  # digest of the standing recipe alone
    dev: SetScore | None
    external: SetScore | None

    @property
    def row(self) -> str:
        return f"r{self.round}/s{self.slot}"


@dataclass(frozen=True)
class Round:
    """One round as evidence sees it."""

    number: int
    standing: StandingRecipe  # what every fork of the round started from
    slots: tuple[SlotResult, ...]

    @cached_property
    def recipe(self) -> str:
        """Digest of the standing recipe."""
        return recipe_digest(self.standing, Edit())

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The evaluated trials, in the order of slots."""
        return tuple(
            Run(
                round=self.number,
                slot=slot.slot,
                kind=slot.kind,
                axis=slot.axis,
                recipe=self.recipe
                if slot.edit.is_empty()
                else recipe_digest(self.standing, slot.edit),
                standing=self.recipe,
                dev=slot.dev,
                external=slot.external,
            )
            for slot in self.slots
            if slot.outcome == "evaluated"
        )

    @cached_property
    def replicates(self) -> tuple["Again", ...]:
        """The slots that ran an edit of an axis again, in their order."""
        return tuple(
            Again(
                slot.slot,
                slot.axis,
                slot.edit,
                canonical_json([slot.axis, slot.edit.model_dump(mode="json")]),
            )
            for slot in self.slots
            if slot.kind == "replicate" and slot.axis is not None and not slot.edit.is_empty()
        )

    @cached_property
    def promoted(self) -> frozenset[str]:
        """The trials whose scores stand behind the standing recipe."""
        return frozenset(
            "/".join(row.split("/")[:2])
            for promotion in self.standing.provenance
            for row in promotion.rows
        )


@dataclass(frozen=True)
class Again:
    """A slot that ran a stored edit again."""

    slot: int
    axis: str
    edit: Edit
    key: str  # equal for equal edits of one axis


@dataclass(frozen=True)
class Record:
    """All that a campaign has measured, and how it is read."""

    rounds: tuple[Round, ...]
    direction: Direction
    calibration: tuple[Calibration, ...] = ()
    ignored: frozenset[str] = frozenset()  # domains whose dev score counts for nothing

    @property
    def sign(self) -> int:
        return 1 if self.direction == "maximise" else -1

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Every run with a finite dev score of the newest metric version, oldest first.

        An external score of another version than the newest is taken off it.
        """
        unmodified = recipe_digest(StandingRecipe(), Edit())
        found = [
            Run(0, i, "calibration", None, unmodified, unmodified, run.dev, run.external)
            for i, run in enumerate(self.calibration)
        ]
        found += [run for past in self.rounds for run in past.runs]
        dev = _newest_version((run.round, run.dev) for run in found)
        external = _newest_version((run.round, run.external) for run in found)
        return tuple(
            Run(
                run.round,
                run.slot,
                run.kind,
                run.axis,
                run.recipe,
                run.standing,
                run.dev,
                run.external if is_comparable(run.external, external) else None,
            )
            for run in found
            if is_comparable(run.dev, dev)
        )

    @cached_property
    def groups(self) -> dict[str, list[Run]]:
        """The runs that no score selected (all but explorations), by recipe."""
        groups: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs:
            if run.kind != "explore":
                groups[run.recipe].append(run)
        return dict(groups)

    @cached_property
    def standing_runs(self) -> list[Run]:
        """The runs of the last round's standing recipe, in whatever round.

        They are its anchors, its replicates without an edit, calibration where it is the
        unmodified recipe, and the replicates of an edit by which it was promoted. These last
        passed a bar, so that their mean is a little high: a later "better" is harder to reach for
        that, a later "worse" easier.
        """
        return [
            run
            for run in self.groups.get(self.rounds[-1].recipe, [])
            if self.dev(run.dev) is not None
        ]

    def dev(self, score: SetScore | None) -> float | None:
        """What a dev score counts for: its value, or the mean over what is not ignored."""
        return None if score is None else counted(score, self.ignored)


def round_of(number: int, policy: SearchPolicy, slots: Iterable[SlotResult]) -> Round:
    """Round `number` of a campaign, run under `policy`."""
    return Round(number, policy.standing_recipe, tuple(slots))


def ignored_domains(trust: Mapping[str, Trust]) -> frozenset[str]:
    """The domains by whose dev score nothing is ranked (C11)."""
    return frozenset(name for name, word in trust.items() if word != "trusted")


def counted(score: SetScore, ignored: frozenset[str]) -> float | None:
    """The score without the ignored domains, each domain by its problems; None: nothing is left."""
    if not ignored:
        return score.value
    if OVERALL in ignored:
        return None
    kept = [
        part
        for name, part in score.domains.items()
        if name not in ignored and math.isfinite(part.value)
    ]
    problems = sum(part.n for part in kept)
    return math.fsum(part.value * part.n for part in kept) / problems if problems else None


def spread(record: Record) -> Spread:
    """This round's anchor, and the range of the standing recipe's runs so far."""
    anchor = next((slot for slot in record.rounds[-1].slots if slot.kind == "anchor"), None)
    scores = _values(record, record.standing_runs)
    return Spread(
        dev=_finite(anchor.dev) if anchor else None,
        external=_finite(anchor.external) if anchor else None,
        mean=fmean(scores) if scores else None,
        low=min(scores, default=None),
        high=max(scores, default=None),
        n=len(scores),
    )


def noise_model(record: Record) -> NoiseModel:
    """The noise of one trial's scores, from all runs so far, and the last round's threshold.

    Before any group has two runs, sigma is the binomial error of the standing recipe's score and
    degrees is 0: it leaves out the noise between seeds. External's noise is pooled likewise, and
    moderated by dev's, or the binomial error, for the size of its set, since looks are few.
    """
    standing = record.standing_runs
    found = pooled(
        (_values(record, group) for group in record.groups.values()),
        problems=_problems(record, standing),
    )
    repeated = [run for group in record.groups.values() if len(group) > 1 for run in group]
    used = repeated if found else standing[-1:]
    sigma = found.sigma if found else _binomial(record, standing)
    degrees = found.degrees if found else 0
    external = external_deviation(record, sigma)
    model = NoiseModel(
        sigma=sigma,
        degrees=degrees,
        external_sigma=external.sigma if external else None,
        external_degrees=external.degrees if external else 0,
        calibration=sum(run.kind == "calibration" for run in used),
        rows=[f"{run.row}/dev/overall" for run in used if run.kind != "calibration"][-ROWS:],
    )
    trials = sum(slot.axis is not None for slot in record.rounds[-1].slots)
    bar = threshold(model, standing=len(standing), comparisons=trials)
    return model.model_copy(update={"threshold": bar})


def external_deviation(record: Record, dev_sigma: float | None) -> Deviation | None:
    """The noise of one trial's external score; None where there is no score to guess it from."""
    looked = [run for run in record.runs if run.external is not None and run.dev is not None]
    if not looked:
        return None
    newest = looked[-1]
    assert newest.external is not None and newest.dev is not None
    guesses = [binomial_error(newest.external)]
    if dev_sigma is not None:
        guesses = [dev_sigma * max(1.0, math.sqrt(newest.dev.n / newest.external.n))]
    found = pooled(
        [
            [run.external.value for run in group if run.external is not None]
            for group in record.groups.values()
        ],
        problems=newest.external.n,
    )
    if guesses[0] is None:
        return found
    return moderated(found, guesses[0], PRIOR)


def verdicts(record: Record, noise: NoiseModel, base: Spread) -> list[Verdict]:
    """One verdict for each trial of the last round that has an axis, in the order of slots.

    A trial without a score, or with nothing to compare it to, is unresolved.
    """
    last = record.rounds[-1]
    runs = {run.slot: run for run in record.runs if run.round == last.number}
    anchor = next((run for run in runs.values() if run.kind == "anchor"), None)
    means = domain_means(record.standing_runs)
    found = []
    for slot in last.slots:
        if slot.axis is None:
            continue
        run = runs.get(slot.slot)
        effect = low = high = None
        word: Literal["better", "worse", "unresolved"] = "unresolved"
        value = record.dev(run.dev) if run else None
        if value is not None and base.mean is not None and noise.threshold is not None:
            effect = record.sign * (value - base.mean)
            low, high = effect - noise.threshold, effect + noise.threshold
            word = "better" if low > 0 else "worse" if high < 0 else "unresolved"
        external, error = _external_effect(record, run, anchor, noise)
        row = f"r{last.number}/s{slot.slot}"
        found.append(
            Verdict(
                slot=slot.slot,
                axis=slot.axis,
                effect=effect,
                domains=_domain_effects(record, run, means) if run else {},
                low=low,
                high=high,
                verdict=word,
                external_effect=external,
                external_error=error,
                rows=[f"{row}/dev/overall" if run else row],
            )
        )
    return found


def domain_means(runs: Sequence[Run]) -> dict[str, float]:
    """The mean dev score of some runs in each domain."""
    values: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for name, part in run.dev.domains.items() if run.dev else ():
            if math.isfinite(part.value):
                values[name].append(part.value)
    return {name: fmean(each) for name, each in values.items()}


def recipe_digest(standing: StandingRecipe, edit: Edit) -> str:
    """Digest of what a trial runs: equal for equal constants and patches."""
    overrides = {file: dict(values) for file, values in standing.overrides.items() if values}
    for file, values in edit.overrides.items():
        if values:
            overrides[file] = overrides.get(file, {}) | values
    return digest([overrides, *standing.patches, *([edit.patch] if edit.patch else [])])


def is_comparable(score: SetScore | None, version: str | None) -> bool:
    """Whether a score is finite and of that metric version."""
    return score is not None and score.metric_version == version and math.isfinite(score.value)


def _domain_effects(
    record: Record, run: Run, means: Mapping[str, float]
) -> dict[str, DomainEffect]:
    parts = run.dev.domains if run.dev else {}
    return {
        name: DomainEffect(effect=record.sign * (part.value - means[name]), n=part.n)
        for name, part in sorted(parts.items())
        if name in means and math.isfinite(part.value)
    }


def _external_effect(
    record: Record, run: Run | None, anchor: Run | None, noise: NoiseModel
) -> tuple[float | None, float | None]:
    """External score minus the anchor's, and the standard error of that difference."""
    mine, its = run.external if run else None, anchor.external if anchor else None
    if mine is None or its is None:
        return None, None
    effect = record.sign * (mine.value - its.value)
    if noise.degrees and noise.external_sigma is not None:
        return effect, math.sqrt(2) * noise.external_sigma
    errors = [binomial_error(mine), binomial_error(its)]
    if None in errors:
        return effect, None
    return effect, math.hypot(*(error for error in errors if error is not None))


def _newest_version(scores: Iterable[tuple[int, SetScore | None]]) -> str | None:
    """The metric version of the newest round's first score: earlier ones are another metric."""
    newest, version = -1, None
    for number, score in scores:
        if score is not None and number > newest:
            newest, version = number, score.metric_version
    return version


def _values(record: Record, runs: Iterable[Run]) -> list[float]:
    return [value for run in runs if (value := record.dev(run.dev)) is not None]


def _problems(record: Record, runs: Sequence[Run]) -> int:
    """How many problems count in a dev score."""
    score = next((run.dev for run in (*reversed(runs), *record.runs) if run.dev is not None), None)
    if score is None:
        return 1
    kept = sum(part.n for name, part in score.domains.items() if name not in record.ignored)
    return kept if record.ignored and kept else score.n


def _binomial(record: Record, standing: Sequence[Run]) -> float | None:
    if not standing or standing[-1].dev is None:
        return None
    value = record.dev(standing[-1].dev)
    whole = standing[-1].dev
    return (
        None
        if value is None
        else binomial_error(
            whole.model_copy(update={"value": value, "n": _problems(record, standing)})
        )
    )


def _finite(score: SetScore | None) -> float | None:
    return score.value if score is not None and math.isfinite(score.value) else None
