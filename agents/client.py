"""The client: a worker that is a program, such as a coding agent's command line, run in the jail.

    in    the fork as working folder, the brief on standard input and in out/brief.md
    out   the fork as edited, and out/hand-in.json: {"hypothesis": "...", "notes": "..."}

It gets no key and nothing of the host's environment: what it speaks to a model through is its own.
"""

import os
import shlex
import shutil
from pathlib import Path

from pydantic import ValidationError

from agents.brief import brief_text, worker_brief
from agents.quotation import line, plain
from agents.shell import run_in_fork, spell
from agents.tools import HandInWork, spell_faults
from agents.worker import HandIn, UnknownWorker, WorkEnded, Worker, Workplace
from substrate.outcome import Outcome
from substrate.run import OUT, open_folder, open_regular

HAND_IN = "hand-in.json"
MOST_BYTES = 64 << 10

_LIMITS = {
    "seconds": Outcome.TIMED_OUT,
    "memory": Outcome.OUT_OF_MEMORY,
    "processes": Outcome.CRASHED,
}


def client(command: str) -> Worker:
    """The worker that runs `command`, a program and its arguments. Raises UnknownWorker."""
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise UnknownWorker(f"wanted `command:PROGRAM`, found {command!r}: {error}") from error
    program = shutil.which(argv[0]) if argv else None
    if program is None:
        raise UnknownWorker(
            f"wanted a program to run as a worker, found none called {command!r}; install it, or "
            "give its path"
        )
    argv[0] = os.path.abspath(program)

    async def work(workplace: Workplace) -> HandIn:
        fork, seconds = workplace.fork, workplace.caps.seconds
        brief = f"{brief_text('command')}\n{worker_brief(workplace, has_tools=False)}"
        out = fork.root / OUT
        out.mkdir(exist_ok=True)
        (out / "brief.md").write_text(brief, encoding="utf-8")
        try:
            ran = await run_in_fork(
                fork,
                argv,
                seconds=seconds,
                level=workplace.level,
                readable=(Path(argv[0]), Path(argv[0]).resolve()),
                stdin=brief.encode(),
            )
        except RuntimeError as error:
            raise WorkEnded(Outcome.INFRASTRUCTURE, str(error)) from error
        notes = plain(ran.output)[-4000:]
        if ran.ending.limit is not None:
            raise WorkEnded(_LIMITS[ran.ending.limit], spell(ran.ending), notes)
        if ran.ending.exit_code != 0:
            raise WorkEnded(Outcome.CRASHED, f"the program ended by {spell(ran.ending)}", notes)
        return _hand_in(workplace, notes)

    return work


def _hand_in(workplace: Workplace, notes: str) -> HandIn:
    try:
        folder = open_folder(workplace.fork.root, OUT)
        try:
            with open_regular(folder, HAND_IN) as file:
                content = file.read(MOST_BYTES + 1)
        finally:
            os.close(folder)
        if len(content) > MOST_BYTES:
            raise OSError(f"more than {MOST_BYTES} bytes")
        said = HandInWork.model_validate_json(content)
    except OSError as error:
        reason = f"wanted out/{HAND_IN}, found none: {error.strerror or error}"
        raise WorkEnded(Outcome.CRASHED, reason, notes) from error
    except ValidationError as error:
        reason = f"out/{HAND_IN} is not valid: {line(spell_faults(error), 400)}"
        raise WorkEnded(Outcome.CRASHED, reason, notes) from error
    return HandIn(plain(said.hypothesis), plain(said.notes))
