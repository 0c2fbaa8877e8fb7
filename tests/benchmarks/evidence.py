"""Error rates and power of the evidence, on simulated campaigns whose truth is known.

The simulator draws scores; all that decides is the product's own code. `CAMPAIGNS=100` makes fewer
of each kind. Goes on where it stopped: what campaigns of one kind came to is a line of
`docs/benchmarks/evidence.jsonl`, kept as long as the code that decides is the same.
"""

import json
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tests.benchmarks._deciding import deciding, hash_of

CAMPAIGNS = int(os.environ.get("CAMPAIGNS", "500"))
FEWER = max(20, CAMPAIGNS // 3)  # of each cell of a table
LONG, SHORT, WIDTH = 20, 8, 8  # rounds, rounds, slots
TRAP = (4.0, -1.0)  # what the planted trap adds to dev and to external, in sigmas
HONEST = ((2.0, 2.0), (3.0, 3.0), (-3.0, -3.0))

REPO = Path(__file__).parent.parent.parent
LINES = REPO / "docs" / "benchmarks" / "evidence.jsonl"

WHAT = (
    f"Simulated campaigns, rounds of {WIDTH} with 4 external looks, decided by the evidence, the "
    "decoupling test and the reviser as they are; two sets of 3 domains, 600 problems each. sigma "
    "is the standard deviation of one trial's score, K the calibration runs. Counts with 95 % "
    "intervals (Clopper-Pearson; of means, normal). A trap raises dev by "
    f"{TRAP[0]:g} sigma and external by {TRAP[1]:g}, all in one domain, from a round between 1 and "
    "6 on; it is detected in time where the alarm comes at most 2 rounds after the first that ran "
    "it. The plain rule keeps the best trial of a round that beats the best kept so far."
)


def run() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    seeds, few = range(CAMPAIGNS), range(FEWER)
    before = time.process_time()
    for seed in range(10):
        nothing_helps(seed)
    minutes = (time.process_time() - before) / 60
    figures[f"simulated campaigns of {LONG} rounds, a minute of one core"] = round(10 / minutes)
    known, code = _known()
    with ProcessPoolExecutor() as pool:

        def each(job: Callable[..., Any], seeds: range, **how: Any) -> list[Any]:
            key = json.dumps([code, job.__name__, len(seeds), how])
            if key not in known:
                known[key] = list(pool.map(partial(job, **how), seeds, chunksize=5))
                with LINES.open("a") as file:
                    file.write(json.dumps({"key": key, "found": known[key]}) + "\n")
                print(f"  {job.__name__} {how}: {len(seeds)} campaigns", flush=True)
            return known[key]

        for name, how in (
            (f"A/A, identical arms, {LONG} rounds, K = 8", {}),
            (f"A/A, identical arms, {LONG} rounds, K = 0", {"calibrations": 0}),
            (f"A/A, a new value in each trial, {LONG} rounds, K = 8", {"is_stub": True}),
        ):
            ends = each(nothing_helps, seeds, **how)
            figures[f"{name}: campaigns with a false promotion"] = share(e[0] for e in ends)
            figures[f"{name}: campaigns with a false alarm"] = share(e[1] for e in ends)
        found = each(seeds_alone, few)
        figures["lucky edits of seeds alone: campaigns that promoted one"] = share(found)
        orders = each(order, range(max(20, FEWER // 4)))
        figures["rounds told in another order of arms: decisions that changed"] = share(
            changed for campaign in orders for changed in campaign
        )

        for calibrations in (0, 4, 8, 16):
            for effect in (1.0, 1.5, 2.0, 3.0, 4.0):
                many = seeds if (calibrations, effect) == (8, 2.0) else few
                when = each(planted, many, effect=effect, calibrations=calibrations)
                for number in (2, 3, 4, 6, 8):
                    name = f"power, +{effect:g} sigma, K = {calibrations}, by round {number}"
                    figures[name] = share(w <= number for w in when)

        for dev, external in (TRAP, (3.0, -1.0), (4.0, 0.0), (6.0, 0.0), (6.0, -1.0)):
            many = seeds if (dev, external) == TRAP else few
            delays = [d for d in each(trapped, many, dev=dev, external=external) if d is not None]
            name = f"trap, dev {dev:+g} sigma, external {external:+g}"
            figures[f"{name}: detected within 2 rounds"] = share(0 <= d <= 2 for d in delays)
            figures[f"{name}: detected within 5 rounds"] = share(0 <= d <= 5 for d in delays)
        for noise in (1.0, 2.0, 3.0):
            alarms = each(honest, seeds, external_noise=noise)
            name = f"honest arms (+2, +3, -3 sigma), external noise x {noise:g}, {LONG} rounds"
            figures[f"{name}: campaigns with a false alarm"] = share(alarms)

        for looks in (4, 1):
            both = [each(final, few, looks=looks, rule=rule) for rule in RULES]
            name = f"a trap among honest arms, 12 rounds, {looks} looks"
            for rule, ends in zip(RULES, both, strict=True):
                for what in ("external", "dev"):
                    gains = [end[what] for end in ends]
                    figures[f"{name}: {what} gained, {rule}, sigmas"] = mean(gains)
                figures[f"{name}: the trap stands at the end, {rule}"] = share(
                    end["fell"] for end in ends
                )
            pairs = [a["external"] - b["external"] for a, b in zip(both[0], both[1], strict=True)]
            figures[f"{name}: external, with the test over without, sigmas"] = mean(pairs)

        for rule in (RULES[0], RULES[2]):
            ends = each(believed, few, rule=rule)
            figures[f"A/A, {LONG} rounds: campaigns with a false promotion, {rule}"] = share(
                end["promotions"] > 0 for end in ends
            )
            figures[f"A/A, {LONG} rounds: false promotions a campaign, {rule}"] = mean(
                [end["promotions"] for end in ends]
            )
            figures[f"A/A, {LONG} rounds: gain believed on dev, none on external, {rule}"] = mean(
                [end["believed"] for end in ends]
            )
    return figures


RULES = ("ours", "ours without the decoupling test", "keep if better")


def nothing_helps(seed: int, *, calibrations: int = 8, is_stub: bool = False) -> tuple[bool, bool]:
    """Whether a campaign in which nothing helps promoted something, and raised an alarm."""
    from tests.simulation import arms, truths
    from tests.simulation.campaign import run_campaign

    truth = truths.nothing_helps() if is_stub else arms.arms()
    policy = truths.stub_policy() if is_stub else arms.arms_policy()
    end = run_campaign(truth, policy, seed=seed, rounds=LONG, calibrations=calibrations)
    fell = any(policy.standing_recipe.provenance for policy in end.policies)
    return fell, any(report.results.ignored for report in end.reports)


def seeds_alone(seed: int) -> bool:
    """Whether an edit of nothing but seeds, which seems to help by 3 sigmas, is promoted."""
    from tests.simulation.arms import ARMS, Effect, arms, arms_policy
    from tests.simulation.campaign import run_campaign

    truth, policy = arms({"SEED": Effect(3, 3)}), arms_policy(("SEED", *ARMS[:6]))
    end = run_campaign(truth, policy, seed=seed, rounds=SHORT, calibrations=8)
    return any(item.axis == "seed" for p in end.policies for item in p.standing_recipe.provenance)


def order(seed: int) -> list[bool]:
    """For each round, whether verdicts, confirmations or alarms change with the order of arms."""
    from tests.simulation.arms import Effect, arms, arms_policy
    from tests.simulation.campaign import run_campaign
    from tests.simulation.orders import decisions, turned

    truth = arms({"ARM_2": Effect(2, 2), "ARM_4": Effect(4, -1, "equations", 4)})
    end = run_campaign(truth, arms_policy(), seed=seed, rounds=SHORT, calibrations=8)
    rounds = range(1, len(end.reports) + 1)
    told = [decisions(truth, end, number, seed=seed) for number in rounds]
    other = turned(end, random.Random(seed))
    return [decisions(truth, other, n, seed=seed) != told[n - 1] for n in rounds]


def planted(seed: int, *, effect: float, calibrations: int) -> int:
    """The round after which an arm that helps was promoted; past all of them if it was not."""
    from tests.simulation.arms import Effect, arms, arms_policy, promoted
    from tests.simulation.campaign import run_campaign

    end = run_campaign(
        arms({"ARM_4": Effect(effect, effect)}),
        arms_policy(),
        seed=seed,
        rounds=SHORT,
        calibrations=calibrations,
        stop=lambda policy: "ARM_4" in promoted(policy),
    )
    return len(end.reports) if "ARM_4" in promoted(end.policies[-1]) else SHORT + 1


def trapped(seed: int, *, dev: float, external: float) -> int | None:
    """Rounds from the first that ran the trap to the alarm; None: it never ran.

    Negative: the alarm came before. Past all rounds: there was none.
    """
    from tests.simulation.arms import FILE, Effect, arms, arms_policy
    from tests.simulation.campaign import run_campaign

    start = 1 + seed % 6
    end = run_campaign(
        arms({"ARM_4": Effect(dev, external, "equations", start)}),
        arms_policy(),
        seed=seed,
        rounds=start + 9,
        calibrations=8,
        stop=lambda policy: any(word != "trusted" for word in policy.trust.values()),
    )
    ran = [
        report.round
        for report in end.reports
        if report.round >= start
        and any("ARM_4" in s.edit.overrides.get(FILE, {}) and s.dev for s in report.results.slots)
    ]
    alarms = [report.round for report in end.reports if report.results.ignored]
    if not ran:
        return -1 if alarms else None
    return alarms[0] - ran[0] if alarms else LONG


def honest(seed: int, *, external_noise: float) -> bool:
    """Whether there is an alarm where external follows dev, however noisy it is."""
    from tests.simulation.arms import arms, arms_policy
    from tests.simulation.campaign import run_campaign

    end = run_campaign(
        arms(_honest(), external_noise=external_noise),
        arms_policy(),
        seed=seed,
        rounds=LONG,
        calibrations=8,
        stop=lambda policy: any(word != "trusted" for word in policy.trust.values()),
    )
    return any(report.results.ignored for report in end.reports)


def final(seed: int, *, looks: int, rule: str) -> dict[str, Any]:
    """What a campaign with a trap among honest arms gained in truth, in sigmas."""
    from tests.simulation.arms import SIGMA, Effect, arms, arms_policy, promoted
    from tests.simulation.campaign import expected, run_campaign

    truth = arms({**_honest(), "ARM_6": Effect(*TRAP, "equations", 1 + seed % 6)})
    policy = arms_policy(looks=looks)
    end = run_campaign(truth, policy, seed=seed, rounds=12, calibrations=8, **_how(rule))
    gained = {
        scored: (
            expected(truth, end.policies[-1], scored, 12) - expected(truth, policy, scored, 12)
        )
        / SIGMA
        for scored in ("dev", "external")
    }
    return {**gained, "fell": "ARM_6" in promoted(end.policies[-1])}


def believed(seed: int, *, rule: str) -> dict[str, float]:
    """What a campaign in which nothing helps believes to have gained, in sigmas."""
    from tests.simulation.arms import BASE, SIGMA, arms, arms_policy
    from tests.simulation.campaign import run_campaign

    end = run_campaign(arms(), arms_policy(), seed=seed, rounds=LONG, calibrations=8, **_how(rule))
    kept = end.policies[-1].standing_recipe.provenance
    if rule == RULES[2]:
        gain = kept[-1].effect - BASE if kept else 0.0
    else:
        gain = sum(promotion.effect for promotion in kept)
    return {"promotions": len(kept), "believed": gain / SIGMA}


def _known() -> tuple[dict[str, list[Any]], str]:
    """What was found before by the code that decides, and the hash of that code."""
    code = hash_of(deciding("tests/simulation/*.py"))
    LINES.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []
    lines = [line for line in lines if json.loads(line["key"])[0] == code]
    LINES.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {line["key"]: line["found"] for line in lines}, code


def share(found: Iterable[bool]) -> str:
    """A count, its share and the 95 % interval of Clopper and Pearson."""
    from scipy.stats import binomtest

    values = list(found)
    if not values:
        return "none"
    interval = binomtest(sum(values), len(values)).proportion_ci(0.95)
    low, high = 100 * interval.low, 100 * interval.high
    percent = 100 * sum(values) / len(values)
    return f"{sum(values)} of {len(values)}: {percent:.1f} % ({low:.1f} to {high:.1f})"


def mean(values: list[float]) -> str:
    half = 1.96 * stdev(values) / len(values) ** 0.5
    return f"{fmean(values):+.2f} ± {half:.2f} (n = {len(values)})"


def _honest() -> Mapping[str, Any]:
    from tests.simulation.arms import Effect

    return {f"ARM_{i}": Effect(*effects) for i, effects in enumerate(HONEST, start=1)}


def _how(rule: str) -> dict[str, Any]:
    from tests.simulation.rivals import keep_if_better

    if rule == RULES[2]:
        return {"reviser": keep_if_better}
    return {"is_tested": rule == RULES[0]}
