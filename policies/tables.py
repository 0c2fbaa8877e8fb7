"""The tables: every row that a campaign leaves behind.

Rows are append-only, and each has its event in the hash chain, but for `lease` and `outbox`, which
are mutable and outside the chain. Natural keys are unique, and a row's subject spells its own:
`quick-owl-7f3a/r1/s3` is slot 3 of round 1. What changes is written as rows: `attempt` and `look`
say what is about to be done, `trial`, `score` and `integrity` what came of it. `spend` is
reserved, then settled.
"""

import hashlib
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Literal

from pydantic import AwareDatetime, StringConstraints
from sqlalchemy import BigInteger, Index, String, Table, Text, UniqueConstraint
from sqlmodel import Field, SQLModel

from policies.integrity import DETAIL, EventKind
from policies.policy import Sha256, Slug
from policies.report import Kind, OutcomeName

ProblemSet = Literal["dev", "external", "lockbox"]
Probe = Literal["recipe", "base", "random", "constant", "empty"]
Arm = Literal["candidate", "baseline"]
Role = Literal["worker", "collector", "meta"]
Stop = Literal["end", "tools", "length", "refusal", "failed"]
Number = Annotated[int, Field(ge=1, lt=2**31)]
Slot = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]

OVERALL = "overall"


def utc_now() -> datetime:
    return datetime.now(UTC)


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Row(SQLModel):
    """A row of one of the tables. `natural_key` spells its subject; `chained` means append-only."""

    natural_key: ClassVar[str]
    chained: ClassVar[bool] = True


def table_of(model: type[Row]) -> Table:
    """The SQLAlchemy table behind a row's class."""
    return SQLModel.metadata.tables[str(model.__tablename__)]


class Campaign(Row, table=True):
    """A campaign, with the digests that were pinned when it started."""

    natural_key = "{id}"
    id: Slug = Field(primary_key=True, description="Readable slug and a short unique part.")
    name: str
    plan: str = Field(sa_type=Text, description="The plan, as JSON text.")
    seed: Seed = Field(sa_type=BigInteger)
    substrate_name: str
    substrate_sha256: Sha256
    judge_sha256: Sha256
    constitution_sha256: Sha256
    recipe: str
    worker: str = Field(description="Kind of worker.")
    flow_run_id: str | None = None
    created_at: AwareDatetime = Field(default_factory=utc_now)


class Substrate(Row, table=True):
    """A sealed snapshot, by its digest."""

    natural_key = "{sha256}"
    sha256: Sha256 = Field(primary_key=True)
    name: str
    manifest: str = Field(sa_type=Text, description="The resolved manifest, as JSON text.")
    sealed_at: AwareDatetime = Field(default_factory=utc_now)


class Policy(Row, table=True):
    """One version of a campaign's search policy."""

    natural_key = "{campaign}/p{version}"
    campaign: Slug = Field(primary_key=True)
    version: Number = Field(primary_key=True)
    sha256: Sha256
    parent: Sha256 | None = None
    body: str = Field(sa_type=Text, description="The policy, as canonical JSON.")
    author: str = Field(description="Who wrote it: `seed`, `reviser`, a model, a person.")
    round: Number | None = Field(default=None, description="The round whose report led to it.")
    created_at: AwareDatetime = Field(default_factory=utc_now)


class Round(Row, table=True):
    """A round that was begun, under one version of the policy."""

    natural_key = "{campaign}/r{number}"
    campaign: Slug = Field(primary_key=True)
    number: Number = Field(primary_key=True)
    policy_version: Number
    started_at: AwareDatetime = Field(default_factory=utc_now)


class Attempt(Row, table=True):
    """One try at a trial, written before it begins. Its number is the fencing number."""

    natural_key = "{campaign}/r{round}/s{slot}/a{attempt}"
    campaign: Slug = Field(primary_key=True)
    round: Number = Field(primary_key=True)
    slot: Slot = Field(primary_key=True)
    attempt: Number = Field(primary_key=True)
    kind: Kind = Field(sa_type=String)
    axis: Slug | None = None
    seed: Seed = Field(sa_type=BigInteger)
    started_at: AwareDatetime = Field(default_factory=utc_now)


class Trial(Row, table=True):
    """What one slot tried in one round, how it ended and what it cost."""

    natural_key = "{campaign}/r{round}/s{slot}"
    campaign: Slug = Field(primary_key=True)
    round: Number = Field(primary_key=True)
    slot: Slot = Field(primary_key=True)
    attempt: Number = Field(description="The attempt that was recorded.")
    kind: Kind = Field(sa_type=String)
    axis: Slug | None = None
    outcome: OutcomeName = Field(sa_type=String)
    hypothesis: str = Field(sa_type=Text)
    edit: str = Field(sa_type=Text, description="A `policies.policy.Edit`, as JSON text.")
    diff_sha256: Sha256 | None = None
    seed: Seed = Field(sa_type=BigInteger)
    adapter_sha256: Sha256 | None = None
    integrity: str = Field(default="[]", sa_type=Text, description="Events by name, a JSON list.")
    account: str = Field(sa_type=Text, description="What it cost, as JSON text.")
    finished_at: AwareDatetime = Field(default_factory=utc_now)


class Score(Row, table=True):
    """A trial's score on one problem set: over all of it, or in one domain. Missing: no row."""

    natural_key = "{campaign}/r{round}/s{slot}/{problem_set}/{domain}"
    campaign: Slug = Field(primary_key=True)
    round: Number = Field(primary_key=True)
    slot: Slot = Field(primary_key=True)
    problem_set: ProblemSet = Field(primary_key=True, sa_type=String)
    domain: Name = Field(primary_key=True, description="`overall` for the whole set.")
    value: float = Field(description="The metric.")
    n: Number = Field(description="Problems behind it.")
    metric: str
    metric_version: Sha256
    engine: str


class Look(Row, table=True):
    """A look at the external set, written before the score is obtained. `number` counts them."""

    __table_args__ = (UniqueConstraint("campaign", "number", name="look_number"),)
    natural_key = "{campaign}/r{round}/s{slot}"
    campaign: Slug = Field(primary_key=True)
    round: Number = Field(primary_key=True)
    slot: Slot = Field(primary_key=True)
    number: Number


class Report(Row, table=True):
    """A round report. `results_sha256` is the digest of its `results` alone."""

    natural_key = "{campaign}/r{round}"
    campaign: Slug = Field(primary_key=True)
    round: Number = Field(primary_key=True)
    sha256: Sha256
    results_sha256: Sha256
    body: str = Field(sa_type=Text, description="The report, as canonical JSON.")

    @classmethod
    def of(cls, campaign: str, round: int, results_sha256: str, body: str) -> "Report":
        return cls(
            campaign=campaign,
            round=round,
            sha256=sha256_of(body),
            results_sha256=results_sha256,
            body=body,
        )


class Claim(Row, table=True):
    """A claim that a version of the policy rests on."""

    natural_key = "{campaign}/p{policy_version}/{claim}"
    campaign: Slug = Field(primary_key=True)
    policy_version: Number = Field(primary_key=True)
    claim: Slug = Field(primary_key=True)
    text: str = Field(sa_type=Text)
    rows: str = Field(sa_type=Text, description="The rows that say so, a JSON list.")


class DeadEnd(Row, table=True):
    """A dead end, under the version of the policy that first lists it."""

    __tablename__ = "dead_end"  # pyright: ignore[reportAssignmentType]
    natural_key = "{campaign}/p{policy_version}/{dead_end}"
    campaign: Slug = Field(primary_key=True)
    policy_version: Number = Field(primary_key=True)
    dead_end: Slug = Field(primary_key=True)
    axis: Slug
    title: str = Field(sa_type=Text)
    rows: str = Field(sa_type=Text, description="The trials that showed it, a JSON list.")


class Spend(Row, table=True):
    """An amount taken from a cap of the campaign: one row reserves it, a second settles it.

    Amounts are whole numbers, money in millionths of a dollar: below 2**53 the column is exact.
    """

    natural_key = "{campaign}/{subject}/{unit}/{state}"
    campaign: Slug = Field(primary_key=True)
    subject: str = Field(
        primary_key=True, description="What it went to, such as `r1/s3/a1/worker/7`."
    )
    unit: Name = Field(primary_key=True, description="A `policies.caps.Unit`.")
    state: Literal["reserved", "settled"] = Field(primary_key=True, sa_type=String)
    amount: float


class AgentCall(Row, table=True):
    """A call of an agent to a model that ended: its exchange is the file of that digest."""

    __tablename__ = "agent_call"  # pyright: ignore[reportAssignmentType]
    natural_key = "{campaign}/{call}"
    campaign: Slug = Field(primary_key=True)
    call: str = Field(primary_key=True, description="The subject of its last try's `spend` rows.")
    role: Role = Field(sa_type=String)
    model: str = Field(description="Provider and name, such as `openai:MODEL`.")
    request_sha256: Sha256 = Field(description="Of the request's canonical JSON, redacted.")
    exchange_sha256: Sha256 = Field(description="Of the exchange's canonical JSON, redacted.")
    stop: Stop = Field(sa_type=String)
    at: AwareDatetime = Field(default_factory=utc_now)


class Patch(Row, table=True):
    """A stored unified diff, by its digest."""

    natural_key = "{sha256}"
    sha256: Sha256 = Field(primary_key=True)
    text: str = Field(sa_type=Text)

    @classmethod
    def of(cls, text: str) -> "Patch":
        return cls(sha256=sha256_of(text), text=text)


class CleanRun(SQLModel):
    """What the tables of runs outside of any round say alike of a run."""

    seed: Seed = Field(sa_type=BigInteger)
    outcome: OutcomeName = Field(sa_type=String)
    reason: str = Field(sa_type=Text)
    adapter_sha256: Sha256 | None = None
    dev: str | None = Field(default=None, sa_type=Text, description="A `SetScore`, as JSON text.")
    external: str | None = Field(default=None, sa_type=Text, description="A `SetScore` too.")
    account: str = Field(sa_type=Text, description="What it cost, as JSON text.")
    finished_at: AwareDatetime = Field(default_factory=utc_now)


class Calibration(Row, CleanRun, table=True):
    """A run of a substrate's unmodified recipe on a seed of its own, or a degenerate probe."""

    natural_key = "{substrate_sha256}/{recipe}/{rollouts}/{probe}/{number}"
    substrate_sha256: Sha256 = Field(primary_key=True)
    recipe: Name = Field(primary_key=True)
    rollouts: Count = Field(primary_key=True, sa_type=BigInteger, description="Its budget.")
    probe: Probe = Field(primary_key=True, sa_type=String)
    number: Number = Field(primary_key=True)


class Candidate(Row, table=True):
    """What a campaign will be judged by, chosen before anything of its end was measured."""

    natural_key = "{campaign}"
    campaign: Slug = Field(primary_key=True)
    rule: str = Field(sa_type=Text, description="The rule that chose it, in words.")
    policy_version: Number
    policy_sha256: Sha256
    standing_recipe: str = Field(sa_type=Text, description="The recipe, as canonical JSON.")
    chosen_at: AwareDatetime = Field(default_factory=utc_now)


class FinalRun(Row, CleanRun, table=True):
    """A run of a campaign's end, on a fresh seed: of its candidate, or of what it began with."""

    __tablename__ = "final_run"  # pyright: ignore[reportAssignmentType]
    natural_key = "{campaign}/{arm}/{number}"
    campaign: Slug = Field(primary_key=True)
    arm: Arm = Field(primary_key=True, sa_type=String)
    number: Number = Field(primary_key=True)


class Opening(Row, table=True):
    """The one opening of a campaign's lockbox, written before it is opened."""

    natural_key = "{campaign}"
    campaign: Slug = Field(primary_key=True)
    candidate_sha256: Sha256 = Field(description="The adapter that is exported.")
    baseline_sha256: Sha256 | None = Field(default=None, description="The one beside it, if any.")
    opened_at: AwareDatetime = Field(default_factory=utc_now)


class Integrity(Row, table=True):
    """Something that an attempt did and no honest one does: see `policies/integrity.py`."""

    natural_key = "{campaign}/r{round}/s{slot}/a{attempt}/i{number}"
    campaign: Slug = Field(primary_key=True)
    round: Number = Field(primary_key=True)
    slot: Slot = Field(primary_key=True)
    attempt: Number = Field(primary_key=True)
    number: Number = Field(primary_key=True, description="Counts the events of one attempt.")
    kind: EventKind = Field(sa_type=String)
    detail: Annotated[str, StringConstraints(max_length=DETAIL)] = Field(sa_type=Text)
    worker: str = Field(description="Kind of worker; `controller` where none edited the fork.")
    discarded: str | None = Field(
        default=None, sa_type=Text, description="A dev `SetScore` that was discarded, as JSON text."
    )
    found_at: AwareDatetime = Field(default_factory=utc_now)


class Adapter(Row, table=True):
    """A run that delivered an adapter: who is known to have made which weights."""

    __table_args__ = (Index("adapter_tensors", "tensors_sha256"),)
    natural_key = "{sha256}/{run}"
    sha256: Sha256 = Field(primary_key=True)
    run: str = Field(primary_key=True, description="Its subject, such as `quick-owl-7f3a/r1/s3`.")
    tensors_sha256: Sha256 = Field(description="Hash of the tensors alone, in no order.")
    recipe_sha256: Sha256 = Field(description="Hash of what ran: standing recipe and edit.")
    seed: Seed = Field(sa_type=BigInteger)


class Lease(Row, table=True):
    """Who holds something, and until when. Mutable."""

    natural_key = "{name}"
    chained = False
    name: str = Field(primary_key=True)
    holder: str
    expires_at: AwareDatetime


class Outbox(Row, table=True):
    """Something to be published elsewhere. Mutable: `published_at` is set once it was."""

    natural_key = "{campaign}/{kind}/{key}"
    chained = False
    id: int | None = Field(default=None, primary_key=True)
    campaign: Slug
    kind: str
    key: str
    body: str = Field(sa_type=Text)
    created_at: AwareDatetime = Field(default_factory=utc_now)
    published_at: AwareDatetime | None = None


class Event(Row, table=True):
    """One link of the hash chain (see `policies/chain.py`): a row that landed, or a note."""

    __table_args__ = (Index("event_campaign_kind", "campaign", "kind", "seq"),)
    natural_key = "{seq}"
    chained = False
    seq: Number = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    campaign: Slug | None = None
    kind: str = Field(description="The table of the row, or the note's kind with a dot in it.")
    subject: str = Field(description="The row's natural key, or what the note is about.")
    body: str = Field(sa_type=Text, description="JSON: the row's digest, or the note's body.")
    at: AwareDatetime
    previous: str = Field(description="Hash of the event before it; empty for the first.")
    hash: Sha256
