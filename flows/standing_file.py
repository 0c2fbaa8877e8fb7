"""What `seedbed up` has started, as the state file under `prefect_home` has it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.process import ProcessMark


class Standing(BaseModel):
    """The processes of `seedbed up`, as `standing.json` under `prefect_home` has them."""

    model_config = ConfigDict(frozen=True)

    url: str  # of the API
    port: int
    token: str  # in the environment of every process that came of this `up`
    server: ProcessMark | None = None  # None while it is being started
    deployments: ProcessMark | None = None  # what serves them; None while it is being started


def standing_file(prefect_home: Path) -> Path:
    return prefect_home / "standing.json"


def read_standing(prefect_home: Path) -> Standing | None:
    """What the state file says. None where there is none, or one that cannot be read."""
    try:
        return Standing.model_validate_json(standing_file(prefect_home).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """One `up` or `down` at a time."""
    with (home / "standing.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
