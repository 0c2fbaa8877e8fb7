"""The ledger keeps what it acknowledged, refuses changes, and shows those that were made."""

import hashlib
import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlmodel import SQLModel

from policies.chain import EVENT, Link, Note, chain
from policies.ledger import DuplicateRow, Ledger, NotInLedger, verify_chain
from policies.tables import (
    Adapter,
    AgentCall,
    Attempt,
    Calibration,
    Campaign,
    Candidate,
    Claim,
    DeadEnd,
    Event,
    FinalRun,
    Integrity,
    Look,
    Opening,
    Outbox,
    Patch,
    Policy,
    Report,
    Round,
    Row,
    Score,
    Spend,
    Substrate,
    Trial,
    table_of,
)

ROOT = Path(__file__).resolve().parents[2]
SHA = "ab" * 32
NOON = datetime(2026, 1, 2, 12, 0, 0, 250, tzinfo=UTC)
CHAINED = [table_of(model).name for model in Row.__subclasses__() if model.chained]


def campaign(campaign_id: str = "quick-owl-7f3a", created_at: datetime = NOON) -> Campaign:
    return Campaign(
        id=campaign_id,
        name="quick-owl",
        plan='{"width":8}',
        seed=2**63 - 1,
        substrate_name="stub",
        substrate_sha256=SHA,
        judge_sha256=SHA,
        constitution_sha256=SHA,
        recipe="stub",
        worker="sampler",
        created_at=created_at,
    )


def trial(slot: int = 3, **changes: Any) -> Trial:
    columns = {
        "campaign": "quick-owl-7f3a",
        "round": 1,
        "slot": slot,
        "attempt": 1,
        "kind": "explore",
        "axis": "step-size",
        "outcome": "evaluated",
        "hypothesis": "smaller steps forget less",
        "edit": '{"overrides":{"recipes/stub.py":{"STEP":0.003}},"patch":null}',
        "diff_sha256": SHA,
        "seed": 7,
        "adapter_sha256": SHA,
        "integrity": "[]",
        "account": '{"attempts":1}',
        "finished_at": NOON,
    }
    return Trial(**columns | changes)


def score(domain: str = "overall", value: float = 0.5, problem_set: Any = "dev") -> Score:
    return Score(
        campaign="quick-owl-7f3a",
        round=1,
        slot=3,
        problem_set=problem_set,
        domain=domain,
        value=value,
        n=64,
        metric="accuracy",
        metric_version=SHA,
        engine="stub 1",
    )


def one_of_each() -> list[Row]:
    c = "quick-owl-7f3a"
    return [
        Substrate(sha256=SHA, name="stub", manifest='{"name":"stub"}', sealed_at=NOON),
        campaign(),
        Policy(campaign=c, version=1, sha256=SHA, body="{}", author="seed", created_at=NOON),
        Round(campaign=c, number=1, policy_version=1, started_at=NOON),
        Attempt(campaign=c, round=1, slot=3, attempt=1, kind="explore", seed=7, started_at=NOON),
        trial(),
        score(),
        Look(campaign=c, round=1, slot=3, number=1),
        Report.of(c, 1, SHA, "{}"),
        Claim(campaign=c, policy_version=1, claim="it-helps", text="It helps.", rows='["r1/s3"]'),
        DeadEnd(
            campaign=c, policy_version=1, dead_end="no", axis="step-size", title="No", rows="[]"
        ),
        Spend(campaign=c, subject="r1/s3/a1", unit="tokens", state="reserved", amount=30.0),
        AgentCall(
            campaign=c,
            call="r1/s3/a1/worker/7",
            role="worker",
            model="openai:m",
            request_sha256=SHA,
            exchange_sha256=SHA,
            stop="end",
            at=NOON,
        ),
        Patch.of("--- a/x\n+++ b/x\n"),
        Calibration(
            substrate_sha256=SHA,
            recipe="stub",
            rollouts=960,
            probe="recipe",
            number=1,
            **final_columns(),
        ),
        Candidate(campaign=c, rule="r", policy_version=1, policy_sha256=SHA, standing_recipe="{}"),
        FinalRun(campaign=c, arm="candidate", number=1, **final_columns()),
        Opening(campaign=c, candidate_sha256=SHA),
        Integrity(
            campaign=c,
            round=1,
            slot=3,
            attempt=1,
            number=1,
            kind="foreign_adapter",
            detail="of r1/s2",
            worker="sampler",
            found_at=NOON,
        ),
        Adapter(sha256=SHA, run=f"{c}/r1/s3", tensors_sha256=SHA, recipe_sha256=SHA, seed=7),
    ]


def final_columns() -> dict[str, Any]:
    columns = {"seed": 7, "outcome": "evaluated", "reason": "", "adapter_sha256": SHA, "dev": "{}"}
    return {**columns, "account": "{}", "finished_at": NOON}


SUBJECTS = {
    "substrate": SHA,
    "campaign": "quick-owl-7f3a",
    "policy": "quick-owl-7f3a/p1",
    "round": "quick-owl-7f3a/r1",
    "attempt": "quick-owl-7f3a/r1/s3/a1",
    "trial": "quick-owl-7f3a/r1/s3",
    "score": "quick-owl-7f3a/r1/s3/dev/overall",
    "look": "quick-owl-7f3a/r1/s3",
    "report": "quick-owl-7f3a/r1",
    "claim": "quick-owl-7f3a/p1/it-helps",
    "dead_end": "quick-owl-7f3a/p1/no",
    "spend": "quick-owl-7f3a/r1/s3/a1/tokens/reserved",
    "agent_call": "quick-owl-7f3a/r1/s3/a1/worker/7",
    "calibration": f"{SHA}/stub/960/recipe/1",
    "candidate": "quick-owl-7f3a",
    "final_run": "quick-owl-7f3a/candidate/1",
    "opening": "quick-owl-7f3a",
    "patch": hashlib.sha256(b"--- a/x\n+++ b/x\n").hexdigest(),
    "integrity": "quick-owl-7f3a/r1/s3/a1/i1",
    "adapter": f"{SHA}/quick-owl-7f3a/r1/s3",
}


# Append and ask


def test_what_was_appended_is_what_is_asked_for(ledger: Ledger) -> None:
    rows = one_of_each()
    ledger.append(*rows)
    c = "quick-owl-7f3a"
    found = [
        ledger.substrate(SHA),
        ledger.campaign(c),
        ledger.policy(c, 1),
        ledger.round(c, 1),
        *ledger.attempts(c, 1, 3),
        *ledger.trials(c, 1),
        *ledger.scores(c, 1, 3, "dev"),
        *ledger.looks(c),
        ledger.report(c, 1),
        *ledger.claims(c, 1),
        *ledger.dead_ends(c),
        *ledger.spends(c),
        *ledger.agent_calls(c),
        ledger.patch(SUBJECTS["patch"]),
        *ledger.calibrations(SHA, "stub", 960),
        ledger.candidate(c),
        *ledger.final_runs(c, "candidate"),
        ledger.opening(c),
        *ledger.integrity(c, 1, 3),
        *ledger.makers("0" * 64, SHA),
    ]
    assert [row.model_dump() for row in found if row] == [row.model_dump() for row in rows]
    assert ledger.patch_text(SUBJECTS["patch"]) == "--- a/x\n+++ b/x\n"
    assert ledger.patches() == {SUBJECTS["patch"]}


def test_every_row_has_one_event_and_so_has_every_note(ledger: Ledger) -> None:
    ledger.append(*one_of_each(), Note(None, "house.opened", "here", {"b": 1, "a": None}))
    ledger.note("quick-owl-7f3a", "campaign.stopped", "quick-owl-7f3a", {"by": "person"})
    events = ledger.events()
    assert [event.seq for event in events] == list(range(1, 23))
    assert {event.kind: event.subject for event in events[:20]} == SUBJECTS
    assert [(event.kind, event.body) for event in events[20:]] == [
        ("house.opened", '{"a":null,"b":1}'),
        ("campaign.stopped", '{"by":"person"}'),
    ]
    assert [e.seq for e in ledger.events("quick-owl-7f3a", "campaign.stopped")] == [22]
    assert verify_chain(ledger) is None


def test_the_first_hash_is_what_the_definition_says(ledger: Ledger) -> None:
    ledger.append(Look(campaign="c", round=1, slot=0, number=2))
    row = hashlib.sha256(b'{"campaign":"c","number":2,"round":1,"slot":0}').hexdigest()
    (event,) = ledger.events()
    assert event.body == '{"sha256":"' + row + '"}'
    at = event.at.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")
    text = json.dumps(["", 1, "c", "look", "c/r1/s0", event.body, at], separators=(",", ":"))
    assert event.hash == hashlib.sha256(text.encode()).hexdigest()


def test_rows_come_in_the_order_of_their_keys_and_as_many_as_were_asked_for(
    ledger: Ledger,
) -> None:
    c = "quick-owl-7f3a"
    ledger.append(trial(10), trial(9), trial(1, round=2))
    ledger.append(Look(campaign=c, round=2, slot=0, number=2))
    ledger.append(Look(campaign=c, round=1, slot=9, number=1))
    ledger.append(score("strings"), score("overall"), score("overall", problem_set="external"))
    assert [(row.round, row.slot) for row in ledger.trials(c)] == [(1, 9), (1, 10), (2, 1)]
    assert [row.slot for row in ledger.trials(c, 2)] == [1]
    assert ledger.trials("other") == []
    assert [row.number for row in ledger.looks(c)] == [1, 2]
    assert [row.domain for row in ledger.scores(c, set="dev")] == ["overall", "strings"]
    assert [row.problem_set for row in ledger.scores(c, 1, 3, "external")] == ["external"]


def test_the_newest_version_of_the_policy_is_the_one_without_a_number(ledger: Ledger) -> None:
    for version in (2, 10, 1):
        ledger.append(Policy(campaign="c", version=version, sha256=SHA, body="{}", author="seed"))
    assert ledger.policy("c").version == 10
    assert ledger.policy("c", 2).version == 2
    with pytest.raises(NotInLedger, match=r"version 3: found none .* there is version 1, 2, 10"):
        ledger.policy("c", 3)
    with pytest.raises(NotInLedger, match=r"policy with campaign 'd'.*found none"):
        ledger.policy("d")


def test_what_is_not_there_yet_is_none_and_what_ought_to_be_there_raises(ledger: Ledger) -> None:
    assert ledger.report("c", 1) is None
    assert ledger.substrate(SHA) is None
    assert ledger.patch(SHA) is None
    ledger.append(campaign("here-1"))
    with pytest.raises(NotInLedger, match=r"with id 'c': found none .* there is id here-1"):
        ledger.campaign("c")
    with pytest.raises(NotInLedger, match="round with campaign 'c', number 1: found none"):
        ledger.round("c", 1)
    with pytest.raises(NotInLedger, match="patch"):
        ledger.patch_text(SHA)


def test_a_campaign_is_found_by_the_beginning_of_its_id_or_as_the_newest(ledger: Ledger) -> None:
    with pytest.raises(NotInLedger, match="wanted a campaign: found none; start one"):
        ledger.find_campaign(None)
    ledger.append(
        campaign("owl-1", NOON),
        campaign("owl-12", NOON + timedelta(hours=2)),
        campaign("fox-1", NOON + timedelta(hours=1)),
    )
    assert [row.id for row in ledger.campaigns()] == ["owl-12", "fox-1", "owl-1"]
    assert ledger.find_campaign(None).id == "owl-12"
    assert ledger.find_campaign("f").id == "fox-1"
    assert ledger.find_campaign("owl-1").id == "owl-1"
    with pytest.raises(NotInLedger, match="found 2: owl-12, owl-1; name one of owl-12, owl-1"):
        ledger.find_campaign("owl")
    with pytest.raises(NotInLedger, match="found none; name one of owl-12, fox-1, owl-1"):
        ledger.find_campaign("x")
    with pytest.raises(NotInLedger, match="found 3"):
        ledger.find_campaign("")


def test_a_row_that_is_changed_by_its_owner_leaves_the_ledger_as_it_was(ledger: Ledger) -> None:
    ledger.append(trial())
    (found,) = ledger.trials("quick-owl-7f3a")
    found.outcome = "crashed"
    assert ledger.trials("quick-owl-7f3a")[0].outcome == "evaluated"


# What is refused


@pytest.mark.parametrize("row", one_of_each(), ids=lambda row: table_of(type(row)).name)
def test_a_key_that_is_taken_is_named_and_nothing_is_written(ledger: Ledger, row: Row) -> None:
    ledger.append(*one_of_each())
    before = len(ledger.events())
    table = table_of(type(row)).name
    if isinstance(row, Substrate | Patch):
        ledger.append(row)  # the key is the hash of the content, so this says nothing new
    else:
        with pytest.raises(DuplicateRow, match=f"{table} {SUBJECTS[table]}") as caught:
            ledger.append(trial(8), row)
        assert (caught.value.table, caught.value.subject) == (table, SUBJECTS[table])
    assert len(ledger.events()) == before
    assert len(ledger.trials("quick-owl-7f3a")) == 1
    assert verify_chain(ledger) is None


def test_a_key_that_comes_twice_in_one_call_is_refused_too(ledger: Ledger) -> None:
    with pytest.raises(DuplicateRow, match="trial quick-owl-7f3a/r1/s3"):
        ledger.append(campaign(), trial(), trial())
    assert ledger.campaigns() == [] and ledger.events() == []


def test_two_looks_cannot_have_one_number(ledger: Ledger) -> None:
    ledger.append(Look(campaign="c", round=1, slot=0, number=1))
    with pytest.raises(DuplicateRow, match=r"look c/r1/s1: .*number"):
        ledger.append(Look(campaign="c", round=1, slot=1, number=1))
    ledger.append(Look(campaign="d", round=1, slot=1, number=1))


@pytest.mark.parametrize(
    "row",
    [
        trial(outcome="fine"),
        trial(slot=-1),
        trial(seed=2**63),
        trial(seed=None),
        trial(diff_sha256="abc"),
        trial(edit={"overrides": {}}),
        trial(finished_at=datetime(2026, 1, 2)),
        trial(campaign="A campaign"),
        score(domain="a/b"),
        score(problem_set="mine"),
        score(value=float("nan")),
        score(value=float("inf")),
        Note("c", "trial", "c/r1/s3", {}),
        Note("c", "campaign.stopped", "c", {"seconds": float("nan")}),
        Event(seq=1, kind="a.b", subject="", body="{}", at=NOON, previous="", hash=SHA),
    ],
    ids=lambda row: type(row).__name__,
)
def test_a_value_that_its_column_does_not_take_is_refused_with_all_of_the_call(
    ledger: Ledger, row: Row | Note
) -> None:
    with pytest.raises(ValueError):
        ledger.append(campaign(), row)
    assert ledger.campaigns() == [] and ledger.events() == []


@pytest.mark.parametrize("table", CHAINED)
@pytest.mark.parametrize("recursive", [False, True])
def test_no_connection_changes_deletes_or_replaces_a_row(
    file: Path, table: str, recursive: bool
) -> None:
    with closing(Ledger(f"sqlite:///{file}")) as ledger:
        ledger.append(*one_of_each())
    with closing(sqlite3.connect(file)) as other:
        if recursive:
            other.execute("PRAGMA recursive_triggers = ON")
        before = other.execute(f"SELECT * FROM {table}").fetchall()
        column = other.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchone()[0]
        for statement in (
            f"UPDATE {table} SET {column} = {column}",
            f"DELETE FROM {table}",
            f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
            f"REPLACE INTO {table} SELECT * FROM {table}",
        ):
            with pytest.raises(sqlite3.IntegrityError, match=r"append-only|UNIQUE constraint"):
                other.execute(statement)
        assert other.execute(f"SELECT * FROM {table}").fetchall() == before
        assert len(before) == 1


@pytest.mark.parametrize("table", CHAINED)
def test_the_database_itself_keeps_every_row(url: str, ledger: Ledger, table: str) -> None:
    ledger.append(*one_of_each())
    engine = create_engine(url)
    column = next(iter(SQLModel.metadata.tables[table].columns)).name
    statements = [f"UPDATE {table} SET {column} = {column}", f"DELETE FROM {table}"]
    if engine.dialect.name == "postgresql":
        statements.append(f"TRUNCATE {table}")
    for statement in statements:
        with (
            pytest.raises(DBAPIError, match=f"{table} is append-only"),
            engine.begin() as connection,
        ):
            connection.execute(text(statement))
    engine.dispose()
    assert verify_chain(ledger) is None


def test_no_event_can_be_inserted_but_after_the_last(file: Path) -> None:
    with closing(Ledger(f"sqlite:///{file}")) as ledger:
        ledger.append(trial(1), trial(2))
    insert = "INSERT INTO event SELECT ?, campaign, kind, subject, body, at, ?, hash FROM event"
    with closing(sqlite3.connect(file)) as other:
        (head,) = other.execute("SELECT hash FROM event WHERE seq = 2").fetchone()
        for seq, previous in ((4, head), (3, "0" * 64), (3, "")):
            with pytest.raises(sqlite3.IntegrityError, match="does not follow the last one"):
                other.execute(f"{insert} WHERE seq = 2", (seq, previous))


STRINGS = "quick-owl-7f3a/r1/s3/dev/strings"


# What verify_chain shows. The triggers are dropped first, as one who owns the file can do.


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE score SET value = 0.75 WHERE domain = 'overall'", "event 2 (score"),
        ("UPDATE trial SET finished_at = '2026-01-02 12:00:00.000251'", "event 1 (trial"),
        ("UPDATE trial SET axis = NULL", "event 1 (trial"),
        ("UPDATE trial SET slot = 4", "event 1 (trial"),
        ("DELETE FROM score WHERE domain = 'strings'", "event 3 (score"),
        ("INSERT INTO look VALUES ('c', 1, 1, 1)", "look c/r1/s1 has no event"),
        ("UPDATE event SET body = '{}' WHERE seq = 4", "event 4 (a.note"),
        ("UPDATE event SET kind = 'b.note' WHERE seq = 4", "event 4 (b.note"),
        ("UPDATE event SET campaign = 'd' WHERE seq = 4", "event 4 (a.note"),
        ("UPDATE event SET at = '2026-01-02 12:00:00.000000' WHERE seq = 1", "event 1 (trial"),
        ("UPDATE event SET hash = previous WHERE seq = 3", "event 3 (score"),
        ("DELETE FROM event WHERE seq = 2", "event 2 is missing"),
        ("DELETE FROM event WHERE seq = 1", "event 1 is missing"),
        ("UPDATE event SET seq = 9 - seq WHERE seq IN (4, 5)", "event 4 (look"),
        # What no ledger writes, and SQLite takes all the same.
        ("UPDATE trial SET finished_at = 'never'", "trial quick-owl-7f3a/r1/s3 was altered"),
        ("UPDATE trial SET edit = CAST(x'ff7b' AS TEXT)", "trial quick-owl-7f3a/r1/s3 was altered"),
        ("UPDATE trial SET edit = x'7b7d'", "trial quick-owl-7f3a/r1/s3 was altered"),
        ("UPDATE trial SET campaign = CAST(x'ff' AS TEXT)", "trial has a row whose key cannot be"),
        ("UPDATE score SET value = 9e999 WHERE domain = 'strings'", f"score {STRINGS} was altered"),
        ("UPDATE score SET value = x'ff' WHERE domain = 'strings'", f"score {STRINGS} was altered"),
        ("UPDATE event SET at = 'never' WHERE seq = 3", "event 3 was altered"),
        ("UPDATE event SET body = CAST(x'ff7b' AS TEXT) WHERE seq = 3", "event 3 was altered"),
        ("UPDATE event SET body = x'7b7d' WHERE seq = 3", "event 3 was altered"),
    ],
)
def test_the_first_event_that_does_not_hold_is_named(file: Path, change: str, found: str) -> None:
    with closing(Ledger(f"sqlite:///{file}")) as ledger:
        ledger.append(trial(), score("overall"), score("strings"))
        ledger.note("c", "a.note", "it", {"n": 1})
        ledger.append(Look(campaign="c", round=2, slot=0, number=9))
        assert verify_chain(ledger) is None
        with closing(sqlite3.connect(file, isolation_level=None)) as owner:
            for (trigger,) in owner.execute(
                "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall():
                owner.execute(f"DROP TRIGGER {trigger}")
            if "9 - seq" in change:  # the two trade places
                owner.execute("UPDATE event SET seq = -seq WHERE seq IN (4, 5)")
                change = "UPDATE event SET seq = 9 + seq WHERE seq IN (-4, -5)"
            owner.execute(change)
        assert str(verify_chain(ledger)).startswith(found)


@pytest.mark.parametrize("body", ["", "[]", "{", "7", "[" * 100_000])
def test_a_note_that_is_none_is_named_in_a_chain_that_holds(file: Path, body: str) -> None:
    with closing(Ledger(f"sqlite:///{file}")) as ledger:
        ledger.note("c", "a.note", "one", {})
        engine = create_engine(f"sqlite:///{file}")
        with engine.begin() as connection:
            link = Link("c", "a.note", "two", body)
            connection.execute(EVENT.insert(), chain(connection, [link], NOON))
        engine.dispose()
        assert str(verify_chain(ledger)).startswith("event 2 (a.note two) was altered: no note")


def test_values_that_a_database_spells_otherwise_still_verify(ledger: Ledger) -> None:
    east = datetime(2026, 1, 2, 15, 30, tzinfo=timezone(timedelta(hours=3, minutes=30)))
    ledger.append(
        trial(3, finished_at=east, hypothesis="é \u2028 😀 'quoted' \"twice\" \\ % : ?"),
        score("overall", -0.0),
        score("a", 1),
        score("b", 0.1 + 0.2),
        score("c", 5e-324),
        score("d", 1.7976931348623157e308),
    )
    assert verify_chain(ledger) is None
    (found,) = ledger.trials("quick-owl-7f3a")
    assert found.finished_at == datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert found.finished_at.utcoffset() == timedelta(0)
    assert [row.value for row in ledger.scores("quick-owl-7f3a")] == [
        1.0,
        0.30000000000000004,
        5e-324,
        1.7976931348623157e308,
        0.0,
    ]


# Many processes, and their death

APPENDER = """
import sys
from policies.ledger import Ledger
from policies.tables import Attempt

ledger = Ledger(sys.argv[1])
for number in range(1, int(sys.argv[3]) + 1):
    row = Attempt(campaign=sys.argv[2], round=1, slot=0, attempt=number, kind="anchor", seed=0)
    ledger.append(row)
    print(number, flush=True)
"""


def start_appender(url: str, name: str, rows: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", APPENDER, url, name, str(rows)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_four_processes_append_at_once_and_the_chain_is_one(url: str) -> None:
    names = ["a", "b", "c", "d"]
    appenders = [start_appender(url, name, 50) for name in names]  # the database is made by them
    for appender in appenders:
        appender.communicate()
    assert [appender.returncode for appender in appenders] == [0, 0, 0, 0]
    with closing(Ledger(url)) as ledger:
        assert [len(ledger.attempts(name)) for name in names] == [50] * 4
        assert [event.seq for event in ledger.events()] == list(range(1, 201))
        assert verify_chain(ledger) is None


def test_a_killed_process_takes_no_acknowledged_row_with_it(url: str) -> None:
    with closing(Ledger(url)) as ledger:
        for life in range(10):
            name = f"life-{life}"
            with start_appender(url, name, 1_000_000) as appender:
                try:
                    assert appender.stdout is not None
                    heard = [int(appender.stdout.readline()) for _ in range(5 + 7 * life)]
                    # Anyone can read while it writes, and what was acknowledged is there already.
                    assert len(ledger.attempts(name)) >= heard[-1]
                    assert verify_chain(ledger) is None
                finally:
                    appender.send_signal(signal.SIGKILL)
                heard += map(int, appender.stdout.read().split())
            assert verify_chain(ledger) is None
            found = [row.attempt for row in ledger.attempts(name)]
            assert found == list(range(1, len(found) + 1))
            # The last row may have landed before its writer could say so.
            assert len(found) - len(heard) in (0, 1)
        ledger.append(trial())


# Leases


def test_a_lease_has_one_holder_until_it_is_given_back(ledger: Ledger, url: str) -> None:
    with closing(Ledger(url)) as other:
        assert ledger.lease_holder("campaign/c") is None
        assert ledger.claim_lease("campaign/c", "a", 60)
        assert not other.claim_lease("campaign/c", "b", 60)
        assert ledger.claim_lease("campaign/c", "a", 60), "its holder may claim it again"
        assert other.claim_lease("campaign/d", "b", 60)
        assert not other.renew_lease("campaign/c", "b", 60)
        assert ledger.renew_lease("campaign/c", "a", 60)
        other.release_lease("campaign/c", "b")
        assert other.lease_holder("campaign/c") == "a"
        ledger.release_lease("campaign/c", "a")
        assert other.lease_holder("campaign/c") is None
        assert other.claim_lease("campaign/c", "b", 60)


def test_an_expired_lease_can_be_taken_and_not_renewed(ledger: Ledger) -> None:
    assert ledger.claim_lease("campaign/c", "a", 0)
    assert ledger.lease_holder("campaign/c") == "a"
    assert not ledger.renew_lease("campaign/c", "a", 60)
    assert ledger.claim_lease("campaign/c", "b", 60)
    assert not ledger.renew_lease("campaign/c", "a", 60)
    assert ledger.lease_holder("campaign/c") == "b"


def test_leases_and_the_outbox_leave_no_event(ledger: Ledger) -> None:
    ledger.claim_lease("campaign/c", "a", 60)
    ledger.append(Outbox(campaign="c", kind="markdown", key="c-report", body="# c"))
    assert ledger.events() == []


# Outbox


def test_the_outbox_keeps_what_is_to_be_published_until_it_was(ledger: Ledger) -> None:
    for name in ("c", "c", "d"):
        ledger.append(Outbox(campaign=name, kind="markdown", key=f"{name}-report", body="# x"))
    first, second = ledger.unpublished("c")
    assert first.id is not None and second.id is not None and first.id < second.id
    assert len(ledger.unpublished()) == 3
    ledger.mark_published(first.id)
    ledger.mark_published(first.id)
    assert [row.id for row in ledger.unpublished("c")] == [second.id]
    with pytest.raises(NotInLedger, match="outbox with id 99"):
        ledger.mark_published(99)


def test_what_is_to_be_published_lands_with_its_row_or_not_at_all(ledger: Ledger) -> None:
    ledger.append(trial())
    with pytest.raises(DuplicateRow):
        ledger.append(Outbox(campaign="c", kind="markdown", key="c-report", body="# c"), trial())
    assert ledger.unpublished() == []
