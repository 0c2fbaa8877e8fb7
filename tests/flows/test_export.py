"""The campaign's end on the stub: candidate, fresh seeds, one opening of the lockbox, export."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from flows.campaign import campaign, export
from flows.cli import app
from flows.export import ExportFailed
from flows.finale import SCORED, LockboxOpened, open_lockbox
from flows.house import House, open_house
from flows.plan import EndPlan, Plan
from flows.start import start_campaign
from policies.ledger import DuplicateRow
from policies.policy import SearchPolicy
from policies.report import SetScore
from policies.tables import Opening, Policy
from tests.flows.test_verify import rewrite

REPO = Path(__file__).parent.parent.parent
STUB = REPO / "tests" / "substrates" / "stub"
BETTER = {"recipes/stub.py": {"LEARNING_RATE": 2e-3, "GROUP_SIZE": 16}}


def conducted(home: Path, **changes: Any) -> None:
    """A home with one campaign of one round, and nothing of its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBED_HOME", str(home))
        plan = {"substrate": str(STUB), "rounds": 1, "width": 3, "end": EndPlan(seeds=2)}
        asyncio.run(campaign(Plan.model_validate({**plan, **changes})))
        open_house().ledger.close()


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory, prefect_api: str) -> Path:
    home = tmp_path_factory.mktemp("export") / "home"
    conducted(home)
    return home


@pytest.fixture
def house(completed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    home = tmp_path / "home"
    shutil.copytree(completed, home, symlinks=True, ignore=shutil.ignore_patterns("prefect"))
    monkeypatch.setenv("SEEDBED_HOME", str(home))
    return open_house()


def promote(house: House) -> None:
    """A next policy that stands on a better recipe, as a person may write one."""
    row = house.ledger.find_campaign(None)
    last = house.policy(row.id)
    standing = {**last.standing_recipe.model_dump(), "overrides": BETTER}
    data = {**last.data(), "version": last.version + 1, "parent": last.digest()}
    policy = SearchPolicy.model_validate({**data, "standing_recipe": standing})
    house.ledger.append(
        Policy(
            campaign=row.id,
            version=policy.version,
            sha256=policy.digest(),
            parent=policy.parent,
            body=policy.text(),
            author="person",
        )
    )


def exported(*arguments: str) -> dict[str, Any]:
    done = seedbed("export", "--json", *arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def seedbed(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def kinds(house: House) -> list[str]:
    return [event.kind for event in house.ledger.events()]


def test_what_was_promoted_is_confirmed_scored_once_and_exported(house: House) -> None:
    promote(house)
    found = exported()
    runs = house.ledger.final_runs(found["campaign"])
    assert [(row.arm, row.number) for row in runs] == [
        *(("baseline", 1), ("baseline", 2), ("candidate", 1), ("candidate", 2))
    ]
    assert [row.seed for row in runs[:2]] == [row.seed for row in runs[2:]], "pairs of seeds"
    assert len({row.seed for row in runs}) == 2
    trials = {row.seed for row in house.ledger.trials(found["campaign"])}
    assert not trials & {row.seed for row in runs}, "fresh ones"
    assert found["adapter"] == runs[2].adapter_sha256, "the first, not the best"

    folder = Path(found["folder"])
    lineage = json.loads((folder / "lineage.json").read_text())
    assert lineage["effects"]["external"]["is_confirmed"]
    # The two constants are worth 0.045 and 0.030 on external: see the stub's README.
    assert lineage["effects"]["external"]["effect"] == pytest.approx(0.075, abs=0.03)
    better = {arm: SetScore.model_validate(score) for arm, score in lineage["lockbox"].items()}
    assert better["candidate"].value > better["baseline"].value
    assert better["candidate"].n == 800
    assert [row["version"] for row in lineage["policies"]] == [1, 2, 3]
    assert [row["round"] for row in lineage["rounds"]] == [1]
    assert lineage["candidate"]["standing_recipe"]["overrides"] == BETTER
    assert lineage["cost"]["trials"] == 3 + 4
    card = (folder / "README.md").read_text()
    for wanted in (
        "base_model: ",
        "license: ",
        "**Confirmed on fresh seeds:**",
        "`LEARNING_RATE` = `0.002`",
        "| candidate | external |",
        "| baseline | lockbox |",
        "Lockbox: opened once",
        "CPU seconds",
        found["adapter"],
        "## Dev against external",
    ):
        assert wanted in card
    sealed = house.adapters / found["adapter"]
    for file in sealed.iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes()


def test_a_second_export_opens_runs_and_writes_nothing_new(house: House, tmp_path: Path) -> None:
    first = exported()
    before = kinds(house)
    assert before.count("opening") == before.count(SCORED) == 1
    again = exported("--to", str(tmp_path / "copy"))
    assert again["files"] == first["files"]
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == sorted(first["files"])
    assert [kind for kind in kinds(house)[len(before) :] if kind != "ledger.anchored"] == []


def test_a_campaign_that_promoted_nothing_says_so_in_its_card(house: House) -> None:
    found = exported()
    assert {row.arm for row in house.ledger.final_runs(found["campaign"])} == {"candidate"}
    assert "**No gain was found:**" in (Path(found["folder"]) / "README.md").read_text()


def test_the_lockbox_cannot_be_opened_twice(house: House) -> None:
    campaign_id = exported()["campaign"]
    with pytest.raises(LockboxOpened, match="it is opened once"):
        asyncio.run(open_lockbox(house, campaign_id))
    with pytest.raises(DuplicateRow, match="opening"):
        house.ledger.append(Opening(campaign=campaign_id, candidate_sha256="ab" * 32))
    assert kinds(house).count(SCORED) == 1


def test_a_campaign_with_rounds_to_run_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path / "home"))
    house = open_house()
    campaign_id = start_campaign(house, Plan(substrate=str(STUB)))
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "export"], cwd=REPO, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "found 0 of 2 rounds done" in " ".join(done.stderr.split())
    assert house.ledger.candidate(campaign_id) is None


def test_verify_names_an_edited_model_card(house: House) -> None:
    card = Path(exported()["folder"]) / "README.md"
    assert seedbed("verify").exit_code == 0
    card.write_text(card.read_text().replace("No gain was found", "A gain was found"))
    done = seedbed("verify")
    assert done.exit_code == 1 and "README.md is altered" in done.output


def swap_for_a_link(folder: Path) -> None:
    """Same content, read from where it can be changed later."""
    card = folder / "README.md"
    card.rename(folder.parent / "elsewhere")
    card.symlink_to(folder.parent / "elsewhere")


def test_verify_names_what_is_no_file_of_the_export_and_rows_that_were_rewritten(
    house: House,
) -> None:
    folder = Path(exported()["folder"])
    assert asyncio.run(export(house.ledger.campaigns()[0].id)), "written again, with the same bytes"
    assert seedbed("verify").exit_code == 0
    for name, tamper in {
        "README.md": swap_for_a_link,
        "pipe": lambda folder: os.mkfifo(folder / "pipe"),
        "more": lambda folder: (folder / "more").mkdir(),
        "gone": lambda folder: (folder / "gone").symlink_to("nowhere"),
    }.items():
        tamper(folder)
        done = seedbed("verify")
        assert done.exit_code == 1 and f"{name} is altered or added" in done.output
        exported()
        assert seedbed("verify").exit_code == 0, "another export is whole again"

    better = "UPDATE event SET body = replace(body, '\"value\":0.', '\"value\":0.9')"
    rewrite(f"{better} WHERE kind = 'lockbox.scored'", anchor=True)(house.settings.home)
    done = seedbed("verify")
    assert done.exit_code == 1 and "README.md is not what the rows say" in done.output


def test_what_stands_in_the_way_of_an_export_is_told_and_it_goes_on_afterwards(
    house: House, tmp_path: Path
) -> None:
    campaign_id = house.ledger.campaigns()[0].id
    place = house.settings.folder / "exports" / campaign_id
    place.parent.mkdir()
    place.write_text("in the way")
    done = seedbed("export")
    assert isinstance(done.exception, ExportFailed) and str(place) in str(done.exception)
    assert place.read_text() == "in the way" and os.listdir(place.parent) == [campaign_id]
    place.unlink()
    for to in (tmp_path / "is" / ("long" * 80), tmp_path / ("long" * 80)):
        assert seedbed("export", "--to", str(to)).exit_code == 2
    opening = house.ledger.opening(campaign_id)
    assert opening is not None
    adapter = house.adapters / opening.candidate_sha256 / "more"
    adapter.parent.chmod(0o755)
    adapter.write_text("added")
    assert isinstance(seedbed("export").exception, ExportFailed)
    adapter.unlink()
    adapter.parent.chmod(0o555)
    exported()
    assert kinds(house).count("opening") == kinds(house).count("campaign.exported") == 1
    assert seedbed("verify").exit_code == 0


def test_through_prefect_a_plan_can_end_its_campaign_and_the_card_is_an_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_api: str
) -> None:
    home = tmp_path / "home"
    conducted(home, end=EndPlan(seeds=2, at_once=True))
    monkeypatch.setenv("SEEDBED_HOME", str(home))
    house = open_house()
    (row,) = house.ledger.campaigns()
    assert kinds(house).count("opening") == kinds(house).count("campaign.exported") == 1
    assert (home / "exports" / row.id / "adapter_model.safetensors").is_file()
    assert house.ledger.unpublished(row.id) == [], "the card was published with the rest"
    before = kinds(house)
    assert asyncio.run(export(row.id)) == row.id
    new = [kind for kind in kinds(house)[len(before) :] if kind != "ledger.anchored"]
    assert new == [], "the flow finds it ended"


SLOW = """
def solve(base: Path, adapter: Path, questions: list[dict[str, Any]]) -> list[str]:
    if len(questions) == 800:  # the lockbox
        import time

        time.sleep(8)
"""


def test_an_opening_that_kill_9_cut_short_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_api: str
) -> None:
    stub, home = tmp_path / "stub", tmp_path / "home"
    shutil.copytree(STUB, stub)
    solve = stub / "overlay" / "evaluation" / "solve.py"
    head = SLOW.strip().splitlines()[0]
    assert head in solve.read_text()
    solve.write_text(solve.read_text().replace(head, "XX", 1).replace("XX", SLOW.strip()))
    conducted(home, substrate=str(stub))
    monkeypatch.setenv("SEEDBED_HOME", str(home))
    house = open_house()
    (row,) = house.ledger.campaigns()
    command = [sys.executable, "-m", "flows.cli", "export"]
    with subprocess.Popen(command, cwd=REPO, env=os.environ.copy()) as ending:
        try:
            while house.ledger.opening(row.id) is None:
                assert ending.poll() is None
                time.sleep(0.05)
        finally:
            ending.send_signal(signal.SIGKILL)
    assert SCORED not in kinds(house)

    found = exported()
    assert kinds(house).count("opening") == 1 and SCORED not in kinds(house)
    card = (Path(found["folder"]) / "README.md").read_text()
    assert "no score came of it: it is not opened again" in card
