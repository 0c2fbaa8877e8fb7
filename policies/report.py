"""The round report: one fixed schema for what a round tried, measured and cost."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from policies.canonical import digest
from policies.policy import Edit, NoiseModel, RowRef, Sha256, Slug

SCHEMA_VERSION = 1

# The words of `substrate.outcome.Outcome`: the rooms do not import each other, and a test holds
# the two equal.
OutcomeName = Literal[
    "evaluated",
    "no_change",
    "invalid_adapter",
    "tampered",
    "crashed",
    "timed_out",
    "out_of_memory",
    "diverged",
    "over_budget",
    "refused",
    "infrastructure",
]
Kind = Literal["anchor", "explore", "replicate"]


def _is_empty(value: str) -> bool:
    """A report from before there was such a field has the bytes that it had."""
    return not value


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DomainScore(_Part):
    """A score in one domain of a problem set."""

    value: float = Field(description="The metric.")
    n: int = Field(ge=1, description="Problems behind it.")


class SetScore(_Part):
    """A score on one problem set: over all its problems, and by domain."""

    value: float = Field(description="The metric over all problems of the set.")
    n: int = Field(ge=1, description="Problems behind it.")
    domains: dict[str, DomainScore] = Field(description="The metric by domain.")
    metric: str = Field(description="Name of the metric.")
    metric_version: Sha256 = Field(description="Hash of evaluation code and problem set.")
    engine: str = Field(description="What ran the evaluation, with its version.")


class SlotResult(_Part):
    """What one slot tried and what came out. Equal for equal seeds, on any machine of one kind."""

    slot: int = Field(ge=0)
    kind: Kind
    axis: Slug | None = Field(description="The axis explored, or that a replicate came from.")
    hypothesis: str = Field(max_length=2000, description="What the worker expected.")
    edit: Edit = Field(description="What was changed, relative to the standing recipe.")
    diff_sha256: Sha256 | None = Field(description="Stored diff of the whole edit; null if empty.")
    seed: int = Field(ge=0, description="Seed of the counted run.")
    outcome: OutcomeName
    adapter_sha256: Sha256 | None
    dev: SetScore | None = Field(description="Null unless the outcome is `evaluated`.")
    external: SetScore | None = Field(description="Null where no look was spent.")
    integrity: list[str] = Field(default=[], description="Integrity events, by name.")
    discarded: SetScore | None = Field(
        default=None,
        description="Dev score of a flagged trial: it is shown, and counts for nothing.",
    )


class SlotAccount(_Part):
    """What one slot cost. Differs from run to run."""

    slot: int = Field(ge=0)
    attempts: int = Field(ge=1)
    reason: str = Field(max_length=2000, description="Why the outcome is what it is.")
    notes: str = Field(max_length=8000, description="The worker's notes, as data.")
    seconds: dict[str, float] = Field(
        description="Wall time by phase (fork, edit, run, measure), over all attempts."
    )
    cpu_seconds: float = Field(ge=0)
    peak_memory_mb: float = Field(ge=0)
    rollouts: int = Field(ge=0)
    tokens: int = Field(ge=0)
    data_sha256: dict[str, Sha256] = Field(
        default={}, description="Hash of every file of training data, as the run declares it."
    )
    isolation: str = Field(default="", description="Level of the jail that its run had.")
    custody: str = Field(
        default="",
        exclude_if=_is_empty,
        description="Whose user the scorer of its dev score was: `own-user`, or `same-user`, the "
        "controller's. Left out where none gave one.",
    )


class Spread(_Part):
    """The anchor and how far repeated runs of one recipe lie apart."""

    dev: float | None = Field(description="This round's anchor score on dev.")
    external: float | None = Field(description="This round's anchor score on external.")
    mean: float | None = Field(description="Mean dev score of the standing recipe's runs so far.")
    low: float | None = Field(description="Least of them.")
    high: float | None = Field(description="Greatest of them.")
    n: int = Field(ge=0, description="How many runs of the standing recipe these are.")


class DomainEffect(_Part):
    """What an edit does to dev in one domain."""

    effect: float = Field(description="Score minus the standing recipe's mean, positive is better.")
    n: int = Field(ge=1, description="Problems behind it.")


class Verdict(_Part):
    """What one slot says of its edit against the standing recipe."""

    slot: int = Field(ge=0)
    axis: Slug
    effect: float | None = Field(
        description="Dev score minus the standing recipe's mean, positive is better; without the "
        "domains that the report ignores."
    )
    domains: dict[str, DomainEffect] = Field(
        default={}, description="The effect on dev by domain, ignored ones too."
    )
    low: float | None = Field(description="Lower end of the interval.")
    high: float | None = Field(description="Upper end of the interval.")
    verdict: Literal["better", "worse", "unresolved"]
    external_effect: float | None = Field(
        default=None,
        description="External score minus the anchor's, positive is better; null without both.",
    )
    external_error: float | None = Field(
        default=None, ge=0, description="Standard error of that difference."
    )
    rows: list[RowRef]


class Confirmation(_Part):
    """What the fresh runs of a replicated edit say, on the standing recipe of the round."""

    axis: Slug
    edit: Edit
    runs: int = Field(ge=0, description="Scored runs on fresh seeds, its first trial left out.")
    effect: float | None = Field(description="Their mean effect on dev, as a verdict counts it.")
    bar: float | None = Field(description="What the mean must exceed to be confirmed.")
    external_runs: int = Field(ge=0, description="Those with an external score.")
    external_effect: float | None = Field(description="Their mean effect on external.")
    external_bar: float | None = Field(
        description="What that must exceed to be confirmed; null where all of dev is trusted."
    )
    level: float = Field(
        ge=0, le=1, description="Share of the campaign's error budget that this edit was given."
    )
    is_confirmed: bool = Field(description="Whether it may be merged into the standing recipe.")
    rows: list[RowRef]


class Decoupling(_Part):
    """Whether dev still tracks external, in one domain or overall."""

    domain: str = Field(
        description="Name of a domain, or `overall`: all that are neither decoupled themselves nor "
        "ignored."
    )
    verdict: Literal["tracking", "decoupled", "insufficient"]
    probability: float | None = Field(
        ge=0,
        le=1,
        description="Chance of a shortfall as large as the largest found, where dev tracks "
        "external; null where the verdict is `insufficient`.",
    )
    level: float | None = Field(
        ge=0, le=1, description="What the probability must not exceed in this round to decouple."
    )
    axis: Slug | None = Field(
        description="Axis whose trials fall short most; null: the standing recipe's own runs, "
        "against the recipe that the campaign began with."
    )
    dev_change: float | None = Field(description="Their mean change on dev, positive is better.")
    external_change: float | None = Field(description="Their mean change on external.")
    external_error: float | None = Field(ge=0, description="Its standard error.")
    shortfall: float | None = Field(
        description="What external is short of the least that tracking asks of it."
    )
    error: float | None = Field(ge=0, description="Standard error of the shortfall.")
    pairs: int = Field(ge=0, description="Runs with both scores behind it.")
    rows: list[RowRef]


class Flagged(_Part):
    """What the round's flagged trials would have made of it."""

    trials: int = Field(ge=1, description="Trials with an integrity event that discards a score.")
    effect: float | None = Field(
        description="Mean effect on dev of the trials with an axis, flagged ones left out."
    )
    effect_with: float | None = Field(description="The same with what was discarded.")
    best: float | None = Field(description="The best of these effects, flagged ones left out.")
    best_with: float | None = Field(description="The same with what was discarded.")


class IntegrityEvent(_Part):
    """Something that no honest trial does."""

    slot: int = Field(ge=0)
    attempt: int = Field(ge=1)
    kind: str = Field(description="One of the closed list in `policies/integrity.py`.")
    detail: str = Field(max_length=500, description="What was found, as data.")
    worker: str = Field(description="Kind of worker; `controller` where none edited the fork.")


class Results(_Part):
    """The part of a report that resumed, replayed and distributed campaigns share."""

    substrate_sha256: Sha256
    constitution_sha256: Sha256
    policy_version: int = Field(ge=1)
    policy_sha256: Sha256
    recipe: str
    slots: list[SlotResult]
    looks: list[int] = Field(description="Slots whose external score was obtained, in order.")
    spread: Spread
    noise: NoiseModel
    verdicts: list[Verdict]
    confirmations: list[Confirmation] = Field(default=[])
    decoupling: list[Decoupling] = Field(
        default=[], description="Overall first, then by domain, in the order of their names."
    )
    ignored: list[str] = Field(
        default=[],
        description="Domains whose dev score no verdict counts, since dev misleads there; "
        "`overall` for all of them.",
    )
    flagged: Flagged | None = Field(
        default=None, description="Null where no trial of the round was flagged."
    )
    dead_ends: list[str] = Field(description="Titles of the dead ends that the policy lists.")
    narrative: str = Field(max_length=8000)


class RoleSpend(_Part):
    """What a role spent of one unit, failures and tries counted in."""

    role: str = Field(description="`worker`, `collector`, `meta`, `draft`, `run`, `look`.")
    unit: str = Field(description="`microdollars`, `tokens`, `looks`, `gpu_seconds`, `drafts` …")
    calls: int = Field(ge=0, description="How often it was charged.")
    amount: int = Field(ge=0, description="The sum.")
    at_worst: int = Field(
        ge=0, description="Of these, charged what was reserved: nobody knows that it was less."
    )


class Account(_Part):
    """What the round cost."""

    started_at: str = Field(description="ISO 8601, UTC.")
    ended_at: str = Field(description="ISO 8601, UTC.")
    seconds: dict[str, float] = Field(
        description="`elapsed` from the round's start to its last trial; the rest is the trials' "
        "wall time by phase, summed over trials that ran side by side."
    )
    slots: list[SlotAccount]
    worker: str = Field(description="Kind of worker.")
    isolation: str = Field(description="Level of the jail that the runs had.")
    custody: str = Field(
        default="",
        exclude_if=_is_empty,
        description="Levels of custody of the trials' labels; left out where none is known.",
    )
    spend: list[RoleSpend] = Field(
        default=[],
        description="What was spent until this report, by role: the meta-agent's part is that of "
        "the revision before.",
    )
    integrity: list[IntegrityEvent] = Field(default=[], description="In the order of slots.")
    ledger_seq: int = Field(default=0, ge=0, description="The ledger's last event of this round.")
    ledger_hash: Sha256 | None = Field(
        default=None, description="Its hash: kept outside of the ledger, it anchors all before it."
    )


class RoundReport(_Part):
    """One round, whole."""

    schema_version: Literal[1] = 1
    campaign: str
    round: int = Field(ge=1)
    results: Results
    account: Account

    def data(self) -> dict[str, Any]:
        """The report as JSON values."""
        return self.model_dump(mode="json")

    def results_digest(self) -> str:
        """Digest of `results` alone: the same for the same seed and plan."""
        return digest(self.results.model_dump(mode="json"))
