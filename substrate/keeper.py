"""The keeper of a jail: starts one program, holds it to its limits and leaves nothing of it alive.

`substrate/jail.py` starts it by path (`python -I -S keeper.py`), writes one JSON line of orders to
its stdin, followed by the bytes of the program's own stdin, and reads one JSON line, the Ending,
from its stdout. The keeper's stderr is the log. An open stdin means that the controller lives: its
end, even by SIGKILL, is the order to end the tree.

The keeper is a child subreaper (prctl(2)), so every process that the program starts stays below it,
also one that forks twice and calls setsid. While a descendant lives, the keeper has a child: the
descendant or an ancestor of it. So `waitpid` saying ECHILD is the proof that the tree is gone, and
nothing less ends the keeper.

It is a process of its own because it has to outlive the controller, and it imports little because
it is started once per jail.
"""

import ctypes
import json
import os
import resource
import select
import signal
import time

LOOK_SECONDS = 0.05  # how often memory and processes of the tree are read
LOOK_SHARE = 5  # a look that took t seconds is followed by a pause of at least LOOK_SHARE * t
FIRST_PAUSE_SECONDS = 0.0005  # after the first pass over a tree to kill; doubled after each
OPEN_FILES = 4096  # RLIMIT_NOFILE of the program, or the host's own hard limit where that is lower
READ_BYTES = 65536  # what a pipe holds, unless the program made it larger
LAST_READS = 64  # of READ_BYTES each, when the tree is gone
VICTIM_SCORE = 500  # oom_score_adj: when memory runs out, the program dies and not the controller

# linux/prctl.h
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38


def main() -> None:
    """Read the orders, run the program to its end, remove its scratch folder, write the Ending."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle
    wake = _wake_on(signal.SIGCHLD, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the mask of the controller's thread came along
    orders, stdin = _read_orders()
    os.umask(0o022)
    os.mkdir(orders["scratch"], 0o700)
    try:
        ending = _keep(orders, stdin, wake)
    finally:
        _remove(orders["scratch"])
    try:
        os.write(1, json.dumps(ending).encode() + b"\n")
    except BrokenPipeError:
        return  # the controller is gone; the tree is too


def _keep(orders: dict, stdin: bytes, wake: int) -> dict:
    """Run the program until it ends, a limit ends it or the controller wants it ended.

    Returns the fields of the Ending.
    """
    limits = orders["limits"]
    log = _Log(limits["log_bytes"])
    started = time.monotonic()
    program, output = _start(orders, stdin)
    tree = _Tree(program)
    try:
        limit, terminated, peak_bytes = None, False, 0
        deadline = started + limits["seconds"]
        next_look = started
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
                _terminate(program)
            if now >= next_look:
                processes = tree.processes(at_most=limits["processes"])
                if len(processes) > limits["processes"]:
                    limit = limit or "processes"
                    break
                memory_bytes = _memory_bytes(processes, limits["memory_mb"] << 20)
                peak_bytes = max(peak_bytes, memory_bytes)
                if memory_bytes > limits["memory_mb"] << 20:
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
        tree.kill()
    seconds = time.monotonic() - started

    # What the dead wrote is in the pipe. No waiting for its end: a process outside the tree may
    # have been sent the descriptor, and may go on writing.
    os.set_blocking(output, False)
    for _ in range(LAST_READS):
        if not _pump(output, log):
            break
    log.close()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = os.waitstatus_to_exitcode(tree.status or 0)
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

    def __init__(self, program: int) -> None:
        self.program = program
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

        A fork bomb outruns a walk that kills its processes one by one. So whole process groups are
        killed, since no fork slips past a signal to its group; and where the keeper may, it runs
        before all others meanwhile, for the bomb that makes a group of each of its processes.
        """
        pause = FIRST_PAUSE_SECONDS
        self.reap()
        if not self._empty:
            _schedule(os.SCHED_FIFO, 1)
        while not self._empty:
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
        self._head_left = kept // 2
        self._tail = bytearray()
        self._tail_bytes = kept - kept // 2

    def add(self, data: bytes) -> None:
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


def _start(orders: dict, stdin: bytes) -> tuple[int, int]:
    """Start the program in its own session; its process id, and where its output is read from."""
    source = os.open(os.devnull, os.O_RDONLY)
    if stdin:
        # A file and not a pipe: nobody has to feed a program that reads slowly or not at all.
        source = os.memfd_create("stdin")
        os.truncate(source, len(stdin))
        os.pwrite(source, stdin, 0)
    output, sink = os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        os.close(source)
        os.close(sink)
        return pid, output
    try:
        for descriptor, target in ((source, 0), (sink, 1), (sink, 2)):
            os.dup2(descriptor, target)  # every other descriptor is close-on-exec
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)  # an ignored signal would stay ignored in exec
        # If the keeper is killed, at least the program itself goes with it.
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(127)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)  # no setuid program, so the keeper may kill all it finds
        _offer_as_victim()
        _limit(resource.RLIMIT_FSIZE, orders["limits"]["file_mb"] << 20)
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
        os.chdir(orders["cwd"])
        os.execvpe(orders["argv"][0], orders["argv"], orders["env"])
    except BaseException as error:  # the forked child must never return into the keeper's code
        message = f"[jail: cannot start {orders['argv'][0]!r}: {error}]\n"
        os.write(2, message.encode(errors="replace"))
        os._exit(127)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _offer_as_victim() -> None:
    """Raise the score by which the kernel picks whom to kill when memory runs out."""
    with open("/proc/self/oom_score_adj", "r+") as score:
        if int(score.read()) < VICTIM_SCORE:  # to lower it would need a privilege
            score.seek(0)
            score.write(str(VICTIM_SCORE))


def _terminate(program: int) -> None:
    """SIGTERM to the program's process group, and SIGCONT so that a stopped one gets it."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        try:
            os.killpg(program, number)
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


def _wake_on(*numbers: signal.Signals) -> int:
    """A descriptor from which the number of each of these signals that comes is read as a byte."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return readable


def _read_orders() -> tuple[dict, bytes]:
    """The line of orders and the program's stdin. Exits if the controller goes before the end."""
    received = bytearray()
    while b"\n" not in received:
        received += _read_some()
    line, _, stdin = received.partition(b"\n")
    orders = json.loads(line)
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


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *(ctypes.c_ulong(argument) for argument in (value, 0, 0, 0))) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}, {value}) refused: {os.strerror(error)}")


if __name__ == "__main__":
    main()
