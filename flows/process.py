"""A process of this host, told from a later one with the same id by when it started."""

import os
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class ProcessMark(BaseModel):
    """What stays true of a process: its id, and its start."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pid: int = Field(gt=1)
    started: int = Field(description="Clock ticks from boot to its start.")


def mark(pid: int) -> ProcessMark | None:
    """The mark of a process that runs; None when it has ended, also if nobody has reaped it yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, started = fields[0], fields[19]  # proc(5): fields 3 and 22
    return None if state in "ZX" else ProcessMark(pid=pid, started=int(started))


def began(process: ProcessMark) -> float:
    """When it started, in seconds of the epoch, as this machine's clock has it now."""
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time() - uptime + process.started / os.sysconf("SC_CLK_TCK")


def is_alive(process: ProcessMark) -> bool:
    return mark(process.pid) == process


def marked_by(variable: str, value: str) -> list[ProcessMark]:
    """The running processes that were started with this variable in their environment."""
    entry = f"{variable}={value}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:  # it has ended meanwhile, or is another user's
            continue
        if entry in environment.split(b"\0") and (process := mark(int(folder.name))):
            found.append(process)
    return found


def send(process: ProcessMark, number: int) -> None:
    """Send a signal to a process that may have ended."""
    if is_alive(process):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return
