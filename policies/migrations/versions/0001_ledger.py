"""The ledger's tables, and the triggers that make them append-only."""

import sqlalchemy as sa
from alembic import op

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

    if op.get_bind().dialect.name == "sqlite":
        _triggers_of_sqlite()
    else:
        _triggers_of_postgresql()


def _triggers_of_sqlite() -> None:
    for table in APPEND_ONLY:
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} BEGIN "
                f"SELECT RAISE(ABORT, '{table} is append-only: {change} refused'); END"
            )
    # REPLACE fires delete triggers only on connections that have recursive triggers on. These
    # refuse it on any, in the words that SQLite itself has for a key that is taken.
    for table, key in _unique_keys():
        taken = " AND ".join(f"{column} = NEW.{column}" for column in key)
        columns = ", ".join(f"{table}.{column}" for column in key)
        op.execute(
            f"CREATE TRIGGER {table}_no_replace_{key[-1]} BEFORE INSERT ON {table} "
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {taken}) BEGIN "
            f"SELECT RAISE(ABORT, 'UNIQUE constraint failed: {columns}'); END"
        )
    op.execute(
        "CREATE TRIGGER event_follows BEFORE INSERT ON event "
        "WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM event) OR NEW.previous IS NOT "
        "coalesce((SELECT hash FROM event ORDER BY seq DESC LIMIT 1), '') BEGIN "
        "SELECT RAISE(ABORT, 'event does not follow the last one'); END"
    )


def _unique_keys() -> list[tuple[str, list[str]]]:
    inspector = sa.inspect(op.get_bind())
    return [
        (table, list(key))
        for table in APPEND_ONLY
        for key in (
            inspector.get_pk_constraint(table)["constrained_columns"],
            *(unique["column_names"] for unique in inspector.get_unique_constraints(table)),
        )
    ]


def _triggers_of_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION '% is append-only, % refused', TG_TABLE_NAME, TG_OP; END $$"
    )
    op.execute(
        "CREATE FUNCTION event_follows() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "DECLARE last event%ROWTYPE; BEGIN "
        "SELECT * INTO last FROM event ORDER BY seq DESC LIMIT 1; "
        "IF NEW.seq <> coalesce(last.seq, 0) + 1 OR NEW.previous <> coalesce(last.hash, '') THEN "
        "RAISE EXCEPTION 'event does not follow the last one'; END IF; RETURN NEW; END $$"
    )
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION append_only()"
        )
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION append_only()"
        )
    op.execute(
        "CREATE TRIGGER event_follows BEFORE INSERT ON event "
        "FOR EACH ROW EXECUTE FUNCTION event_follows()"
    )
