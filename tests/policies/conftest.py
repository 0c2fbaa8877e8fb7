"""Ledgers to test with: in a SQLite file, and in PostgreSQL where one is named."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from policies.ledger import Ledger

# Such as postgresql+psycopg://user@/database?host=/run/postgresql: each test makes its own schema.
POSTGRESQL = os.environ.get("SEEDBED_TEST_POSTGRESQL")


@pytest.fixture(params=["sqlite", "postgresql"] if POSTGRESQL else ["sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'ledger.db'}"
        return
    assert POSTGRESQL is not None
    schema = f"test_{os.getpid()}_{abs(hash(tmp_path))}"
    engine = create_engine(POSTGRESQL, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
        joint = "&" if "?" in POSTGRESQL else "?"
        yield f"{POSTGRESQL}{joint}options=-csearch_path%3D{schema}"
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    engine.dispose()


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with closing(Ledger(url)) as ledger:
        yield ledger


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file for a SQLite database."""
    return tmp_path / "ledger.db"
