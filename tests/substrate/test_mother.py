"""The mother of keepers: one for each controller, replaceable, and gone with it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from substrate.jail import Ending, Limits, run_jailed
from substrate.walls import NO_WALLS

REPO = Path(__file__).parents[2]

# Two jails, one after the other; prints who the mother of their keepers is.
CONTROLLER = """
import asyncio, sys, tempfile
from pathlib import Path
from substrate.jail import Limits, run_jailed
from substrate.walls import NO_WALLS

FIND = "cut -d ' ' -f 4 /proc/$PPID/stat"

async def main():
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            log = Path(folder) / str(number)
            await run_jailed(["sh", "-c", FIND], cwd=Path(folder), env={}, log=log, walls=NO_WALLS,
                             limits=Limits(seconds=30, memory_mb=256, file_mb=1))
            print(log.read_text().strip(), flush=True)
    input()

asyncio.run(main())
"""


async def jail(folder: Path, script: str) -> Ending:
    limits = Limits(seconds=30, memory_mb=256, file_mb=1)
    argv, log = ["sh", "-c", script], folder.with_suffix(".log")
    return await run_jailed(argv, cwd=folder, env={}, limits=limits, log=log, walls=NO_WALLS)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def comes(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether something that another process does happens."""
    give_up = time.monotonic() + seconds
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.01)
    return condition()


def test_one_mother_has_the_keepers_of_a_controller_and_dies_with_it_even_by_sigkill() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER],
        env=os.environ | {"PYTHONPATH": str(REPO), "SECRET_KEY": "sk-123"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as controller:
        assert controller.stdout is not None
        first, second = (int(controller.stdout.readline()) for _ in range(2))
        assert first == second and is_running(first)
        assert Path(f"/proc/{first}/environ").read_bytes() == b""
        # Her socket, the null device twice, and the pipe by which signals wake her.
        assert comes(lambda: len(os.listdir(f"/proc/{first}/fd")) == 5)
        controller.kill()
    assert comes(lambda: not is_running(first))


def test_a_mother_that_was_stopped_does_not_keep_her_controller_from_ending() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER],
        env=os.environ | {"PYTHONPATH": str(REPO)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as controller:
        assert controller.stdout is not None and controller.stdin is not None
        mother, _ = (int(controller.stdout.readline()) for _ in range(2))
        os.kill(mother, signal.SIGSTOP)
        controller.stdin.write("\n")
        controller.stdin.flush()
        assert controller.wait(20) == 0
    assert not is_running(mother)


def test_jails_go_on_without_their_mother_and_the_next_has_another(tmp_path: Path) -> None:
    mother = "$(cut -d ' ' -f 4 /proc/$PPID/stat)"

    async def kill_her() -> tuple[Ending, Ending]:
        first = await jail(tmp_path, f"kill -{signal.SIGKILL} {mother}; exit 3")
        return first, await jail(tmp_path, f"kill -0 {mother} && exit 4")

    first, second = asyncio.run(kill_her())
    assert (first.exit_code, second.exit_code) == (3, 4)
