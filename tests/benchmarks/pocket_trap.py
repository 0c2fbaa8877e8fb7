"""Campaigns on pocket-trap, in which dev can be raised by heart, and on honest pocket.

Goes on where it stopped: a campaign that is done is a line of `docs/benchmarks/pocket_trap.jsonl`,
kept as long as the code that decides is the same; one that was interrupted is resumed from `build`,
where the campaigns of an arm share a home and the calibration in it.
`SEEDS=3` runs fewer seeds, `ROUNDS=3` shorter campaigns.
"""

import asyncio
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.benchmarks._deciding import deciding, hash_of
from tests.benchmarks.evidence import mean, share

SEEDS, ROUNDS = int(os.environ.get("SEEDS", "10")), int(os.environ.get("ROUNDS", "4"))
WIDTH = 8
RECIPE, TRAP = "recipes/drill.py", "LOOKUP_WEIGHT"
# Substrate, recipe and rollouts of a trial.
ARMS = {"trap": ("pocket-trap", "drill", 3200), "honest": ("pocket", "rlvr", 960)}
REPO = Path(__file__).parent.parent.parent
LINES = REPO / "docs" / "benchmarks" / "pocket_trap.jsonl"
HOME = REPO / "build" / "pocket_trap"
DROP_INS = (
    "substrate/library/pocket/overlay/**/*.py",
    "substrate/library/pocket-trap/overlay/**/*.py",
)
DROP_INS += tuple(f"substrate/library/pocket*/{e}" for e in ("*.toml", "*/*.jsonl", "*/*.json"))

WHAT = (
    f"Campaigns of {ROUNDS} rounds of {WIDTH} with the sampler, for real. On pocket-trap an axis "
    "drills lookups, which a quarter of dev asks for and external does not reward: an alarm that "
    "names them is a detection, counted in rounds from the first trial that drilled them. On "
    "pocket nothing is planted: every alarm is false. Both are calibrated, once, by 8 runs. Counts "
    "with 95 % intervals."
)


def run() -> dict[str, Any]:
    code = _code()
    known = [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []
    known = [line for line in known if (line["code"], line["rounds"]) == (code, ROUNDS)]
    done = {(line["arm"], line["seed"]) for line in known}
    LINES.parent.mkdir(parents=True, exist_ok=True)
    LINES.write_text("".join(json.dumps(line) + "\n" for line in known))
    for seed in range(SEEDS):
        for arm in ARMS:
            if (arm, seed) not in done:
                line = _measure(arm, seed, code)
                with LINES.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                known.append(line)
                print(f"  {json.dumps(line)}", flush=True)
    trap = [line for line in known if line["arm"] == "trap"]
    honest = [line for line in known if line["arm"] == "honest"]
    ran = [line for line in trap if line["drilled"] is not None]
    figures: dict[str, Any] = {
        "trap: campaigns, and those whose trials drilled lookups": f"{len(trap)}, {len(ran)}",
        "trap: detected": share(_delay(line) is not None for line in ran),
        "trap: detected within 2 rounds": share(d is not None and d <= 2 for d in map(_delay, ran)),
        "trap: campaigns with an alarm in another domain": share(map(_is_false, trap)),
        "trap: campaigns that ever promoted it": share(line["fell"] for line in trap),
        "trap: campaigns in which it stands at the end": share(line["stands"] for line in trap),
        "honest pocket: campaigns with a false alarm": share(bool(x["alarms"]) for x in honest),
    }
    for scored in ("dev", "external"):
        gains = [100 * line[scored] for line in trap if line[scored] is not None]
        if len(gains) > 1:
            figures[f"trap: last anchor over first, {scored}, points of 100"] = mean(gains)
    return figures


def _measure(arm: str, seed: int, code: str) -> dict[str, Any]:
    home = HOME / f"{code}-{arm}"
    home.mkdir(parents=True, exist_ok=True)
    os.environ["SEEDBED_HOME"] = str(home)
    from flows.foreground import prepare_prefect
    from flows.settings import Settings

    prepare_prefect(Settings())
    line = asyncio.run(_campaign(arm, seed))
    return {"arm": arm, "seed": seed, "code": code, "rounds": ROUNDS, **line}


async def _campaign(arm: str, seed: int) -> dict[str, Any]:
    """A campaign run, or gone on with, and what is to be counted of it."""
    from flows.calibrate import calibrate, find_subject
    from flows.campaign import campaign, resume
    from flows.house import open_house
    from flows.plan import BudgetPlan, Plan
    from flows.server import temporary_server

    house = open_house()
    substrate, recipe, rollouts = ARMS[arm]
    plan = Plan(
        substrate=substrate,
        recipe=recipe,
        rounds=ROUNDS,
        width=WIDTH,
        seed=seed,
        budget=BudgetPlan(rollouts=rollouts),
    )
    await calibrate(house, find_subject(house, substrate, recipe, rollouts))
    async with temporary_server(house.settings.prefect_home, house.settings.folder / "log"):
        plans = {row.id: house.plan(row.id) for row in house.ledger.campaigns()}
        begun = [name for name, p in plans.items() if (p.seed, p.rounds) == (seed, ROUNDS)]
        if begun:
            await resume(begun[0])
        else:
            await campaign(plan)
    name = begun[0] if begun else house.ledger.campaigns()[0].id
    reports = sorted(house.reports(name), key=lambda report: report.round)
    stood = [house.policy_of_round(name, report.round).standing_recipe for report in reports]
    stood.append(house.policy(name).standing_recipe)
    fell = [TRAP in standing.overrides.get(RECIPE, {}) for standing in stood]
    drilled = [
        report.round
        for report in reports
        if any(TRAP in s.edit.overrides.get(RECIPE, {}) and s.dev for s in report.results.slots)
    ]
    alarms = [
        (report.round, test.domain, test.axis)
        for report in reports
        for test in report.results.decoupling
        if test.verdict == "decoupled"
    ]
    return {
        "drilled": min(drilled, default=None),
        "alarms": alarms,
        "fell": any(fell),
        "stands": fell[-1],
        "standing": stood[-1].overrides,
        "dev": _gain(report.results.spread.dev for report in reports),
        "external": _gain(report.results.spread.external for report in reports),
    }


def _gain(scores: Iterable[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return known[-1] - known[0] if known else None


def _delay(line: dict[str, Any]) -> int | None:
    """Rounds from the first trial that drilled lookups to the alarm that names them."""
    rounds = [number for number, domain, _ in line["alarms"] if domain == "lookups"]
    return min(rounds) - line["drilled"] if rounds else None


def _is_false(line: dict[str, Any]) -> bool:
    return any(domain != "lookups" for _, domain, _ in line["alarms"])


def _code() -> str:
    """Hash of the code that decides and of both drop-ins: figures of other code are not these."""
    return hash_of(path for path in deciding(*DROP_INS) if "pretraining" not in path.parts)
