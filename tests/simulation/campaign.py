"""A campaign in one process: real policy, sampler's draws, evidence and reviser; no fork, no run.

The score of a trial in a domain is its expected score on a known truth, plus a shift that its seed
gives to all domains of both sets, plus the noise of a finite number of problems. Anything that a
campaign decides is decided by the product's own code.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agents.collector import choose_looks, collect
from agents.reviser import merge, revise
from agents.sampler import draw
from policies.confirmation import confirmations
from policies.evidence import (
    Calibration,
    Direction,
    Record,
    Round,
    noise_model,
    round_of,
    spread,
    verdicts,
)
from policies.policy import Assignment, Constant, Edit, Overrides, Promotion, SearchPolicy
from policies.report import (
    Account,
    DomainScore,
    OutcomeName,
    Results,
    RoundReport,
    SetScore,
    SlotResult,
)

SHA = "0" * 64
ACCOUNT = Account(
    started_at="", ended_at="", seconds={}, slots=[], worker="sampler", isolation="none"
)

Scores = Mapping[str, float]  # by domain
Revise = Callable[[SearchPolicy, RoundReport, Sequence[RoundReport]], SearchPolicy]


@dataclass(frozen=True)
class Truth:
    """What trials score in expectation, and how far they stray from it."""

    present: Mapping[str, Mapping[str, Constant]]  # constants of the recipe as it stands
    score: Callable[[str, Overrides, int], Scores]  # of `dev` or `external`, in that round
    problems: Mapping[str, Mapping[str, int]]  # by set and domain
    sigma: float  # of the shift that a trial's seed gives to all its scores
    own_sigma: Mapping[str, float] = field(default_factory=dict)  # of a shift of that set alone
    items: Mapping[str, float] = field(default_factory=dict)  # binomial errors, by set
    drift: float = 0.0  # of all scores, a round
    lost: float = 0.0  # share of trials that crash whatever they run
    outcome: Callable[[Overrides], OutcomeName] = lambda overrides: "evaluated"
    direction: Direction = "maximise"


@dataclass(frozen=True)
class Campaign:
    """What came of a simulated campaign."""

    policies: list[SearchPolicy]  # the seed policy first
    reports: list[RoundReport]


def run_campaign(
    truth: Truth,
    policy: SearchPolicy,
    *,
    seed: int,
    rounds: int = 10,
    width: int = 8,
    calibrations: int = 0,
    reviser: Revise = revise,
    is_tested: bool = True,
    stop: Callable[[SearchPolicy], bool] = lambda policy: False,
) -> Campaign:
    """Simulate a campaign, until `stop` says so of a policy. The same seed gives the same one.

    Without `is_tested` no decoupling test is made, and dev counts in every domain.
    """
    policies, reports, history = [policy], list[RoundReport](), list[Round]()
    calibration = calibrate(truth, seed, calibrations)
    for number in range(1, rounds + 1):
        policy = policies[-1]
        if stop(policy):
            break
        slots = [
            run_trial(truth, policy, each, number, seed=derive(seed, number, each.slot))
            for each in policy.assignments(width)
        ]
        looks = choose_looks(
            {slot.slot: slot.dev for slot in slots},
            policy=policy,
            looks=policy.budget.looks,
            seed=derive(seed, number, 1000),
            direction=truth.direction,
        )
        for slot in looks:
            effective = _effective(policy, slots[slot].edit)
            external = _score(truth, "external", effective, number, slots[slot].seed)
            slots[slot] = slots[slot].model_copy(update={"external": external})
        results = collect(
            number=number,
            policy=policy,
            slots=slots,
            looks=looks,
            history=history,
            direction=truth.direction,
            substrate_sha256=SHA,
            constitution_sha256=SHA,
            recipe="simulated",
            calibration=calibration,
        )
        history.append(round_of(number, policy, slots))
        if not is_tested:
            results = _untested(results, Record(tuple(history), truth.direction, calibration))
        report = RoundReport(campaign="c", round=number, results=results, account=ACCOUNT)
        policies.append(reviser(policy, report, reports))
        reports.append(report)
    return Campaign(policies, reports)


def run_trial(
    truth: Truth, policy: SearchPolicy, assignment: Assignment, number: int, *, seed: int
) -> SlotResult:
    """One trial: the sampler's draw where the slot explores, and the dev score."""
    dice = random.Random(seed)
    edit = assignment.edit or Edit()
    axis = assignment.axis
    if assignment.kind == "explore" and axis is not None:
        edit = _explore(truth, policy, axis.knobs, dice)
    effective = _effective(policy, edit)
    is_empty = assignment.kind == "explore" and edit.is_empty()
    outcome = "no_change" if is_empty else truth.outcome(effective)
    if truth.lost and dice.random() < truth.lost:
        outcome = "crashed"
    is_scored = outcome == "evaluated"
    return SlotResult(
        slot=assignment.slot,
        kind=assignment.kind,
        axis=axis.id if axis else None,
        hypothesis="",
        edit=edit,
        diff_sha256=None,
        seed=seed,
        outcome=outcome,
        adapter_sha256=None,
        dev=_score(truth, "dev", effective, number, seed) if is_scored else None,
        external=None,
    )


def calibrate(truth: Truth, seed: int, runs: int) -> tuple[Calibration, ...]:
    """Runs of the unmodified recipe on seeds of their own, from before round 1."""
    seeds = [derive(seed, 0, i) for i in range(runs)]
    return tuple(
        Calibration(s, _score(truth, "dev", {}, 0, s), _score(truth, "external", {}, 0, s))
        for s in seeds
    )


def expected(truth: Truth, policy: SearchPolicy, scored: str = "dev", number: int = 1) -> float:
    """The expected score of a policy's standing recipe, over all problems of a set."""
    return _overall(truth, scored, policy.standing_recipe.overrides, number)


def deviation(truth: Truth, scored: str = "dev") -> float:
    """The standard deviation of the overall score of a trial of the unmodified recipe."""
    means, problems = truth.score(scored, {}, 1), truth.problems[scored]
    whole = sum(problems.values())
    items = truth.items.get(scored, 0.0) ** 2 * math.fsum(
        n * means[domain] * (1 - means[domain]) / whole**2 for domain, n in problems.items()
    )
    return math.sqrt(truth.sigma**2 + truth.own_sigma.get(scored, 0.0) ** 2 + items)


def derive(seed: int, *parts: int) -> int:
    for part in parts:
        seed = (seed * 1_000_003 + part + 1) * 0x9E3779B97F4A7C15 % 2**61
    return seed


def _untested(results: Results, record: Record) -> Results:
    base, noise = spread(record), noise_model(record)
    return results.model_copy(
        update={
            "spread": base,
            "noise": noise,
            "verdicts": verdicts(record, noise, base),
            "confirmations": confirmations(record, noise),
            "decoupling": [],
            "ignored": [],
        }
    )


def _explore(truth: Truth, policy: SearchPolicy, knobs: Sequence, dice: random.Random) -> Edit:
    knob = dice.choice(knobs)
    standing = policy.standing_recipe.overrides.get(knob.file, {})
    present = {**truth.present[knob.file], **standing}[knob.constant]
    value = draw(knob, present, dice)
    return Edit() if value == present else Edit(overrides={knob.file: {knob.constant: value}})


def _effective(policy: SearchPolicy, edit: Edit) -> Overrides:
    if edit.is_empty():
        return policy.standing_recipe.overrides
    return merge(
        policy.standing_recipe, [Promotion(axis="x", edit=edit, effect=0, rows=["r1"])]
    ).overrides


def _overall(truth: Truth, scored: str, overrides: Overrides, number: int) -> float:
    means, problems = truth.score(scored, overrides, number), truth.problems[scored]
    return math.fsum(means[name] * n for name, n in problems.items()) / sum(problems.values())


def _score(truth: Truth, scored: str, overrides: Overrides, number: int, seed: int) -> SetScore:
    shared = random.Random(seed).gauss(0, truth.sigma) if truth.sigma else 0.0
    dice = random.Random(seed + (1 if scored == "dev" else 2))
    shift = shared + dice.gauss(0, truth.own_sigma.get(scored, 0.0)) + truth.drift * number
    problems, means = truth.problems[scored], truth.score(scored, overrides, number)
    items = truth.items.get(scored, 0.0)
    parts = {}
    for name, n in problems.items():
        mean = means[name]
        error = items * math.sqrt(max(0.0, mean * (1 - mean)) / n)
        parts[name] = mean + shift + (dice.gauss(0, error) if error else 0.0)
    whole = sum(problems.values())
    return SetScore(
        value=math.fsum(parts[name] * n for name, n in problems.items()) / whole,
        n=whole,
        domains={name: DomainScore(value=parts[name], n=n) for name, n in problems.items()},
        metric="accuracy",
        metric_version=SHA,
        engine="simulated",
    )


def with_direction_down(truth: Truth) -> Truth:
    """The same truth, told as errors: less is better."""

    def score(scored: str, overrides: Overrides, number: int) -> Scores:
        return {name: 1 - value for name, value in truth.score(scored, overrides, number).items()}

    return replace(truth, score=score, direction="minimise")
