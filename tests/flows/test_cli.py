"""The command line, as a person types it: what it prints, how it refuses, its exit codes."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.worker import Caps
from flows.plan import Plan
from tests.flows.commands import REPO, SEEDBED, seedbed

STUB = REPO / "tests" / "substrates" / "stub"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, prefect_api: str) -> Path:
    """A home in which one campaign of two rounds was run."""
    home = tmp_path_factory.mktemp("home")
    work = ["--turns", "9", "--drafts", "1", "--dev-scores", "0", "--work-seconds", "90"]
    done = seedbed(home, "run", "--substrate", "tests/substrates/stub", "--width", "4", *work)
    assert done.returncode == 0, done.stderr
    (home / "shown.txt").write_text(done.stdout)
    (home / "said.txt").write_text(done.stderr)
    return home


def test_run_ends_with_the_trials_the_spread_the_diffs_the_files_and_what_is_next(
    home: Path,
) -> None:
    shown = (home / "shown.txt").read_text()
    for wanted in ("Round 1, policy 1", "Round 2, policy 2", "slot", "anchor", "external"):
        assert wanted in shown
    assert "standing recipe" in shown and "noise" in shown
    assert "policy 1 to 2" in shown and "policy 2 to 3" in shown
    assert str(home / "seedbed.db") in shown
    following = shown.partition("Next:")[2]
    assert "report stub-" in following and "export stub-" in following


def test_a_run_without_a_calibration_says_so_and_how_to_make_one(home: Path) -> None:
    said = (home / "said.txt").read_text()
    command = "`seedbed substrate calibrate tests/substrates/stub --recipe stub`"
    assert said.count("not calibrated") == 1 and command in said


def test_options_of_run_say_what_a_worker_may_use_and_have_the_plans_defaults(home: Path) -> None:
    connection = sqlite3.connect(home / "seedbed.db")
    (text,) = connection.execute("SELECT plan FROM campaign").fetchone()
    connection.close()
    plan = Plan.model_validate_json(text)
    assert plan.work == Caps(turns=9, drafts=1, dev_scores=0, seconds=90)
    assert plan == Plan(substrate="tests/substrates/stub", width=4, work=plan.work)


def test_report_as_json_is_a_campaign_with_rounds_with_slots(home: Path) -> None:
    campaign = json.loads(seedbed(home, "report", "--json").stdout)
    assert [item["round"] for item in campaign["rounds"]] == [1, 2]
    assert [slot["slot"] for slot in campaign["rounds"][0]["slots"]] == [0, 1, 2, 3]
    one = json.loads(seedbed(home, "report", "--round", "2", "--json").stdout)
    assert [item["round"] for item in one["rounds"]] == [2]


def test_report_as_markdown_has_every_round(home: Path) -> None:
    text = seedbed(home, "report", campaign_of(home)[:8], "--markdown").stdout
    assert "# Round 1 of" in text and "# Round 2 of" in text


def test_report_as_html_is_one_file_below_the_artifacts_or_where_one_says(
    home: Path, tmp_path: Path
) -> None:
    campaign, wanted = campaign_of(home), tmp_path / "new" / "page.html"
    shown = seedbed(home, "report", "--html")
    assert shown.stdout.strip() == str(home / "artifacts" / campaign / "report.html")
    told = json.loads(
        seedbed(home, "report", campaign, "--html", "--to", str(wanted), "--json").stdout
    )
    assert told == {"campaign": campaign, "file": str(wanted)}
    other = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    printed = seedbed(home, "report", campaign, "--html", "--to", "-", environment=other).stdout
    assert printed == wanted.read_text(encoding="utf-8")
    assert printed == Path(shown.stdout.strip()).read_text(encoding="utf-8")
    assert 'id="r2-s3"' in printed and 'id="p3"' in printed
    assert list(wanted.parent.iterdir()) == [wanted], "no half of a file is left"


def test_policies_are_shown_listed_and_compared(home: Path) -> None:
    first = json.loads(seedbed(home, "policy", "show", "--version", "1", "--json").stdout)
    history = json.loads(seedbed(home, "policy", "history", "--json").stdout)
    changes = json.loads(seedbed(home, "policy", "diff", "--json").stdout)
    assert first["version"] == 1 and first["parent"] is None
    assert [row["version"] for row in history] == [1, 2, 3]
    assert history[1]["parent"] == history[0]["sha256"]
    assert any(change["section"] == "noise" for change in changes)
    assert "learning-rate" in seedbed(home, "policy", "show").stdout
    assert "```diff" in seedbed(home, "policy", "diff", "--markdown").stdout


def test_the_doctor_finds_nothing_wrong_and_then_an_edited_row(home: Path, tmp_path: Path) -> None:
    assert seedbed(home, "doctor").returncode == 0
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    connection = sqlite3.connect(copy / "seedbed.db")
    (trigger,) = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'score' "
        "AND sql LIKE '%UPDATE%'"
    ).fetchone()
    connection.execute(f'DROP TRIGGER "{trigger}"')
    connection.execute("UPDATE score SET value = 0.99 WHERE round = 1 AND slot = 1")
    connection.commit()
    connection.close()

    sick = seedbed(copy, "doctor", "--json")
    assert sick.returncode == 2
    ledger = next(found for found in json.loads(sick.stdout) if found["what"] == "ledger")
    assert not ledger["ok"] and "score" in ledger["found"]


def campaign_of(home: Path) -> str:
    return str(json.loads(seedbed(home, "report", "--json").stdout)["campaign"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "nobody"], "nobody"),
        (["report", "--round", "9"], "round 9"),
        (["policy", "show", "--version", "9"], "9"),
        (["resume", "nobody"], "nobody"),
        (["run", "--substrate", "nowhere"], "no-such-dropin"),
        (["run", "--substrate", str(STUB), "--recipe", "nothing"], "nothing"),
        (["run", "--substrate", str(STUB), "--worker", "oracle"], "sampler"),
        (["run", "--substrate", str(STUB), "--policy", "/nowhere.json"], "/nowhere.json"),
        (["run", "--substrate", str(STUB), "--seed", str(2**53)], "seed"),
        (["substrate", "check", "nowhere"], "no-such-dropin"),
        (["compare", "sampler", "sampler"], "wanted two sides"),
        (["compare", "sampler", "oracle"], "kinds of worker that ran: sampler"),
        (["report", "--round", "9"], "found [1, 2]"),
        (["report", "stub", "--to", "page.html"], "add --html"),
        (["report", "stub", "--html", "--to", str(REPO)], "name a file"),
        (["report", "stub", "--html", "--to", str(REPO / "README.md" / "page")], "name a file"),
        (["report", "--html", "--round", "1"], "a whole campaign"),
    ],
)
def test_what_cannot_be_done_is_refused_with_exit_code_2(
    home: Path, arguments: list[str], message: str
) -> None:
    done = seedbed(home, *arguments)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def drop_dev(folder: Path) -> None:
    (folder / "dev" / "problems.jsonl").unlink()


def overlap(folder: Path) -> None:
    problem = (folder / "dev" / "problems.jsonl").read_text().splitlines()[0]
    with (folder / "judge" / "external.jsonl").open("a") as file:
        file.write(problem.replace('"id": "', '"id": "copy-') + "\n")


def rewrite(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        manifest = folder / "substrate.toml"
        text = manifest.read_text()
        assert old in text
        manifest.write_text(text.replace(old, new, 1))

    return change


def spoil_base(folder: Path) -> None:
    with (folder / "base" / "config.json").open("a") as file:
        file.write("\n")


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (drop_dev, "missing-file"),
        (overlap, "overlapping-splits"),
        (rewrite("[base]", "[base]\ncolour = 'red'"), "unknown-key"),
        (spoil_base, "base-hash"),
        (rewrite('direction = "maximise"', ""), "undeclared-direction"),
        (rewrite('direction = "maximise"', 'direction = "minimise"'), "directions-differ"),
    ],
)
def test_a_bad_drop_in_is_refused_by_name_of_the_rule(
    spoil: Callable[[Path], None], rule: str, tmp_path: Path
) -> None:
    folder = tmp_path / "stub"
    shutil.copytree(STUB, folder)
    spoil(folder)
    done = seedbed(tmp_path, "substrate", "check", str(folder))
    assert done.returncode == 2
    assert rule in done.stdout


def test_what_check_refuses_no_campaign_runs_on(tmp_path: Path) -> None:
    folder = tmp_path / "stub"
    shutil.copytree(STUB, folder)
    assert seedbed(tmp_path, "substrate", "check", str(folder)).returncode == 0
    drop_dev(folder)
    as_json = seedbed(tmp_path, "substrate", "check", str(folder), "--json")
    assert "missing-file" in {finding["rule"] for finding in json.loads(as_json.stdout)}
    run = seedbed(tmp_path, "run", "--substrate", str(folder))
    assert run.returncode == 2 and "missing-file" in run.stderr


def test_a_new_drop_in_is_written_and_a_good_one_is_sealed(tmp_path: Path) -> None:
    new = seedbed(tmp_path, "substrate", "new", "mine", "--in", str(tmp_path / "there"))
    assert new.returncode == 0, new.stderr
    assert (tmp_path / "there" / "mine" / "substrate.toml").is_file()
    again = seedbed(tmp_path, "substrate", "new", "mine", "--in", str(tmp_path / "there"))
    assert again.returncode == 2 and "mine" in again.stderr

    one = json.loads(seedbed(tmp_path, "substrate", "seal", str(STUB), "--json").stdout)
    two = json.loads(seedbed(tmp_path, "substrate", "seal", str(STUB), "--json").stdout)
    assert one == two and Path(one["path"]).is_dir()


def test_a_home_that_is_a_file_and_a_database_that_is_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in ("report", "doctor"):
        done = seedbed(tmp_path / "file", command)
        assert done.returncode == 2, done.stderr
        assert "SEEDBED_HOME" in done.stderr + done.stdout and "Traceback" not in done.stderr

    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "seedbed.db").write_bytes(bytes(range(1, 256)) * 20)
    report = seedbed(tmp_path / "home", "report")
    assert report.returncode == 2 and "seedbed.db" in report.stderr
    doctor = seedbed(tmp_path / "home", "doctor", "--json")
    assert doctor.returncode == 2
    (ledger,) = (found for found in json.loads(doctor.stdout) if found["what"] == "ledger")
    assert not ledger["ok"]


def test_campaigns_are_listed_and_a_complete_one_is_not_resumed(home: Path) -> None:
    (listed,) = json.loads(seedbed(home, "report", "--list", "--json").stdout)
    assert listed["campaign"] == campaign_of(home)
    assert (listed["rounds_done"], listed["rounds"], listed["state"]) == (2, 2, "complete")
    assert campaign_of(home) in seedbed(home, "report", "--list").stdout

    again = seedbed(home, "resume")
    assert again.returncode == 0
    assert "nothing to resume" in again.stderr
    assert "Round 1" not in again.stdout


def test_stopping_what_is_complete_does_not_send_anyone_to_resume(home: Path) -> None:
    said = seedbed(home, "stop").stdout
    assert "is not running" in said and "complete" in said and "resume" not in said


def test_dates_and_digests_stand_on_one_line_in_a_narrow_terminal(home: Path) -> None:
    for command in (["report", "--list"], ["policy", "history"]):
        shown = seedbed(home, *command, columns=80).stdout
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", shown), shown
        assert max(map(len, shown.splitlines())) <= 80


def test_a_campaign_without_rejected_drafts_says_so(home: Path) -> None:
    assert f"no draft of {campaign_of(home)}" in seedbed(home, "policy", "rejected").stdout


def test_an_export_to_a_place_that_is_taken_is_refused_before_it_begins(home: Path) -> None:
    refused = seedbed(home, "export", "--to", str(home))
    assert refused.returncode == 2 and "new folder" in refused.stderr
    events = json.loads(seedbed(home, "report", "--json").stdout)
    assert events["state"] == "complete"
    assert not (home / "exports").exists()


def test_a_seed_policy_that_is_not_valid_is_refused_field_by_field(tmp_path: Path) -> None:
    (tmp_path / "draft.json").write_text("{}")
    draft = str(tmp_path / "draft.json")
    done = seedbed(tmp_path / "home", "run", "--substrate", str(STUB), "--policy", draft)
    assert done.returncode == 2
    assert "objective: Field required" in done.stderr and "errors.pydantic.dev" not in done.stderr


@pytest.mark.parametrize("url", ["mysql://x/y", "nothing", "unheard-of://x"])
def test_a_url_that_leads_to_no_database_is_refused(tmp_path: Path, url: str) -> None:
    environment = {**os.environ, "SEEDBED_DATABASE_URL": url}
    for command in ("report", "verify"):
        done = seedbed(tmp_path, command, environment=environment)
        assert done.returncode == 2, done.stderr
        assert "SEEDBED_DATABASE_URL" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_a_database_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    environment = {**os.environ, "SEEDBED_DATABASE_URL": "sqlite:////dev/null/nowhere/x.db"}
    done = seedbed(tmp_path, "run", "--substrate", str(STUB), environment=environment)
    assert done.returncode == 2, done.stderr
    assert "see to its server, or to the disk" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_copy_of_the_anchor_that_is_not_there_is_asked_for_by_name(home: Path) -> None:
    done = seedbed(home, "verify", "--anchor", str(home / "nowhere"))
    assert done.returncode == 2
    assert f"wanted the file {home / 'nowhere'}" in done.stdout and "Errno" not in done.stdout


def test_without_a_terminal_a_run_says_which_campaign_and_round_it_is_at(home: Path) -> None:
    said = (home / "said.txt").read_text()
    assert campaign_of(home) in said and "round 1" in said and "round 2" in said


def test_sealing_over_a_damaged_snapshot_says_so(tmp_path: Path) -> None:
    sealed = json.loads(seedbed(tmp_path, "substrate", "seal", str(STUB), "--json").stdout)
    place = Path(sealed["path"]) / "evaluation" / "score.py"
    place.chmod(0o644)
    place.write_text("print(1)\n")

    again = seedbed(tmp_path, "substrate", "seal", str(STUB))
    assert again.returncode == 2 and "evaluation/score.py" in again.stderr


def test_help_lists_every_command_with_what_it_does() -> None:
    shown = seedbed(REPO, "--help").stdout.partition("Commands")[2].splitlines()
    listed = {line.split()[0] for line in shown if len(line.split()) > 1}
    commands = {"run", "resume", "stop", "report", "policy", "substrate", "doctor", "up", "down"}
    assert commands <= listed


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_campaign_on_pocket_trains_and_measures_a_real_model(
    tmp_path: Path, prefect_api: str
) -> None:
    run = ["run", "--substrate", "pocket", "--rounds", "1", "--width", "3", "--rollouts", "256"]
    done = subprocess.run(
        [*SEEDBED, *run],
        cwd=REPO,
        env={**os.environ, "SEEDBED_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=390,
    )
    assert done.returncode == 0, done.stderr
    slots = json.loads(seedbed(tmp_path, "report", "--json").stdout)["rounds"][0]["slots"]
    assert slots[0]["outcome"] == "evaluated"
    assert slots[0]["dev"]["n"] == 500
    assert slots[0]["dev"]["domains"].keys() == {
        "integers",
        "strings",
        "lists",
        "booleans",
        "bits",
    }
    assert 0.3 < slots[0]["dev"]["value"] < 0.6
