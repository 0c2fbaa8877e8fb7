"""A comparison of two kinds of worker, or of two campaigns, on one substrate and budget.

    scores      external and dev of what a campaign ends with, and of its best trial on dev
    outcomes    of the explorations
    cost        rollouts, processor time, drafts, and whatever else was spent

An arm is one campaign, and its values are those of its runs by seed; or all finished campaigns of a
kind of worker, and a campaign is one value.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flows.house import House
from flows.plan import Plan
from flows.rerun import is_rerun
from policies.comparison import LEVEL, Difference, Seed, compare
from policies.escape import code
from policies.ledger import NotInLedger
from policies.report import SetScore
from policies.tables import Arm as EndArm
from policies.tables import Campaign

SCORES = (
    "external of the candidate",
    "external gain over the start",
    "dev of the candidate",
    "best trial on dev",
    "external of the best trial on dev",
)


class BadComparison(ValueError):
    """Two arms that cannot be compared. The message says what was wanted, found, what to do."""


@dataclass(frozen=True)
class Arm:
    """One side of a comparison."""

    name: str
    campaigns: tuple[str, ...]
    values: Mapping[str, Mapping[Seed, float]]  # by measure, by seed
    outcomes: Mapping[str, int]  # of explorations


@dataclass(frozen=True)
class Comparison:
    """Two arms and what lies between them."""

    arms: tuple[Arm, Arm]
    ground: Mapping[str, Any]  # what both have in common
    unit: str  # what one value is of
    direction: str  # of scores
    differences: Mapping[str, Difference]

    def data(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "arms": [
                {"name": arm.name, "campaigns": list(arm.campaigns), "outcomes": dict(arm.outcomes)}
                for arm in self.arms
            ],
            "ground": dict(self.ground),
            "unit": self.unit,
            "direction": self.direction,
            "level": LEVEL,
            "measures": {
                name: {**asdict(found), "is_resolved": found.is_resolved}
                for name, found in self.differences.items()
            },
        }


def compare_arms(house: House, one: str, other: str) -> Comparison:
    """Compare two campaigns by id, or two kinds of worker by all that they finished.

    Raises NotInLedger, BadComparison.
    """
    sides = [_campaigns(house, name) for name in (one, other)]
    if one == other:
        raise BadComparison(f"wanted two sides, found {one} twice; name another for the second")
    # Of kinds of worker, the worker is all that may differ; who compares campaigns chose them.
    of_kinds = all(side[0].worker == name for side, name in zip(sides, (one, other), strict=True))
    grounds = [{_key(house, row, of_kinds): row for row in side} for side in sides]
    common = [key for key in grounds[0] if key in grounds[1]]
    if not common:
        raise BadComparison(
            f"wanted campaigns of {one} and {other} on one substrate and budget, found "
            f"{_apart(house, sides, of_kinds)}; run what is missing: `seedbed compare A B "
            "--substrate NAME`"
        )
    key = common[0]  # campaigns come newest first
    sides = [
        _newest_of_seeds([row for row in side if _key(house, row, of_kinds) == key])
        for side in sides
    ]
    direction = house.snapshot(sides[0][0].id).manifest.sets.external.direction
    of_runs = all(len(side) == 1 for side in sides)
    first, second = (
        _arm(house, name, side, of_runs=of_runs, direction=direction)
        for name, side in zip((one, other), sides, strict=True)
    )
    measures = list(dict.fromkeys([*SCORES, *first.values, *second.values]))
    return Comparison(
        arms=(first, second),
        ground=_ground(house, sides[0][0], of_kinds),
        unit="run" if of_runs else "campaign",
        direction=direction,
        differences={
            name: compare(first.values.get(name, {}), second.values.get(name, {}))
            for name in measures
        },
    )


def missing_plans(house: House, plans: Sequence[Plan]) -> list[Plan]:
    """Those of some plans of which no campaign is finished."""
    there = [house.plan(row.id) for row in house.ledger.campaigns() if _is_finished(house, row)]
    return [plan for plan in plans if plan not in there]


def comparison_markdown(found: Comparison) -> str:
    """The comparison as Markdown tables."""
    one, other = found.arms
    common = ", ".join(f"{name} {code(str(value))}" for name, value in found.ground.items())
    lines = [
        f"# {code(one.name)} against {code(other.name)}",
        "",
        f"{common}. One value is of one {found.unit}; scores are to {found.direction}.",
        "",
        *(f"- {code(arm.name)}: {', '.join(map(code, arm.campaigns))}" for arm in found.arms),
        "",
        f"| measure | {code(one.name)} | {code(other.name)} | difference | "
        f"{1 - LEVEL:.0%} interval | n | |",
        "| --- | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for name, item in found.differences.items():
        interval = f"{_spell(item.low)} to {_spell(item.high)}" if item.low is not None else "–"
        said = "resolved" if item.is_resolved else "unresolved"
        lines.append(
            f"| {name} | {_spell(item.means[0])} | {_spell(item.means[1])} "
            f"| {_spell(item.difference)} | {interval} | {item.n[0]}, {item.n[1]} ({item.way}) "
            f"| {said if item.low is not None else ''} |"
        )
    names = sorted({*one.outcomes, *other.outcomes})
    lines += ["", f"| explorations that ended | {code(one.name)} | {code(other.name)} |"]
    lines += ["| --- | ---: | ---: |"]
    lines += [
        f"| {name} | {one.outcomes.get(name, 0)} | {other.outcomes.get(name, 0)} |"
        for name in names
    ]
    return "\n".join([*lines, ""])


def _campaigns(house: House, name: str) -> list[Campaign]:
    """The finished campaigns of an arm, the newest first."""
    there = house.ledger.campaigns()
    rows = [row for row in there if row.worker == name and not is_rerun(house, row.id)]
    try:
        rows = rows or [house.ledger.find_campaign(name)]
    except NotInLedger as error:
        kinds = ", ".join(sorted({row.worker for row in there})) or "none"
        raise NotInLedger(f"{error}; or one of the kinds of worker that ran: {kinds}") from None
    finished = [row for row in rows if _is_finished(house, row)]
    if not finished:
        raise NotInLedger(
            f"wanted a finished campaign of {name}, found {len(rows)} that are not; "
            f"`seedbed resume {rows[0].id}` goes on with one"
        )
    return finished


def _is_finished(house: House, row: Campaign) -> bool:
    return len(house.ledger.reports(row.id)) == house.plan(row.id).rounds


def _newest_of_seeds(side: Sequence[Campaign]) -> list[Campaign]:
    """One campaign of each seed, of several the newest: a seed is one value."""
    newest: dict[int, Campaign] = {}
    for row in side:  # they come newest first
        newest.setdefault(row.seed, row)
    return list(newest.values())


def _ground(house: House, row: Campaign, of_kinds: bool) -> dict[str, Any]:
    """What two campaigns must have in common to be compared; of kinds of worker, more."""
    plan = house.plan(row.id)
    budget = plan.budget.model_dump(exclude={"attempts"})
    return {
        "substrate": row.substrate_sha256[:12],
        "judge": row.judge_sha256[:12],
        "recipe": row.recipe,
        "rounds": plan.rounds,
        "width": plan.width,
        **budget,
        "policy": house.ledger.policy(row.id, 1).sha256[:12],
        "end seeds": plan.end.seeds,
        **({"meta": plan.meta} if of_kinds else {}),
    }


def _key(house: House, row: Campaign, of_kinds: bool) -> str:
    return repr(sorted(_ground(house, row, of_kinds).items()))


def _apart(house: House, sides: Sequence[Sequence[Campaign]], of_kinds: bool) -> str:
    one, other = (_ground(house, side[0], of_kinds) for side in sides)
    apart = [
        f"{name} {one[name]!r} and {other[name]!r}" for name in one if one[name] != other[name]
    ]
    return ", ".join(apart)


def _arm(
    house: House, name: str, rows: Sequence[Campaign], *, of_runs: bool, direction: str
) -> Arm:
    values: dict[str, dict[Seed, float]] = {}
    outcomes: Counter[str] = Counter()
    for row in rows:
        trials = house.ledger.trials(row.id)
        outcomes.update(trial.outcome for trial in trials if trial.kind == "explore")
        for measure, of_seed in _final(house, row).items():
            if of_runs:
                values[measure] = dict(of_seed)
            elif of_seed:
                mean = sum(of_seed.values()) / len(of_seed)
                values.setdefault(measure, {})[(row.seed,)] = mean
        for measure, value in {**_best(house, row, direction), **_cost(house, row)}.items():
            values.setdefault(measure, {})[(row.seed,)] = value
    return Arm(name, tuple(row.id for row in rows), values, outcomes)


def _final(house: House, row: Campaign) -> dict[str, dict[Seed, float]]:
    """Scores of the campaign's end by seed; the seeds of equal campaigns are equal."""
    arms: tuple[EndArm, ...] = ("candidate", "baseline")
    runs = {arm: house.ledger.final_runs(row.id, arm) for arm in arms}

    def scores(arm: EndArm, column: str) -> dict[Seed, float]:
        texts = {run.number: run.external if column == "external" else run.dev for run in runs[arm]}
        return {
            (row.seed, number): SetScore.model_validate_json(text).value
            for number, text in texts.items()
            if text
        }

    external, base = scores("candidate", "external"), scores("baseline", "external")
    # Without a baseline the candidate is what the campaign began with: it gained nothing.
    start = base if runs["baseline"] else external
    return {
        SCORES[0]: external,
        SCORES[1]: {seed: external[seed] - start[seed] for seed in external.keys() & start.keys()},
        SCORES[2]: scores("candidate", "dev"),
    }


def _best(house: House, row: Campaign, direction: str) -> dict[str, float]:
    sign = 1 if direction == "maximise" else -1
    scored = [
        slot
        for report in house.reports(row.id)
        for slot in report.results.slots
        if slot.dev is not None and slot.kind != "anchor"
    ]
    if not scored:
        return {}
    best = max(scored, key=lambda slot: sign * (slot.dev.value if slot.dev else 0.0))
    found = {SCORES[3]: best.dev.value if best.dev else 0.0}
    return found | ({SCORES[4]: best.external.value} if best.external else {})


def _cost(house: House, row: Campaign) -> dict[str, float]:
    """What the campaign's rounds cost: their runs, and everything that was settled as spent."""
    accounts = [account for report in house.reports(row.id) for account in report.account.slots]
    spent: dict[str, float] = {}
    for spend in house.ledger.spends(row.id):
        if spend.state == "settled":
            spent[spend.unit] = spent.get(spend.unit, 0.0) + spend.amount
    return {
        "cost: rollouts": float(sum(account.rollouts for account in accounts)),
        "cost: processor seconds": sum(account.cpu_seconds for account in accounts),
        **{f"cost: {unit.replace('_', ' ')}": amount for unit, amount in spent.items()},
    }


def _spell(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}".rstrip("0").rstrip(".") if value else "0"
