"""On PostgreSQL the role that runs campaigns may look and append, and nothing else."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from policies.ledger import DuplicateRow, Ledger, verify_chain
from policies.schema import first_schema_fault
from policies.tables import Look, Outbox
from tests.flows.commands import seedbed
from tests.policies.conftest import POSTGRESQL

pytestmark = pytest.mark.skipif(
    not POSTGRESQL, reason="SEEDBED_TEST_POSTGRESQL names no PostgreSQL to test with"
)
REPO = Path(__file__).resolve().parents[2]
ROLES = REPO / "policies" / "roles.sql"
STUB = REPO / "tests" / "substrates" / "stub"


@pytest.fixture
def application(url: str) -> Iterator[str]:
    """The URL of a ledger, as the role that runs campaigns."""
    if not url.startswith("postgresql"):
        pytest.skip("SQLite has no roles")
    Ledger(url).close()
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as owner:
        for _ in range(2):  # again, as after a migration
            owner.exec_driver_sql(ROLES.read_text("utf-8").replace("%", "%%"))
    engine.dispose()
    yield f"{url}%20-crole%3Dseedbed_app"


def test_the_application_appends_asks_leases_publishes_and_verifies(application: str) -> None:
    with closing(Ledger(application)) as ledger:
        ledger.append(Look(campaign="c", round=1, slot=0, number=1))
        with pytest.raises(DuplicateRow):
            ledger.append(Look(campaign="c", round=1, slot=0, number=1))
        ledger.append(Outbox(campaign="c", kind="markdown", key="k", body="# c"))
        (waiting,) = ledger.unpublished("c")
        assert waiting.id is not None
        ledger.mark_published(waiting.id)
        assert ledger.unpublished("c") == []
        assert ledger.claim_lease("campaign/c", "a", 60)
        assert ledger.renew_lease("campaign/c", "a", 60)
        ledger.release_lease("campaign/c", "a")
        assert verify_chain(ledger) is None
        assert first_schema_fault(ledger) is None


def test_the_application_calibrates_conducts_ends_and_verifies_a_campaign(
    application: str, tmp_path: Path, prefect_api: str
) -> None:
    environment = {**os.environ, "SEEDBED_DATABASE_URL": application}
    for command in (
        ("substrate", "calibrate", str(STUB), "--runs", "2"),
        ("run", "--substrate", str(STUB), "--rounds", "1", "--width", "3"),
        ("export",),
        ("verify",),
    ):
        done = seedbed(tmp_path / "home", *command, environment=environment)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    with closing(Ledger(application)) as ledger:
        kinds = {event.kind for event in ledger.events()}
        (campaign,) = ledger.campaigns()
        assert ledger.lease_holder(f"campaign/{campaign.id}") is None
    assert {"calibration", "trial", "look", "report", "final_run", "opening"} <= kinds
    engine = create_engine(application)
    for table in ("calibration", "trial", "report", "final_run", "opening", "campaign"):
        with pytest.raises(DBAPIError, match="permission denied"), engine.begin() as connection:
            connection.execute(text(f"DELETE FROM {table}"))
    engine.dispose()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE look SET number = 2",
        "DELETE FROM look",
        "TRUNCATE look",
        "UPDATE event SET body = '{}'",
        "DELETE FROM event",
        "TRUNCATE event",
        "ALTER TABLE look DISABLE TRIGGER ALL",
        "DROP TRIGGER look_append_only ON look",
        "DROP TABLE look",
        "CREATE OR REPLACE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN NEW; END $$",
        "SET session_replication_role = replica",
        "UPDATE outbox SET body = ''",
        "DELETE FROM outbox",
        "UPDATE alembic_version SET version_num = '0001'",
        "INSERT INTO alembic_version VALUES ('0001')",
        "CREATE TABLE mine (id integer)",
    ],
)
def test_the_application_can_change_nothing(application: str, statement: str) -> None:
    with closing(Ledger(application)) as ledger:
        ledger.append(Look(campaign="c", round=1, slot=0, number=1))
    engine = create_engine(application)
    with (
        pytest.raises(DBAPIError, match=r"permission denied|must be (able to|owner)"),
        engine.begin() as connection,
    ):
        connection.execute(text(statement))
    engine.dispose()


def test_what_the_owner_does_past_the_triggers_is_named(application: str, url: str) -> None:
    with closing(Ledger(application)) as ledger:
        ledger.append(Look(campaign="c", round=1, slot=0, number=1))
        engine = create_engine(url)
        with engine.begin() as owner:
            owner.execute(text("ALTER TABLE look DISABLE TRIGGER look_append_only"))
            owner.execute(text("UPDATE look SET number = 2"))
        assert first_schema_fault(ledger) == "trigger look_append_only is switched off"
        with engine.begin() as owner:
            owner.execute(text("ALTER TABLE look ENABLE TRIGGER look_append_only"))
        assert first_schema_fault(ledger) is None
        assert "look c/r1/s0" in str(verify_chain(ledger))
        with engine.begin() as owner:
            owner.execute(text("DROP TRIGGER look_append_only ON look"))
        assert first_schema_fault(ledger) == "trigger look_append_only is missing: it was dropped"
        engine.dispose()
