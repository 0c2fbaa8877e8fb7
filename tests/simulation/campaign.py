"""A campaign in one process: real policy, sampler's draws, collector and reviser; no fork, no run.

The score of a trial is its expected score on a known truth, plus noise by seed.
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agents.collector import choose_looks, collect
from agents.reviser import merge, revise
from agents.sampler import draw
from policies.evidence import Direction, Round, round_of
from policies.policy import Assignment, Constant, Edit, Overrides, Promotion, SearchPolicy
from policies.report import Account, DomainScore, OutcomeName, RoundReport, SetScore, SlotResult

SHA = "0" * 64


@dataclass(frozen=True)
class Truth:
    """What trials score in expectation, and what else is known of a substrate."""

    present: Mapping[str, Mapping[str, Constant]]  # constants of the recipe as it stands
    score: Callable[[str, Overrides], float]  # of `dev` or `external`, by overrides
    sigma: Mapping[str, float]  # noise of one trial by set
    problems: Mapping[str, int]  # in each set
    outcome: Callable[[Overrides], OutcomeName] = lambda overrides: "evaluated"
    direction: Direction = "maximise"


@dataclass(frozen=True)
class Campaign:
    """What came of a simulated campaign."""

    policies: list[SearchPolicy]  # the seed policy first
    reports: list[RoundReport]


def run_campaign(
    truth: Truth, policy: SearchPolicy, *, seed: int, rounds: int = 10, width: int = 8
) -> Campaign:
    """Simulate a campaign. The same seed gives the same campaign."""
    policies, reports, history = [policy], [], list[Round]()
    for number in range(1, rounds + 1):
        policy = policies[-1]
        slots = [
            run_trial(truth, policy, assignment, seed=derive(seed, number, assignment.slot))
            for assignment in policy.assignments(width)
        ]
        looks = choose_looks(
            {slot.slot: slot.dev.value if slot.dev else None for slot in slots},
            looks=policy.budget.looks,
            seed=derive(seed, number, "looks"),
            direction=truth.direction,
        )
        for slot in looks:
            external = _score(truth, "external", policy, slots[slot])
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
        )
        account = Account(
            started_at="", ended_at="", seconds={}, slots=[], worker="sampler", isolation="none"
        )
        report = RoundReport(campaign="c", round=number, results=results, account=account)
        policies.append(revise(policy, report, reports))
        reports.append(report)
        history.append(round_of(number, policy, slots))
    return Campaign(policies, reports)


def run_trial(
    truth: Truth, policy: SearchPolicy, assignment: Assignment, *, seed: int
) -> SlotResult:
    """One trial: the sampler's draw where the slot explores, and the dev score."""
    edit = assignment.edit or Edit()
    axis = assignment.axis
    if assignment.kind == "explore" and axis is not None:
        edit = _explore(truth, policy, axis.knobs, random.Random(seed))
    effective = _effective(policy, edit)
    is_empty = assignment.kind == "explore" and edit.is_empty()
    trial = SlotResult(
        slot=assignment.slot,
        kind=assignment.kind,
        axis=axis.id if axis else None,
        hypothesis="",
        edit=edit,
        diff_sha256=None,
        seed=seed,
        outcome="no_change" if is_empty else truth.outcome(effective),
        adapter_sha256=None,
        dev=None,
        external=None,
    )
    if trial.outcome != "evaluated":
        return trial
    return trial.model_copy(update={"dev": _score(truth, "dev", policy, trial)})


def expected(truth: Truth, policy: SearchPolicy, scored: str = "dev") -> float:
    """The expected score of a policy's standing recipe."""
    return truth.score(scored, policy.standing_recipe.overrides)


def derive(seed: int, *parts: int | str) -> int:
    text = "/".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


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


def _score(truth: Truth, scored: str, policy: SearchPolicy, trial: SlotResult) -> SetScore:
    noise = random.Random(derive(trial.seed, scored)).gauss(0, truth.sigma[scored])
    value = truth.score(scored, _effective(policy, trial.edit)) + noise
    n = truth.problems[scored]
    return SetScore(
        value=value,
        n=n,
        domains={"all": DomainScore(value=value, n=n)},
        metric="accuracy",
        metric_version=SHA,
        engine="simulated",
    )
