"""The migrations make what the tables say, from any folder, once, and touch no other database."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, inspect
from sqlmodel import SQLModel

from policies.chain import EVENT, chain, row_link
from policies.database import MIGRATIONS, UnknownSchema
from policies.ledger import Ledger, verify_chain
from policies.schema import first_schema_fault
from policies.tables import Opening, Row, table_of
from tests.policies.test_ledger import NOON, one_of_each

TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
ROOT = Path(__file__).resolve().parents[2]


def test_the_migrations_make_the_tables_that_the_models_describe(url: str) -> None:
    Ledger(url).close()
    engine = create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, SQLModel.metadata) == []
        assert context.get_current_revision() == "0004"
    engine.dispose()


def test_every_table_in_the_chain_has_its_triggers(file: Path) -> None:
    Ledger(f"sqlite:///{file}").close()
    with closing(sqlite3.connect(file)) as database:
        triggers = database.execute(
            "SELECT tbl_name, name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
    chained = {table_of(model).name for model in Row.__subclasses__() if model.chained}
    for change in ("no_update", "no_delete", "no_replace"):
        assert {table for table, name in triggers if change in name} == chained | {"event"}


def test_a_ledger_that_is_opened_again_keeps_its_schema_and_rows(file: Path) -> None:
    with closing(Ledger(f"sqlite:///{file}")) as ledger:
        ledger.note(None, "a.note", "it", {})
    before = _dump(file)
    with closing(Ledger(f"sqlite:///{file}")) as ledger:
        assert len(ledger.events()) == 1
    assert _dump(file) == before


def test_a_ledger_of_the_first_version_is_upgraded_without_loss(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.executescript((ROOT / "tests" / "data" / "ledger-0001.sql").read_text())
        tables = [name for (name,) in database.execute(TABLES) if name != "alembic_version"]
        before = {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    assert all(before.values()), "every table of the first version has a row to lose"
    with closing(Ledger(f"sqlite:///{file}")) as ledger:
        assert verify_chain(ledger) is None
        assert first_schema_fault(ledger) is None, "it is what a new ledger would be"
        ledger.append(Opening(campaign="quick-owl-7f3a", candidate_sha256="ab" * 32))
        assert verify_chain(ledger) is None
    with closing(sqlite3.connect(file)) as database:
        after = {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    assert after.pop("event")[: len(before["event"])] == before.pop("event")
    assert after == before


@pytest.mark.parametrize(("version", "tables"), [("0002", 17), ("0003", 19)])
def test_a_ledger_of_a_later_version_is_upgraded_without_loss(
    file: Path, version: str, tables: int
) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
        there = set(inspect(connection).get_table_names())
        rows = [row for row in one_of_each() if table_of(type(row)).name in there]
        assert len({type(row) for row in rows}) == tables, "a row of every table that it had"
        for row in rows:
            connection.execute(table_of(type(row)).insert(), row.model_dump())
        links = [row_link(type(row), row.model_dump()) for row in rows]
        connection.execute(EVENT.insert(), chain(connection, links, NOON))
    engine.dispose()
    before = _rows(file, there)
    with closing(Ledger(f"sqlite:///{file}")) as ledger:
        assert verify_chain(ledger) is None
        assert first_schema_fault(ledger) is None
        ledger.note(None, "a.note", "it", {})
        assert verify_chain(ledger) is None
    after = _rows(file, there)
    assert after.pop("event")[:-1] == before.pop("event")
    assert after == before


@pytest.mark.parametrize("name", ["sqlitexevil", "sqlite_evil"])
def test_a_trigger_that_is_named_as_one_of_sqlites_own_is_named(file: Path, name: str) -> None:
    with closing(Ledger(f"sqlite:///{file}")) as ledger:
        with closing(sqlite3.connect(file, isolation_level=None)) as owner:
            owner.execute("CREATE TRIGGER evil AFTER INSERT ON lease BEGIN DELETE FROM lease; END")
            owner.execute("PRAGMA writable_schema = ON")
            owner.execute(
                "UPDATE sqlite_master SET name = ?, sql = replace(sql, 'evil', ?) "
                "WHERE name = 'evil'",
                (name, name),
            )
        assert first_schema_fault(ledger) == f"trigger {name} was added: no migration makes it"


def test_what_a_ledger_is_asked_to_do_for_speed_is_no_fault(file: Path) -> None:
    with closing(Ledger(f"sqlite:///{file}")) as ledger:
        ledger.note(None, "a.note", "it", {})
        with closing(sqlite3.connect(file, isolation_level=None)) as owner:
            for statement in ("ANALYZE", "VACUUM", "PRAGMA user_version = 7", "REINDEX"):
                owner.execute(statement)
        assert first_schema_fault(ledger) is None
        assert verify_chain(ledger) is None


def test_a_database_with_two_versions_is_refused(file: Path) -> None:
    Ledger(f"sqlite:///{file}").close()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("INSERT INTO alembic_version VALUES ('0001')")
    with pytest.raises(UnknownSchema, match="found version 0001, 0004 in"):
        Ledger(f"sqlite:///{file}")


def test_a_ledger_is_made_from_any_folder_with_its_folders(tmp_path: Path) -> None:
    program = "from policies.ledger import Ledger; Ledger('sqlite:///a/b c/ledger.db').close()"
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    with closing(sqlite3.connect(tmp_path / "a" / "b c" / "ledger.db")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_four_processes_can_make_one_ledger(url: str) -> None:
    # All at the same moment, or the first would be done before the second begins.
    program = """
import sys
from policies.ledger import Ledger
print(flush=True)
sys.stdin.read()
Ledger(sys.argv[1]).close()
"""
    command = [sys.executable, "-c", program, url]
    pipe = subprocess.PIPE
    makers = [subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe) for _ in range(4)]
    for maker in makers:
        assert maker.stdout is not None
        maker.stdout.readline()
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.close()
    for maker in makers:
        with maker:  # which closes its pipes
            assert maker.wait() == 0
    with closing(Ledger(url)) as ledger:
        ledger.note(None, "a.note", "it", {})


def test_the_ledger_of_a_later_version_is_refused_and_left_alone(file: Path) -> None:
    Ledger(f"sqlite:///{file}").close()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    before = file.read_bytes()
    with pytest.raises(
        UnknownSchema, match=r"wanted .* version 0001, 0002, 0003, 0004: found version 9999 in .*; "
    ):
        Ledger(f"sqlite:///{file}")
    assert file.read_bytes() == before


def test_the_database_of_another_program_is_refused_and_left_alone(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE flow_run (id TEXT)")
    before = file.read_bytes()
    with pytest.raises(UnknownSchema, match="found the tables flow_run in"):
        Ledger(f"sqlite:///{file}")
    assert file.read_bytes() == before


def _rows(file: Path, tables: set[str]) -> dict[str, list[tuple[Any, ...]]]:
    with closing(sqlite3.connect(file)) as database:
        found = tables - {"alembic_version"}
        return {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in found}


def _dump(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as database:
        return list(database.iterdump())
