"""The Prefect server that a campaign is seen through."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.process import ProcessMark, is_alive, mark, marked_by
from flows.server import (
    HOST,
    ServerFailed,
    answers,
    choose_server,
    temporary_server,
)
from flows.settings import Settings
from flows.standing_file import Standing, standing_file

CONTROLLER = """
import asyncio, sys
from pathlib import Path
from flows.server import temporary_server

async def main(home):
    async with temporary_server(home, home / "temporary.log") as url:
        print(url, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PREFECT_HOME that the tests share: the first start in it migrates its database."""
    return tmp_path_factory.mktemp("prefect")


@pytest.fixture
def no_server() -> Iterator[None]:
    """No server is named, whatever tests ran before."""
    url = os.environ.pop("PREFECT_API_URL", None)
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        yield
    if url is not None:
        os.environ["PREFECT_API_URL"] = url


def servers(home: Path) -> list[ProcessMark]:
    return marked_by("PREFECT_HOME", str(home))


def all_gone(home: Path, seconds: float = 10.0) -> bool:
    give_up = time.monotonic() + seconds
    while servers(home) and time.monotonic() < give_up:
        time.sleep(0.05)
    return not servers(home)


def settings_of(prefect_home: Path) -> Settings:
    settings = Settings(home=prefect_home.parent)
    assert settings.prefect_home == prefect_home
    return settings


def event_of(url: str) -> list[dict[str, object]]:
    filters = {"filter": {"event": {"name": ["seedbed.test"]}}}
    found = httpx.post(f"{url}/events/filter", json=filters).raise_for_status().json()
    return found["events"]


@pytest.mark.slow
def test_what_reached_a_temporary_server_last_is_there_when_the_next_one_starts(
    home: Path, no_server: None
) -> None:
    event = {
        "id": "00000000-0000-4000-8000-000000000001",
        "occurred": "2026-01-01T00:00:00Z",
        "event": "seedbed.test",
        "resource": {"prefect.resource.id": "seedbed.test"},
    }

    async def report() -> str:
        async with temporary_server(home, home / "temporary.log") as url:
            assert PREFECT_API_URL.value() == url
            assert len(servers(home)) == 1
            async with httpx.AsyncClient() as client:
                recent = event | {"occurred": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
                (await client.post(f"{url}/events", json=[recent])).raise_for_status()
                artifact = {"key": "last", "type": "markdown", "data": "words"}
                (await client.post(f"{url}/artifacts/", json=artifact)).raise_for_status()
        assert not answers(url)
        assert not servers(home)
        return url

    async def read() -> tuple[str, list[dict[str, object]]]:
        async with temporary_server(home, home / "temporary.log") as url:
            latest = httpx.get(f"{url}/artifacts/last/latest").raise_for_status().json()
            return latest["data"], event_of(url)

    asyncio.run(report())
    words, events = asyncio.run(read())
    assert words == "words"
    assert [found["id"] for found in events] == [event["id"]]
    assert PREFECT_API_URL.value() is None


def test_a_killed_controller_takes_its_server_along(home: Path, no_server: None) -> None:
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(home)], stdout=subprocess.PIPE, text=True
    )
    assert controller.stdout is not None
    with controller.stdout:
        url = controller.stdout.readline().strip()
        assert answers(url)
        controller.send_signal(signal.SIGKILL)
        controller.wait()
    assert all_gone(home)


def test_a_server_that_cannot_start_is_explained_with_the_end_of_its_log(
    tmp_path: Path, no_server: None
) -> None:
    (tmp_path / "prefect.db").write_bytes(
        b"not a database, and longer than the header of one " * 99
    )

    async def start() -> None:
        async with temporary_server(tmp_path, tmp_path / "temporary.log"):
            raise AssertionError("it started")

    with pytest.raises(ServerFailed, match=r"(?s)wanted .* found that it ended; .*not a database"):
        asyncio.run(start())
    assert not servers(tmp_path)


def test_the_server_that_the_user_names_is_used_first(tmp_path: Path) -> None:
    async def chosen() -> str:
        with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
            async with choose_server(settings_of(tmp_path / "prefect")) as url:
                return url

    assert asyncio.run(chosen()) == "http://127.0.0.1:9/api"
    assert not (tmp_path / "prefect").exists()


def test_a_standing_server_that_answers_is_used_and_left_running(
    tmp_path: Path, prefect_api: str, no_server: None
) -> None:
    prefect_home = tmp_path / "prefect"
    prefect_home.mkdir()
    standing = Standing(url=prefect_api, port=1, token="t", server=mark(os.getpid()))
    standing_file(prefect_home).write_text(standing.model_dump_json())

    async def chosen() -> str:
        async with choose_server(settings_of(prefect_home)) as url:
            assert PREFECT_API_URL.value() == url
            return url

    assert asyncio.run(chosen()) == prefect_api
    assert answers(prefect_api)
    assert not servers(prefect_home)


def test_a_standing_server_that_is_gone_is_replaced_by_a_temporary_one(
    home: Path, no_server: None
) -> None:
    dead = Standing(url=f"http://{HOST}:9/api", port=9, token="t")
    standing_file(home).write_text(dead.model_dump_json())

    async def chosen() -> str:
        async with choose_server(settings_of(home.rename(home.with_name("prefect")))) as url:
            assert answers(url)
            return url

    assert asyncio.run(chosen()) != dead.url


@pytest.mark.slow
def test_two_servers_that_start_on_one_empty_home_both_come_up(
    tmp_path: Path, no_server: None
) -> None:
    async def start(name: str) -> bool:
        async with temporary_server(tmp_path, tmp_path / name) as url:
            await asyncio.sleep(1.0)
            return answers(url)

    async def both() -> list[bool]:
        return list(await asyncio.gather(start("one.log"), start("two.log")))

    assert asyncio.run(both()) == [True, True]


def test_a_mark_is_of_one_process_and_not_of_the_next_with_its_id() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    found = mark(child.pid)
    assert found is not None and is_alive(found)
    assert not is_alive(ProcessMark(pid=found.pid, started=found.started + 1))
    child.stdin.close()
    give_up = time.monotonic() + 10
    while is_alive(found) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert not is_alive(found), "an ended process that nobody waited for is not alive"
    child.wait()
