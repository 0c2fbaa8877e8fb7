"""The order of arms: a campaign's rows told in another order, and what is decided by them."""

import random
from dataclasses import replace
from typing import Any

from agents.collector import collect
from policies.evidence import round_of
from policies.report import Results, SlotResult
from tests.simulation.campaign import SHA, Campaign, Truth, calibrate


def turned(campaign: Campaign, dice: random.Random) -> Campaign:
    """The campaign with the slots of each round, but for the anchor, in an order drawn anew."""
    reports, policies = [], [*campaign.policies]
    places: dict[str, str] = {}
    for report in campaign.reports:
        first, *others = report.results.slots
        dice.shuffle(others)
        slots = [first]
        for i, slot in enumerate(others, start=1):
            places[f"r{report.round}/s{slot.slot}"] = f"r{report.round}/s{i}"
            slots.append(slot.model_copy(update={"slot": i}))
        results = report.results.model_copy(update={"slots": slots})
        reports.append(report.model_copy(update={"results": results}))
    for i, policy in enumerate(policies):
        standing = policy.standing_recipe
        renamed = [
            promotion.model_copy(update={"rows": [_renamed(row, places) for row in promotion.rows]})
            for promotion in standing.provenance
        ]
        standing = standing.model_copy(update={"provenance": renamed})
        policies[i] = policy.model_copy(update={"standing_recipe": standing})
    return replace(campaign, policies=policies, reports=reports)


def decisions(truth: Truth, campaign: Campaign, number: int, *, seed: int) -> dict[str, Any]:
    """What code makes of the first `number` rounds, without the names of slots."""
    rounds = [
        round_of(report.round, policy, report.results.slots)
        for report, policy in zip(campaign.reports[:number], campaign.policies, strict=False)
    ]
    results = collect(
        number=number,
        policy=campaign.policies[number - 1],
        slots=list(rounds[-1].slots),
        looks=[],
        history=rounds[:-1],
        direction=truth.direction,
        substrate_sha256=SHA,
        constitution_sha256=SHA,
        recipe="simulated",
        calibration=calibrate(truth, seed, 8),
    )
    return _nameless(results)


def _nameless(results: Results) -> dict[str, Any]:
    slots: dict[int, SlotResult] = {slot.slot: slot for slot in results.slots}
    return {
        "verdicts": sorted(
            (v.axis, slots[v.slot].seed, _short(v.effect), v.verdict) for v in results.verdicts
        ),
        "confirmations": sorted(
            (c.axis, c.edit.model_dump_json(), _short(c.effect), _short(c.bar), c.is_confirmed)
            for c in results.confirmations
        ),
        "decoupling": [
            (d.domain, d.verdict, d.axis, _short(d.probability)) for d in results.decoupling
        ],
        "ignored": results.ignored,
    }


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.9f}"


def _renamed(row: str, places: dict[str, str]) -> str:
    parts = row.split("/")
    trial = "/".join(parts[:2])
    return "/".join([places.get(trial, trial), *parts[2:]])
