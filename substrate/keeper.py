"""The keeper of a jail: starts one program, holds it to its limits and leaves nothing of it alive.

`substrate/mother.py` forks it, `substrate/jail.py` writes orders to its stdin, marshalled, behind
their length, then the bytes of the program's own stdin, and reads the Ending, marshalled, from its
stdout. The keeper's stderr is the log. An open stdin means that the controller lives: its end, even
by SIGKILL, is the order to end the tree.

The keeper is a child subreaper (prctl(2)), so every process that the program starts stays below it,
also one that forks twice and calls setsid. While a descendant lives, the keeper has a child: the
descendant or an ancestor of it. So `waitpid` saying ECHILD is the proof that the tree is gone, and
nothing less ends the keeper.

It is a process of its own because it has to outlive the controller.
"""

import marshal
import os
import resource
import select
import signal
import time

from substrate.cgroup import Cgroup
from substrate.launch import PR_SET_CHILD_SUBREAPER, TASKS_PER_PROCESS, launch, prctl

LOOK_SECONDS = 0.05  # how often memory and processes of the tree are read
LOOK_SHARE = 5  # a look that took t seconds is followed by a pause of at least LOOK_SHARE * t
FIRST_PAUSE_SECONDS = 0.0005  # after the first pass over a tree to kill; doubled after each
READ_BYTES = 65536  # what a pipe holds, unless the program made it larger
LAST_READS = 64  # of READ_BYTES each, when the tree is gone
# Of bwrap: one process outside and one inside, which is process 1 there.
WALL_PROCESSES = {"bubblewrap": 2, "landlock": 0, "none": 0}


def main() -> None:
    """Read the orders, run the program to its end, remove its scratch folder, write the Ending."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle
    wake = wake_on(signal.SIGCHLD, signal.SIGTERM)
    orders, stdin = _read_orders()
    os.umask(0o022)
    os.mkdir(orders["scratch"], 0o700)
    try:
        group = Cgroup(
            orders["cgroup_parents"],
            os.path.basename(orders["scratch"]),
            memory_bytes=orders["limits"]["memory_mb"] << 20,
            tasks=TASKS_PER_PROCESS * orders["limits"]["processes"],
        )
        try:
            ending = _keep(orders, stdin, wake, group)
        finally:
            group.remove()
    finally:
        _remove(orders["scratch"])
    try:
        os.write(1, marshal.dumps(ending))
    except BrokenPipeError:
        return  # the controller is gone; the tree is too
    for descriptor in (0, 1):
        os.close(descriptor)  # the controller need not wait for this process to be taken down


def wake_on(*numbers: signal.Signals) -> int:
    """A descriptor from which the number of each of these signals that comes is read as a byte."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return readable


def _keep(orders: dict, stdin: bytes, wake: int, group: Cgroup) -> dict:
    """Run the program until it ends, a limit ends it or the controller wants it ended.

    Returns the fields of the Ending, or `failed` alone where the walls could not be made.
    """
    limits = orders["limits"]
    log = _Log(limits["log_bytes"])
    started = time.monotonic()
    launched, output, report = launch(orders, stdin, group)
    tree = _Tree(launched, group)
    walls = WALL_PROCESSES[orders["level"]]
    try:
        limit, terminated, peak_bytes = None, False, 0
        deadline = started + limits["seconds"]
        next_look = started + LOOK_SECONDS  # before, it may not have become the program
        poller = select.poll()
        for descriptor in (0, wake, output):
            poller.register(descriptor, select.POLLIN)

        while tree.status is None:
            now = time.monotonic()
            if now >= deadline:
                if terminated:
                    break
                limit, terminated = "seconds", True
                deadline = now + limits["grace_seconds"]
                _terminate(launched, walls)
            if now >= next_look:
                processes = tree.processes(at_most=walls + limits["processes"])[walls:]
                if len(processes) > limits["processes"]:
                    limit = limit or "processes"
                    break
                memory_bytes = _memory_bytes(processes, limits["memory_mb"] << 20)
                peak_bytes = max(peak_bytes, memory_bytes)
                if memory_bytes > limits["memory_mb"] << 20 or group.ran_out():
                    limit = limit or "memory"
                    break
                looked = time.monotonic()
                next_look = looked + max(LOOK_SECONDS, LOOK_SHARE * (looked - now))

            pause = max(0.0, min(next_look, deadline) - time.monotonic())
            ready = {descriptor for descriptor, _ in poller.poll(pause * 1000)}
            if output in ready and not _pump(output, log):
                poller.unregister(output)  # the program closed its output and goes on
            if 0 in ready and _at_end(0):
                break
            if wake in ready and signal.SIGTERM in os.read(wake, 4096):
                break
            tree.reap()
    finally:
        ended = tree.status
        tree.kill()
    if group.ran_out():
        limit, peak_bytes = limit or "memory", max(peak_bytes, limits["memory_mb"] << 20)
    seconds = time.monotonic() - started

    # What the dead wrote is in the pipe. No waiting for its end: a process outside the tree may
    # have been sent the descriptor, and may go on writing.
    os.set_blocking(output, False)
    for _ in range(LAST_READS):
        if not _pump(output, log):
            break
    log.close()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    code: int | None = -signal.SIGKILL  # where it had not ended, it was killed
    if ended is not None:
        code = _exit_code(orders, os.waitstatus_to_exitcode(ended), _whole(report), log.first)
    if code is None and limit != "memory":
        return {"failed": True}
    code = -signal.SIGKILL if code is None else code  # its walls were killed before it was started
    return {
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "limit": limit,
        "terminated": terminated,
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_memory_mb": peak_bytes / (1 << 20),
        "log_dropped": log.dropped,
    }


class _Tree:
    """The program and all its descendants."""

    def __init__(self, program: int, group: Cgroup) -> None:
        self.program = program
        self._group = group
        self.status: int | None = None  # the program's wait status, once it has ended
        self._empty = False

    def reap(self) -> None:
        """Reap every child that has ended: the program, and orphans that the keeper inherited."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.program:
                    self.status = status
        except ChildProcessError:
            self._empty = True

    def processes(self, at_most: int | None = None) -> list[int]:
        """Its process ids, parents first. The walk stops once it has more than `at_most`."""
        found: list[int] = []
        parents = [os.getpid()]
        for parent in parents:  # grows while it is walked
            children = _children(parent)
            found += children
            parents += children
            if at_most is not None and len(found) > at_most:
                break
        return found

    def kill(self) -> None:
        """SIGKILL whatever is left, until nothing is.

        A fork bomb outruns a walk that kills its processes one by one. So its control group is
        killed, where it has one, and whole process groups are, since no fork slips past a signal to
        its group; and where the keeper may, it runs before all others meanwhile, for the bomb that
        makes a group of each of its processes.
        """
        pause = FIRST_PAUSE_SECONDS
        self.reap()
        if not self._empty:
            _schedule(os.SCHED_FIFO, 1)
        while not self._empty:
            self._group.kill()
            for pid in self.processes():
                try:
                    group = os.getpgid(pid)
                    if group != os.getpgrp():  # the keeper's own, until the program has left it
                        os.killpg(group, signal.SIGKILL)
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue  # its own parent reaped it meanwhile
            time.sleep(pause)  # the dying need the processor, and locks that a walk holds
            pause = min(2 * pause, LOOK_SECONDS)
            self.reap()
        _schedule(os.SCHED_OTHER, 0)


class _Log:
    """The program's output on fd 2: the first half of what is kept at once, the last at the end."""

    def __init__(self, kept: int) -> None:
        self.dropped = 0
        self.first = b""  # of what came, at least a line of bwrap, which writes word by word
        self._head_left = kept // 2
        self._tail = bytearray()
        self._tail_bytes = kept - kept // 2

    def add(self, data: bytes) -> None:
        if len(self.first) < 256:
            self.first += data[:256]
        head, rest = data[: self._head_left], data[self._head_left :]
        self._head_left -= len(head)
        self._write(head)
        self._tail += rest
        # Not at each call: trimming moves the whole tail.
        if len(self._tail) > 2 * self._tail_bytes + READ_BYTES:
            self._trim()

    def close(self) -> None:
        self._trim()
        if self.dropped:
            self._write(b"\n[jail: %d bytes of output dropped here]\n" % self.dropped)
        self._write(bytes(self._tail))

    def _trim(self) -> None:
        surplus = max(0, len(self._tail) - self._tail_bytes)
        del self._tail[:surplus]
        self.dropped += surplus

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(2, view) :]
        except OSError:  # a full disk: the program is held to its limits all the same
            self.dropped += len(view)


def _exit_code(orders: dict, code: int, report: bytes, said: bytes) -> int | None:
    """The program's exit code, or minus the signal that killed it; None where it had no walls.

    `code` is that of what was launched, bwrap or confine.py. bwrap reports the program's exit code,
    128 and the signal for one that was killed, and none for a program that was never started, of
    which it `said` why.
    """
    _, started, reported = report.rpartition(b'"exit-code": ')
    if orders["level"] == "bubblewrap" and code >= 0:
        if started:
            code = int(reported.split(b"}")[0])
            return 128 - code if code - 128 in signal.valid_signals() else code
        code = 127 if said.startswith(b"bwrap: execvp") else 125
    elif orders["level"] == "none" or not report:
        return code
    if code != 127:
        return None
    os.write(2, f"[jail: cannot start {orders['argv'][0]!r}]\n".encode(errors="replace"))
    return code


def _terminate(launched: int, walls: int) -> None:
    """SIGTERM to the program's process group, and SIGCONT so that a stopped one gets it.

    The program is below the processes of its walls, each of which has one child.
    """
    program = launched
    for _ in range(walls):
        children = _children(program)
        if not children:
            return  # there is no program yet, or none any more
        program = children[0]
    for number in (signal.SIGTERM, signal.SIGCONT):
        try:
            os.killpg(os.getpgid(program), number)
        except ProcessLookupError:
            return  # it has just ended; the next reap sees it


def _memory_bytes(processes: list[int], limit_bytes: int) -> int:
    """Resident memory of the tree: the sum of RSS, or of PSS if the sum of RSS is over the limit.

    RSS counts a page for each process that maps it: cheap, and its sum is an upper bound. PSS
    divides the page among them: its sum is what the tree holds, but the kernel walks all page
    tables for it. So forked workers are not killed for pages that they share.
    """
    rss = sum(_rss_bytes(pid) for pid in processes)
    return rss if rss <= limit_bytes else sum(_pss_bytes(pid) for pid in processes)


def _rss_bytes(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * resource.getpagesize() if fields else 0


def _pss_bytes(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return _rss_bytes(pid)


def _children(pid: int) -> list[int]:
    """The direct children of a process, those of all its threads. Empty for one that has ended."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    lists = [_read(f"/proc/{pid}/task/{thread}/children") for thread in threads]
    return [int(child) for children in lists for child in children.split()]


def _read(path: str) -> bytes:
    """A file of /proc, whole; empty when its process has ended."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def _pump(output: int, log: _Log) -> bool:
    """Move what is there to the log. False when there is nothing and will be nothing."""
    try:
        data = os.read(output, READ_BYTES)
    except BlockingIOError:
        return False
    log.add(data)
    return bool(data)


def _whole(descriptor: int) -> bytes:
    """What is in a pipe whose writers are dead."""
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, READ_BYTES)
    except BlockingIOError:
        return b""


def _at_end(descriptor: int) -> bool:
    try:
        return not os.read(descriptor, READ_BYTES)
    except ConnectionError:  # asyncio's pipe to a child's stdin may be a socket
        return True


def _schedule(policy: int, priority: int) -> None:
    try:
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except OSError:
        return  # needs CAP_SYS_NICE


def _read_orders() -> tuple[dict, bytes]:
    """The orders and the program's stdin. Exits if the controller goes before the end."""
    received = bytearray()
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        received += _read_some()
    end = 4 + int.from_bytes(received[:4], "big")
    orders, stdin = marshal.loads(received[4:end]), received[end:]
    while len(stdin) < orders["stdin_bytes"]:
        stdin += _read_some()
    return orders, bytes(stdin)


def _read_some() -> bytes:
    data = os.read(0, READ_BYTES)
    if not data:
        raise SystemExit("the controller closed the keeper's stdin before its orders were complete")
    return data


def _remove(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        import shutil  # not at the top: it costs milliseconds, and most folders are left empty

        shutil.rmtree(folder, ignore_errors=True)
