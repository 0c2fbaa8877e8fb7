"""The jail with real processes: how programs end, what they see, and that nothing survives."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from substrate.jail import Ending, Limits, run_jailed
from substrate.walls import NO_WALLS

ROOM = {"seconds": 30.0, "grace_seconds": 0.3, "memory_mb": 512, "file_mb": 64}

# Starts five daemons that fork twice, leave the session, ignore what can be ignored and write down
# who they are; then does what its argument says.
DAEMONS = """
import os, signal, sys, time
for i in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            with open(f"{i}.new", "w") as file:
                file.write(str(os.getpid()))
            os.rename(f"{i}.new", f"{i}.pid")
            time.sleep(60)
        os._exit(0)
while not all(os.path.exists(f"{i}.pid") for i in range(5)):
    time.sleep(0.005)
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def temporary_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place of this test's own for scratch folders, so that those left behind can be counted."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))


def jail(
    folder: Path, *argv: str, env: dict[str, str] | None = None, stdin: bytes = b"", **limits: Any
) -> Ending:
    """Run `argv` in `folder` and return its Ending; the log is `folder/log`."""
    bounds = Limits(**(ROOM | limits))
    return asyncio.run(
        run_jailed(
            argv,
            cwd=folder,
            env=env or {},
            limits=bounds,
            log=folder / "log",
            walls=NO_WALLS,
            stdin=stdin,
        )
    )


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code, *arguments)


def log_of(folder: Path) -> str:
    return (folder / "log").read_text()


def daemons_of(folder: Path) -> list[int]:
    return [int(file.read_text()) for file in folder.glob("*.pid")]


def living(pids: list[int]) -> list[int]:
    """Those that are not dead; one that init has yet to reap is."""
    return [pid for pid in pids if _state(pid) not in ("Z", "X")]


def scratch_folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("seedbed-jail-*"))


async def until(condition: Any, seconds: float = 20.0) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("code", [0, 1, 77])
def test_the_exit_code_is_the_programs(tmp_path: Path, code: int) -> None:
    ending = jail(tmp_path, "sh", "-c", f"exit {code}")
    assert (ending.exit_code, ending.signal, ending.limit) == (code, None, None)
    assert not ending.terminated


def test_a_program_killed_by_somebody_else_has_a_signal_and_no_limit(tmp_path: Path) -> None:
    ending = jail(tmp_path, "sh", "-c", "kill -9 $$")
    assert (ending.exit_code, ending.signal, ending.limit) == (None, 9, None)


@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "/"])
def test_a_program_that_cannot_be_started_exits_with_127_and_says_so(
    tmp_path: Path, program: str
) -> None:
    assert jail(tmp_path, program).exit_code == 127
    assert f"cannot start {program!r}" in log_of(tmp_path)


def test_the_log_holds_stdout_and_stderr_in_the_order_written(tmp_path: Path) -> None:
    ending = jail(tmp_path, "sh", "-c", "echo one; echo two >&2; printf 'drei \\303\\244'")
    assert log_of(tmp_path) == "one\ntwo\ndrei ä"
    assert ending.log_dropped == 0


def test_the_log_keeps_head_and_tail_and_says_how_much_it_dropped(tmp_path: Path) -> None:
    count = 400_000
    code = f"print('first', *range({count}), 'last', sep='\\n')"
    written = "\n".join(["first", *map(str, range(count)), "last"]) + "\n"
    ending = jail(tmp_path, *python(code), log_bytes=1001)
    dropped = len(written) - 1001
    assert ending.log_dropped == dropped
    assert log_of(tmp_path) == (
        f"{written[:500]}\n[jail: {dropped} bytes of output dropped here]\n{written[-501:]}"
    )


def test_what_a_program_writes_with_its_last_breath_is_in_the_log(tmp_path: Path) -> None:
    # The keeper is stopped until the program has ended, so it finds the whole output in the pipe.
    code = """
import fcntl, os, signal
keeper, program = os.getppid(), os.getpid()
os.kill(keeper, signal.SIGSTOP)
if os.fork() == 0:
    while os.getppid() == program:
        pass
    os.kill(keeper, signal.SIGCONT)
    os._exit(0)
fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)
os.write(1, b'x' * (1 << 20))
os._exit(0)
"""
    jail(tmp_path, *python(code), log_bytes=2 << 20)
    assert log_of(tmp_path) == "x" * (1 << 20)


def test_a_flood_of_output_does_not_outlast_the_time_limit(tmp_path: Path) -> None:
    ending = jail(tmp_path, "yes", seconds=0.3, log_bytes=1000)
    assert (ending.signal, ending.limit) == (signal.SIGTERM, "seconds")
    assert ending.log_dropped > 1000
    assert (tmp_path / "log").stat().st_size < 1100


def test_a_link_in_the_place_of_the_log_is_replaced_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "log").symlink_to(precious)
    jail(tmp_path, "echo", "overwritten")
    assert precious.read_text() == "kept"
    assert log_of(tmp_path) == "overwritten\n"


def test_the_environment_is_the_allow_list_and_the_callers_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "sk-123")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    jail(tmp_path, "cat", "/proc/self/environ", env={"THREADS": "2", "PYTHONHASHSEED": "7"})
    seen = dict(line.split("=", 1) for line in log_of(tmp_path).strip("\0").split("\0"))
    scratch = seen.pop("SEEDBED_JAIL")
    assert seen == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "7",
        "HOME": scratch,
        "TMPDIR": scratch,
        "PWD": str(tmp_path),
        "THREADS": "2",
    }


def test_the_keepers_environment_holds_nothing_of_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "sk-123")
    jail(tmp_path, "sh", "-c", "cat /proc/$PPID/environ /proc/$PPID/cmdline")
    assert "substrate.mother" in log_of(tmp_path)
    assert "sk-123" not in log_of(tmp_path)


def test_the_program_gets_descriptors_0_1_and_2_only(tmp_path: Path) -> None:
    leak = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leak, True)
    code = """
import os
for descriptor in range(1000):
    try: os.fstat(descriptor)
    except OSError: continue
    print(descriptor)
"""
    jail(tmp_path, *python(code))
    os.close(leak)
    assert log_of(tmp_path) == "0\n1\n2\n"


def test_the_program_starts_with_no_signal_blocked_or_ignored(tmp_path: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup leaves it
    try:
        jail(tmp_path, "grep", "-E", "SigBlk|SigIgn", "/proc/self/status")
    finally:
        signal.signal(signal.SIGHUP, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGUSR1])
    blocked, ignored = (int(mask, 16) for mask in log_of(tmp_path).split()[1::2])
    of_the_c_library = 0b11 << 31  # signals 32 and 33, which no program can set
    assert (blocked & ~of_the_c_library, ignored & ~of_the_c_library) == (0, 0)


def test_program_keeper_and_controller_are_three_sessions(tmp_path: Path) -> None:
    # So Ctrl-C in the controller's terminal reaches the controller only.
    jail(tmp_path, *python("import os; print(os.getpid(), os.getsid(0), os.getsid(os.getppid()))"))
    program, session, keepers = map(int, log_of(tmp_path).split())
    assert program == session
    assert len({session, keepers, os.getsid(0)}) == 3


def test_the_program_dumps_no_core_and_is_the_first_victim_when_memory_runs_out(
    tmp_path: Path,
) -> None:
    jail(tmp_path, "sh", "-c", "ulimit -c; ulimit -n; cat /proc/self/oom_score_adj")
    core, files, score = map(int, log_of(tmp_path).split())
    assert core == 0
    assert files <= 4096
    assert score >= 500


def test_the_home_folder_is_writable_outside_the_working_folder_and_gone_afterwards(
    tmp_path: Path,
) -> None:
    jail(tmp_path, "sh", "-c", 'mkdir -p "$HOME/.cache/deep" && mktemp -d && echo "$HOME"')
    made, home = log_of(tmp_path).splitlines()
    assert made.startswith(home)
    assert not Path(home).is_relative_to(tmp_path)
    assert not Path(home).exists()


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_the_program_reads_its_stdin_to_the_end(tmp_path: Path, size: int) -> None:
    given = bytes(i % 251 for i in range(size))
    jail(tmp_path, "sh", "-c", "cat > copy", stdin=given)
    assert (tmp_path / "copy").read_bytes() == given


def test_a_program_that_leaves_its_stdin_unread_ends_as_any_other(tmp_path: Path) -> None:
    assert jail(tmp_path, "true", stdin=b"x" * 3_000_000).exit_code == 0


def test_arguments_and_variables_arrive_byte_for_byte(tmp_path: Path) -> None:
    odd = "ä \n'\"$HOME\\ \udcff"
    jail(tmp_path, "sh", "-c", 'printf "%s|%s" "$0" "$ODD"', odd, env={"ODD": odd})
    assert (tmp_path / "log").read_bytes() == os.fsencode(f"{odd}|{odd}")


def test_a_program_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    ending = jail(tmp_path, "sh", "-c", "trap '' TERM; sleep 60 & wait; sleep 60", seconds=0.3)
    assert (ending.exit_code, ending.signal, ending.limit) == (None, 9, "seconds")
    assert ending.terminated


@pytest.mark.parametrize("before", ["", "kill -STOP $$;"], ids=["running", "stopped"])
def test_a_program_may_deliver_within_its_grace_after_sigterm(tmp_path: Path, before: str) -> None:
    script = f"trap 'echo saved; exit 3' TERM; {before} while :; do sleep 0.02; done"
    ending = jail(tmp_path, "sh", "-c", script, seconds=0.3, grace_seconds=20.0)
    assert (ending.exit_code, ending.signal, ending.limit) == (3, None, "seconds")
    assert ending.terminated
    assert log_of(tmp_path).endswith("saved\n")


def test_a_program_that_allocates_without_end_is_killed_for_memory(tmp_path: Path) -> None:
    code = """
import time
held = []
while True:
    held.append(b'x' * (1 << 20))
    time.sleep(0.001)
"""
    ending = jail(tmp_path, *python(code), memory_mb=100)
    assert (ending.exit_code, ending.signal, ending.limit) == (None, 9, "memory")
    assert not ending.terminated
    assert ending.peak_memory_mb >= 100


def test_memory_is_limited_for_the_tree_and_not_for_each_process(tmp_path: Path) -> None:
    code = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = b'x' * (50 << 20)
        time.sleep(60)
time.sleep(60)
"""
    assert jail(tmp_path, *python(code), memory_mb=150).limit == "memory"


def test_memory_that_forked_processes_share_counts_once(tmp_path: Path) -> None:
    code = """
import os, time
held = b'x' * (60 << 20)
children = [os.fork() for _ in range(4) if os.getpid() == os.getsid(0)]
time.sleep(0.5)
"""
    ending = jail(tmp_path, *python(code), memory_mb=150)
    assert (ending.exit_code, ending.limit) == (0, None)
    assert 60 < ending.peak_memory_mb <= 150


def test_a_file_larger_than_the_limit_cannot_be_written(tmp_path: Path) -> None:
    code = """
import errno
try:
    with open('big', 'wb', buffering=0) as file:
        while True:
            file.write(bytes(1 << 19))
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    jail(tmp_path, *python(code), file_mb=2)
    assert log_of(tmp_path) == "EFBIG\n"
    assert (tmp_path / "big").stat().st_size == 2 << 20


def test_the_log_may_be_larger_than_the_largest_file(tmp_path: Path) -> None:
    jail(tmp_path, *python("print('x' * (3 << 20))"), file_mb=1, log_bytes=4 << 20)
    assert (tmp_path / "log").stat().st_size == (3 << 20) + 1


def test_a_fork_bomb_is_ended_by_the_limit_of_processes(tmp_path: Path) -> None:
    code = """
import os, time
for _ in range(8):  # 256 processes in the end
    if os.fork() == 0:
        open(f'{os.getpid()}.pid', 'w').write(str(os.getpid()))
    time.sleep(0.001)
time.sleep(60)
"""
    ending = jail(tmp_path, *python(code), processes=40)
    assert (ending.signal, ending.limit) == (9, "processes")
    started = [int(file.stem) for file in tmp_path.glob("*.pid")]
    assert len(started) > 10  # the last may not have come to write
    assert living(started) == []


@pytest.mark.parametrize("limits", [{}, {"seconds": 1.0}], ids=["exit", "time limit"])
def test_no_daemon_survives_the_program(tmp_path: Path, limits: dict[str, Any]) -> None:
    jail(tmp_path, *python(DAEMONS, "60" if limits else "0"), **limits)
    assert len(daemons_of(tmp_path)) == 5
    assert living(daemons_of(tmp_path)) == []


def test_cpu_time_is_that_of_the_whole_tree(tmp_path: Path) -> None:
    code = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        while time.process_time() < 0.2:
            pass
        os._exit(0)
for _ in range(3):
    os.wait()
"""
    ending = jail(tmp_path, *python(code))
    assert ending.cpu_seconds >= 0.6
    assert ending.seconds > 0


def test_a_cancelled_jail_has_left_nothing_when_the_cancellation_arrives(tmp_path: Path) -> None:
    async def cancel_when_started() -> None:
        bounds = Limits(**ROOM)
        running = asyncio.create_task(
            run_jailed(
                python(DAEMONS, "60"),
                cwd=tmp_path,
                env={},
                limits=bounds,
                log=tmp_path / "log",
                walls=NO_WALLS,
            )
        )
        await until(lambda: len(daemons_of(tmp_path)) == 5)
        assert len(living(daemons_of(tmp_path))) == 5
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()  # the second Ctrl-C
        with pytest.raises(asyncio.CancelledError):
            await running
        assert living(daemons_of(tmp_path)) == []
        assert scratch_folders() == []

    asyncio.run(cancel_when_started())


def test_a_jail_is_cancelled_alone_while_a_later_one_goes_on(tmp_path: Path) -> None:
    # Were the first keeper's stdin inherited by the second, closing it would go unnoticed.
    async def cancel_the_first() -> Ending:
        folders = tmp_path / "first", tmp_path / "second"
        tasks = []
        for folder in folders:
            folder.mkdir()
            script = "echo $$ > new && mv new 0.pid; while [ ! -e go ]; do sleep 0.02; done"
            tasks.append(
                asyncio.create_task(
                    run_jailed(
                        ["sh", "-c", script],
                        cwd=folder,
                        env={},
                        limits=Limits(**ROOM),
                        log=folder / "log",
                        walls=NO_WALLS,
                    )
                )
            )
            await until(lambda folder=folder: daemons_of(folder))
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(tasks[0], 10)
        assert living(daemons_of(folders[0])) == []
        assert len(living(daemons_of(folders[1]))) == 1
        (folders[1] / "go").touch()
        return await tasks[1]

    assert asyncio.run(cancel_the_first()).exit_code == 0


def test_twenty_jails_run_at_once_in_one_event_loop(tmp_path: Path) -> None:
    async def all_at_once() -> list[Ending]:
        return await asyncio.gather(
            *(
                run_jailed(
                    # Each waits for the last.
                    [
                        "sh",
                        "-c",
                        f"touch {i}.up; until [ -e 19.up ]; do sleep 0.05; done; exit {i}",
                    ],
                    cwd=tmp_path,
                    env={},
                    limits=Limits(**ROOM),
                    log=tmp_path / f"{i}.log",
                    walls=NO_WALLS,
                )
                for i in range(20)
            )
        )

    assert [ending.exit_code for ending in asyncio.run(all_at_once())] == list(range(20))


def test_a_controller_killed_with_sigkill_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from substrate.jail import Limits, run_jailed
from substrate.walls import NO_WALLS

async def main():
    folders = [Path({str(tmp_path)!r}) / name for name in ("a", "b")]
    await asyncio.gather(*(
        run_jailed([sys.executable, "-c", {DAEMONS!r}, "60"], cwd=folder, env={{}},
                   limits=Limits(**{ROOM!r}), log=folder / "log", walls=NO_WALLS)
        for folder in folders
    ))

asyncio.run(main())
"""
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "TMPDIR": tempfile.gettempdir(),
    }
    controller = subprocess.Popen([sys.executable, "-c", code], env=environment)
    try:
        asyncio.run(until(lambda: all(len(daemons_of(folder)) == 5 for folder in folders)))
        daemons = [pid for folder in folders for pid in daemons_of(folder)]
        # Orphans are adopted by their keeper, which has to go as well.
        status = [Path(f"/proc/{pid}/status").read_text() for pid in daemons]
        keepers = [int(text.split("PPid:")[1].split()[0]) for text in status]
        assert len(set(keepers)) == 2
    finally:
        controller.kill()
        controller.wait()
    asyncio.run(until(lambda: not living(daemons + keepers)))
    assert scratch_folders() == []


def test_a_program_that_kills_its_keeper_is_infrastructure_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    killer = DAEMONS.replace("time.sleep(float(sys.argv[1]))", "os.kill(os.getppid(), 9)")
    with pytest.raises(RuntimeError, match="wanted an Ending from the keeper"):
        jail(tmp_path, *python(killer))
    assert len(daemons_of(tmp_path)) == 5
    asyncio.run(until(lambda: not living(daemons_of(tmp_path))))
    assert scratch_folders() == []


def test_a_program_dies_with_its_keeper_even_without_its_environment(tmp_path: Path) -> None:
    script = "echo $$ > 0.pid; kill -9 $PPID; sleep 60"
    with pytest.raises(RuntimeError, match="wanted an Ending from the keeper"):
        jail(tmp_path, "env", "-i", "sh", "-c", script)
    asyncio.run(until(lambda: not living(daemons_of(tmp_path))))


def test_a_program_that_stops_its_keeper_can_still_be_cancelled(tmp_path: Path) -> None:
    async def cancel_when_stopped() -> None:
        script = "echo $$ > new && kill -STOP $PPID && mv new 0.pid; sleep 60"
        running = asyncio.create_task(
            run_jailed(
                ["sh", "-c", script],
                cwd=tmp_path,
                env={},
                limits=Limits(**ROOM),
                log=tmp_path / "log",
                walls=NO_WALLS,
            )
        )
        await until(lambda: daemons_of(tmp_path))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 10)
        assert living(daemons_of(tmp_path)) == []

    asyncio.run(cancel_when_stopped())


def test_sigterm_to_the_keeper_ends_the_program(tmp_path: Path) -> None:
    ending = jail(tmp_path, "sh", "-c", "kill -TERM $PPID; sleep 60")
    assert (ending.signal, ending.limit) == (9, None)


def test_a_setuid_program_gains_nothing(tmp_path: Path) -> None:
    jail(tmp_path, "grep", "NoNewPrivs", "/proc/self/status")
    assert log_of(tmp_path).split() == ["NoNewPrivs:", "1"]


def test_what_leaves_nothing_to_run_is_refused_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found an empty argv"):
        jail(tmp_path)
    with pytest.raises(ValueError, match="wanted a folder"):
        jail(tmp_path / "missing", "true")
    with pytest.raises(ValueError, match="memory_mb"):
        jail(tmp_path, "true", memory_mb=0)
    assert list(tmp_path.iterdir()) == []


def _state(pid: int) -> str:
    """The letter of proc(5) for a process; X if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
