"""A campaign in the foreground: its server, its flow and its progress bar in one process."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from flows.calibrate import calibration_text
from flows.house import House
from flows.lease import holder, lease_name
from flows.settings import Settings

WATCH_SECONDS = 0.25
INTERRUPTED = "interrupted; what `seedbed report` shows, `seedbed resume` goes on with"

Start = Callable[[], Awaitable[object]]
Done = TypeVar("Done")

# What a process of ours that conducts campaigns by itself tells Prefect. Nobody's research phones
# home through us; the client outlasts a restart of the server.
PREFECT_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLIENT_MAX_RETRIES": "10",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # What goes wrong is said once, by the command line.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
}


class Interrupted(Exception):
    """Ctrl-C or SIGTERM. The campaign can be resumed."""


def prepare_prefect(settings: Settings) -> None:
    """Set Prefect's environment. Call it before prefect is imported: it reads it only then."""
    settings.prefect_home.mkdir(parents=True, exist_ok=True)  # prefect warns of one it has to make
    os.environ.setdefault("PREFECT_HOME", str(settings.prefect_home))
    for name, value in PREFECT_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def run_in_foreground(
    house: House, console: Console, start: Callable[[], Awaitable[object]]
) -> str:
    """Run a flow that conducts a campaign, showing how far it is. Returns the campaign's id.

    Ctrl-C and SIGTERM cancel it: every process of its trials ends, and it can be resumed.
    """
    from prefect.exceptions import TerminationSignal

    signals = (KeyboardInterrupt, asyncio.CancelledError, TerminationSignal)
    try:
        return asyncio.run(_conduct(house, console, start))
    except signals:
        raise Interrupted(INTERRUPTED) from None
    except BaseExceptionGroup as group:
        if group.subgroup(signals) is None:
            raise
        raise Interrupted(INTERRUPTED) from None


def run_interruptible(work: Callable[[], Awaitable[Done]]) -> Done:
    """Run what the same command can go on with. Raises Interrupted on Ctrl-C and SIGTERM."""

    async def watched() -> Done:
        this = asyncio.current_task()
        assert this is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
        return await work()

    try:
        return asyncio.run(watched())
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise Interrupted("interrupted; the same command goes on where it stopped") from None


async def _conduct(house: House, console: Console, start: Start) -> str:
    from prefect.logging.handlers import APILogHandler

    from flows.server import choose_server

    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} trials"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as progress:
        waiting = progress.add_task(
            "starting Prefect (ten seconds, more the first time)", total=None
        )
        async with choose_server(house.settings):
            progress.remove_task(waiting)
            watching = asyncio.create_task(_watch(house, console, progress))
            try:
                campaign_id = await start()
                assert isinstance(campaign_id, str), "a stopped run raises CancelledRun"
                return campaign_id
            finally:
                watching.cancel()
                await APILogHandler.aflush()  # while the server still listens


async def _watch(house: House, console: Console, progress: Progress) -> None:
    """Follow, through the ledger, the campaign that this process holds.

    Where there is no terminal to draw a bar on, each round is a line on standard error.
    """
    bars: dict[int, TaskID] = {}
    is_told = False

    def tell(line: str) -> None:
        if console.is_terminal:
            console.print(line, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    while True:
        await asyncio.sleep(WATCH_SECONDS)
        for row in house.ledger.campaigns():
            if house.ledger.lease_holder(lease_name(row.id)) == holder():
                break
        else:
            continue
        width = house.plan(row.id).width
        if not is_told:
            tell(f"{row.id}: {calibration_text(house, row.id)}")
            is_told = True
        for opened in house.ledger.rounds(row.id):
            number = opened.number
            if number not in bars:
                bars[number] = progress.add_task(f"{row.id} round {number}", total=width)
                if not console.is_terminal:
                    tell(f"{row.id}: round {number}, {width} trials")
            done = len(house.ledger.trials(row.id, number))
            progress.update(bars[number], completed=done)
