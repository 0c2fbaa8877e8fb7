"""What makes tables append-only: triggers, in the SQL of each database.

Migrations call these, so that what they make must never change: another rule is another function.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op


def is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def define_refusal() -> None:
    """The function that PostgreSQL's triggers call. SQLite's have it in themselves."""
    if not is_sqlite():
        op.execute(
            "CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION '% is append-only, % refused', TG_TABLE_NAME, TG_OP; END $$"
        )


def protect(tables: Sequence[str]) -> None:
    """Refuse every change of a row that is there."""
    if is_sqlite():
        _protect_on_sqlite(tables)
        return
    for table in tables:
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION append_only()"
        )
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION append_only()"
        )


def link_events() -> None:
    """Refuse an event that does not follow the last one."""
    if is_sqlite():
        op.execute(
            "CREATE TRIGGER event_follows BEFORE INSERT ON event "
            "WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM event) OR NEW.previous "
            "IS NOT coalesce((SELECT hash FROM event ORDER BY seq DESC LIMIT 1), '') BEGIN "
            "SELECT RAISE(ABORT, 'event does not follow the last one'); END"
        )
        return
    op.execute(
        "CREATE FUNCTION event_follows() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "DECLARE last event%ROWTYPE; BEGIN "
        "SELECT * INTO last FROM event ORDER BY seq DESC LIMIT 1; "
        "IF NEW.seq <> coalesce(last.seq, 0) + 1 OR NEW.previous <> coalesce(last.hash, '') THEN "
        "RAISE EXCEPTION 'event does not follow the last one'; END IF; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER event_follows BEFORE INSERT ON event "
        "FOR EACH ROW EXECUTE FUNCTION event_follows()"
    )


def _protect_on_sqlite(tables: Sequence[str]) -> None:
    for table in tables:
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} BEGIN "
                f"SELECT RAISE(ABORT, '{table} is append-only: {change} refused'); END"
            )
    # REPLACE fires delete triggers only on connections that have recursive triggers on. These
    # refuse it on any, in the words that SQLite itself has for a key that is taken.
    for table, key in _unique_keys(tables):
        taken = " AND ".join(f"{column} = NEW.{column}" for column in key)
        columns = ", ".join(f"{table}.{column}" for column in key)
        op.execute(
            f"CREATE TRIGGER {table}_no_replace_{key[-1]} BEFORE INSERT ON {table} "
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {taken}) BEGIN "
            f"SELECT RAISE(ABORT, 'UNIQUE constraint failed: {columns}'); END"
        )


def _unique_keys(tables: Sequence[str]) -> list[tuple[str, list[str]]]:
    inspector = sa.inspect(op.get_bind())
    return [
        (table, list(key))
        for table in tables
        for key in (
            inspector.get_pk_constraint(table)["constrained_columns"],
            *(unique["column_names"] for unique in inspector.get_unique_constraints(table)),
        )
    ]
