"""Garbage in a real home: what is told, what goes, and what stays whatever is asked for."""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from flows import round as steps
from flows.cli import app
from flows.doctor import examine
from flows.export import conclude
from flows.house import House, open_house
from flows.lease import lease_name
from flows.plan import EndPlan, Plan
from flows.revision import revise_policy
from flows.start import start_campaign
from flows.trial import run_trial
from policies.tables import Campaign, Policy, Trial
from substrate.dropin import read_dropin
from substrate.walls import bubblewrap
from tests.flows.commands import SEEDBED, seedbed

STUB = Path(__file__).parent.parent / "substrates" / "stub"
OLD = time.time() - 10 * 86_400

# Holds a campaign's lease as a process that conducts it does, until it is killed.
HOLDER = """
import sys, time
from flows.house import open_house
from flows.lease import holder, lease_name
assert open_house().ledger.claim_lease(lease_name(sys.argv[1]), holder(), 3600)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which one campaign was run to its end and exported."""
    home = tmp_path_factory.mktemp("gc") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBED_HOME", str(home))
        plan = Plan(substrate=str(STUB), rounds=1, width=3, end=EndPlan(seeds=2))
        asyncio.run(conduct(open_house(), plan))
        open_house().ledger.close()
    return home


async def conduct(house: House, plan: Plan) -> None:
    """A campaign of one round and its end, by the functions that are under the flow."""
    id = start_campaign(house, plan)
    await steps.open_round(house, id, 1)
    await asyncio.gather(*(run_trial(id, 1, slot) for slot in range(plan.width)))
    await steps.take_looks(house, id, 1)
    report = steps.build_report(house, id, 1)
    steps.record_round(house, id, report, await revise_policy(house, id, report))
    house.drop_anchor()
    await conclude(house, id)
    shutil.rmtree(house.settings.forks / id)


@pytest.fixture
def home(completed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, ten days old."""
    home = tmp_path / "home"
    shutil.copytree(completed, home, symlinks=True, ignore=shutil.ignore_patterns("prefect"))
    monkeypatch.setenv("SEEDBED_HOME", str(home))
    age(home)
    return home


@pytest.fixture
def id(home: Path) -> str:
    return open_house().ledger.find_campaign(None).id


def age(folder: Path) -> None:
    for inside, names, files in os.walk(folder):
        for name in (*names, *files, "."):
            os.utime(Path(inside, name), (OLD, OLD), follow_symlinks=False)


def plant(path: Path, content: str = "left") -> Path:
    """A folder with a file in it, ten days old."""
    path.mkdir(parents=True)
    (path / "file").write_text(content)
    age(path)
    return path


def gc(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["gc", "--json", *arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def found(said: dict[str, Any]) -> dict[str, str]:
    return {one["path"]: one["kind"] for one in said["garbage"]}


def verify() -> Result:
    return CliRunner().invoke(app, ["verify", "--json"])


def adapters_check() -> dict[str, str]:
    return next(check for check in json.loads(verify().stdout) if check["what"] == "adapters")


def content(home: Path) -> dict[str, str]:
    """Every file and link of a home, and what is in it; locks and SQLite's own files aside."""
    paths = (path for path in home.rglob("*") if not path.name.endswith((".lock", "-shm", "-wal")))
    return {
        str(path.relative_to(home)): os.readlink(path)
        if path.is_symlink()
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.is_symlink() or path.is_file()
    }


def plant_everything(home: Path, id: str) -> dict[str, str]:
    """A piece of each kind that processes leave, by its path in the home."""
    kinds = {
        f"forks/{id}": "fork",
        "forks/calibration/0123456789ab-stub-960-1-4242": "fork",
        f"artifacts/{id}/r2/s1": "output of a run that no row has",
        f"artifacts/{id}/end/candidate-9": "output of a run that no row has",
        "artifacts/calibration/0123456789ab-stub-960-1": "output of a run that no row has",
        f"exports/.{id}-4242": "unfinished export",
        "artifacts/adapters/.unsealed-00": "unfinished adapter",
        f"artifacts/adapters/{'a' * 64}": "adapter of a run that no row has",
        "store/staging/tmp00": "unfinished seal",
        f"store/snapshots/{'b' * 64}": "snapshot that no row has",
        f"store/bases/{'c' * 64}": "base that no snapshot has",
        "removed/00": "unfinished removal",
    }
    for path in kinds:
        plant(home / path)
    return kinds


def test_what_nobody_needs_is_told_by_kind_and_nothing_is_changed(home: Path, id: str) -> None:
    planted = plant_everything(home, id)
    before = content(home)
    said = gc()
    assert found(said) == planted
    assert said["applied"] is False and said["bytes"] == 4 * len(planted)
    assert all(9.9 < one["days"] < 10.1 for one in said["garbage"])
    assert content(home) == before
    drawn = CliRunner().invoke(app, ["gc"]).stdout
    assert f"seedbed gc --apply removes {len(planted)} things, 48 bytes." in drawn
    assert "unfinished export" in drawn and "10.0" in drawn


def test_what_was_told_is_removed_when_that_is_asked_for_and_nothing_else(
    home: Path, id: str
) -> None:
    before = content(home)
    planted = plant_everything(home, id)
    said = gc("--apply")
    assert {one["path"] for one in said["garbage"] if one["removed"]} == set(planted)
    assert content(home) == before
    assert verify().exit_code == 0
    assert gc("--apply")["garbage"] == []


def test_what_changed_lately_stays_unless_that_is_asked_for(home: Path, id: str) -> None:
    fork = plant(home / "forks" / id)
    (fork / "file").write_text("again")
    said = gc("--apply")
    assert said["garbage"] == [] and said["younger"] == [f"forks/{id}"]
    assert found(gc("--apply", "--older-than", "0")) == {f"forks/{id}": "fork"}
    assert not fork.exists()


def test_what_gc_does_not_know_is_not_garbage(home: Path, id: str) -> None:
    for name in ("notes", "forks/mine", "artifacts/mine/r1/s1", f"artifacts/{id}/r1/mine"):
        plant(home / name)
    plant(home / "exports" / "mine")
    plant(home / "store" / "snapshots" / "mine")
    assert gc("--apply")["garbage"] == []


def test_one_campaign_is_cleared_alone(home: Path, id: str) -> None:
    planted = plant_everything(home, id)
    assert set(found(gc(id[:6], "--apply"))) == {path for path in planted if id in path}
    assert set(found(gc())) == {path for path in planted if id not in path}


def test_no_link_is_followed(home: Path, id: str, tmp_path: Path) -> None:
    outside = plant(tmp_path / "outside")
    (outside / "read-only").mkdir(mode=0o500)
    fork = plant(home / "forks" / id)
    (fork / "out").symlink_to(outside)
    (fork / "deeper").mkdir()
    (fork / "deeper" / "out").symlink_to(outside / "read-only")
    (home / "artifacts" / "adapters" / ("d" * 64)).symlink_to(outside)
    (home / "artifacts" / id / "r2").symlink_to(outside)
    (outside / "s1").mkdir()
    plant(outside / "forks" / "calibration" / "0123456789ab-stub-960-1-4242")
    (home / "forks" / "calibration").symlink_to(outside / "forks" / "calibration")
    age(home)
    before = content(outside)
    said = gc("--apply")
    assert found(said) == {f"forks/{id}": "fork"} and not fork.exists()
    assert "it is a link" in said["left"]["forks/calibration"]
    assert content(outside) == before and (outside / "s1").is_dir()
    assert (outside / "read-only").stat().st_mode & 0o777 == 0o500


def test_a_store_that_a_link_leads_to_is_left_alone(home: Path, tmp_path: Path) -> None:
    plant(home / "store" / "snapshots" / ("b" * 64))
    (home / "store").rename(tmp_path / "elsewhere")
    (home / "store").symlink_to(tmp_path / "elsewhere")
    assert gc("--apply")["garbage"] == []
    assert (tmp_path / "elsewhere" / "snapshots" / ("b" * 64)).is_dir()


@pytest.fixture
def conductor(home: Path, id: str) -> Iterator[subprocess.Popen[str]]:
    """A process that conducts the campaign, as far as anybody can see."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, id], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_what_a_living_process_may_use_is_left_until_it_is_dead(
    home: Path, id: str, conductor: subprocess.Popen[str]
) -> None:
    planted = plant_everything(home, id)
    unsealed = plant(home / "artifacts" / "adapters" / ".unsealed-11")
    delivered = plant(home / "artifacts" / "adapters" / ("e" * 64))
    os.utime(unsealed)
    os.utime(delivered)  # as sealing does, of one that was there
    done = CliRunner().invoke(app, ["gc", "--json", "--apply", "--older-than", "0"])
    said = json.loads(done.stdout)
    assert done.exit_code == 2, "two things were to go and did not"
    under = {path for path in planted if id in path}
    assert "lease" in said["left"][f"forks/{id}"] and under <= said["left"].keys()
    assert "may" in said["left"]["artifacts/adapters/.unsealed-11"]
    assert "may" in said["left"][f"artifacts/adapters/{'e' * 64}"]
    removed = {one["path"] for one in said["garbage"] if one["removed"]}
    assert removed == set(planted) - under, "what is older than that process goes all the same"
    conductor.kill()
    conductor.wait()
    gone = under | {"artifacts/adapters/.unsealed-11", f"artifacts/adapters/{'e' * 64}"}
    assert set(found(gc("--apply", "--older-than", "0"))) == gone
    assert open_house().ledger.lease_holder(lease_name(id)), "there is something to resume still"
    assert f"campaign {id}" in {finding.what for finding in examine() if not finding.ok}


def test_two_at_once_exclude_each_other(home: Path, id: str) -> None:
    fork = plant(home / "forks" / id)
    with (home / "gc.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = CliRunner().invoke(app, ["gc", "--apply"])
    assert "found another" in str(done.exception) and fork.exists()


def test_one_that_is_killed_leaves_nothing_half_there_and_the_next_goes_on(
    home: Path, id: str
) -> None:
    fork = plant(home / "forks" / id)
    for number in range(20_000):
        (fork / str(number)).touch()
    age(fork)
    process = subprocess.Popen(
        [*SEEDBED, "gc", "--apply"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 100
    while fork.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not fork.exists() and verify().exit_code == 0
    left = list((home / "removed").iterdir())
    assert len(left) == 1, "it was killed before it could remove so many files"
    os.utime(left[0], (OLD, OLD))
    age(left[0])
    said = gc("--apply")
    assert [one["kind"] for one in said["garbage"]] == ["unfinished removal"]
    assert list((home / "removed").iterdir()) == []


@pytest.mark.slow
def test_a_home_that_cannot_be_written_is_named_and_left(home: Path, id: str) -> None:
    bwrap = bubblewrap()
    if bwrap is None:
        pytest.skip("there is no bubblewrap to make a disk read-only with")
    plant(home / "forks" / id)
    before = content(home)
    walls = [str(bwrap), "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]

    def read_only() -> str:
        command = [*walls, *SEEDBED, "gc", "--apply"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        return done.stderr

    open_house().ledger.last_event()  # SQLite's own files are there, and it can read
    assert "wanted to write in" in read_only()
    open_house().ledger.close()
    assert "wanted to read the ledger" in read_only()
    assert content(home) == before


def test_another_ledger_than_the_homes_own_says_nothing_of_what_is_garbage(
    home: Path, id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = content(home)
    shutil.copy(home / "seedbed.db", tmp_path / "other.db")
    empty = tmp_path / "empty.db"
    monkeypatch.setenv("SEEDBED_DATABASE_URL", f"sqlite:///{empty}")
    open_house()
    done = CliRunner().invoke(app, ["gc", "--apply", "--older-than", "0"])
    assert "it was cut" in str(done.exception)
    assert content(home) == before


def test_a_home_without_a_ledger_is_refused_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path / "nowhere"))
    done = CliRunner().invoke(app, ["gc"])
    assert "found none" in str(done.exception) and not (tmp_path / "nowhere").exists()


def test_a_snapshot_that_nobody_used_goes_and_the_base_that_it_shares_stays(
    home: Path, tmp_path: Path
) -> None:
    store = open_house().store
    dropin = tmp_path / "other" / "stub"
    shutil.copytree(STUB, dropin)
    with (dropin / "overlay" / "recipes" / "stub.py").open("a") as recipe:
        recipe.write("# another\n")
    unused = store.seal(read_dropin(dropin))
    folder = unused.root.parent
    files = [path.lstat() for path in folder.rglob("*") if path.is_file()]
    own = sum(info.st_size for info in files if info.st_nlink == 1)
    assert any(info.st_nlink == 2 for info in files), "its base's files are the base's own"
    done = CliRunner().invoke(app, ["gc", "--json", "--older-than", "0", "--apply"])
    name = f"store/snapshots/{unused.digest}"
    assert json.loads(done.stdout)["left"] == {name: "it was sealed within the hour"}
    age(folder)
    said = gc("--apply")
    assert found(said) == {name: "snapshot that no row has"} and said["bytes"] == own
    assert not folder.exists() and verify().exit_code == 0


def test_a_file_with_two_names_counts_once(home: Path) -> None:
    snapshot = plant(home / "store" / "snapshots" / ("b" * 64))
    base = plant(home / "store" / "bases" / ("c" * 64))
    os.link(base / "file", snapshot / "base")
    age(snapshot)
    assert gc()["bytes"] == 2 * len("left")


# Adapters of campaigns that are complete


def named(id: str) -> set[str]:
    rows = open_house().ledger.trials(id)
    return {row.adapter_sha256 for row in rows if row.adapter_sha256}


def test_adapters_of_a_complete_campaign_go_on_record_and_its_report_stays(
    home: Path, id: str
) -> None:
    before = CliRunner().invoke(app, ["report", "--json"]).stdout
    there = {path.name for path in open_house().adapters.iterdir()}
    ends = {row.adapter_sha256 for row in open_house().ledger.final_runs(id)}
    said = gc("--adapters")
    dropped = {Path(path).name for path in found(said)}
    assert dropped == named(id) - ends and len(dropped) == 3
    assert not open_house().ledger.events(kind="adapters.removed"), "it was only told"
    gc("--adapters", "--apply")
    assert {path.name for path in open_house().adapters.iterdir()} == there - dropped
    (event,) = open_house().ledger.events(kind="adapters.removed")
    assert event.campaign == id and set(json.loads(event.body)["adapters"]) == dropped
    assert verify().exit_code == 0
    assert adapters_check()["found"].endswith("3 removed on record by `seedbed gc`")
    assert CliRunner().invoke(app, ["report", "--json"]).stdout == before
    assert gc("--adapters")["garbage"] == []


def test_an_adapter_that_is_gone_without_a_record_is_named(home: Path, id: str) -> None:
    gc("--adapters", "--apply")
    (kept, *_) = sorted(path for path in open_house().adapters.iterdir())
    shutil.rmtree(kept)
    assert verify().exit_code == 1
    assert kept.name in adapters_check()["found"] and "found none" in adapters_check()["found"]


def test_a_removal_of_what_a_campaigns_end_rests_on_is_named_though_it_is_on_record(
    home: Path, id: str
) -> None:
    house = open_house()
    sha256 = next(row.adapter_sha256 for row in house.ledger.final_runs(id))
    house.ledger.note(id, "adapters.removed", id, {"adapters": [sha256]})
    shutil.rmtree(house.adapters / str(sha256))
    assert str(sha256) in adapters_check()["found"] and verify().exit_code == 1


def test_another_campaigns_record_excuses_no_removal(home: Path, id: str) -> None:
    house = open_house()
    (sha256, *_) = sorted(named(id))
    house.ledger.append(
        Campaign.model_validate(house.campaign(id).model_dump() | {"id": "other-1a"}),
        Policy.model_validate(house.ledger.policy(id, 1).model_dump() | {"campaign": "other-1a"}),
    )
    house.ledger.note("other-1a", "adapters.removed", "other-1a", {"adapters": [sha256]})
    shutil.rmtree(house.adapters / sha256)
    assert sha256 in adapters_check()["found"] and verify().exit_code == 1


def test_an_adapter_that_is_back_after_its_removal_is_checked_again(home: Path, id: str) -> None:
    gc("--adapters", "--apply")
    (sha256, *_) = sorted(named(id))
    plant(open_house().adapters / sha256)
    assert sha256 in adapters_check()["found"] and verify().exit_code == 1


def test_a_record_that_is_taken_back_breaks_the_chain(home: Path, id: str) -> None:
    gc("--adapters", "--apply")
    open_house().ledger.close()
    with contextlib.closing(sqlite3.connect(home / "seedbed.db")) as owner, owner:
        owner.execute("DROP TRIGGER event_no_delete")
        assert owner.execute("DELETE FROM event WHERE kind = 'adapters.removed'").rowcount == 1
    assert verify().exit_code == 1
    done = CliRunner().invoke(app, ["gc"])
    assert "wanted the ledger of this home as it was recorded" in str(done.exception)


def test_adapters_of_a_campaign_that_is_not_complete_stay(home: Path, id: str) -> None:
    house = open_house()
    row, other = house.campaign(id), {"campaign": "longer-1a"}
    plan = json.dumps(json.loads(row.plan) | {"rounds": 2})
    trials = [trial.model_dump() | other for trial in house.ledger.trials(id)]
    house.ledger.append(
        Campaign.model_validate(row.model_dump() | {"id": "longer-1a", "plan": plan}),
        Policy.model_validate(house.ledger.policy(id, 1).model_dump() | other),
        *(Trial.model_validate(trial) for trial in trials),
    )
    assert gc("--adapters")["garbage"] == [], "it may look at these yet"


def test_a_removal_that_was_killed_after_its_record_goes_on(home: Path, id: str) -> None:
    (one, *others) = sorted(named(id))
    open_house().ledger.note(id, "adapters.removed", id, {"adapters": [one]})
    assert verify().exit_code == 0, "it is there, and as it was"
    assert len(gc("--adapters", "--apply")["garbage"]) == 1 + len(others)
    events = open_house().ledger.events(kind="adapters.removed")
    assert [json.loads(event.body)["adapters"] for event in events] == [[one], others]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_campaign_goes_on_unharmed_while_garbage_is_removed_all_the_time(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = [*SEEDBED, "run", "--substrate", str(STUB), "--rounds", "2", "--width", "5"]
    environment = {**os.environ, "SEEDBED_HOME": str(home)}
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(run, env=environment, stdout=log, stderr=log)
    sweeps = 0
    while running.poll() is None:
        done = seedbed(home, "gc", "--apply", "--older-than", "0", "--adapters", "--json")
        assert "Traceback" not in done.stderr
        sweeps += done.stdout.startswith("{")
    assert running.returncode == 0, (tmp_path / "log").read_text()
    assert sweeps >= 2
    done = seedbed(home, "verify")
    assert done.returncode == 0, done.stdout
