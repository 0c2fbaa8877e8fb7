"""The mother of keepers: one warm interpreter for each controller, which forks a keeper for a jail.

`substrate/keepers.py` starts it with an empty environment and with one end of a socket as its
stdin. Each message asks for a keeper and brings three descriptors: what the keeper gets as stdin
and stdout, its stderr, and a socket to which the mother writes the keeper's process id and, when it
has ended, its wait status, four bytes each. She sees neither orders nor what comes of them.

She ends with the controller, whose end of the socket closes however it ends. Keepers do not need
her: they notice by themselves.
"""

import os
import select
import signal
import socket

from substrate import keeper


def main() -> None:
    """Fork keepers until the controller is gone."""
    os.chdir("/")
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # that of the controller's thread came along
    wake = keeper.wake_on(signal.SIGCHLD)
    statuses: dict[int, int] = {}  # of each keeper that lives: where to write how it ended
    poller = select.poll()
    for descriptor in (0, wake):
        poller.register(descriptor, select.POLLIN)
    with socket.socket(fileno=0) as requests:
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if wake in ready:
                os.read(wake, 4096)
                _reap(statuses)
            if 0 in ready:
                asked, descriptors, _, _ = socket.recv_fds(requests, 1, 3)
                if not asked:
                    return
                talk, log, status = descriptors
                pid = os.fork()
                if pid == 0:
                    _become_keeper(talk, log)
                os.close(talk)
                os.close(log)
                statuses[pid] = status
                _tell(status, pid)


def _reap(statuses: dict[int, int]) -> None:
    while statuses:
        pid, how = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        status = statuses.pop(pid)
        _tell(status, how)
        os.close(status)


def _become_keeper(talk: int, log: int) -> None:
    """Be a keeper, with nothing of the mother's but her code, and end."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for descriptor, target in ((talk, 0), (talk, 1), (log, 2)):
            os.dup2(descriptor, target)
        os.closerange(3, 1 << 30)  # the sockets of other keepers among them
        os.setsid()
        keeper.main()
        code = 0
    except BaseException:  # the forked child must never return into the mother's code
        import traceback  # not at the top: every keeper would carry it

        traceback.print_exc()
    finally:
        os._exit(code)


def _tell(status: int, number: int) -> None:
    try:
        os.write(status, number.to_bytes(4, "big"))
    except OSError:
        return  # nobody waits for it any more
