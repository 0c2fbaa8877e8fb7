"""Privileges: what a zygote gives up for good, and what is left to a program's process.

A zygote may fork, and kill what it forked. A program's process opens nothing, makes no socket and
no process, and never waits: a call that would wait returns at once (EINTR), so that who sleeps uses
up CPU time. Calls that would move its timer, its limits or what signals do succeed and change
nothing. What it does with memory and the clock, and `write` on three descriptors, is its own
affair.
"""

import contextlib
import errno
import os
import resource
import signal

from training import confine
from training.confine import ALLOW, KILL, Rule, errno_action

RESULT = 3  # the descriptor of the pipe for a program's message
OPEN_FILES = 16
SCRATCH_BYTES = 1 << 20  # that a program may write to stdout and stderr together
NOBODY = 65534

_DENIED = errno_action(errno.EPERM)
_INTERRUPTED = errno_action(errno.EINTR)
_PRETENDED = errno_action(0)  # the call is not made, and seems to have succeeded
_EXECUTABLE, _ANONYMOUS = 4, 0x20  # PROT_EXEC, MAP_ANONYMOUS

# Programs: memory, the clock, three descriptors.
_PROGRAM_RULES = (
    *(Rule(name, ALLOW) for name in ("brk", "munmap", "madvise", "mremap")),
    Rule("mmap", _DENIED, argument=3, mask=_ANONYMOUS, values=(0,)),  # of a file
    Rule("mmap", ALLOW, argument=2, mask=_EXECUTABLE, values=(0,)),
    Rule("mprotect", ALLOW, argument=2, mask=_EXECUTABLE, values=(0,)),
    Rule("write", ALLOW, argument=0, values=(RESULT, 1, 2)),
    Rule("futex", ALLOW, argument=1, mask=0x7F, values=(1, 10)),  # FUTEX_WAKE, FUTEX_WAKE_BITSET
    *(Rule(name, ALLOW) for name in ("clock_gettime", "gettimeofday", "getpid", "gettid")),
    *(Rule(name, ALLOW) for name in ("exit", "exit_group", "sched_yield", "rt_sigreturn")),
    *(
        Rule(name, _INTERRUPTED)
        for name in (
            *("futex", "futex_waitv", "nanosleep", "clock_nanosleep", "poll", "ppoll", "select"),
            *("pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2", "pause", "rt_sigtimedwait"),
            "rt_sigsuspend",
        )
    ),
    *(
        Rule(name, _PRETENDED)
        for name in ("alarm", "rt_sigaction", "rt_sigprocmask", "setitimer", "setrlimit")
    ),
    Rule("prlimit64", _DENIED, argument=2, values=(0,)),  # which asks for a limit
    Rule("prlimit64", _PRETENDED),
    # abort() signals itself; denied, it dies of the instruction that follows.
    Rule("tgkill", _DENIED, argument=2, values=(signal.SIGABRT,)),
    *(
        Rule(name, KILL)
        for name in (
            *("clone", "clone3", "fork", "vfork", "execve", "execveat", "kill", "tkill", "tgkill"),
            *("rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal"),
            *("socket", "socketpair", "connect", "bind", "listen", "accept", "accept4"),
            *confine.SYSTEM_CALLS,
        )
    ),
)

# The zygote forks and kills, and does nothing else to the world.
_ZYGOTE_RULES = tuple(
    Rule(name, _DENIED)
    for name in ("execve", "execveat", "socket", "socketpair", "connect", *confine.SYSTEM_CALLS)
)


def program_filter() -> confine.Filter | None:
    """The filter of a program's process; None where the kernel has no seccomp."""
    return confine.assemble(_PROGRAM_RULES, _DENIED) if confine.has_seccomp() else None


def confine_zygote(isolation: str, memory_mb: int) -> None:
    """Give up files, sockets, other programs and other users, and take the limits on."""
    # A signal that Python or the trainer ignores or blocks would not end a program.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    memory = memory_mb << 20
    for limit, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, SCRATCH_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        _, hardest = resource.getrlimit(limit)
        if hardest != resource.RLIM_INFINITY:
            most = min(most, hardest)
        resource.setrlimit(limit, (most, most))
    if os.getuid() == 0:
        with contextlib.suppress(OSError):  # a root of its own user namespace, which has no others
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
    confine.forbid_inspection()
    confine.forbid_privileges()
    if isolation != "limits":
        if confine.landlock_abi() or isolation == "landlock":
            confine.restrict_files(read=[], write=[])
        confine.install_filter(confine.assemble(_ZYGOTE_RULES, ALLOW))


def confine_program(made: confine.Filter | None, cpu_s: float) -> None:
    """Give up all that a program's process will not need, in that process."""
    seconds = int(cpu_s) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, cpu_s)  # whose signal ends the process
    if made is not None:
        confine.install_filter(made)
