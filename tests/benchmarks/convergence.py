"""How near ten rounds bring the standing recipe to the stub's known optimum, over twenty seeds.

Goes on where it stopped: each seed is a line of `docs/benchmarks/convergence.jsonl`, kept as long
as the code that decides is the same. `SEEDS=40` measures more.
"""

import asyncio
import hashlib
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

ROUNDS = 10
WIDTH = 8
REPO = Path(__file__).parent.parent.parent
STUB = REPO / "tests" / "substrates" / "stub"
LINES = REPO / "docs" / "benchmarks" / "convergence.jsonl"
DECIDES = ("agents/*.py", "policies/evidence.py", "policies/policy.py")

WHAT = (
    "Campaigns of 10 rounds of 8 on the stub, through the flow: what share of the gap between the "
    "unmodified recipe and the known optimum the final standing recipe closes, in expected score. "
    "The sampler draws the edits, the reviser decides; the placebo should never be promoted."
)


def run() -> dict[str, Any]:
    from tests.substrates.stub import truth

    code = _code()
    known = [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []
    known = [line for line in known if line["code"] == code]
    wanted = range(int(os.environ.get("SEEDS", "20")))
    missing = [seed for seed in wanted if seed not in {line["seed"] for line in known}]
    LINES.parent.mkdir(parents=True, exist_ok=True)
    LINES.write_text("".join(json.dumps(line) + "\n" for line in known))
    if missing:
        with tempfile.TemporaryDirectory() as scratch:
            os.environ["SEEDBED_HOME"] = f"{scratch}/home"
            from flows.foreground import prepare_prefect
            from flows.settings import Settings

            prepare_prefect(Settings())
            asyncio.run(_measure(missing, code))
    lines = [json.loads(line) for line in LINES.read_text().splitlines()]
    closed = {
        problems: [
            1 - truth.gap(problems, line["overrides"]) / truth.gap(problems, {}) for line in lines
        ]
        for problems in ("dev", "external")
    }
    placebo = sum("WARMUP" in line["overrides"].get(truth.RECIPE, {}) for line in lines)
    figures: dict[str, Any] = {"campaigns": len(lines), "rounds of 8": ROUNDS}
    for problems, shares in closed.items():
        figures |= {
            f"share of the gap closed, {problems}: median": statistics.median(shares),
            f"share of the gap closed, {problems}: least": min(shares),
            f"campaigns that close 80 %, {problems}": sum(share >= 0.8 for share in shares),
            f"campaigns that close 90 %, {problems}": sum(share >= 0.9 for share in shares),
        }
    promotions = [line["promotions"] for line in lines]
    return figures | {
        "promotions a campaign, mean": statistics.fmean(promotions),
        "campaigns that promoted the placebo": placebo,
    }


async def _measure(seeds: list[int], code: str) -> None:
    from flows.campaign import campaign
    from flows.house import open_house
    from flows.plan import Plan
    from flows.server import temporary_server

    house = open_house()
    async with temporary_server(house.settings.prefect_home, house.settings.folder / "log"):
        for seed in seeds:
            plan = Plan(substrate=str(STUB), rounds=ROUNDS, width=WIDTH, seed=seed)
            standing = house.policy(str(await campaign(plan))).standing_recipe
            line = {
                "seed": seed,
                "code": code,
                "overrides": standing.overrides,
                "promotions": len(standing.provenance),
            }
            with LINES.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"  seed {seed}: {standing.overrides}", flush=True)


def _code() -> str:
    """Hash of the code that decides and of the stub: figures of other code are not these."""
    files = [path for glob in DECIDES for path in REPO.glob(glob)]
    files += [
        path for path in STUB.rglob("*") if path.suffix in (".py", ".json", ".jsonl", ".toml")
    ]
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]
