"""Evidence: what scores say once the noise between runs of one recipe is taken into account.

Pure functions over the rounds of one campaign. Noise is the pooled standard deviation of trials
about the mean of their own group, a group being the anchors and replicates of one recipe, that is
of one standing recipe with one edit: explored edits are left out, since those that come back do so
because they scored well. An effect is a trial's dev score minus the mean of the
standing recipe's runs, signed so that positive is better. Its interval uses Student's t (W. S.
Gosset, Biometrika 6, 1908) and Bonferroni's bound over the trials of the round, so that a round in
which nothing helps calls some edit better about one time in twenty; the same for worse. Only
finite scores of one metric version are compared.

Left out on purpose: error control over the whole campaign, and tests by domain.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import ndtri, stdtrit

from policies.canonical import digest
from policies.policy import Edit, NoiseModel, SearchPolicy, StandingRecipe
from policies.report import SetScore, SlotResult, Spread, Verdict

Direction = Literal["maximise", "minimise"]

LEVEL = 0.05  # chance of one false "better" in a round in which nothing helps; the same for worse
ROWS = 64  # most row references that a noise model lists, newest kept


@dataclass(frozen=True)
class Round:
    """One round as evidence sees it."""

    number: int
    standing: StandingRecipe  # what every fork of the round started from
    slots: tuple[SlotResult, ...]


@dataclass(frozen=True)
class Calibration:
    """A run of the unmodified recipe on a seed of its own, from before the campaign's round 1."""

    seed: int
    dev: SetScore
    external: SetScore | None = None


@dataclass(frozen=True)
class Run:
    """One scored anchor or replicate."""

    row: str
    recipe: str  # digest of the standing recipe with the slot's edit
    score: SetScore


def round_of(number: int, policy: SearchPolicy, slots: Iterable[SlotResult]) -> Round:
    """Round `number` of a campaign, run under `policy`."""
    return Round(number, policy.standing_recipe, tuple(slots))


def standing_runs(rounds: Sequence[Round]) -> list[Run]:
    """The runs of the last round's standing recipe, in whatever round.

    They are its anchors, its replicates without an edit, and the replicates of an edit by which it
    was promoted. These last passed a bar, so that their mean is a little high: a later "better" is
    harder to reach for that, a later "worse" easier.
    """
    standing = _recipe(rounds[-1].standing, Edit())
    return [run for run in _runs(rounds) if run.recipe == standing]


def spread(rounds: Sequence[Round]) -> Spread:
    """This round's anchor, and the range of the standing recipe's runs so far."""
    anchor = next((slot for slot in rounds[-1].slots if slot.kind == "anchor"), None)
    scores = [run.score.value for run in standing_runs(rounds)]
    return Spread(
        dev=_finite(anchor.dev) if anchor else None,
        external=_finite(anchor.external) if anchor else None,
        mean=math.fsum(scores) / len(scores) if scores else None,
        low=min(scores, default=None),
        high=max(scores, default=None),
        n=len(scores),
    )


def noise_model(rounds: Sequence[Round]) -> NoiseModel:
    """The noise of one trial's dev score, from every round so far, and the last round's threshold.

    sigma^2 = sum over groups of (score - group mean)^2 / degrees, degrees = runs - groups. Before
    any group has two runs, sigma is the binomial error sqrt(p (1 - p) / n) of the standing
    recipe's score, with one success and one failure added so that p = 0 and p = 1 have an error
    too, and degrees is 0: it leaves out the noise between seeds.
    """
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in _runs(rounds):
        groups[run.recipe].append(run)
    repeated = [runs for runs in groups.values() if len(runs) > 1]
    degrees = sum(len(runs) - 1 for runs in repeated)
    standing = standing_runs(rounds)
    if degrees:
        squares = math.fsum(_squares([run.score.value for run in runs]) for runs in repeated)
        # No score over n problems is known better than to its own rounding, 1 / n wide.
        rounding = 1 / (repeated[0][0].score.n * math.sqrt(12))
        sigma = max(math.sqrt(squares / degrees), rounding)
        rows = [run.row for runs in repeated for run in runs]
    else:
        sigma = _binomial_error(standing[-1].score) if standing else None
        rows = [run.row for run in standing[-1:]]
    model = NoiseModel(sigma=sigma, degrees=degrees, rows=rows[-ROWS:])
    trials = sum(slot.axis is not None for slot in rounds[-1].slots)
    return model.model_copy(
        update={"threshold": threshold(model, standing=len(standing), comparisons=trials)}
    )


def threshold(
    noise: NoiseModel,
    *,
    standing: int,
    comparisons: int,
    runs: int = 1,
    level: float = LEVEL,
) -> float | None:
    """The effect that the mean of `runs` runs must exceed to count as better, or worse.

    It is q sigma sqrt(1 / runs + 1 / standing), where `standing` counts the runs of the standing
    recipe and q is exceeded by chance with probability level / comparisons. None where the noise
    or the standing recipe's score is unknown.
    """
    if noise.sigma is None or standing == 0:
        return None
    bar = quantile(noise.degrees, level / max(1, comparisons))
    return bar * noise.sigma * math.sqrt(1 / runs + 1 / standing)


def quantile(degrees: int, tail: float) -> float:
    """What Student's t with `degrees` exceeds with probability `tail`; 0 degrees: the normal's."""
    return -float(stdtrit(degrees, tail)) if degrees else -float(ndtri(tail))


def verdicts(rounds: Sequence[Round], direction: Direction) -> list[Verdict]:
    """One verdict for each trial of the last round that has an axis, in the order of slots.

    A trial without a score, or with nothing to compare it to, is unresolved.
    """
    last, base = rounds[-1], spread(rounds)
    metric, noise = _metric_version(rounds), noise_model(rounds)
    bound = noise.threshold
    anchor = next((slot for slot in last.slots if slot.kind == "anchor"), None)
    sign = 1 if direction == "maximise" else -1
    found = []
    for slot in last.slots:
        if slot.axis is None:
            continue
        effect = low = high = None
        word: Literal["better", "worse", "unresolved"] = "unresolved"
        score = _comparable(slot, metric)
        if score is not None and base.mean is not None and bound is not None:
            effect = sign * (score.value - base.mean)
            low, high = effect - bound, effect + bound
            word = "better" if low > 0 else "worse" if high < 0 else "unresolved"
        external, error = _external_effect(slot, anchor, noise, sign)
        found.append(
            Verdict(
                slot=slot.slot,
                axis=slot.axis,
                effect=effect,
                low=low,
                high=high,
                verdict=word,
                external_effect=external,
                external_error=error,
                rows=[_row(last.number, slot) if score else f"r{last.number}/s{slot.slot}"],
            )
        )
    return found


def _external_effect(
    slot: SlotResult, anchor: SlotResult | None, noise: NoiseModel, sign: int
) -> tuple[float | None, float | None]:
    """External score minus the anchor's, and the standard error of that difference.

    Both are scored on the same problems, so that they differ by chance as two trials do on dev,
    or more where the external set is smaller. Before the noise is measured, the error is the
    binomial one of either score.
    """
    mine, its = slot.external, anchor.external if anchor else None
    if mine is None or its is None or mine.metric_version != its.metric_version:
        return None, None
    if not (math.isfinite(mine.value) and math.isfinite(its.value)):
        return None, None
    effect = sign * (mine.value - its.value)
    if noise.degrees and noise.sigma is not None and slot.dev is not None:
        smaller = max(1.0, math.sqrt(slot.dev.n / mine.n))
        return effect, math.sqrt(2) * smaller * noise.sigma
    errors = [_binomial_error(mine), _binomial_error(its)]
    if None in errors:
        return effect, None
    return effect, math.hypot(*(error for error in errors if error is not None))


def _metric_version(rounds: Sequence[Round]) -> str | None:
    """The metric version of the newest score: earlier ones are another metric."""
    for past in reversed(rounds):
        for slot in past.slots:
            if slot.dev is not None:
                return slot.dev.metric_version
    return None


def _runs(rounds: Sequence[Round]) -> list[Run]:
    metric = _metric_version(rounds)
    return [
        Run(_row(past.number, slot), _recipe(past.standing, slot.edit), score)
        for past in rounds
        for slot in past.slots
        if slot.kind != "explore" and (score := _comparable(slot, metric)) is not None
    ]


def _recipe(standing: StandingRecipe, edit: Edit) -> str:
    overrides = {file: dict(values) for file, values in standing.overrides.items() if values}
    for file, values in edit.overrides.items():
        if values:
            overrides[file] = overrides.get(file, {}) | values
    return digest([overrides, *standing.patches, *([edit.patch] if edit.patch else [])])


def _comparable(slot: SlotResult, metric: str | None) -> SetScore | None:
    """The slot's dev score, where it is finite and of that metric version."""
    if slot.outcome != "evaluated" or slot.dev is None or slot.dev.metric_version != metric:
        return None
    return slot.dev if math.isfinite(slot.dev.value) else None


def _row(number: int, slot: SlotResult) -> str:
    return f"r{number}/s{slot.slot}/dev/overall"


def _finite(score: SetScore | None) -> float | None:
    return score.value if score is not None and math.isfinite(score.value) else None


def _binomial_error(score: SetScore) -> float | None:
    """Standard error of a proportion over n problems; None for a score outside [0, 1]."""
    if not 0 <= score.value <= 1:
        return None
    share = (score.value * score.n + 1) / (score.n + 2)
    return math.sqrt(share * (1 - share) / score.n)


def _squares(values: list[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
