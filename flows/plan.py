"""The plan of a campaign: the one parameter of the campaign flow, and the form in Prefect's UI."""

import re
from decimal import Decimal

from pydantic import BaseModel, ConfigDict, Field

from agents.worker import Caps
from policies.caps import Scope, SpendCaps, Unit, microdollars
from substrate.isolation import Isolation


class BudgetPlan(BaseModel):
    """What the campaign may use. Caps: a policy can ask for less, never for more."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rollouts: int = Field(
        default=0, ge=0, description="Rollouts of one trial; 0: what the substrate declares."
    )
    looks_per_round: int = Field(
        default=4, ge=0, description="Most external scores that one round may obtain."
    )
    looks: int = Field(default=100, ge=0, description="Most external scores of the whole campaign.")
    attempts: int = Field(
        default=3, ge=1, le=10, description="Tries at a trial that infrastructure failed."
    )


class EndPlan(BaseModel):
    """How the campaign ends; all of it is declared before anything is measured.

    The candidate is the standing recipe of the newest policy. It and the recipe that the campaign
    began with are run on fresh seeds; it is confirmed where its external score is better beyond
    chance. The adapter of its first evaluated run is exported. The lockbox is opened once, after
    all of this, and decides nothing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seeds: int = Field(
        default=3,
        ge=2,
        le=100,
        description="Fresh seeds for each of the two recipes. Each run has one more external score "
        "than the looks of the rounds.",
    )
    at_once: bool = Field(
        default=False,
        description="End the campaign after its last round; else when `seedbed export` asks for "
        "it: the lockbox is opened only once.",
    )


class SpendPlan(BaseModel):
    """The most that the campaign may spend. The worst case is taken from a cap before each call.

    At a cap of a call or a trial the trial ends; at one of the round or the campaign the campaign
    pauses, and goes on with `seedbed resume` once the cap was raised.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dollars: Decimal | None = Field(
        default=Decimal(20), ge=0, description="In all; null: only tokens are capped."
    )
    dollars_per_round: Decimal | None = Field(
        default=None, ge=0, description="In one round; null: no cap of its own."
    )
    dollars_per_trial: Decimal | None = Field(
        default=None, ge=0, description="In one trial; null: no cap of its own."
    )
    dollars_per_call: Decimal | None = Field(
        default=None, ge=0, description="With one call; null: no cap of its own."
    )
    tokens: int = Field(
        default=0, ge=0, description="Of models, read and written, in all; 0: no cap."
    )
    tokens_per_round: int = Field(default=0, ge=0, description="In one round; 0: no cap.")
    tokens_per_trial: int = Field(default=0, ge=0, description="In one trial; 0: no cap.")
    tokens_per_call: int = Field(default=0, ge=0, description="With one call; 0: no cap.")
    gpu_seconds: int = Field(
        default=0, ge=0, description="Of GPUs that trials lease, in all; 0: no cap."
    )

    def caps(self) -> SpendCaps:
        """The caps that there are."""
        scopes: tuple[tuple[Scope, str], ...] = (
            ("campaign", ""),
            ("round", "_per_round"),
            ("trial", "_per_trial"),
            ("call", "_per_call"),
        )
        amounts: dict[tuple[Unit, Scope], int] = {}
        values = self.model_dump()
        for scope, ending in scopes:
            if values[f"dollars{ending}"] is not None:
                amounts["microdollars", scope] = microdollars(values[f"dollars{ending}"])
            if values[f"tokens{ending}"]:
                amounts["tokens", scope] = values[f"tokens{ending}"]
        if self.gpu_seconds:
            amounts["gpu_seconds", "campaign"] = self.gpu_seconds
        return SpendCaps(amounts)


class ServedPlan(BaseModel):
    """Where one role's model is served, and how long it is waited for. Holds no key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str = Field(
        default="",
        pattern=r"^(https?://[^@?#\s]+)?$",  # no user, password or key
        description="Of its server, such as http://127.0.0.1:8000/v1; empty: the provider's own.",
    )
    idle_seconds: float = Field(
        default=60.0, gt=0, description="Longest wait for a byte; more for models that think long."
    )
    total_seconds: float = Field(default=900.0, gt=0, description="Longest wait for one answer.")


class ServingPlan(BaseModel):
    """Where the models of the three roles are served."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worker: ServedPlan = Field(default=ServedPlan(), description="The workers' model.")
    collector: ServedPlan = Field(default=ServedPlan(), description="The collector's model.")
    meta: ServedPlan = Field(default=ServedPlan(), description="The meta-agent's model.")


class Plan(BaseModel):
    """A campaign: what to run, how often, how wide, from which seed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    substrate: str = Field(
        description="Name of a drop-in in `substrate/library`, or a path to one, such as "
        "`tests/substrates/stub`.",
        json_schema_extra={"position": 0},
    )
    recipe: str = Field(
        default="",
        description="Recipe to run, such as `sft`; empty: the substrate's default.",
        json_schema_extra={"position": 1},
    )
    rounds: int = Field(
        default=2, ge=1, le=1000, description="Rounds to run.", json_schema_extra={"position": 2}
    )
    width: int = Field(
        default=8,
        ge=3,
        le=2000,
        description="Slots of a round: one anchor, the rest explorations and replicates.",
        json_schema_extra={"position": 3},
    )
    worker: str = Field(
        default="sampler",
        description="Kind of worker. `sampler` draws an edit from its axis by seed; "
        "`anthropic:MODEL` and `openai:MODEL` are language models with tools; `command:PROGRAM` is "
        "a program that edits its fork.",
        json_schema_extra={"position": 4},
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**53,
        description="The campaign's seed. Same seed and plan: same results.",
        json_schema_extra={"position": 5},
    )
    name: str = Field(
        default="",
        max_length=40,
        description="First part of the campaign's id; empty: substrate and recipe.",
        json_schema_extra={"position": 6},
    )
    policy: str = Field(
        default="",
        description="Path of a seed policy (JSON); empty: the drop-in's own for this recipe.",
        json_schema_extra={"position": 7},
    )
    at_once: int = Field(
        default=0,
        ge=0,
        description="Trials that run at one time; 0: as many as the processors allow.",
        json_schema_extra={"position": 8},
    )
    isolation: Isolation = Field(
        default="best",
        description="Walls around recipes and scorers: `best`, the highest level that this machine "
        "has, without which the campaign is refused, or `none`, with a banner over every report.",
        json_schema_extra={"position": 9},
    )
    budget: BudgetPlan = Field(
        default=BudgetPlan(),
        description="What the campaign may use.",
        json_schema_extra={"position": 10},
    )
    end: EndPlan = Field(
        default=EndPlan(),
        description="How the campaign ends.",
        json_schema_extra={"position": 11},
    )
    meta: str = Field(
        default="reviser",
        description="Who writes the next policy: `reviser` (rules), `anthropic:MODEL` or "
        "`openai:MODEL`.",
        json_schema_extra={"position": 12},
    )
    collector: str = Field(
        default="code",
        description="Who puts the narrative of a report into words: `code`, `anthropic:MODEL` or "
        "`openai:MODEL`. Its numbers are code's.",
        json_schema_extra={"position": 13},
    )
    work: Caps = Field(
        default=Caps(),
        description="What one worker may use in one attempt, besides the run that counts.",
        json_schema_extra={"position": 14},
    )
    serving: ServingPlan = Field(
        default=ServingPlan(),
        description="Where models are served.",
        json_schema_extra={"position": 15},
    )
    spend: SpendPlan = Field(
        default=SpendPlan(),
        description="What the campaign may spend.",
        json_schema_extra={"position": 16},
    )


def slug(text: str) -> str:
    """`text` in lower case letters, digits and single hyphens; Prefect's artifact keys need it."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def artifact_key(campaign: str, what: str) -> str:
    """The key of one of a campaign's artifacts: `report`, `scores`, `card` and so on."""
    return f"{campaign}-{what}"
