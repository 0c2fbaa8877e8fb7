"""Integrity events of attempts, and which run delivered which adapter."""

import sqlalchemy as sa
from alembic import op

from policies.migrations.append_only import protect

revision = "0003"
down_revision = "0002"

APPEND_ONLY = ("integrity", "adapter")


def upgrade() -> None:
    op.create_table(
        "integrity",
        sa.Column("campaign", sa.String(), primary_key=True),
        *(
            sa.Column(name, sa.Integer(), primary_key=True, autoincrement=False)
            for name in ("round", "slot", "attempt", "number")
        ),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("discarded", sa.Text()),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "adapter",
        sa.Column("sha256", sa.String(), primary_key=True),
        sa.Column("run", sa.String(), primary_key=True),
        sa.Column("tensors_sha256", sa.String(), nullable=False),
        sa.Column("recipe_sha256", sa.String(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
    )
    op.create_index("adapter_tensors", "adapter", ["tensors_sha256"])
    protect(APPEND_ONLY)
