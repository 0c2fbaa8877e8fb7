"""What a person does in Prefect's UI after `seedbed up`, by the same calls of its API."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from flows.plan import Plan
from flows.process import marked_by
from flows.server import HOST, free_port
from flows.settings import Settings
from flows.standing import DEPLOYMENTS, MARK
from flows.standing_file import read_standing, standing_file
from policies.ledger import Ledger
from policies.tables import Campaign

pytestmark = pytest.mark.timeout(300)

STUB = Path(__file__).parent.parent / "substrates" / "stub"
PLAN = {"substrate": str(STUB), "rounds": 1, "width": 3}
T = TypeVar("T")
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


@dataclass(frozen=True)
class Standing:
    """A home with a server and deployments that are up."""

    home: Path
    port: int
    said: str

    @property
    def settings(self) -> Settings:
        return Settings(home=self.home)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Ask the API, and again after a 503 (its SQLite file was busy), as Prefect's pages do."""
        url = f"http://{HOST}:{self.port}/api{path}"

        def answered() -> httpx.Response | None:
            found = httpx.request(method, url, json=body, timeout=30.0)
            return None if found.status_code == 503 else found

        answer = soon(answered)
        assert answer is not None and answer.is_success, answer
        return answer.json() if answer.content else None

    def deployment(self, name: str) -> dict[str, Any]:
        return self.call("GET", f"/deployments/name/{name}/{name}")

    def start(self, name: str, parameters: object) -> str:
        """Start a run as the form's button does. Returns its id."""
        path = f"/deployments/{self.deployment(name)['id']}/create_flow_run"
        return self.call("POST", path, {"parameters": parameters, "state": {"type": "SCHEDULED"}})[
            "id"
        ]

    def ended(self, run: str) -> str:
        """Wait for the end of a run. Returns its state's name and message."""

        def end() -> str:
            state = self.call("GET", f"/flow_runs/{run}")["state"]
            return f"{state['name']}: {state['message']}" if state["type"] in ENDED else ""

        return soon(end)

    def campaigns(self) -> list[Campaign]:
        with closing(Ledger(self.settings.url)) as ledger:
            return ledger.campaigns()

    def reports(self, campaign_id: str) -> int:
        with closing(Ledger(self.settings.url)) as ledger:
            return len(ledger.reports(campaign_id))

    def trials(self, campaign_id: str) -> int:
        with closing(Ledger(self.settings.url)) as ledger:
            return len(ledger.trials(campaign_id))


def soon(found: Callable[[], T], most_seconds: float = 120.0) -> T:
    """What is found once it is true."""
    give_up = time.monotonic() + most_seconds
    while not (value := found()):
        assert time.monotonic() < give_up, f"nothing after {most_seconds} s"
        time.sleep(0.2)
    return value


def seedbed(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, in the home folder's parent and with none of this session's settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "flows.cli", *arguments],
        cwd=home.parent,
        env=clean | {"SEEDBED_HOME": str(home)},
        capture_output=True,
        text=True,
    )


def up(home: Path, port: int) -> Standing:
    done = seedbed(home, "up", "--port", str(port))
    assert done.returncode == 0, done.stderr
    return Standing(home, port, done.stdout)


def left_of(home: Path) -> list[str]:
    """Command lines of the processes that work for this home."""
    return [
        Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        for process in marked_by("SEEDBED_HOME", str(home))
        + marked_by("PREFECT_HOME", str(home / "prefect"))
    ]


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    home = tmp_path_factory.mktemp("up") / "home"
    yield up(home, free_port())
    seedbed(home, "down")
    assert not left_of(home)


def test_up_says_where_and_says_it_again_without_starting_anything(standing: Standing) -> None:
    assert f"http://{HOST}:{standing.port}" in standing.said
    before = read_standing(standing.settings.prefect_home)
    assert up(standing.home, standing.port).said == standing.said
    assert read_standing(standing.settings.prefect_home) == before


def test_the_run_form_is_the_plan_with_a_description_of_every_field(standing: Standing) -> None:
    schema = standing.deployment("campaign")["parameter_openapi_schema"]
    assert schema["required"] == ["plan"]
    assert schema["definitions"]["Plan"]["additionalProperties"] is False
    assert set(schema["definitions"]["Plan"]["properties"]) == set(Plan.model_fields)
    for model in schema["definitions"].values():
        for name, field in model["properties"].items():
            assert field["description"], name


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (PLAN | {"rouds": 3}, "rouds"),
        (PLAN | {"budget": {"look": 3}}, "look"),
        (PLAN | {"rounds": "many"}, "rounds"),
        ({"rounds": 2}, "substrate"),
    ],
)
def test_a_plan_with_a_mistake_is_refused_before_it_is_a_run(
    standing: Standing, plan: dict[str, Any], name: str
) -> None:
    url = f"http://{HOST}:{standing.port}/api/deployments/{standing.deployment('campaign')['id']}"
    answer = httpx.post(f"{url}/create_flow_run", json={"parameters": {"plan": plan}})
    assert answer.status_code in (409, 422)
    assert name in answer.text


def test_a_campaign_from_the_form_completes_and_its_report_and_diff_are_read_in_prefect(
    standing: Standing,
) -> None:
    run = standing.start("campaign", {"plan": PLAN})
    assert standing.ended(run).startswith("Completed")

    (campaign,) = [row for row in standing.campaigns() if row.flow_run_id == run]
    filters = {"flow_runs": {"id": {"any_": [run]}}}
    artifacts = {a["key"]: a["data"] for a in standing.call("POST", "/artifacts/filter", filters)}
    assert set(artifacts) == {
        f"{campaign.id}-{what}" for what in ("report", "scores", "policy-diff", "progress", "index")
    }
    assert f"# Round 1 of `{campaign.id}`" in artifacts[f"{campaign.id}-report"]
    assert "## Trials" in artifacts[f"{campaign.id}-report"]
    assert "# Policy version 1 to 2" in artifacts[f"{campaign.id}-policy-diff"]


@pytest.mark.slow
def test_a_schedule_that_fires_twice_makes_two_campaigns(standing: Standing) -> None:
    schedule = {
        "schedule": {"interval": 6.0},
        "active": True,
        "parameters": {"plan": PLAN | {"name": "twice"}},
    }
    schedules = f"/deployments/{standing.deployment('campaign')['id']}/schedules"
    (made,) = standing.call("POST", schedules, [schedule])
    of_schedule = {"flow_runs": {"tags": {"all_": ["auto-scheduled"]}}}

    def fired() -> list[str]:
        runs = standing.call("POST", "/flow_runs/filter", of_schedule)
        return [run["id"] for run in runs if run["state"]["type"] != "SCHEDULED"]

    soon(lambda: len(fired()) >= 2)
    standing.call("DELETE", f"{schedules}/{made['id']}")
    runs = fired()
    assert {standing.ended(run).partition(":")[0] for run in runs} == {"Completed"}
    campaigns = [row for row in standing.campaigns() if row.id.startswith("twice-")]
    assert sorted(str(row.flow_run_id) for row in campaigns) == sorted(runs)


@pytest.mark.slow
def test_down_leaves_no_process_and_a_campaign_that_the_next_up_resumes(
    standing: Standing,
) -> None:
    home, settings = standing.home, standing.settings
    hourly = {"schedule": {"interval": 3600.0}, "active": True, "parameters": {"plan": PLAN}}
    deployment = standing.deployment("campaign")["id"]
    standing.call("POST", f"/deployments/{deployment}/schedules", [hourly])
    run = standing.start("campaign", {"plan": PLAN | {"rounds": 3, "width": 8}})
    (campaign_id,) = soon(lambda: [r.id for r in standing.campaigns() if r.flow_run_id == run])
    soon(lambda: standing.trials(campaign_id))
    state = read_standing(settings.prefect_home)
    assert state is not None

    done = seedbed(home, "down")
    assert (done.returncode, done.stdout.strip()) == (0, "Seedbed is down.")
    assert not marked_by(MARK, state.token)
    assert not left_of(home)
    assert not standing_file(settings.prefect_home).exists()
    assert standing.reports(campaign_id) < 3
    assert seedbed(home, "down").stdout.strip() == "Seedbed was not up."

    again = up(home, standing.port)
    intervals = [found["schedule"] for found in again.deployment("campaign")["schedules"]]
    assert 3600.0 in [schedule.get("interval") for schedule in intervals]
    assert again.ended(again.start("resume", {"campaign_id": campaign_id})).startswith("Completed")
    assert standing.reports(campaign_id) == 3


def test_a_port_that_is_taken_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        done = seedbed(home, "up", "--port", str(port))
    assert done.returncode == 2
    assert f"wanted port {port}" in done.stderr and "--port" in done.stderr
    assert not left_of(home)
    assert not standing_file(home / "prefect").exists()


def test_what_up_waits_for_is_what_is_served(standing: Standing) -> None:
    found = standing.call("POST", "/deployments/filter", {})
    assert {f"{item['name']}/{item['name']}" for item in found} == set(DEPLOYMENTS)
