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
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.finale import arms, choose, confirm, lockbox_scores, open_lockbox
from flows.house import House
from flows.plan import artifact_key
from flows.program import program_sha256
from policies.card import Base, Cost, Ending, model_card
from policies.chain import Note
from policies.final import Direction, Effect, effect
from policies.ledger import NotInLedger
from policies.policy import StandingRecipe
from policies.purse import spent_by_role
from policies.report import SetScore
from policies.tables import Arm, FinalRun, Outbox, Row
from substrate.measure import CONFIG, WEIGHTS, adapter_damage

EXPORTED = "campaign.exported"
CARD = "README.md"


class ExportFailed(RuntimeError):
    """The export could not be written. The message says why, and what to do."""


async def conclude(house: House, campaign_id: str) -> Path:
    """End the campaign, as far as that was not done yet. Returns the folder of the export.

    The caller holds the campaign's lease. Raises flows.finale.CampaignUnfinished and
    NothingToExport, flows.clean_run.RunFailed, SnapshotDamaged, ExportFailed.
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
    """Adapter, files and program, by their hashes, of a campaign that was exported."""
    events = house.ledger.events(campaign_id, kind=EXPORTED)
    return json.loads(events[-1].body) if events else None


def write_export(house: House, campaign_id: str) -> Path:
    """Write the folder, whole or not at all, and note what is in it.

    Raises ExportFailed, after which it can be tried again.
    """
    ending = read_ending(house, campaign_id)
    place = export_folder(house, campaign_id)
    sha256 = ending.opening.candidate_sha256
    if damage := adapter_damage(house.adapters / sha256, sha256):
        raise ExportFailed(
            f"wanted the sealed adapter {sha256} to export, found that it is damaged: {damage}; "
            f"put back a copy of {house.adapters / sha256}"
        )
    texts = export_texts(house, ending)
    staged = place.parent / f".{campaign_id}-{os.getpid()}"
    shutil.rmtree(staged, ignore_errors=True)
    try:
        staged.mkdir(parents=True)
        for name in (CONFIG, WEIGHTS):
            shutil.copyfile(house.adapters / sha256 / name, staged / name)
        for name, text in texts.items():
            (staged / name).parent.mkdir(exist_ok=True)
            (staged / name).write_text(text, "utf-8")
        shutil.rmtree(place, ignore_errors=True)
        staged.rename(place)
    except OSError as error:
        shutil.rmtree(staged, ignore_errors=True)
        raise ExportFailed(
            f"wanted to write the export of {campaign_id} to {place}, found: {error}; make room "
            f"there, and `seedbed export {campaign_id}` again: nothing is run or opened twice"
        ) from error
    said = {"adapter": sha256, "files": hashes(place), "program": program_sha256()}
    if exported(house, campaign_id) != said:
        body = {"description": f"{campaign_id}: model card", "data": texts[CARD]}
        key = artifact_key(campaign_id, "card")
        house.ledger.append(
            Note(campaign_id, EXPORTED, campaign_id, said),
            Outbox(campaign=campaign_id, kind="markdown", key=key, body=json.dumps(body)),
        )
    return place


def export_texts(house: House, ending: Ending) -> dict[str, str]:
    """Every file of an export but the adapter's own, by its path there, as the ledger has it."""
    standing = StandingRecipe.model_validate_json(ending.candidate.standing_recipe)
    policy = house.policy(ending.campaign.id, ending.candidate.policy_version)
    lineage = json.dumps(_lineage(house, ending), indent=2, ensure_ascii=False)
    return {
        CARD: model_card(ending),
        "lineage.json": lineage + "\n",
        "policy.json": json.dumps(policy.data(), indent=2) + "\n",
        **{
            f"patches/{number:02}-{sha256[:12]}.patch": house.ledger.patch_text(sha256)
            for number, sha256 in enumerate(standing.patches, start=1)
        },
    }


def hashes(folder: Path) -> dict[str, str]:
    """sha256 of every file below a folder, by its path there; of what is no file, what it is."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            said = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISDIR(mode) and any(path.iterdir()):
            continue  # what is in it says that it is there
        else:
            said = "an empty folder" if stat.S_ISDIR(mode) else "a link or a special file"
        found[path.relative_to(folder).as_posix()] = said
    return found


def read_ending(house: House, campaign_id: str) -> Ending:
    """What the ledger has of a campaign's end, for its card."""
    campaign, plan = house.campaign(campaign_id), house.plan(campaign_id)
    manifest = house.snapshot(campaign_id).manifest
    candidate, opening = house.ledger.candidate(campaign_id), house.ledger.opening(campaign_id)
    if candidate is None or opening is None:
        raise NotInLedger(
            f"wanted the candidate and the opening of {campaign_id}, found none; "
            f"`seedbed export {campaign_id}` ends a campaign"
        )
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
        "campaign": {**_columns(campaign), "plan": json.loads(campaign.plan)},
        "policies": [
            _columns(row, but=("body", "campaign"))
            for row in house.ledger.policies(campaign.id)
            if row.version <= ending.candidate.policy_version  # later ones changed nothing of it
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
            **_columns(ending.candidate),
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
                **_columns(row, but=("campaign",)),
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
        "opening": _columns(ending.opening),
        "lockbox": {arm: score.model_dump(mode="json") for arm, score in ending.lockbox.items()},
        "looks": {"taken": ending.looks, "cap": ending.look_cap},
        "cost": {**vars(ending.cost), "spent": dict(ending.cost.spent)},
        "ledger": {"seq": opened[0].seq, "hash": opened[0].hash},
    }


def _columns(row: Row, but: Sequence[str] = ()) -> dict[str, Any]:
    """A row as JSON values, in the order of its columns: that in which it was read varies."""
    said = row.model_dump(mode="json")
    return {name: said[name] for name in type(row).model_fields if name not in but}
