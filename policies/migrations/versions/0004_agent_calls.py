"""Calls of agents to models, by what their exchange hashes to."""

import sqlalchemy as sa
from alembic import op

from policies.migrations.append_only import protect

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "agent_call",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("call", sa.String(), primary_key=True),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("request_sha256", sa.String(), nullable=False),
        sa.Column("exchange_sha256", sa.String(), nullable=False),
        sa.Column("stop", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    protect(("agent_call",))
