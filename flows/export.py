"""The export: a campaign ended, and its adapter written with a model card and its whole lineage.

    exports/<campaign>/adapter_config.json, adapter_model.safetensors    as PEFT loads them
                       README.md       the model card
                       lineage.json    plan, pins, policies, rounds, final runs, cost
                       policy.json     the policy whose standing recipe this is
                       patches/        the recipe's stored edits, if it has any

It is made from the ledger alone, with the same bytes each time.
"""

import asyncio
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from flows.finale import arms, choose, confirm, lockbox_scores, open_lockbox
from flows.house import House
from flows.plan import artifact_key
from policies.card import Base, Cost, Ending, model_card
from policies.chain import Note
from policies.final import Direction, Effect, effect
from policies.policy import StandingRecipe
from policies.purse import spent_by_role
from policies.report import SetScore
from policies.tables import Arm, FinalRun, Outbox
from substrate.measure import CONFIG, WEIGHTS

EXPORTED = "campaign.exported"


async def conclude(house: House, campaign_id: str) -> Path:
    """End the campaign, as far as that was not done yet. Returns the folder of the export.

    The caller holds the campaign's lease. Raises flows.finale.CampaignUnfinished and
    NothingToExport, flows.clean_run.RunFailed, SnapshotDamaged.
    """
    await asyncio.to_thread(house.store.verify, house.snapshot(campaign_id))
    choose(house, campaign_id)
    await confirm(house, campaign_id)
    if house.ledger.opening(campaign_id) is None:
        await open_lockbox(house, campaign_id)
    folder = write_export(house, campaign_id)
    house.drop_anchor()
    return folder


def export_folder(house: House, campaign_id: str) -> Path:
    return house.settings.folder / "exports" / campaign_id


def exported(house: House, campaign_id: str) -> dict[str, Any] | None:
    """Adapter and files, by their hashes, of a campaign that was exported."""
    events = house.ledger.events(campaign_id, kind=EXPORTED)
    return json.loads(events[-1].body) if events else None


def write_export(house: House, campaign_id: str) -> Path:
    """Write the folder, whole or not at all, and note what is in it."""
    ending = read_ending(house, campaign_id)
    place = export_folder(house, campaign_id)
    staged = place.parent / f".{campaign_id}-{os.getpid()}"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    sealed = house.adapters / ending.opening.candidate_sha256
    for name in (CONFIG, WEIGHTS):
        shutil.copyfile(sealed / name, staged / name)
    card = model_card(ending)
    (staged / "README.md").write_text(card, "utf-8")
    lineage = json.dumps(_lineage(house, ending), indent=2, ensure_ascii=False)
    (staged / "lineage.json").write_text(lineage + "\n", "utf-8")
    policy = house.policy(campaign_id, ending.candidate.policy_version)
    (staged / "policy.json").write_text(json.dumps(policy.data(), indent=2) + "\n", "utf-8")
    standing = StandingRecipe.model_validate_json(ending.candidate.standing_recipe)
    for number, sha256 in enumerate(standing.patches, start=1):
        (staged / "patches").mkdir(exist_ok=True)
        text = house.ledger.patch_text(sha256)
        (staged / "patches" / f"{number:02}-{sha256[:12]}.patch").write_text(text, "utf-8")
    shutil.rmtree(place, ignore_errors=True)
    staged.rename(place)
    said = {"adapter": ending.opening.candidate_sha256, "files": hashes(place)}
    if exported(house, campaign_id) != said:
        body = {"description": f"{campaign_id}: model card", "data": card}
        key = artifact_key(campaign_id, "card")
        house.ledger.append(
            Note(campaign_id, EXPORTED, campaign_id, said),
            Outbox(campaign=campaign_id, kind="markdown", key=key, body=json.dumps(body)),
        )
    return place


def hashes(folder: Path) -> dict[str, str]:
    """sha256 of every file below a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def read_ending(house: House, campaign_id: str) -> Ending:
    """What the ledger has of a campaign's end, for its card."""
    campaign, plan = house.campaign(campaign_id), house.plan(campaign_id)
    manifest = house.snapshot(campaign_id).manifest
    candidate, opening = house.ledger.candidate(campaign_id), house.ledger.opening(campaign_id)
    assert candidate is not None and opening is not None, "an end was chosen, run and opened"
    runs = house.ledger.final_runs(campaign_id)
    base, adapter = manifest.base, manifest.adapter
    return Ending(
        campaign=campaign,
        base=Base(
            source=base.source,
            licence=base.licence,
            sha256=base.sha256,
            rank=adapter.rank,
            alpha=adapter.alpha,
            target_modules=adapter.target_modules,
        ),
        direction=manifest.sets.external.direction,
        candidate=candidate,
        runs=runs,
        opening=opening,
        lockbox=lockbox_scores(house, campaign_id),
        effects={
            "dev": end_effect(runs, "dev", manifest.sets.dev.direction),
            "external": end_effect(runs, "external", manifest.sets.external.direction),
        },
        reports=house.reports(campaign_id),
        looks=len(house.ledger.looks(campaign_id)),
        look_cap=plan.budget.looks,
        cost=_cost(house, campaign_id, runs),
    )


def end_effect(runs: list[FinalRun], which: str, direction: Direction) -> Effect | None:
    """What the final runs say of the candidate on dev or external; None where they say nothing."""
    scores = _scores(runs, which)
    if not all(scores.values()):
        return None
    one, two = ([score.value for score in scores[arm]] for arm in ("candidate", "baseline"))
    return effect(one, two, direction=direction, problems=scores["candidate"][0].n)


def _scores(runs: list[FinalRun], which: str) -> dict[Arm, list[SetScore]]:
    found: dict[Arm, list[SetScore]] = {"candidate": [], "baseline": []}
    for run in runs:
        if text := run.dev if which == "dev" else run.external:
            found[run.arm].append(SetScore.model_validate_json(text))
    return found


def _cost(house: House, campaign_id: str, runs: list[FinalRun]) -> Cost:
    trials = house.ledger.trials(campaign_id)
    accounts = [json.loads(row.account) for row in (*trials, *runs)]
    spent: dict[str, int] = {}
    for role in spent_by_role(house.ledger.spends(campaign_id)):
        spent[role.unit] = spent.get(role.unit, 0) + role.amount
    return Cost(
        trials=len(accounts),
        attempts=sum(account["attempts"] for account in accounts),
        seconds=sum(sum(account["seconds"].values()) for account in accounts),
        cpu_seconds=sum(account["cpu_seconds"] for account in accounts),
        rollouts=sum(account["rollouts"] for account in accounts),
        tokens=sum(account["tokens"] for account in accounts),
        spent=spent,
    )


def _lineage(house: House, ending: Ending) -> dict[str, Any]:
    """Everything that the adapter came from, by hash, in the order in which it happened."""
    campaign = ending.campaign
    opened = house.ledger.events(campaign.id, kind="opening")
    return {
        "schema_version": 1,
        "campaign": {**campaign.model_dump(mode="json"), "plan": json.loads(campaign.plan)},
        "policies": [
            row.model_dump(mode="json", exclude={"body", "campaign"})
            for row in house.ledger.policies(campaign.id)
        ],
        "rounds": [
            {
                "round": row.round,
                "policy": report.results.policy_version,
                "results_sha256": row.results_sha256,
                "report_sha256": row.sha256,
                "ledger_seq": report.account.ledger_seq,
                "ledger_hash": report.account.ledger_hash,
            }
            for row, report in zip(house.ledger.reports(campaign.id), ending.reports, strict=True)
        ],
        "candidate": {
            **ending.candidate.model_dump(mode="json"),
            "standing_recipe": json.loads(ending.candidate.standing_recipe),
        },
        "arms": {
            arm: standing.model_dump(mode="json")
            for arm, standing in arms(house, campaign.id).items()
        },
        "final_runs": [
            {
                "arm": row.arm,  # which run it is stands first
                "number": row.number,
                **row.model_dump(mode="json", exclude={"campaign"}),
                **{
                    name: json.loads(text) if text else None
                    for name, text in (
                        ("dev", row.dev),
                        ("external", row.external),
                        ("account", row.account),
                    )
                },
            }
            for row in ending.runs
        ],
        "effects": {
            name: found and {**vars(found), "is_confirmed": found.is_confirmed}
            for name, found in ending.effects.items()
        },
        "opening": ending.opening.model_dump(mode="json"),
        "lockbox": {arm: score.model_dump(mode="json") for arm, score in ending.lockbox.items()},
        "looks": {"taken": ending.looks, "cap": ending.look_cap},
        "cost": {**vars(ending.cost), "spent": dict(ending.cost.spent)},
        "ledger": {"seq": opened[0].seq, "hash": opened[0].hash},
    }
