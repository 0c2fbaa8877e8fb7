"""Calibration of the stub, as a person types it."""

import asyncio
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from flows.calibrate import calibration_of
from flows.clean_run import LOOK
from flows.cli import app
from flows.house import open_house
from flows.keeping import calibrate
from flows.lease import holder
from flows.plan import BudgetPlan, Plan
from flows.start import start_campaign
from policies.baseline import score_of
from policies.ledger import Ledger
from substrate.dropin import read_dropin
from tests.flows.commands import REPO, SEEDBED, seedbed

STUB = Path(__file__).parent.parent / "substrates" / "stub"


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the stub was calibrated."""
    home = tmp_path_factory.mktemp("calibrate") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBED_HOME", str(home))
        done = calibrated()
        open_house().ledger.close()
    assert done.exit_code == 0, done.output
    (home / "said.txt").write_text(done.stdout)
    return home


@pytest.fixture
def home(completed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    shutil.copytree(completed, home, symlinks=True)
    monkeypatch.setenv("SEEDBED_HOME", str(home))
    return home


def calibrated(substrate: Path = STUB, *arguments: str) -> Result:
    return CliRunner().invoke(
        app, ["substrate", "calibrate", str(substrate), "--runs", "4", *arguments]
    )


def shown(*arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["substrate", "show", str(STUB), "--json", *arguments])
    return json.loads(done.stdout)["calibrations"]


def test_runs_and_probes_are_rows_and_the_summary_is_theirs(home: Path) -> None:
    (found,) = shown()
    rows = open_house().ledger.calibrations(found["substrate_sha256"], "stub", 960)
    runs = [score for row in rows if row.probe == "recipe" and (score := score_of(row, "dev"))]
    scores = [score.value for score in runs]
    assert [row.number for row in rows if row.probe == "recipe"] == [1, 2, 3, 4]
    assert len({row.seed for row in rows}) == len(rows), "each has a seed of its own"
    assert found["mean"] == pytest.approx(statistics.mean(scores))
    assert found["sigma"] == pytest.approx(statistics.stdev(scores))
    assert found["external_mean"] is not None
    assert set(found["probes"]) == {"base", "random", "constant", "empty"}
    # The base solves 0.3 of dev and the recipe 0.449: see the stub's README.
    assert found["probes"]["base"] == pytest.approx(0.3, abs=0.02)
    assert found["probes"]["random"] < found["mean"]
    assert found["probes"]["constant"] == found["probes"]["empty"] == 0
    assert "sigma" in (home / "said.txt").read_text()


def test_what_was_recorded_is_not_done_again_and_more_runs_are_added(home: Path) -> None:
    before = open_house().ledger.events()
    assert calibrated().exit_code == 0
    after = [event.kind for event in open_house().ledger.events()[len(before) :]]
    assert "calibration" not in after
    assert calibrated(STUB, "--runs", "5").exit_code == 0
    assert [item["runs"] for item in shown()] == [5]


def test_another_budget_is_another_baseline(home: Path) -> None:
    assert calibrated(STUB, "--rollouts", "120", "--runs", "2").exit_code == 0
    short, whole = shown()
    assert (short["rollouts"], whole["rollouts"]) == (120, 960)
    assert short["mean"] != whole["mean"], "runs of its own"


def test_a_campaign_pins_the_runs_that_there_are_when_it_starts(home: Path) -> None:
    house = open_house()
    campaign_id = start_campaign(house, Plan(substrate=str(STUB)))
    other = Plan(substrate=str(STUB), budget=BudgetPlan(rollouts=480))
    assert calibrated(STUB, "--runs", "6").exit_code == 0
    pinned = calibration_of(house, campaign_id)
    assert len(pinned) == 4
    assert all(run.external is not None for run in pinned)
    assert calibration_of(house, start_campaign(house, other)) == []


def test_verify_checks_a_calibration_s_adapters(home: Path) -> None:
    verified = CliRunner().invoke(app, ["verify"])
    assert verified.exit_code == 0, verified.output
    sha256 = next(row.adapter_sha256 for row in open_house().ledger.calibrations(digest()))
    assert sha256 is not None
    weights = home / "artifacts" / "adapters" / sha256 / "adapter_model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes() + b" ")
    weights.chmod(0o444)
    verified = CliRunner().invoke(app, ["verify"])
    assert verified.exit_code == 1 and "the calibration's" in verified.output


def test_what_a_calibration_rests_on_is_no_garbage_and_what_it_left_is(home: Path) -> None:
    house = open_house()
    (judge,) = house.store.folders("judges")
    other = home.parent / "stub"
    shutil.copytree(STUB, other)
    with (other / "judge" / "external.jsonl").open("a") as problems:
        problems.write((STUB / "judge" / "external.jsonl").read_text().splitlines()[0])
    unused = house.store.seal_judge(read_dropin(other))
    name = f"calibration/{digest()[:12]}-stub-960"
    fork = house.settings.forks / f"{name}-1-4242"
    fork.mkdir(parents=True)
    for folder in (judge, unused.external.parent, fork, *house.store.folders("snapshots")):
        os.utime(folder, (0, 0))
    cleared = ["gc", "--json", "--apply", "--older-than", "0"]
    assert house.ledger.claim_lease(name, holder(), 60)
    said = json.loads(CliRunner().invoke(app, cleared).stdout)
    assert said["garbage"] == [] and list(said["left"]) == [f"forks/{name}-1-4242"]
    house.ledger.release_lease(name, holder())
    said = json.loads(CliRunner().invoke(app, cleared).stdout)
    assert {one["kind"] for one in said["garbage"]} == {"fork", "judge that no row has"}
    assert house.store.folders("judges") == [judge] and not fork.exists()
    assert CliRunner().invoke(app, ["verify"]).exit_code == 0


def digest() -> str:
    return str(shown()[0]["substrate_sha256"])


def test_an_evaluation_that_an_empty_output_wins_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path / "home"))
    stub = tmp_path / "stub"
    shutil.copytree(STUB, stub)
    grade = stub / "overlay" / "evaluation" / "grade.py"
    grade.write_text(grade.read_text().replace("return 0.0", "return float(answer == '')"))
    done = calibrated(stub, "--runs", "2")
    assert done.exit_code == 2
    assert "probe-beats-baseline: empty: scores 1.0000 on dev" in done.output
    assert "probe-beats-baseline: constant" not in done.output


def test_a_recipe_that_is_not_there_is_refused(home: Path) -> None:
    done = calibrated(STUB, "--recipe", "nothing")
    assert "wanted recipe 'nothing'" in str(done.exception)


@pytest.mark.slow
def test_two_processes_at_one_calibration_do_nothing_twice_and_a_dead_ones_is_taken_over(
    tmp_path: Path,
) -> None:
    stub, home = tmp_path / "stub", tmp_path / "home"
    shutil.copytree(STUB, stub)
    recipe = stub / "overlay" / "recipes" / "stub.py"
    slowly = recipe.read_text().replace("STEP_SECONDS = 0.0", "STEP_SECONDS = 0.1")  # 3 s a run
    recipe.write_text(slowly)
    command = ["substrate", "calibrate", str(stub), "--runs", "4"]
    environment = {**os.environ, "SEEDBED_HOME": str(home)}
    with subprocess.Popen(
        [*SEEDBED, *command, "--at-once", "1"], cwd=REPO, env=environment, stdout=subprocess.DEVNULL
    ) as first:
        try:
            while not (home / "forks" / "calibration").is_dir():  # it has a run under way
                assert first.poll() is None
                time.sleep(0.05)
            second = seedbed(home, *command)
            assert first.poll() is None, "the second process was asked while the first ran"
        finally:
            first.send_signal(signal.SIGKILL)
    assert second.returncode == 2
    assert f"but process {socket.gethostname()}:{first.pid}:" in " ".join(second.stderr.split())
    assert any((home / "forks" / "calibration").iterdir()), "it was killed in a run"

    with (
        closing(Ledger(f"sqlite:///{home / 'seedbed.db'}")) as ledger,
        subprocess.Popen(
            [*SEEDBED, *command], cwd=REPO, env=environment, stderr=subprocess.PIPE, text=True
        ) as ended,
    ):
        while not any(f":{ended.pid}:" in lease.holder for lease in ledger.leases()):
            assert ended.poll() is None
            time.sleep(0.05)
        ended.terminate()
        _, said = ended.communicate()
    assert ended.returncode == 130 and "the same command goes on" in said

    third = seedbed(home, *command, "--at-once", "4", "--json")
    assert third.returncode == 0, third.stderr
    assert json.loads(third.stdout)["runs"] == 4
    assert not any((home / "forks" / "calibration").iterdir()), "nor is a fork of the dead left"
    with closing(Ledger(f"sqlite:///{home / 'seedbed.db'}")) as ledger:
        done = Counter(event.subject for event in ledger.events(kind="calibration"))
        looks = Counter(event.subject for event in ledger.events(kind=LOOK))
    assert len(done) == 4 + 4 and set(done.values()) == {1}
    assert len(looks) == 4 and sum(looks.values()) <= 4 + 1, "but for the run that was cut short"
    assert seedbed(home, "verify").returncode == 0


@pytest.mark.slow
def test_the_flow_calibrates_too(home: Path, prefect_api: str) -> None:
    found = asyncio.run(calibrate(str(STUB), rollouts=320, runs=2))
    assert [(item.rollouts, item.runs) for item in found] == [(320, 2), (960, 4)]
