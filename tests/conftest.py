"""For every test: nothing that we start reports to anybody, no person's state is touched. And
torch has one thread: on models and matrices this small, threads wait for each other most of the
time, on a busy machine nearly all of it. For tests of flows and of cheats there is one real Prefect
server, with a home of its own.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["DO_NOT_TRACK"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
os.environ.setdefault("SEEDBED_HOME", os.path.join(tempfile.gettempdir(), "seedbed-tests"))

# Prefect reads its environment when it is imported, which test modules do. Without the second line
# a test that forgot its server would start one, silently, for 20 s.
PREFECT_HOME = Path(tempfile.mkdtemp(prefix="seedbed-prefect-"))
os.environ["PREFECT_HOME"] = str(PREFECT_HOME)
os.environ["PREFECT_SERVER_EPHEMERAL_ENABLED"] = "false"
os.environ.pop("PREFECT_API_URL", None)


def pytest_sessionfinish() -> None:
    shutil.rmtree(PREFECT_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[str]:
    """The URL of a Prefect server for the whole session; this process and its children use it."""
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        PREFECT_LOGGING_TO_API_ENABLED,
        temporary_settings,
    )

    from flows.server import temporary_server

    server = temporary_server(PREFECT_HOME, PREFECT_HOME / "server.log")
    with asyncio.Runner() as runner:
        url = runner.run(server.__aenter__())
        os.environ["PREFECT_API_URL"] = url
        # The runner's context has the settings of `temporary_server`, this one has not.
        with temporary_settings(
            {
                PREFECT_API_URL: url,
                PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,  # a second of waiting for each flow run
                PREFECT_LOGGING_TO_API_ENABLED: False,
            }
        ):
            yield url
        del os.environ["PREFECT_API_URL"]
        runner.run(server.__aexit__(None, None, None))
