"""A campaign that is killed, interrupted or stopped, and resumed, as a person would do it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

REPO = Path(__file__).parent.parent.parent
STUB = REPO / "tests" / "substrates" / "stub"
SEEDBED = [sys.executable, "-m", "flows.cli"]
RUN = [*SEEDBED, "run", "--substrate", str(STUB), "--rounds", "2", "--width", "5", "--seed", "3"]


def environment(home: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "SEEDBED_HOME": str(home), **more}


def seedbed(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SEEDBED, *arguments],
        cwd=REPO,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=110,
    )


def report_of(home: Path) -> dict[str, object]:
    done = seedbed(home, "report", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def results(report: dict[str, object]) -> list[object]:
    rounds = report["rounds"]
    assert isinstance(rounds, list)
    return [item["results"] for item in rounds]


def processes_of(home: Path) -> list[str]:
    """Command lines of all processes that stand in, or name, this home."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            place = os.readlink(folder / "cwd")
            names = (folder / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(home) in command or place.startswith(str(home)) or str(home) in names:
            found.append(f"{folder.name}: {command}")
    return found


def heed_interrupts() -> None:
    """As a terminal starts it. Whoever runs these tests in the background ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.05)


def rows_of(home: Path, table: str) -> int:
    """Counted from outside, in the database file of a running campaign."""
    import sqlite3

    database = home / "seedbed.db"
    if not database.is_file():
        return 0
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, prefect_api: str) -> list[object]:
    home = tmp_path_factory.mktemp("undisturbed")
    done = subprocess.run(
        RUN, cwd=REPO, env=environment(home), capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return results(report_of(home))


@pytest.mark.parametrize(
    ("how", "after"),
    [
        (signal.SIGKILL, 4),
        pytest.param(signal.SIGKILL, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, 9, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 4, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 6, marks=pytest.mark.slow),
    ],
)
def test_a_campaign_killed_in_the_middle_resumes_to_the_same_results(
    how: signal.Signals, after: int, tmp_path: Path, undisturbed: list[object]
) -> None:
    process = subprocess.Popen(
        RUN,
        cwd=REPO,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    )
    wait_for(lambda: rows_of(tmp_path, "attempt") >= after, f"{after} attempts")
    process.send_signal(how)
    _, said = process.communicate(timeout=30)
    if how is signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130, said.decode()
        assert "`seedbed resume`" in said.decode() and "Traceback" not in said.decode()
    wait_for(lambda: not processes_of(tmp_path), "no process to be left", seconds=10.0)

    resumed = seedbed(tmp_path, "resume")
    assert resumed.returncode == 0, resumed.stderr
    assert results(report_of(tmp_path)) == undisturbed


@pytest.mark.slow
def test_killed_with_its_own_prefect_server_it_leaves_no_process(
    tmp_path: Path, undisturbed: list[object]
) -> None:
    alone = {name: text for name, text in environment(tmp_path).items() if "PREFECT" not in name}
    process = subprocess.Popen(
        RUN, cwd=REPO, env=alone, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: rows_of(tmp_path, "trial") >= 3, "three trials", seconds=100.0)
    assert len(processes_of(tmp_path)) > 1
    process.kill()
    process.wait()
    wait_for(lambda: not processes_of(tmp_path), "no process to be left", seconds=10.0)

    resumed = seedbed(tmp_path, "resume")
    assert resumed.returncode == 0, resumed.stderr
    assert results(report_of(tmp_path)) == undisturbed


def test_stop_ends_it_and_resume_completes_it(tmp_path: Path, undisturbed: list[object]) -> None:
    process = subprocess.Popen(
        RUN, cwd=REPO, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_for(lambda: rows_of(tmp_path, "trial") >= 2, "two trials")
    stopped = seedbed(tmp_path, "stop")
    assert stopped.returncode == 0, stopped.stderr
    assert "is stopped" in stopped.stdout
    process.communicate(timeout=30)
    assert process.returncode == 3
    assert not processes_of(tmp_path)
    again = seedbed(tmp_path, "stop")
    assert "is not running" in again.stdout

    assert seedbed(tmp_path, "resume").returncode == 0
    assert results(report_of(tmp_path)) == undisturbed
