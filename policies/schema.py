"""The schema as it must be: every table, and every trigger that refuses changes, unaltered."""

import tempfile
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, text

from policies.database import open_database
from policies.ledger import Ledger
from policies.tables import Event, Row, table_of

APPEND_ONLY = sorted(
    {table_of(model).name for model in Row.__subclasses__() if model.chained}
    | {table_of(Event).name}
)


def first_schema_fault(ledger: Ledger) -> str | None:
    """The first table, index or trigger that is not as the migrations make it, or None.

    On SQLite also the first place at which the file contradicts itself: an index may hide a row.
    """
    with ledger.read() as connection:
        if connection.dialect.name == "sqlite":
            return _compare(_objects(connection), _fresh_objects()) or _file_fault(connection)
        return _postgresql_fault(connection)


def _objects(connection: Connection) -> dict[str, str]:
    """What the database says that it is made of: `trigger x` and so on, with their SQL."""
    # What ANALYZE keeps says nothing; all else counts, whatever it is called.
    query = text("SELECT type, name, sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_stat[0-9]'")
    return {f"{row.type} {row.name}": row.sql for row in connection.execute(query)}


def _fresh_objects() -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="seedbed-schema-") as folder:
        engine = open_database(f"sqlite:///{Path(folder) / 'ledger.db'}")
        try:
            with closing(engine.connect()) as connection:
                return _objects(connection)
        finally:
            engine.dispose()


def _compare(found: dict[str, str], wanted: dict[str, str]) -> str | None:
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            return f"{name} is missing: it was dropped"
        if name not in wanted:
            return f"{name} was added: no migration makes it"
        if found[name] != wanted[name]:
            return f"{name} was altered: it is not what the migrations make"
    return None


def _file_fault(connection: Connection) -> str | None:
    found = " ".join(connection.execute(text("PRAGMA integrity_check(1)")).scalar_one().split())
    return None if found == "ok" else f"the database file contradicts itself: {found}"


def _postgresql_fault(connection: Connection) -> str | None:
    query = text(
        "SELECT tgname, tgenabled = 'D' AS off FROM pg_trigger "
        "WHERE NOT tgisinternal AND tgrelid = ANY(SELECT oid FROM pg_class "
        "WHERE relnamespace = current_schema()::regnamespace)"
    )
    found = {row.tgname: row.off for row in connection.execute(query)}
    wanted = {f"{table}_{rule}" for table in APPEND_ONLY for rule in ("append_only", "no_truncate")}
    for name in sorted(wanted | {"event_follows"} | found.keys()):
        if name not in found:
            return f"trigger {name} is missing: it was dropped"
        if name not in wanted and name != "event_follows":
            return f"trigger {name} was added: no migration makes it"
        if found[name]:
            return f"trigger {name} is switched off"
    return None
