"""The database behind the ledger: opened, brought to this version's schema, refused if not ours.

SQLite keeps a write-ahead log, so that anyone can read while a campaign writes, and flushes it at
each commit: what was acknowledged survives a power cut. Writers take turns: BEGIN IMMEDIATE on
SQLite, one advisory lock on PostgreSQL.
"""

import sqlite3
import time
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError

MIGRATIONS = Path(__file__).parent / "migrations"
WAIT_SECONDS = 60  # for the lock, which a writer holds for milliseconds
WRITERS = 0x5EEDBED  # the advisory lock's number


UNREADABLE = DatabaseError  # what asking raises where a database is damaged or cannot be reached


class UnknownSchema(RuntimeError):
    """The database holds something that this version did not make, or a later version made."""


def is_there(url: str) -> bool:
    """False for a SQLite file that does not exist: opening it would make one.

    Raises UnknownSchema for a URL that leads to no database.
    """
    file = _parsed(url)
    return file.get_backend_name() != "sqlite" or Path(file.database or "").is_file()


def open_database(url: str) -> Engine:
    """The database at `url`, at this version's schema; SQLite files and folders are made.

    Raises UnknownSchema, having changed nothing, for a database of a later version or of another
    program.
    """
    sqlite = _parsed(url).get_backend_name() == "sqlite"
    engine = create_engine(
        url,
        connect_args={"timeout": WAIT_SECONDS} if sqlite else {},
        pool_pre_ping=not sqlite,
    )
    event.listen(engine, "begin", _begin)
    if sqlite:
        event.listen(engine, "connect", _set_up)
        Path(engine.url.database or "").absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        _migrate(engine)
    except DatabaseError as error:
        engine.dispose()
        if isinstance(error, OperationalError):
            raise
        raise UnknownSchema(
            f"wanted a database, found {engine.url!r} to be something else ({error.orig}); put "
            "back a copy of it, or name another in SEEDBED_DATABASE_URL"
        ) from error
    except BaseException:
        engine.dispose()
        raise
    return engine


def writer(engine: Engine) -> Engine:
    """The same engine, whose transactions hold the write lock from their begin."""
    return engine.execution_options(writes=True)


def _parsed(url: str) -> URL:
    """The URL, if there is a driver for it here."""
    try:
        parsed = make_url(url)
        parsed.get_dialect().import_dbapi()
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise UnknownSchema(
            f"wanted the URL of a database, found one that leads to none ({error}); for SQLite "
            "leave SEEDBED_DATABASE_URL out, for PostgreSQL install the extra `postgresql` and "
            "let it begin with postgresql+psycopg://"
        ) from error
    return parsed


def _set_up(connection: Any, _record: Any) -> None:
    """Each connection to SQLite: nothing here outlives it or touches the file."""
    connection.isolation_level = None  # the driver begins nothing of its own: `_begin` does
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA recursive_triggers = ON")  # REPLACE then fires delete triggers


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
    elif writes:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS})")
    else:  # a reader sees one moment, as it does on SQLite
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def _migrate(engine: Engine) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    with engine.connect() as connection:
        versions = MigrationContext.configure(connection).get_current_heads()
        tables = inspect(connection).get_table_names()
    found = ", ".join(sorted(versions)) or None  # more than one is of no program of ours
    if found == scripts.get_current_head():
        return
    ours = {script.revision for script in scripts.walk_revisions()}
    if found not in ours and (found or tables):
        raise UnknownSchema(
            f"wanted an empty database or a ledger of version {', '.join(sorted(ours))}: found "
            + (f"version {found}" if found else f"the tables {', '.join(sorted(tables)[:5])}")
            + f" in {engine.url!r}; install the Seedbed that wrote it, or name another database in "
            "SEEDBED_DATABASE_URL"
        )
    if engine.dialect.name == "sqlite":
        _keep_a_write_ahead_log(engine)
    with writer(engine).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _keep_a_write_ahead_log(engine: Engine) -> None:
    """WAL is a property of the file, set once, outside of any transaction.

    SQLite does not wait for the lock that this takes, whatever the connection's timeout.
    """
    connection = engine.raw_connection()
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        cursor = connection.cursor()
        while True:
            try:
                cursor.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        mode = str(next(iter(cursor.fetchall()))[0])
    finally:
        connection.close()
    if mode != "wal":
        raise RuntimeError(
            f"wanted a database with a write-ahead log: found journal mode {mode!r} for "
            f"{engine.url!r}; put the file on a local disk, or use PostgreSQL"
        )
