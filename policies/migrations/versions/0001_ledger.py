"""The ledger's tables, and the triggers that make them append-only."""

import sqlalchemy as sa
from alembic import op

from policies.migrations.append_only import define_refusal, link_events, protect

revision = "0001"
down_revision = None

APPEND_ONLY = (
    "campaign",
    "substrate",
    "policy",
    "round",
    "attempt",
    "trial",
    "score",
    "look",
    "report",
    "claim",
    "dead_end",
    "spend",
    "patch",
    "event",
)


def upgrade() -> None:
    op.create_table(
        "campaign",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("substrate_name", sa.String(), nullable=False),
        sa.Column("substrate_sha256", sa.String(), nullable=False),
        sa.Column("judge_sha256", sa.String(), nullable=False),
        sa.Column("constitution_sha256", sa.String(), nullable=False),
        sa.Column("recipe", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("flow_run_id", sa.String()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "substrate",
        sa.Column("sha256", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("sealed_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "policy",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("version", sa.Integer(), primary_key=True),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("parent", sa.String()),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("round", sa.Integer()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "round",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "attempt",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("round", sa.Integer(), primary_key=True),
        sa.Column("slot", sa.Integer(), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("axis", sa.String()),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "trial",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("round", sa.Integer(), primary_key=True),
        sa.Column("slot", sa.Integer(), primary_key=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("axis", sa.String()),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("hypothesis", sa.Text(), nullable=False),
        sa.Column("edit", sa.Text(), nullable=False),
        sa.Column("diff_sha256", sa.String()),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("adapter_sha256", sa.String()),
        sa.Column("integrity", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "score",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("round", sa.Integer(), primary_key=True),
        sa.Column("slot", sa.Integer(), primary_key=True),
        sa.Column("problem_set", sa.String(), primary_key=True),
        sa.Column("domain", sa.String(), primary_key=True),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("metric_version", sa.String(), nullable=False),
        sa.Column("engine", sa.String(), nullable=False),
    )
    op.create_table(
        "look",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("round", sa.Integer(), primary_key=True),
        sa.Column("slot", sa.Integer(), primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.UniqueConstraint("campaign", "number", name="look_number"),
    )
    op.create_table(
        "report",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("round", sa.Integer(), primary_key=True),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("results_sha256", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_table(
        "claim",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("policy_version", sa.Integer(), primary_key=True),
        sa.Column("claim", sa.String(), primary_key=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("rows", sa.Text(), nullable=False),
    )
    op.create_table(
        "dead_end",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("policy_version", sa.Integer(), primary_key=True),
        sa.Column("dead_end", sa.String(), primary_key=True),
        sa.Column("axis", sa.String(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("rows", sa.Text(), nullable=False),
    )
    op.create_table(
        "spend",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("subject", sa.String(), primary_key=True),
        sa.Column("unit", sa.String(), primary_key=True),
        sa.Column("state", sa.String(), primary_key=True),
        sa.Column("amount", sa.Float(), nullable=False),
    )
    op.create_table(
        "patch",
        sa.Column("sha256", sa.String(), primary_key=True),
        sa.Column("text", sa.Text(), nullable=False),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("campaign", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "event",
        sa.Column("seq", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("campaign", sa.String()),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("previous", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
    )
    op.create_index("event_campaign_kind", "event", ["campaign", "kind", "seq"])

    define_refusal()
    protect(APPEND_ONLY)
    link_events()
