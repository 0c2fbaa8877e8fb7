"""Rounds written by hand: a policy, scores by slot, and the report that the collector makes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.collector import collect
from policies.evidence import Direction, Round, round_of
from policies.policy import Axis, ChoiceKnob, Constant, Edit, NumberKnob, SearchPolicy
from policies.report import Account, DomainScore, OutcomeName, RoundReport, SetScore, SlotResult

FILE = "recipes/r.py"
SHA = "0" * 64
ACCOUNT = Account(
    started_at="", ended_at="", seconds={}, slots=[], worker="sampler", isolation="none"
)
# What unmutated runs score, in turn: mean 0.5, standard deviation 0.0012.
NOISE = (0.0, 0.001, -0.001, 0.002, -0.002, 0.0, 0.001, -0.001)


@dataclass(frozen=True)
class Row:
    """What one slot tried, and what came out."""

    effect: float | None = 0.0  # dev score minus 0.5; None: no score
    edit: Edit | None = None  # of an exploration
    external: float | None = None
    outcome: OutcomeName = "evaluated"
    integrity: tuple[str, ...] = ()


@dataclass(frozen=True)
class Played:
    """A round and those before it."""

    policy: SearchPolicy
    report: RoundReport
    rounds: list[Round]


def policy_of(*axes: Axis) -> SearchPolicy:
    return SearchPolicy(
        version=1,
        parent=None,
        objective="Raise the external score.",
        evidence_ranking=["external", "dev"],
        axes=list(axes),
    )


def rate_axis(name: str = "rate", **knob: object) -> Axis:
    """An axis of one number from 0.0001 to 1, on a log scale."""
    fields = {"kind": "float", "file": FILE, "constant": name.upper(), "low": 1e-4, "high": 1.0}
    parsed = NumberKnob.model_validate({**fields, "scale": "log", **knob})
    return Axis(id=name, title=f"The {name}", hypothesis="It helps.", knobs=[parsed])


def choice_axis(name: str, *choices: Constant) -> Axis:
    knob = ChoiceKnob(kind="choice", file=FILE, constant=name.upper(), choices=list(choices))
    return Axis(id=name, title=f"The {name}", hypothesis="It helps.", knobs=[knob])


def setting(constant: str, value: Constant) -> Edit:
    return Edit(overrides={FILE: {constant: value}})


def play(
    policy: SearchPolicy,
    rows: Mapping[int, Row],
    *,
    number: int = 1,
    before: Sequence[Round] = (),
    width: int = 8,
    direction: Direction = "maximise",
) -> Played:
    """A round under `policy`. Slots without a row score as the standing recipe does."""
    slots = []
    for assignment in policy.assignments(width):
        row = rows.get(assignment.slot, Row(effect=NOISE[assignment.slot % len(NOISE)]))
        sign = 1 if direction == "maximise" else -1
        edit = row.edit if assignment.kind == "explore" else assignment.edit
        scored = row.effect is not None and row.outcome == "evaluated"
        slots.append(
            SlotResult(
                slot=assignment.slot,
                kind=assignment.kind,
                axis=assignment.axis.id if assignment.axis else None,
                hypothesis="",
                edit=edit or Edit(),
                diff_sha256=None,
                seed=assignment.slot,
                outcome=row.outcome,
                adapter_sha256=None,
                dev=score(0.5 + sign * (row.effect or 0.0)) if scored else None,
                external=None if row.external is None else score(row.external),
                integrity=list(row.integrity),
            )
        )
    results = collect(
        number=number,
        policy=policy,
        slots=slots,
        looks=[slot.slot for slot in slots if slot.external],
        history=before,
        direction=direction,
        substrate_sha256=SHA,
        constitution_sha256=SHA,
        recipe="r",
    )
    report = RoundReport(campaign="c", round=number, results=results, account=ACCOUNT)
    return Played(policy, report, [*before, round_of(number, policy, slots)])


def score(value: float, n: int = 400) -> SetScore:
    return SetScore(
        value=value,
        n=n,
        domains={"all": DomainScore(value=value, n=n)},
        metric="accuracy",
        metric_version=SHA,
        engine="test",
    )
