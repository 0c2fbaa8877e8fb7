"""Tampering: what is planted in a completed campaign's home is named by `seedbed verify`."""

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, select
from typer.testing import CliRunner

from flows.campaign import campaign
from flows.cli import app
from flows.house import open_house
from flows.keeping import Tampered
from flows.keeping import verify as verify_flow
from flows.plan import Plan
from flows.round import build_report
from policies.anchor import read_anchor
from policies.canonical import canonical_json
from policies.chain import EVENT, Link, chain, row_link
from policies.tables import Row, sha256_of, table_of

STUB = Path(__file__).parent.parent / "substrates" / "stub"
MODELS = {table_of(model).name: model for model in Row.__subclasses__() if model.chained}


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory, prefect_api: str) -> Path:
    """A home in which one campaign was run to its end."""
    home = tmp_path_factory.mktemp("verify") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBED_HOME", str(home))
        asyncio.run(campaign(Plan(substrate=str(STUB), rounds=2, width=4)))
        open_house().ledger.close()
    with closing(sqlite3.connect(home / "seedbed.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return home


@pytest.fixture
def home(completed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to be tampered with."""
    home = tmp_path / "home"
    shutil.copytree(completed, home, symlinks=True, ignore=shutil.ignore_patterns("prefect"))
    monkeypatch.setenv("SEEDBED_HOME", str(home))
    return home


def verified(*arguments: str) -> tuple[int, list[dict[str, str]]]:
    """The exit code of `seedbed verify`, and what it says of each thing that it looked at."""
    done = CliRunner().invoke(app, ["verify", "--json", *arguments])
    return done.exit_code, json.loads(done.stdout)


# The hands of one who owns the machine


@contextmanager
def database_of(home: Path) -> Iterator[sqlite3.Connection]:
    """The database without its triggers, which are put back as they were."""
    with closing(sqlite3.connect(home / "seedbed.db")) as owner, owner:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        triggers = owner.execute(query).fetchall()
        owner.create_function("sha256", 1, sha256_of)
        for name, _ in triggers:
            owner.execute(f"DROP TRIGGER {name}")
        yield owner
        for _, sql in triggers:
            owner.execute(sql)


def change(statement: str) -> Callable[[Path], None]:
    def tamper(home: Path) -> None:
        with database_of(home) as owner:
            assert owner.execute(statement).rowcount > 0

    return tamper


def rewrite(statement: str, *, anchor: bool = False) -> Callable[[Path], None]:
    """Change rows, then make the chain anew to its end, and with `anchor` the anchor too."""

    def tamper(home: Path) -> None:
        change(statement)(home)
        engine = create_engine(f"sqlite:///{home / 'seedbed.db'}")
        with engine.connect() as connection:
            links = {}
            for model in MODELS.values():
                for row in connection.execute(select(table_of(model))).mappings():
                    link = row_link(model, dict(row))
                    links[link.kind, link.subject] = link
            old = [dict(row) for row in connection.execute(select(EVENT)).mappings()]
        engine.dispose()
        with database_of(home) as owner:
            owner.execute("DELETE FROM event")
        heads: dict[int, str] = {}
        engine = create_engine(f"sqlite:///{home / 'seedbed.db'}")
        with engine.begin() as connection:
            for event in sorted(old, key=lambda event: event["seq"]):
                body = event["body"]
                if event["kind"] == "ledger.anchored":
                    body = canonical_json({"hash": heads[int(event["subject"])]})
                link = Link(event["campaign"], event["kind"], event["subject"], body)
                link = links.get((event["kind"], event["subject"]), link)
                (new,) = chain(connection, [link], event["at"])
                connection.execute(EVENT.insert(), new)
                heads[new["seq"]] = new["hash"]
        engine.dispose()
        if anchor:
            kept = read_anchor(home / "ledger.anchor")
            lines = (canonical_json({"seq": h.seq, "hash": heads[h.seq]}) + "\n" for h in kept)
            (home / "ledger.anchor").write_text("".join(lines))

    return tamper


def in_snapshot(name: str, act: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda home: act(next(home.glob("store/snapshots/*/tree")) / name)


def in_judge(name: str, act: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda home: act(next(home.glob("store/judges/*")) / name)


def in_adapter(name: str, act: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda home: act(adapters(home)[0] / name)


def adapters(home: Path) -> list[Path]:
    return sorted((home / "artifacts" / "adapters").iterdir())


def edit_a_byte(path: Path) -> None:
    """Same size, same time: neither says anything."""
    info = path.stat()
    text = bytearray(path.read_bytes())
    text[len(text) // 2] ^= 1
    overwrite(path, bytes(text))
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def overwrite(path: Path, content: bytes) -> None:
    mode = path.stat().st_mode
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(mode)


def remove(path: Path) -> None:
    path.parent.chmod(0o755)
    path.unlink()
    path.parent.chmod(0o555)


def add(path: Path) -> None:
    path.parent.chmod(0o755)
    path.write_text("")
    path.chmod(0o444)
    path.parent.chmod(0o555)


def swap_for_a_link(path: Path) -> None:
    """Same content, read from where it can be changed later."""
    elsewhere = path.parents[3] / f"elsewhere-{path.name}"
    path.parent.chmod(0o755)
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    path.parent.chmod(0o555)


def edit_with_its_entry(home: Path) -> None:
    (tree,) = home.glob("store/snapshots/*/tree")
    path = tree / "dev/problems.jsonl"
    before = sha256_of(path.read_text())
    edit_a_byte(path)
    listed = tree.parent / "entries.jsonl"
    text = listed.read_text().replace(before, sha256_of(path.read_text()))
    overwrite(listed, text.encode())


def pipe_for_the_entries(home: Path) -> None:
    (listed,) = home.glob("store/snapshots/*/entries.jsonl")
    listed.unlink()
    os.mkfifo(listed)


def nest_the_entries(home: Path) -> None:
    (listed,) = home.glob("store/snapshots/*/entries.jsonl")
    overwrite(listed, b"[" * 100_000)


def lockbox_for_external(home: Path) -> None:
    (judge,) = home.glob("store/judges/*")
    overwrite(judge / "external.jsonl", (judge / "lockbox.jsonl").read_bytes())


def rename_an_adapter(home: Path) -> None:
    adapters(home)[0].rename(home / "artifacts" / "adapters" / ("0" * 64))


def swap_two_adapters(home: Path) -> None:
    one, two, *_ = adapters(home)
    one.rename(home / "between")
    two.rename(one)
    (home / "between").rename(two)


def drop(what: str) -> Callable[[Path], None]:
    def tamper(home: Path) -> None:
        with closing(sqlite3.connect(home / "seedbed.db")) as owner, owner:
            owner.execute(f"DROP {what}")

    return tamper


def blunt_a_trigger(home: Path) -> None:
    with closing(sqlite3.connect(home / "seedbed.db")) as owner, owner:
        owner.execute("DROP TRIGGER score_no_update")
        owner.execute("CREATE TRIGGER score_no_update BEFORE UPDATE ON score BEGIN SELECT 1; END")


def edit_a_byte_of_the_file(home: Path) -> None:
    path = home / "seedbed.db"
    info, content = path.stat(), path.read_bytes()
    path.write_bytes(
        content.replace(b"The standing recipe, unchanged.", b"The standing recipe; unchanged.")
    )
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def swap_two_events(home: Path) -> None:
    with database_of(home) as owner:
        for old, new in ((20, -1), (21, 20), (-1, 21)):
            owner.execute("UPDATE event SET seq = ? WHERE seq = ?", (new, old))


def cut_the_tail(home: Path) -> None:
    """The second round, as if it had never been: rows, events and all."""
    with database_of(home) as owner:
        ((seq,),) = owner.execute(
            "SELECT seq FROM event WHERE kind = 'round' AND subject LIKE '%r2'"
        )
        owner.execute("DELETE FROM event WHERE seq >= ?", (seq,))
        for table in ("attempt", "trial", "score", "look", "report"):
            owner.execute(f"DELETE FROM {table} WHERE round = 2")
        owner.execute("DELETE FROM round WHERE number = 2")
        owner.execute("DELETE FROM spend WHERE subject LIKE 'r2/%'")
        owner.execute("DELETE FROM adapter WHERE run LIKE '%/r2/%'")
        owner.execute("DELETE FROM policy WHERE round = 2")
        owner.execute("DELETE FROM claim WHERE policy_version = 3")
        owner.execute("DELETE FROM dead_end WHERE policy_version = 3")
        kept = {row[0] for row in owner.execute("SELECT subject FROM event WHERE kind = 'patch'")}
        for (sha256,) in owner.execute("SELECT sha256 FROM patch").fetchall():
            if sha256 not in kept:
                owner.execute("DELETE FROM patch WHERE sha256 = ?", (sha256,))


def anchor_lines(act: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def tamper(home: Path) -> None:
        file = home / "ledger.anchor"
        file.write_text("".join(act(file.read_text().splitlines(keepends=True))))

    return tamper


def pipe_for_the_anchor(home: Path) -> None:
    (home / "ledger.anchor").unlink()
    os.mkfifo(home / "ledger.anchor")


def name_that_reads_as_a_line(home: Path) -> None:
    (home / "artifacts" / "adapters" / "a\nok         everything: well\x1b[8m").mkdir()


def other_heads(lines: list[str]) -> list[str]:
    return [canonical_json({**json.loads(line), "hash": "0" * 64}) + "\n" for line in lines]


BETTER = "UPDATE score SET value = 0.99 WHERE round = 1 AND slot = 1 AND problem_set = 'dev'"
WON = "replace(body, 'Round 1 ran', 'Round 1 won')"
PRAISE = f"UPDATE report SET body = {WON} WHERE round = 1"
HASHED_PRAISE = f"UPDATE report SET body = {WON}, sha256 = sha256({WON}) WHERE round = 1"
NO_REPORT = "UPDATE report SET body = '{', sha256 = sha256('{') WHERE round = 1"
NO_POLICY = "UPDATE policy SET body = '{', sha256 = sha256('{') WHERE version = 3"
NEXT_VERSION = (
    "UPDATE policy SET body = replace(body, 'version\":2', 'version\":7') WHERE version = 2"
)

TAMPERINGS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "a byte of the dev set is edited": (
        in_snapshot("dev/problems.jsonl", edit_a_byte), "substrate", "dev/problems.jsonl changed"
    ),
    "a byte of the evaluation is edited": (
        in_snapshot("evaluation/solve.py", edit_a_byte), "substrate", "evaluation/solve.py changed"
    ),
    "a file is added to the evaluation": (
        in_snapshot("evaluation/extra.py", add), "substrate", "evaluation/extra.py added"
    ),
    "a sealed recipe is removed": (
        in_snapshot("recipes/stub.py", remove), "substrate", "recipes/stub.py missing"
    ),
    "a sealed file becomes a link": (
        in_snapshot("evaluation/score.py", swap_for_a_link), "substrate", "evaluation/score.py"
    ),
    "a sealed file becomes writable": (
        in_snapshot("evaluation/score.py", lambda path: path.chmod(0o644)),
        "substrate",
        "permissions 0644",
    ),
    "a sealed file and its entry are edited together": (
        edit_with_its_entry, "substrate", "entries.jsonl changed"
    ),
    "a pipe takes the place of the list of what was sealed": (
        pipe_for_the_entries, "substrate", "entries.jsonl changed"
    ),
    "the list of what was sealed is nested without end": (
        nest_the_entries, "substrate", "entries.jsonl changed"
    ),
    "a label of the external set is edited": (
        in_judge("external.jsonl", edit_a_byte), "judge", "the problems changed"
    ),
    "the lockbox takes the place of the external set": (
        lockbox_for_external, "judge", "the problems changed"
    ),
    "a byte of an adapter is edited": (
        in_adapter("adapter_model.safetensors", edit_a_byte), "adapters", "its files have hash"
    ),
    "an adapter is renamed": (rename_an_adapter, "adapters", "found none"),
    "two adapters change places": (swap_two_adapters, "adapters", "its files have hash"),
    "the weights become a link": (
        in_adapter("adapter_model.safetensors", swap_for_a_link), "adapters", "found a link"
    ),
    "a hidden file is added to an adapter": (in_adapter(".note", add), "adapters", "'.note'"),
    "a file is added beside the adapters": (
        lambda home: add(home / "artifacts" / "adapters" / "best"), "adapters", "best in"
    ),
    "a trigger is dropped": (
        drop("TRIGGER score_no_update"), "schema", "trigger score_no_update is missing"
    ),
    "a trigger is made to do nothing": (
        blunt_a_trigger, "schema", "trigger score_no_update was altered"
    ),
    "an index is dropped": (
        drop("INDEX event_campaign_kind"), "schema", "index event_campaign_kind is missing"
    ),
    "a score is edited": (change(BETTER), "chain", "/r1/s1/dev/"),
    "a trial is dropped": (
        change("DELETE FROM trial WHERE round = 2 AND slot = 3"), "chain", "/r2/s3) has no row"
    ),
    "a look is added past the ledger": (
        change("INSERT INTO look SELECT id, 9, 9, 99 FROM campaign"),
        "chain",
        "/r9/s9 has no event",
    ),
    "a byte of the database file is edited": (edit_a_byte_of_the_file, "chain", "/r1/s0"),
    "a note is edited": (
        change("UPDATE event SET body = '{}' WHERE kind = 'campaign.conducted'"),
        "chain",
        "campaign.conducted",
    ),
    "two events change places": (swap_two_events, "chain", "event 20"),
    "the last round is cut off": (cut_the_tail, "anchor", "it was cut"),
    "the whole ledger is rewritten": (rewrite(BETTER), "anchor", "was rewritten"),
    "a line of the anchor is removed": (
        anchor_lines(lambda lines: lines[:1] + lines[2:]), "anchor", "a line was removed"
    ),
    "the anchor is replaced": (anchor_lines(other_heads), "anchor", "the anchor replaced"),
    "a pipe takes the place of the anchor": (pipe_for_the_anchor, "anchor", "something else"),
    "a folder is added whose name reads as a line": (
        name_that_reads_as_a_line, "adapters", "everything: well"
    ),
    "a date is no date": (
        change("UPDATE campaign SET created_at = 'never'"), "chain", "the ledger writes no such"
    ),
    "a report is no report, ledger and anchor rewritten": (
        rewrite(NO_REPORT, anchor=True), "report", "its body is no report"
    ),
    "a policy is no policy, ledger and anchor rewritten": (
        rewrite(NO_POLICY, anchor=True), "texts", "is not the policy"
    ),
    "a manifest is none, ledger and anchor rewritten": (
        rewrite("UPDATE substrate SET manifest = '{'", anchor=True),
        "substrate",
        "not the snapshot's own",
    ),
    "the anchor is removed": (
        lambda home: (home / "ledger.anchor").unlink(), "anchor", "a line was removed"
    ),
    "a manifest is edited, ledger and anchor rewritten": (
        rewrite("UPDATE substrate SET manifest = replace(manifest, '10.0', '99.0')", anchor=True),
        "substrate",
        "not the snapshot's own",
    ),
    "a patch is edited, ledger and anchor rewritten": (
        rewrite("UPDATE patch SET text = text || ' '", anchor=True), "texts", "another hash"
    ),
    "a policy is edited, ledger and anchor rewritten": (
        rewrite(NEXT_VERSION, anchor=True), "texts", "/p2: its body"
    ),
    "a report is edited, ledger and anchor rewritten": (
        rewrite(PRAISE, anchor=True), "report", "its body has another hash"
    ),
    "a report and its hash are edited, ledger and anchor rewritten": (
        rewrite(HASHED_PRAISE, anchor=True), "report", "another hash"
    ),
    "a score is edited, ledger and anchor rewritten": (
        rewrite(BETTER, anchor=True), "report", "results.slots[1].dev.value is 0."
    ),
}  # fmt: skip


def test_an_honest_home_is_verified_whole(home: Path) -> None:
    code, checks = verified()
    assert code == 0
    assert {check["state"] for check in checks} == {"ok"}
    names = [check["what"].split()[0] for check in checks]
    assert names == [
        *("schema", "chain", "anchor", "home", "substrate", "judge", "adapters", "texts"),
        *("exchanges", "exports", "leaks"),
        *("report", "report"),
    ]


@pytest.mark.parametrize("name", TAMPERINGS)
def test_what_is_planted_is_named(home: Path, name: str) -> None:
    tamper, what, found = TAMPERINGS[name]
    tamper(home)
    code, checks = verified()
    assert code == 1, checks
    assert {check["state"] for check in checks[:-1]} <= {"ok"}
    assert checks[-1]["what"].split()[0] == what
    assert checks[-1]["state"] == "tampered" and found in checks[-1]["found"]


def test_no_name_of_a_file_looks_like_a_line_of_what_was_checked(home: Path) -> None:
    name_that_reads_as_a_line(home)
    done = CliRunner().invoke(app, ["verify"])
    assert done.exit_code == 1
    assert not any(line.startswith("ok         everything") for line in done.stdout.splitlines())
    assert "\x1b" not in done.stdout


def test_what_is_no_part_of_the_chain_may_hold_anything(home: Path) -> None:
    with closing(sqlite3.connect(home / "seedbed.db")) as owner, owner:
        owner.execute("INSERT INTO lease VALUES ('x', 'y', 'never')")
        owner.execute("UPDATE outbox SET body = x'00'")
    assert verified()[0] == 0


def test_a_copy_of_the_anchor_shows_a_rewrite_that_left_no_other_trace(home: Path) -> None:
    copy = home / "kept-elsewhere"
    shutil.copy(home / "ledger.anchor", copy)
    # A report names the event before it: what is rewritten behind the last of them shows nowhere.
    last = "UPDATE event SET body = '{\"won\":true}' WHERE kind = 'campaign.completed'"
    rewrite(last, anchor=True)(home)
    assert verified()[0] == 0
    code, checks = verified("--anchor", str(copy))
    assert code == 1 and "was rewritten" in checks[-1]["found"]


def test_an_older_copy_of_the_anchor_is_enough_and_not_called_cut(home: Path) -> None:
    copy = home / "kept-elsewhere"
    copy.write_text((home / "ledger.anchor").read_text().splitlines(keepends=True)[0])
    assert verified("--anchor", str(copy))[0] == 0


def test_a_line_of_the_anchor_that_a_power_cut_tore_is_no_tampering(home: Path) -> None:
    with (home / "ledger.anchor").open("a") as file:
        file.write('{"at":"2026-')
    assert verified()[0] == 0
    open_house().drop_anchor()
    assert verified()[0] == 0


def test_a_report_that_another_version_wrote_cannot_be_checked(home: Path) -> None:
    older = "UPDATE event SET body = '{\"program\":\"0\"}' WHERE kind = 'campaign.conducted'"
    rewrite(older, anchor=True)(home)
    code, checks = verified()
    assert code == 2
    assert [check["state"] for check in checks if check["what"].startswith("report")] == [
        "unchecked",
        "unchecked",
    ]
    assert "another version of Seedbed wrote it" in checks[-1]["found"]


def test_a_campaign_from_before_custody_was_known_is_verified_byte_for_byte(home: Path) -> None:
    reports = open_house().reports(open_house().ledger.find_campaign(None).id)
    (custody,) = {slot.custody for report in reports for slot in report.account.slots}
    assert custody in {"own-user", "same-user"}
    assert {report.account.custody for report in reports} == {custody}
    rewrite("UPDATE trial SET account = json_remove(account, '$.custody')", anchor=True)(home)
    assert "custody" in verified()[1][-1]["found"], "the reports say what the rows do not"
    for report in reports:
        then = report.data()
        del then["account"]["custody"]
        for slot in then["account"]["slots"]:
            del slot["custody"]
        again = build_report(open_house(), report.campaign, report.round).data()
        then["account"]["ledger_hash"] = again["account"]["ledger_hash"]  # the chain is another
        assert canonical_json(again) == canonical_json(then)


def test_where_there_is_no_ledger_nothing_is_made_and_the_code_is_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path / "nowhere"))
    code, checks = verified()
    assert code == 2 and checks[0]["state"] == "unchecked"
    assert not (tmp_path / "nowhere").exists()


def test_a_home_without_the_rows_of_its_campaign_is_not_called_whole(home: Path) -> None:
    for name in ("seedbed.db", "ledger.anchor"):
        (home / name).unlink()
    open_house().ledger.close()
    code, checks = verified()
    assert code == 2
    (unchecked,) = (check for check in checks if check["state"] != "ok")
    (folder,) = (home / "artifacts").glob("stub-*")
    assert unchecked["what"] == "home" and str(folder) in unchecked["found"]
    shutil.rmtree(folder)
    assert verified()[0] == 0


def test_a_file_that_is_no_database_cannot_be_checked(home: Path) -> None:
    (home / "seedbed.db").write_bytes(b"not a database" * 1000)
    code, checks = verified()
    assert code == 2 and checks[-1]["what"] == "reading"


def test_a_campaign_that_is_not_there_is_refused(home: Path) -> None:
    done = CliRunner().invoke(app, ["verify", "nobody"])
    assert "nobody" in str(done.exception)


def test_the_flow_succeeds_with_what_it_checked_and_fails_with_what_was_tampered_with(
    home: Path,
) -> None:
    assert len(verify_flow()) == 13
    change(BETTER)(home)
    with pytest.raises(Tampered, match=r"tampered: chain: .*/r1/s1/dev/"):
        verify_flow()
