"""A program as a worker, in real forks of the stub."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from agents.worker import Caps, HandIn, UnknownWorker, WorkEnded, Workplace, find_worker
from policies.policy import Brief
from substrate.dropin import read_dropin
from substrate.fork import Fork, make_fork, read_edit, sealed_changes
from substrate.outcome import Outcome
from substrate.store import Store

STUB = Path(__file__).parents[1] / "substrates" / "stub"
RECIPE = "recipes/stub.py"
BRIEF = Brief("Learning rate", "A larger one helps.", (), {}, ())


@pytest.fixture
def fork(tmp_path: Path) -> Fork:
    snapshot = Store(tmp_path / "store").seal(read_dropin(STUB))
    return make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])


def work(fork: Fork, tmp_path: Path, body: str, **caps: float) -> HandIn:
    program = tmp_path / "agent"
    program.write_text(f"#!{sys.executable}\nimport json, os, pathlib, sys\n{body}\n")
    program.chmod(0o755)
    place = Workplace(fork, BRIEF, 1, caps=Caps.model_validate(caps))

    async def hand_in() -> HandIn:
        return await find_worker(f"command:{program} --print")(place)

    return asyncio.run(hand_in())


GOOD = f"""
brief = sys.stdin.read()
assert brief == pathlib.Path("out/brief.md").read_text() and "Learning rate" in brief
assert "You have 7200 s in all." in brief
assert not any(word in brief for word in ("answers", "smoke", "draft", "dev scores"))
recipe = pathlib.Path({RECIPE!r})
recipe.write_text(recipe.read_text().replace("LEARNING_RATE = 3e-4", "LEARNING_RATE = 2e-3"))
said = dict(hypothesis=f"{{sys.argv[1:]}}", notes=json.dumps(sorted(os.environ)))
pathlib.Path("out/hand-in.json").write_text(json.dumps(said))
"""


def test_a_program_gets_the_brief_edits_the_fork_and_leaves_a_hand_in_file(
    fork: Fork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-for-a-jail")
    hand_in = work(fork, tmp_path, GOOD)
    assert hand_in.hypothesis == "['--print']"
    assert "ANTHROPIC_API_KEY" not in json.loads(hand_in.notes)
    assert read_edit(fork).overrides == {RECIPE: {"LEARNING_RATE": 2e-3}}
    assert sealed_changes(fork) == []


@pytest.mark.parametrize(
    ("body", "outcome", "reason"),
    [
        ("pass", Outcome.CRASHED, "hand-in.json, found none"),
        ("print('no model'); sys.exit(7)", Outcome.CRASHED, "exit code 7"),
        ("pathlib.Path('out/hand-in.json').write_text('{')", Outcome.CRASHED, "not valid"),
        ("os.symlink('/etc/passwd', 'out/hand-in.json')", Outcome.CRASHED, "found none"),
        ("pathlib.Path('out/hand-in.json').write_bytes(b' ' * 10**6)", Outcome.CRASHED, "found"),
        ("import time; time.sleep(60)", Outcome.TIMED_OUT, "seconds"),
        ("x = [b'1' * 2**20 for _ in range(10**6)]", Outcome.OUT_OF_MEMORY, "memory"),
    ],
)
def test_a_program_that_fails_has_its_outcome(
    body: str, outcome: Outcome, reason: str, fork: Fork, tmp_path: Path
) -> None:
    with pytest.raises(WorkEnded, match=reason) as ended:
        work(fork, tmp_path, body, seconds=1.0 if outcome is Outcome.TIMED_OUT else 30.0)
    assert ended.value.outcome is outcome


@pytest.mark.parametrize("kind", ["command:", "command:no-such-program", "command:'"])
def test_a_program_that_is_not_there_is_refused(kind: str) -> None:
    with pytest.raises(UnknownWorker, match="wanted"):
        find_worker(kind)
