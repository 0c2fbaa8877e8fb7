"""A recipe's own process on pocket, for tests that disturb it."""

import os
import subprocess
import sys
import time
from pathlib import Path

from substrate.fork import Fork
from substrate.run import environment


class start:
    """A recipe's process, which is dead when the block is left. The fork has the job already."""

    def __init__(self, fork: Fork, recipe: str, log: Path) -> None:
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"recipes.{recipe}"],
                cwd=fork.root,
                env=os.environ
                | environment(fork.snapshot.manifest)
                | {"PYTHONPATH": str(fork.root)},
                stdout=file,
                stderr=file,
            )

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self._process

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()


def wait_for(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 100
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.005)
