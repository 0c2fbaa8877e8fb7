"""A campaign of ten rounds on the pocket substrate, and what its standing recipe is worth.

The campaign runs once: its lines are kept in `docs/benchmarks/pocket_campaign.jsonl`, and one that
was interrupted goes on. Delete the file to run it again.
"""

import asyncio
import json
import os
from typing import Any

import numpy as np

from tests.benchmarks._pocket import REPO, Arm, gain, trials

ROUNDS, WIDTH, SEED = 10, 8, 0
ROLLOUTS = 5120  # of a trial, in the campaign and in its confirmation
FRESH_SEEDS = (201, 202, 203, 204, 205)
LINES = REPO / "docs" / "benchmarks" / "pocket_campaign.jsonl"
HOME = REPO / "build" / "pocket_campaign"  # of a campaign that is not done
RECIPE = "recipes/rlvr.py"

WHAT = (
    f"A campaign of {ROUNDS} rounds of {WIDTH} on pocket with rlvr and the sampler, {ROLLOUTS:,} "
    "rollouts a trial (its seed policy's menu of depths has good and bad ones); then the standing "
    "recipe that it ended with against the unmodified one, on five seeds that no trial had, on the "
    "lockbox (1,000 problems), by which no edit was ever chosen, and on external. Gains are paired "
    "by seed; the 95 % interval is over seeds and problems."
)


def run() -> dict[str, Any]:
    if not LINES.exists():
        os.environ["SEEDBED_HOME"] = str(HOME)
        from flows.foreground import prepare_prefect
        from flows.settings import Settings

        HOME.mkdir(parents=True, exist_ok=True)
        prepare_prefect(Settings())
        lines = asyncio.run(_campaign())
        LINES.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    rounds = [json.loads(text) for text in LINES.read_text(encoding="utf-8").splitlines()]
    final = rounds[-1]["standing"]
    if final["patches"]:
        raise RuntimeError("wanted a sampler's recipe, constants alone, found patches")
    overrides = final["overrides"].get(RECIPE, {})
    unmodified = Arm("unmodified", {}, ROLLOUTS)
    standing = Arm("standing recipe of the campaign", overrides, ROLLOUTS)
    found = trials((unmodified, standing), FRESH_SEEDS, ("external", "lockbox"))
    figures: dict[str, Any] = {
        f"after round {line['round']}": (
            f"anchor {line['anchor']:.3f}, best of the round {line['best']:.3f}, "
            f"{len(line['standing']['provenance'])} promotions"
        )
        for line in rounds
    }
    figures["standing recipe"] = json.dumps(overrides)
    for name in ("external", "lockbox"):
        pair = found[unmodified.name], found[standing.name]
        for arm, lines in zip(("unmodified", "standing recipe"), pair, strict=True):
            figures[f"{name}, {arm}"] = float(np.mean([line.accuracy(name) for line in lines]))
        before, after = ([line.right[name] for line in lines] for lines in pair)
        mean, half = gain(after, before, range(len(after[0])))
        figures[f"{name}, standing recipe over unmodified"] = f"{mean:+.3f} ± {half:.3f}"
    return figures


async def _campaign() -> list[dict[str, Any]]:
    """A line for each round of the campaign: run, or gone on with."""
    from flows.campaign import campaign, resume
    from flows.house import open_house
    from flows.plan import BudgetPlan, Plan
    from flows.server import temporary_server

    house = open_house()
    plan = Plan(
        substrate="pocket",
        recipe="rlvr",
        rounds=ROUNDS,
        width=WIDTH,
        seed=SEED,
        budget=BudgetPlan(rollouts=ROLLOUTS),
    )
    async with temporary_server(house.settings.prefect_home, house.settings.folder / "log"):
        if begun := house.ledger.campaigns():
            await resume(begun[0].id)
        else:
            await campaign(plan)
    name = house.ledger.campaigns()[0].id
    lines = []
    for report in house.reports(name):
        results = report.results
        last = report.round == ROUNDS  # what stands after a round is what the next begins with
        after = house.policy(name) if last else house.policy_of_round(name, report.round + 1)
        scores = [slot.dev.value for slot in results.slots if slot.dev is not None]
        lines.append(
            {
                "round": report.round,
                "anchor": results.spread.dev,
                "best": max(scores),
                "outcomes": [slot.outcome for slot in results.slots],
                "edits": [slot.edit.overrides for slot in results.slots],
                "dev": [slot.dev.value if slot.dev else None for slot in results.slots],
                "external": [s.external.value if s.external else None for s in results.slots],
                "standing": after.standing_recipe.model_dump(mode="json"),
            }
        )
    return lines
