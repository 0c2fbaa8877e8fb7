"""Custody: who asks the scorer hears what he may, and it is gone when the controller is."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from substrate.custody import (
    Scorer,
    ScorerFailed,
    custody_here,
    custody_of,
    graded,
    scorer_of,
)
from substrate.dropin import read_dropin
from substrate.store import Judge, Snapshot, Store

STUB = Path(__file__).parents[1] / "substrates" / "stub"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def snapshot(store: Store) -> Snapshot:
    return store.seal(read_dropin(STUB))


@pytest.fixture(scope="module")
def judge(store: Store) -> Judge:
    return store.seal_judge(read_dropin(STUB))


def labels() -> list[dict[str, float]]:
    lines = (STUB / "judge/external.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


# As a stranger asks: another process, which knows where the socket is.
ASK = """
import json, socket, sys
with socket.socket(socket.AF_UNIX) as peer:
    peer.connect(sys.argv[1])
    request = {"ask": sys.argv[2], "answers": json.loads(sys.argv[3])}
    peer.sendall(json.dumps(request).encode() + b"\\n")
    print(peer.makefile().read(), end="")
"""


def ask_as_a_stranger(scorer: Scorer, what: str, answers: list[str]) -> str:
    command = [sys.executable, "-c", ASK, str(scorer.socket), what, json.dumps(answers)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_questions_come_without_labels_and_canaries_and_answers_are_graded(
    snapshot: Snapshot, judge: Judge
) -> None:
    async def exam() -> None:
        scored = snapshot.manifest.sets.external
        async with scorer_of(snapshot, judge.external, scored, judge.canaries) as scorer:
            asked = (await scorer.ask("questions"))["questions"]
            assert len(asked) == len(labels()) == 400
            assert set(asked[0]) == {"id", "domain", "salt", "room"}
            assert {question["room"] for question in asked} == {16}
            values, domains = await graded(scorer, ["[0.5, 0.0]"] * 400)
            assert values == [float(problem["difficulty"] < 0.5) for problem in labels()]
            assert domains == [problem["domain"] for problem in labels()]
            assert (await scorer.ask("count"))["looks"] == 1

    asyncio.run(exam())


def test_a_stranger_hears_the_same_whatever_the_labels_and_is_counted(
    snapshot: Snapshot, judge: Judge
) -> None:
    async def exam() -> None:
        scored = snapshot.manifest.sets.external
        async with scorer_of(snapshot, judge.external, scored, judge.canaries) as scorer:
            right = [json.dumps([problem["difficulty"] + 1, 0]) for problem in labels()]
            said = {
                await asyncio.to_thread(ask_as_a_stranger, scorer, what, answers)
                for what, answers in (
                    ("grade", right),
                    ("grade", ["[0, 0]"] * 400),
                    ("questions", []),
                    ("count", []),
                )
            }
            assert said == {'{"said": "counted"}\n'}
            count = await scorer.ask("count")
            assert (count["looks"], count["strangers"]) == (0, 4)
            assert (await scorer.ask("grade", answers=right))["looks"] == 1

    asyncio.run(exam())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_scorer_is_a_user_of_its_own_who_cannot_be_looked_into(
    judge: Judge, snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = Path("/tmp") / f"seedbed-test-{os.getpid()}"
    open_store = Store(place)  # where every user may come, as pytest's own folders are not
    place.chmod(0o755)
    try:
        sealed = open_store.seal(read_dropin(STUB))
        sealed.root.parent.parent.chmod(0o755)

        async def uid(of: Snapshot) -> int:
            scored = of.manifest.sets.external
            async with scorer_of(of, judge.external, scored, ()) as scorer:
                return (await scorer.ask("count"))["uid"]

        assert asyncio.run(uid(sealed)) == 61999
        assert custody_of(61999) == custody_here(open_store.root) == "own-user"
        shut = snapshot.root.parent.parent.parent  # one of pytest's, where nobody else may come
        assert asyncio.run(uid(snapshot)) == 0
        assert custody_of(0) == custody_here(shut) == "same-user"
    finally:
        subprocess.run(["rm", "-rf", str(place)], check=True)
    assert judge.external.stat().st_mode & 0o777 == 0o400
    assert judge.external.parent.stat().st_mode & 0o777 == 0o700


def test_a_bad_request_ends_nothing(snapshot: Snapshot, judge: Judge) -> None:
    async def exam() -> None:
        scored = snapshot.manifest.sets.external
        async with scorer_of(snapshot, judge.external, scored, judge.canaries) as scorer:
            for answers in ([], ["x"] * 399, [1] * 400):
                with pytest.raises(ScorerFailed):
                    await scorer.ask("grade", answers=answers)
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(scorer.socket))
                peer.sendall(b"\xff\xfe no JSON\n")
            assert (await scorer.ask("count"))["looks"] == 0

    asyncio.run(exam())


CONTROLLER = """
import asyncio, os, sys
from pathlib import Path
from substrate.custody import scorer_of
from substrate.store import Store

async def main():
    store = Store(Path(sys.argv[1]))
    snapshot, judge = store.open(sys.argv[2]), store.open_judge(sys.argv[3])
    async with scorer_of(snapshot, judge.external, snapshot.manifest.sets.external, ()) as scorer:
        children = open(f"/proc/self/task/{os.getpid()}/children").read()
        print(children.split()[0], flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_the_scorer_dies_with_the_controller(
    store: Store, snapshot: Snapshot, judge: Judge
) -> None:
    command = [sys.executable, "-c", CONTROLLER, str(store.root), snapshot.digest, judge.digest]
    environment = os.environ | {"PYTHONPATH": "."}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as controller:
        assert controller.stdout is not None
        scorer = int(controller.stdout.readline())
        os.kill(scorer, 0)
        controller.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while is_alive(scorer):
        assert time.monotonic() < deadline, "the scorer outlived its controller"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"
