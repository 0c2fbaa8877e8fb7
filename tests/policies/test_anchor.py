"""The anchor holds heads of the chain in a file, whoever writes it and however they die."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from policies.anchor import Head, drop_anchor, first_drift, read_anchor
from policies.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
DROPPER = """
import sys
from pathlib import Path
from policies.anchor import drop_anchor
from policies.ledger import Ledger

ledger = Ledger(sys.argv[1])
for number in range(10):
    ledger.note(None, "a.note", str(number), {})
    drop_anchor(ledger, Path(sys.argv[2]))
"""


@pytest.fixture
def anchor(tmp_path: Path) -> Path:
    return tmp_path / "ledger.anchor"


def test_an_empty_ledger_has_no_head_and_no_drift(ledger: Ledger, anchor: Path) -> None:
    assert drop_anchor(ledger, anchor) is None
    assert not anchor.exists()
    assert first_drift(ledger, anchor) is None


def test_each_head_is_a_line_and_the_chain_says_so(ledger: Ledger, anchor: Path) -> None:
    ledger.note(None, "a.note", "one", {})
    first = ledger.events()[-1]
    assert drop_anchor(ledger, anchor) == Head(1, first.hash)
    assert [(event.kind, event.subject) for event in ledger.events()][1:] == [
        ("ledger.anchored", "1")
    ]
    drop_anchor(ledger, anchor)
    assert [head.seq for head in read_anchor(anchor)] == [1, 2]
    assert first_drift(ledger, anchor) is None


def test_a_line_that_no_note_speaks_of_is_one_whose_writer_died(
    ledger: Ledger, anchor: Path
) -> None:
    ledger.note(None, "a.note", "one", {})
    drop_anchor(ledger, anchor)
    anchor.write_text(anchor.read_text() + '{"at":"2026-01-01","ha')
    assert first_drift(ledger, anchor) is None
    drop_anchor(ledger, anchor)
    assert [head.seq for head in read_anchor(anchor)] == [1, 2]
    assert first_drift(ledger, anchor) is None


@pytest.mark.parametrize(
    "line",
    [
        '{"seq":[1],"hash":"x"}',
        '{"seq":1,"hash":["x"]}',
        '{"seq":"1","hash":"x"}',
        '{"seq":null,"hash":null}',
        '{"seq":1}',
        "[" * 100_000,
        "9" * 5_000,
        "\udcff",
    ],
)
def test_a_line_that_is_no_head_is_left_out(ledger: Ledger, anchor: Path, line: str) -> None:
    ledger.note(None, "a.note", "one", {})
    drop_anchor(ledger, anchor)
    with anchor.open("a", errors="surrogateescape") as file:
        file.write(line + "\n")
    assert [head.seq for head in read_anchor(anchor)] == [1]
    assert first_drift(ledger, anchor) is None


def test_a_pipe_in_the_place_of_an_anchor_is_not_waited_for(anchor: Path) -> None:
    os.mkfifo(anchor)
    with pytest.raises(OSError, match="wanted a file at"):
        read_anchor(anchor)


def test_the_anchor_of_another_ledger_is_named(
    ledger: Ledger, anchor: Path, tmp_path: Path
) -> None:
    ledger.note(None, "a.note", "one", {})
    other = Ledger(f"sqlite:///{tmp_path / 'other.db'}")
    other.note(None, "a.note", "one", {})
    drop_anchor(other, anchor)
    other.close()
    assert "event 1 has hash" in str(first_drift(ledger, anchor))
    assert "event 1 has hash" in str(first_drift(ledger, anchor, complete=False))


def test_processes_may_drop_anchors_at_once(url: str, ledger: Ledger, anchor: Path) -> None:
    command = [sys.executable, "-c", DROPPER, url, str(anchor)]
    droppers = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [dropper.wait() for dropper in droppers] == [0, 0, 0]
    assert len(read_anchor(anchor)) == 30
    assert first_drift(ledger, anchor) is None


def test_an_anchor_that_is_a_link_is_not_followed(
    ledger: Ledger, anchor: Path, tmp_path: Path
) -> None:
    ledger.note(None, "a.note", "one", {})
    anchor.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        drop_anchor(ledger, anchor)
