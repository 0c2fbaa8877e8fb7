"""Calibrations of substrates, and how a campaign ends: its candidate, final runs, opening."""

import sqlalchemy as sa
from alembic import op

from policies.migrations.append_only import protect

revision = "0002"
down_revision = "0001"

APPEND_ONLY = ("calibration", "candidate", "final_run", "opening")


def upgrade() -> None:
    op.create_table(
        "calibration",
        sa.Column("substrate_sha256", sa.String(), primary_key=True),
        sa.Column("recipe", sa.String(), primary_key=True),
        sa.Column("rollouts", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("probe", sa.String(), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        *_run(),
    )
    op.create_table(
        "candidate",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("policy_sha256", sa.String(), nullable=False),
        sa.Column("standing_recipe", sa.Text(), nullable=False),
        sa.Column("chosen_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "final_run",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("arm", sa.String(), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        *_run(),
    )
    op.create_table(
        "opening",
        sa.Column("campaign", sa.String(), primary_key=True),
        sa.Column("candidate_sha256", sa.String(), nullable=False),
        sa.Column("baseline_sha256", sa.String()),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
    )
    protect(APPEND_ONLY)


def _run() -> list[sa.Column[object]]:
    return [
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("adapter_sha256", sa.String()),
        sa.Column("dev", sa.Text()),
        sa.Column("external", sa.Text()),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
    ]
