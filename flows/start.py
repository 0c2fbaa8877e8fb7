"""The start of a campaign: everything that it must never change is sealed and pinned."""

import json
import secrets
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from agents.model import is_model
from agents.worker import find_worker
from flows.calibrate import pin_calibration
from flows.house import House
from flows.knobs import turn
from flows.plan import Plan, slug
from flows.roles import check_roles
from flows.settings import Settings
from policies.chain import Note
from policies.constitution import constitution_sha256
from policies.policy import SearchPolicy
from policies.tables import Campaign, Policy, Row, Substrate
from substrate.check import check_dropin, find_dropin
from substrate.dropin import BadDropIn, DropInFolder, read_dropin
from substrate.editable import is_sealed
from substrate.fork import BadEdit, make_fork
from substrate.isolation import level_for
from substrate.store import Snapshot

SEED_POLICIES = Path(__file__).parent.parent / "policies" / "seeds"


class BadPlan(ValueError):
    """A plan that cannot be run. The message says what was wanted, found, and what to do."""


def start_campaign(house: House, plan: Plan, flow_run_id: str | None = None) -> str:
    """Check the plan, seal substrate and judge, record the campaign and its seed policy.

    Returns the campaign's id. A flow run that is tried again gets the campaign that it started.
    Raises BadPlan, BadDropIn or NoWalls before anything is recorded.
    """
    if flow_run_id is not None:
        for campaign in house.ledger.campaigns():
            if campaign.flow_run_id == flow_run_id:
                return campaign.id
    dropin, recipe, policy = check_plan(plan)
    with house.store.hold():  # until what is sealed is on record
        return _record_campaign(house, plan, dropin, recipe, policy, flow_run_id)


def check_plan(plan: Plan) -> tuple[DropInFolder, str, SearchPolicy]:
    """What the plan names, found and checked: drop-in, recipe, seed policy.

    Raises BadPlan, BadRole, BadPrices, UnknownModel, BadDropIn or NoWalls, in seconds and before
    anything is written.
    """
    find_worker(plan.worker)
    for role, kind, by_code in (
        ("meta", plan.meta, "reviser"),
        ("collector", plan.collector, "code"),
    ):
        if kind != by_code and not is_model(kind):
            raise BadPlan(
                f"wanted for {role} `{by_code}`, `anthropic:MODEL` or `openai:MODEL`, found "
                f"{kind!r}; choose one"
            )
    check_roles(plan, Settings())
    level_for(plan.isolation)
    folder = find_dropin(plan.substrate)
    if findings := check_dropin(folder):
        raise BadDropIn("\n".join(str(finding) for finding in findings))
    dropin = read_dropin(folder)
    recipe = plan.recipe or dropin.manifest.recipe
    return dropin, recipe, read_seed_policy(plan, dropin, recipe)


def read_seed_policy(plan: Plan, dropin: DropInFolder, recipe: str) -> SearchPolicy:
    """The plan's policy file; else the drop-in's for this recipe; else ours."""
    places = [dropin.path / "policies" / f"{recipe}.json", SEED_POLICIES / f"{recipe}.json"]
    if plan.policy:
        places = [Path(plan.policy).expanduser()]
    for path in places:
        if path.is_file():
            break
    else:
        looked = ", ".join(str(place) for place in places)
        raise BadPlan(
            f"wanted a seed policy for recipe {recipe!r}, found none at {looked}; "
            "write one there, or name one with --policy"
        )
    try:
        policy = SearchPolicy.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:  # JSON, UTF-8 and pydantic raise ValueErrors
        found = str(error)
        if isinstance(error, ValidationError):
            faults = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            found = "; ".join(faults)
        raise BadPlan(
            f"wanted {path} to be a search policy, found it not a valid search policy: {found}; "
            "policies/schemas/search-policy.schema.json says what it holds"
        ) from error
    if policy.version != 1 or policy.parent is not None:
        raise BadPlan(
            f"a seed policy is version 1 without a parent: {path} is version {policy.version}, "
            f"parent {policy.parent}; set `version` to 1 and `parent` to null"
        )
    speaks = {
        "replicates": policy.replicates,
        "claims": policy.claims,
        "dead_ends": policy.dead_ends,
        "standing_recipe.provenance": policy.standing_recipe.provenance,
    }
    if cited := [name for name, found in speaks.items() if found]:
        raise BadPlan(
            f"a seed policy speaks of no trial, since its campaign has none yet: {path} has "
            f"{cited}; empty them"
        )
    if len(policy.active_axes()) < 2:
        raise BadPlan(
            f"a seed policy needs at least two active axes (clause C4): {path} has "
            f"{len(policy.active_axes())}"
        )
    return policy


def check_knobs(policy: SearchPolicy, snapshot: Snapshot, recipe: str) -> None:
    """What a policy turns must be constants of the snapshot, of those types. Raises BadPlan."""
    program = snapshot.root / "recipes" / f"{recipe}.py"
    if not program.is_file():
        there = sorted(path.stem for path in (snapshot.root / "recipes").glob("*.py"))
        raise BadPlan(f"wanted recipe {recipe!r}, found {there} in the substrate; choose one")
    for axis in policy.axes:
        for knob in axis.knobs:
            if is_sealed(snapshot.manifest.files, knob.file):
                raise BadPlan(
                    f"axis {axis.id!r} of the seed policy turns {knob.constant} in {knob.file}, "
                    "which is sealed (clause C3); turn what a fork may edit"
                )
    with tempfile.TemporaryDirectory() as scratch:
        standing = policy.standing_recipe
        try:
            if standing.patches:
                raise BadEdit(f"it has patches, which no campaign has stored: {standing.patches}")
            fork = make_fork(
                snapshot, Path(scratch) / "f", overrides=standing.overrides, patches=[]
            )
        except BadEdit as error:
            raise BadPlan(
                f"the standing recipe of the seed policy does not apply to the substrate: {error}; "
                "correct it"
            ) from error
        for axis in policy.axes:
            for knob in axis.knobs:
                try:
                    turn(knob, fork)
                except BadEdit as error:
                    raise BadPlan(
                        f"axis {axis.id!r} of the seed policy turns {knob.constant} in "
                        f"{knob.file}, found that this cannot be: {error}; correct the axis' knob"
                    ) from error


def _record_campaign(
    house: House,
    plan: Plan,
    dropin: DropInFolder,
    recipe: str,
    policy: SearchPolicy,
    flow_run_id: str | None,
) -> str:
    """Seal what the plan names, and append the campaign's first rows."""
    snapshot = house.store.seal(dropin)
    check_knobs(policy, snapshot, recipe)
    judge = house.store.seal_judge(dropin)
    parts = dict.fromkeys((dropin.manifest.name, recipe))
    name = slug(plan.name or "-".join(parts)) or "campaign"
    campaign_id = f"{name}-{secrets.token_hex(3)}"
    now = datetime.now(UTC)
    rows: list[Row | Note] = [
        Campaign(
            id=campaign_id,
            name=name,
            plan=plan.model_dump_json(),
            seed=plan.seed,
            substrate_name=dropin.manifest.name,
            substrate_sha256=snapshot.digest,
            judge_sha256=judge.digest,
            constitution_sha256=constitution_sha256(),
            recipe=recipe,
            worker=plan.worker,
            flow_run_id=flow_run_id,
            created_at=now,
        ),
        Policy(
            campaign=campaign_id,
            version=policy.version,
            sha256=policy.digest(),
            parent=None,
            body=policy.text(),
            author="seed",
            round=None,
            created_at=now,
        ),
    ]
    if house.ledger.substrate(snapshot.digest) is None:
        manifest = snapshot.manifest.model_dump_json()
        rows.insert(
            0,
            Substrate(
                sha256=snapshot.digest,
                name=dropin.manifest.name,
                manifest=manifest,
                sealed_at=now,
            ),
        )
    if note := pin_calibration(house, campaign_id, snapshot, recipe, plan.budget.rollouts):
        rows.append(note)
    house.ledger.append(*rows)
    return campaign_id
