"""Campaigns on machines with fewer walls: what they run behind, what they refuse, what they say."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.campaign import campaign
from flows.house import House, open_house
from flows.plan import Plan
from policies.render import report_markdown
from substrate.isolation import HIDDEN, NoWalls, how_to_raise, why_not

REPO = Path(__file__).parent.parent.parent
STUB = REPO / "tests" / "substrates" / "stub"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_api: str) -> House:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path / "home"))
    return open_house()


def conducted(**changes: object) -> str:
    plan = {"substrate": str(STUB), "rounds": 1, "width": 3, **changes}
    return str(asyncio.run(campaign(Plan.model_validate(plan))))


def seedbed(home: Path, *arguments: str, hidden: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        cwd=REPO,
        env={**os.environ, "SEEDBED_HOME": str(home), "COLUMNS": "120", HIDDEN: hidden},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.mark.skipif(why_not("landlock") is not None, reason="wanted Landlock here")
def test_a_campaign_behind_the_second_level_says_which(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HIDDEN, "bubblewrap")
    (report,) = house.reports(conducted())
    assert [slot.outcome for slot in report.results.slots] == ["evaluated"] * 3
    assert {slot.isolation for slot in report.account.slots} == {"landlock"}
    assert report.account.isolation == "landlock"
    assert "ISOLATION" not in report_markdown(report)


def test_a_campaign_without_walls_is_refused_before_anything_is_recorded(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HIDDEN, "bubblewrap landlock")
    with pytest.raises(NoWalls, match="wanted walls around recipes and workers, found none"):
        conducted()
    assert house.ledger.campaigns() == []


def test_a_campaign_asked_to_run_without_walls_has_a_banner_on_every_report(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HIDDEN, "bubblewrap landlock")
    campaign_id = conducted(isolation="none")
    (report,) = house.reports(campaign_id)
    assert report.account.isolation == "none"
    shown = seedbed(house.settings.folder, "report", campaign_id, hidden="")
    assert "NO ISOLATION" in shown.stdout
    written = seedbed(house.settings.folder, "report", campaign_id, "--markdown", hidden="")
    assert "> **NO ISOLATION" in written.stdout


def test_the_command_line_refuses_with_exit_code_2_and_the_fix(tmp_path: Path) -> None:
    orders = ("run", "--substrate", str(STUB), "--rounds", "1", "--width", "3")
    refused = seedbed(tmp_path / "home", *orders, hidden="bubblewrap landlock")
    assert refused.returncode == 2
    said = " ".join(refused.stderr.split())
    assert "found none" in said and "--isolation none" in said


def test_the_doctor_names_the_level_why_not_the_higher_and_what_raises_it(tmp_path: Path) -> None:
    def finding(hidden: str) -> tuple[int, dict[str, object]]:
        run = seedbed(tmp_path / "home", "doctor", "--json", hidden=hidden)
        findings = {item["what"]: item for item in json.loads(run.stdout)}
        return run.returncode, findings["isolation"]

    code, found = finding("bubblewrap landlock")
    assert code == 2 and not found["ok"]
    assert how_to_raise("bubblewrap") in str(found["todo"])
    if why_not("landlock") is None:
        code, found = finding("bubblewrap")
        assert code == 0 and found["ok"]
        assert str(found["found"]).startswith("landlock")
        assert f"not bubblewrap: hidden by {HIDDEN}" in str(found["found"])


@pytest.mark.skipif(why_not("landlock") is not None, reason="wanted Landlock here")
def test_the_doctor_says_that_there_are_no_control_groups_and_why(tmp_path: Path) -> None:
    run = seedbed(tmp_path / "home", "doctor", "--json", hidden="cgroups")
    (found,) = (item["found"] for item in json.loads(run.stdout) if item["what"] == "limits")
    assert found == f"20 looks a second; no control groups: hidden by {HIDDEN}"
