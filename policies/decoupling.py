"""The decoupling test: does the external score still follow dev, in each domain and overall?

A pair is one run scored on both sets; its changes d and e are its dev and its external score minus
the means of its standing recipe's runs, positive where better. Dev tracks external where external
follows within a factor of 1 / FOLLOW: e >= f(d), with f(d) = FOLLOW d for d >= 0 and d / FOLLOW
below. The shortfall is the mean of f(d) - e over pairs. f is concave, so that noise in d makes the
shortfall smaller, not larger. A search that ranks by dev looks at what dev's noise has flattered:
where a pair was chosen by dev, what the noise of the best of so many is expected to add is taken
off d first. The error counts both sets' noise and that of both means.

Pairs are put together by axis, since an axis is one family of edits, over its newest ROUNDS rounds,
since a family may turn bad; and the standing recipe's own runs are set against those of the recipe
that the campaign began with, which shows a gap that grows step by step. Each is tested once in each
round that brings new pairs. The largest shortfall decides, by Student's t with Welch's degrees
of freedom, and Bonferroni's bound over what was tested, over domains, and over rounds
(`policies/spending.py`): a campaign in which dev is honest raises an alarm about one time in
twenty at most. Overall scores hide a decoupled domain behind others that follow, therefore domains
are tested by themselves, and overall means those that are neither decoupled nor ignored already.

    decoupled      the shortfall is beyond noise
    tracking       no alarm, and external rises beyond noise where dev rises most
    insufficient   neither
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from policies.evidence import OVERALL, PRIOR, Record, Run, counted
from policies.noise import Deviation, best_of, binomial_deviation, chance, moderated, pooled
from policies.report import Decoupling, SetScore
from policies.spending import BUDGET, level

FOLLOW = 0.5  # the least share of a change of dev that external shows where dev is a fair proxy
ROUNDS = 2  # newest rounds of an axis that are put together
TRACKS = 0.01  # chance that a round says of a dev that external does not follow that it tracks
HALF = 4  # rounds that half of the budget is for
MEASURED = 3  # degrees of freedom of external's own noise without which there is no test
CHOSEN = 2  # explorations with the best dev scores of a round: looked at because of that


@dataclass(frozen=True)
class Change:
    """What dev and external say of some runs with one cause, in one domain."""

    axis: str | None
    dev: float
    external: float
    shortfall: float
    error: float
    external_error: float
    degrees: float
    runs: tuple[Run, ...]

    @property
    def chance(self) -> float:
        """Of a shortfall as large where dev tracks external."""
        return chance(self.degrees, self.shortfall / self.error)


def decoupling(record: Record) -> list[Decoupling]:
    """One test overall, and one for each domain of both sets, in the order of their names."""
    paired = [run for run in record.runs if run.external is not None]
    names = sorted(
        {
            name
            for run in paired
            if run.dev is not None and run.external is not None
            for name in run.dev.domains.keys() & run.external.domains.keys()
        }
    )
    names = names if len(names) > 1 else []
    share = BUDGET * level(len(record.rounds), half=HALF) / (1 + len(names))
    found = [_test(record, paired, name, frozenset(), share) for name in names]
    out = record.ignored - {OVERALL} | {
        test.domain for test in found if test.verdict == "decoupled"
    }
    return [_test(record, paired, OVERALL, out, share), *found]


def misleading(found: Iterable[Decoupling], ignored: frozenset[str]) -> frozenset[str]:
    """The domains by whose dev score nothing may be ranked any more, `ignored` among them."""
    return ignored | {test.domain for test in found if test.verdict == "decoupled"}


def _test(
    record: Record, paired: Sequence[Run], domain: str, out: frozenset[str], share: float
) -> Decoupling:
    changes = _changes(record, paired, domain, out)
    if not changes:
        return Decoupling(
            domain=domain,
            verdict="insufficient",
            probability=None,
            level=None,
            axis=None,
            dev_change=None,
            external_change=None,
            external_error=None,
            shortfall=None,
            error=None,
            pairs=0,
            rows=[],
        )
    worst = min(changes, key=lambda change: (change.chance, change.axis or ""))
    probability = min(1.0, len(changes) * worst.chance)
    risen = max(changes, key=lambda change: (change.dev, change.axis or ""))
    follows = chance(risen.degrees, risen.external / risen.external_error) <= TRACKS / len(changes)
    tracks = risen.dev > 0 and follows
    return Decoupling(
        domain=domain,
        verdict="decoupled" if probability <= share else "tracking" if tracks else "insufficient",
        probability=probability,
        level=share,
        axis=worst.axis,
        dev_change=worst.dev,
        external_change=worst.external,
        external_error=worst.external_error,
        shortfall=worst.shortfall,
        error=worst.error,
        pairs=len(worst.runs),
        rows=[f"{run.row}/{scored}/{domain}" for run in worst.runs for scored in _SETS],
    )


_SETS = ("dev", "external")


def _changes(
    record: Record, paired: Sequence[Run], domain: str, out: frozenset[str]
) -> list[Change]:
    """What the last round has new pairs of: each axis, and the standing recipe since the start."""
    read = _reading(record, paired, domain, out)
    if read is None:
        return []
    number = record.rounds[-1].number
    axes: dict[str, list[Run]] = defaultdict(list)
    for run in paired:
        if run.axis is not None and run.round > number - ROUNDS:
            axes[run.axis].append(run)
    found = [
        read.change(axis, runs, lambda run: run.standing)
        for axis, runs in sorted(axes.items())
        if runs[-1].round == number
    ]
    first, present = record.rounds[0].recipe, record.rounds[-1].recipe
    anchors = [run for run in paired if run.axis is None and run.standing == present]
    if present != first and anchors and anchors[-1].round == number:
        found.append(read.change(None, anchors, lambda run: first))
    return [change for change in found if change is not None]


@dataclass(frozen=True)
class _Reading:
    """How the scores of one domain are read, and how noisy one run's are there."""

    record: Record
    domain: str
    out: frozenset[str]  # domains that overall leaves out
    dev: Deviation
    external: Deviation

    def change(
        self, axis: str | None, runs: Iterable[Run], against: Callable[[Run], str]
    ) -> Change | None:
        """The mean change of some runs against the recipes that `against` names."""
        bases: dict[str, _Base | None] = {}
        pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
        kept = []
        for run in runs:
            recipe = against(run)
            if recipe not in bases:
                bases[recipe] = self.base(recipe)
            base = bases[recipe]
            dev, external = (_part(s, self.domain, self.out) for s in (run.dev, run.external))
            if dev is None or external is None or base is None:
                continue
            sign = self.record.sign
            flattery = self.dev.sigma * _flattery(self.record, run)
            pairs[recipe].append(
                (sign * (dev[0] - base.dev) - flattery, sign * (external[0] - base.external))
            )
            kept.append(run)
        if not kept:
            return None
        whole = [pair for each in pairs.values() for pair in each]
        shares = [(len(each), bases[recipe]) for recipe, each in pairs.items()]
        dev = fmean(d for d, _ in whole)
        slope = FOLLOW if dev >= 0 else 1 / FOLLOW
        variances = (
            (slope * self.dev.sigma) ** 2
            * math.fsum(n * n * (1 / n + 1 / base.devs) for n, base in shares if base)
            / len(whole) ** 2,
            self.external.sigma**2
            * math.fsum(n * n * (1 / n + 1 / base.externals) for n, base in shares if base)
            / len(whole) ** 2,
        )
        return Change(
            axis=axis,
            dev=dev,
            external=fmean(e for _, e in whole),
            shortfall=fmean(follow(d) - e for d, e in whole),
            error=math.sqrt(sum(variances)),
            external_error=math.sqrt(variances[1]),
            degrees=sum(variances) ** 2
            / (variances[0] ** 2 / self.dev.degrees + variances[1] ** 2 / self.external.degrees),
            runs=tuple(kept),
        )

    def base(self, recipe: str) -> "_Base | None":
        """The scores of a recipe's own runs.

        Runs of the edit that made it the standing recipe are left out: dev chose them.
        """
        own = [run for run in self.record.groups.get(recipe, []) if run.standing == recipe]
        dev = [part[0] for run in own if (part := _part(run.dev, self.domain, self.out))]
        external = [part[0] for run in own if (part := _part(run.external, self.domain, self.out))]
        if not dev or not external:
            return None
        return _Base(fmean(dev), fmean(external), len(dev), len(external))


@dataclass(frozen=True)
class _Base:
    """What changes are measured from."""

    dev: float
    external: float
    devs: int  # runs behind each mean
    externals: int


def _reading(
    record: Record, paired: Sequence[Run], domain: str, out: frozenset[str]
) -> _Reading | None:
    """None where there is no pair, or the noise is not known well enough."""
    newest = next(
        (
            (dev, external)
            for run in reversed(paired)
            if (dev := _part(run.dev, domain, out))
            and (external := _part(run.external, domain, out))
        ),
        None,
    )
    if newest is None:
        return None
    (value, problems), (_, externals) = newest
    groups = record.groups.values()
    devs = [[p[0] for run in group if (p := _part(run.dev, domain, out))] for group in groups]
    looked = [
        [p[0] for run in group if (p := _part(run.external, domain, out))] for group in groups
    ]
    dev = pooled(devs, problems=problems)
    if dev is None:
        guess = binomial_deviation(value, problems)
        if guess is None:
            return None
        dev = Deviation(guess, PRIOR)
    own = pooled(looked, problems=externals)
    if own is None or own.degrees < MEASURED:
        return None
    prior = dev.sigma * max(1.0, math.sqrt(problems / externals))
    return _Reading(record, domain, out, dev, moderated(own, prior, PRIOR))


def follow(dev: float) -> float:
    """The least change of external that tracks a change of dev."""
    return FOLLOW * dev if dev >= 0 else dev / FOLLOW


def _flattery(record: Record, run: Run) -> float:
    """What a run's dev noise is expected to be, in standard deviations, since dev chose it."""
    mine = record.dev(run.dev)
    if run.kind != "explore" or mine is None:
        return 0.0
    better = [
        record.sign * value
        for rival in record.runs
        if rival.round == run.round and rival.kind == "explore"
        if (value := record.dev(rival.dev)) is not None
    ]
    rank = 1 + sum(value > record.sign * mine for value in better)
    return max(0.0, best_of(len(better), rank)) if rank <= CHOSEN else 0.0


def _part(score: SetScore | None, domain: str, out: frozenset[str]) -> tuple[float, int] | None:
    """Value and problems of a score in a domain; None where there is no finite one."""
    if score is None:
        return None
    if domain == OVERALL:
        value = counted(score, out)
        kept = sum(part.n for name, part in score.domains.items() if name not in out)
        return None if value is None else (value, kept if out else score.n)
    part = score.domains.get(domain)
    return (part.value, part.n) if part is not None and math.isfinite(part.value) else None
