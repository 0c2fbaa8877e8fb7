"""Confinement that a process puts on itself and can never take off: Landlock and seccomp.

In a program:

    forbid_privileges()
    restrict_files(read=[Path("/usr")], write=[])
    install_filter(assemble(rules, default=errno_action(errno.EPERM)))

In front of another program, started by this file's path:

    python -I -S confine.py --read /usr --write out --no-network -- PROGRAM ARGUMENT...

The program then reads and executes what lies under a `--read` path, lists folders under a `--names`
path, does as it likes under a `--write` path, and neither opens nor makes a file elsewhere. With
Landlock ABI 4 it makes no TCP connection, with ABI 6 it signals no process outside and finds no
abstract socket outside. With
`--no-network` no socket but a Unix one can be made, with `--no-sockets` none but a pair of its own.
`--shared-user`: others have this user too. Then nothing of theirs is changed that Landlock leaves
to the user, modes of files above all (chmod and utimensat seem to succeed), no capability is kept,
and Landlock ABI 6 is required. Exit code 125: the confinement is not to be had or its orders are
wrong, or 127: there is no such program; stderr says why, and so does the descriptor that `--report`
names, where what is started says nothing. `--print-filter` writes the filter of system calls for a
program within namespaces, and starts nothing.

A process that is about to become the program may call `main` with these arguments instead.

This file may be started once for each run, so it imports little and reads its arguments by hand.

What Landlock leaves: names, sizes and modes of files can be read (stat), and process ids seen.
Sources: landlock(7), seccomp(2), linux/landlock.h, linux/seccomp.h, linux/bpf_common.h; system call
numbers from asm/unistd_64.h and asm-generic/unistd.h. Linux on x86-64 and 64-bit ARM only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

TYPE_CHECKING = False  # as in typing, which would take as long to import as Python to start
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Name, number on x86-64, number on 64-bit ARM; "-" where the machine has no such call.
_NUMBERS = """
accept 43 202; accept4 288 242; acct 163 89; add_key 248 217; adjtimex 159 171; alarm 37 -;
bind 49 200; bpf 321 280; brk 12 214; chmod 90 -; chown 92 -; chroot 161 51;
clock_adjtime 305 266; clock_gettime 228 113; clock_nanosleep 230 115; clock_settime 227 112;
clone 56 220; clone3 435 435; connect 42 203; delete_module 176 106; epoll_pwait 281 22;
epoll_pwait2 441 441; epoll_wait 232 -; execve 59 221; execveat 322 281; exit 60 93;
exit_group 231 94; fanotify_init 300 262; fchmodat 268 53; fchmodat2 452 452; fchownat 260 54;
finit_module 313 273; fork 57 -; fsconfig 431 431; fsmount 432 432; fsopen 430 430;
fspick 433 433; futex 202 98; futex_waitv 449 449; getpid 39 172; gettid 186 178;
gettimeofday 96 169; init_module 175 105; io_uring_setup 425 425; ioctl 16 29; ioperm 173 -;
iopl 172 -; ioprio_set 251 30; kcmp 312 272; kexec_file_load 320 294; kexec_load 246 104;
keyctl 250 219; kill 62 129; lchown 94 -; listen 50 201; lremovexattr 198 15; lsetxattr 189 6;
madvise 28 233; migrate_pages 256 238; mmap 9 222; mount 165 40; mount_setattr 442 442;
move_mount 429 429; move_pages 279 239; mprotect 10 226; mq_open 240 180; mremap 25 216;
msgget 68 186; munmap 11 215; name_to_handle_at 303 264; nanosleep 35 101;
open_by_handle_at 304 265; open_tree 428 428; pause 34 -; perf_event_open 298 241;
pidfd_getfd 438 438; pidfd_open 434 434; pidfd_send_signal 424 424; pivot_root 155 41; poll 7 -;
ppoll 271 73; prlimit64 302 261; process_madvise 440 440; process_mrelease 448 448;
process_vm_readv 310 270; process_vm_writev 311 271; pselect6 270 72; ptrace 101 117;
quotactl 179 60; quotactl_fd 443 443; reboot 169 142; removexattr 197 14; removexattrat 466 466;
request_key 249 218; rt_sigaction 13 134; rt_sigprocmask 14 135; rt_sigqueueinfo 129 138;
rt_sigreturn 15 139; rt_sigsuspend 130 133; rt_sigtimedwait 128 137; rt_tgsigqueueinfo 297 240;
sched_setaffinity 203 122; sched_setattr 314 274; sched_setparam 142 118;
sched_setscheduler 144 119; sched_yield 24 124; select 23 -; semget 64 190;
setdomainname 171 162; sethostname 170 161; setitimer 38 103; setns 308 268; setpriority 141 140;
setrlimit 160 164; settimeofday 164 170; setxattr 188 5; setxattrat 463 463; shmat 30 196;
shmget 29 194; socket 41 198; socketpair 53 199; swapoff 168 225; swapon 167 224; syslog 103 116;
tgkill 234 131; tkill 200 130; umount2 166 39; unshare 272 97; userfaultfd 323 282;
utimensat 280 88; vfork 58 -; vhangup 153 58; write 1 64
"""
CALLS: dict[str, tuple[int | None, int | None]] = {
    name: (None if x86 == "-" else int(x86), None if arm == "-" else int(arm))
    for name, x86, arm in (entry.split() for entry in _NUMBERS.split(";"))
}

# What no confined program needs: new privileges, other processes' insides, the system's settings.
SYSTEM_CALLS = (
    *("acct", "add_key", "adjtimex", "bpf", "chroot", "clock_adjtime", "clock_settime"),
    *("delete_module", "fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick"),
    *("init_module", "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load"),
    *("keyctl", "mount", "mount_setattr", "move_mount", "open_by_handle_at", "open_tree"),
    *("perf_event_open", "pidfd_getfd", "pivot_root", "process_madvise", "process_mrelease"),
    *("process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "quotactl_fd", "reboot"),
    *("request_key", "setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon"),
    *("syslog", "umount2", "unshare", "userfaultfd", "vhangup"),
)

ALLOW, KILL = 0x7FFF0000, 0x80000000  # SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS (SIGSYS)

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of CALLS, AUDIT_ARCH_*
_X32 = 0x40000000  # __X32_SYSCALL_BIT: a second set of numbers on x86-64

# linux/prctl.h, linux/seccomp.h
_PR_SET_DUMPABLE, _PR_GET_SECCOMP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 21, 22, 38
_SECCOMP_MODE_FILTER = 2
_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION = 0x20080522  # linux/capability.h: _LINUX_CAPABILITY_VERSION_3
_AF_UNIX = 1
_NEW_NAMESPACES = 0x7E02_0000  # linux/sched.h: CLONE_NEWNS and the others that clone(2) takes
_AT_LEAST, _AND, _GO = 0x35, 0x54, 0x05  # BPF: JMP | JGE | K, ALU | AND | K, JMP | JA
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; 8 bytes an argument

# linux/landlock.h; the numbers of its three calls are the same on every machine
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ, _READ_FOLDER = 0b1101, 0b1000  # EXECUTE, READ_FILE, READ_DIR; READ_DIR
_ON_A_FILE = 0b1100_0000_0000_0111  # EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE, IOCTL_DEV
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many rights an ABI knows; 16 from ABI 5 on

_libc = ctypes.CDLL(None, use_errno=True)

_REFUSED = 0x00050000 | errno.EPERM  # SECCOMP_RET_ERRNO
_MISSING = 0x00050000 | errno.ENOSYS
_PRETENDED = 0x00050000  # the call is not made, and seems to have succeeded


class CannotConfine(OSError):
    """The kernel does not offer, or refuses, this confinement."""


class Rule:
    """What a seccomp filter does with one call: always, or where an argument has given bits.

    The rule holds if `argument` is None, or if the low 32 bits of that argument, masked with
    `mask`, are one of `values`. Otherwise the next rule for this call decides, then the default.
    """

    def __init__(
        self,
        call: str,
        action: int,
        argument: int | None = None,
        values: tuple[int, ...] = (),
        mask: int = 0xFFFFFFFF,
    ) -> None:
        self.call = call
        self.action = action
        self.argument = argument
        self.values = values
        self.mask = mask


class Filter:
    """An assembled filter: its instructions, and the struct sock_fprog that points to them."""

    def __init__(self, instructions: bytes) -> None:
        self.instructions = instructions
        address = ctypes.cast(ctypes.c_char_p(instructions), ctypes.c_void_p).value
        self.program = struct.pack("HxxxxxxP", len(instructions) // 8, address)


def errno_action(number: int) -> int:
    """The action that fails a call with this errno instead of running it."""
    return 0x00050000 | number


def landlock_abi() -> int:
    """The version of Landlock that this kernel offers, 0 if none."""
    return max(0, _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def has_seccomp() -> bool:
    """Whether this kernel filters system calls, on a machine whose numbers we know."""
    known = sys.platform == "linux" and os.uname().machine in _MACHINES
    return known and _libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) in (0, 2)


def forbid_privileges() -> None:
    """No program that this process becomes gains by setuid; what follows here requires it."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def forbid_inspection() -> None:
    """No process of the same user may trace this one, nor may it leave a core file."""
    _prctl(_PR_SET_DUMPABLE, 0)


def restrict_files(
    read: Sequence[Path | str], write: Sequence[Path | str], names: Sequence[Path | str] = ()
) -> None:
    """Open and make nothing outside of these paths, for this process and all that it starts.

    Below `names`, folders can be listed and no file read.

    Also closes TCP (ABI 4), and signals and abstract sockets to the outside (ABI 6). Raises
    CannotConfine without Landlock and FileNotFoundError for a path that is not there.
    """
    abi = landlock_abi()
    if abi == 0:
        raise CannotConfine(errno.ENOSYS, "wanted Landlock, found none in this kernel; use Linux 6")
    files = (1 << _FILE_RIGHTS.get(abi, 16)) - 1
    attributes = struct.pack("QQQ", files, 0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0)
    length = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _checked(
        "landlock_create_ruleset",
        _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(length), ctypes.c_uint32(0)),
    )
    try:
        for paths, rights in ((read, _READ), (write, files), (names, _READ_FOLDER)):
            for path in paths:
                _add_path(ruleset, path, rights & files)
        _checked("landlock_restrict_self", _libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def assemble(rules: Sequence[Rule], default: int) -> Filter:
    """The filter, in classic BPF, that applies the first rule that holds, else `default`.

    Calls of another machine's numbering are always killed. Raises CannotConfine on a machine whose
    numbers we do not have.
    """
    if os.uname().machine not in _MACHINES:
        raise CannotConfine(
            errno.ENOSYS, f"wanted one of {sorted(_MACHINES)}, found {os.uname().machine!r}"
        )
    column, architecture = _MACHINES[os.uname().machine]
    by_number: dict[int, list[Rule]] = {}
    for rule in rules:
        number = CALLS[rule.call][column]
        if number is not None:
            by_number.setdefault(number, []).append(rule)
    code = [_load(_ARCH), _jump(architecture, 1, 0), _return(KILL), _load(_NUMBER)]
    if os.uname().machine == "x86_64":
        code += [_jump(_X32, 0, 1, operator=_AT_LEAST), _return(KILL)]
    return Filter(b"".join(code + _search(sorted(by_number.items()), default)))


def install_filter(made: Filter) -> None:
    """Put a filter on this process and all that it starts, on top of those that it has.

    Raises CannotConfine where seccomp is missing or privileges were not forbidden before.
    """
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, made.program, 0, 0) < 0:
        _checked("prctl(PR_SET_SECCOMP)", -1)


def main(arguments: Sequence[str]) -> None:
    """Confine this process, then become the program after `--`."""
    orders = _Orders(arguments)
    if "--print-filter" in orders.flags:
        os.write(1, assemble(_SYSTEM_RULES + _SOCKET_RULES, default=ALLOW).instructions)
        return
    rules = list(_SYSTEM_RULES)
    if "--no-network" in orders.flags:
        rules += [Rule("socket", ALLOW, argument=0, values=(_AF_UNIX,)), Rule("socket", _REFUSED)]
    if "--no-sockets" in orders.flags:
        rules.append(Rule("socket", _REFUSED))
    if "--shared-user" in orders.flags:
        rules += _SHARED_USER_RULES
    code = 125
    try:
        forbid_privileges()
        if "--shared-user" in orders.flags:
            if landlock_abi() < 6:
                raise CannotConfine(
                    errno.ENOSYS, "wanted Landlock ABI 6, found less; use Linux 6.12"
                )
            _drop_capabilities()
        if orders.report is not None:
            os.set_inheritable(orders.report, False)
        restrict_files(orders.read, orders.write, orders.names)
        install_filter(assemble(rules, default=ALLOW))
        code = 127
        os.execvp(orders.program[0], orders.program)
    except OSError as error:
        said = f"confine.py: {error}; nothing was started"
        print(said, file=sys.stderr)
        if orders.report is not None:
            os.write(orders.report, said.encode(errors="replace"))
        sys.exit(code)


class _Orders:
    """The command line, read."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.read: list[str] = []
        self.write: list[str] = []
        self.names: list[str] = []
        self.report: int | None = None
        self.flags: set[str] = set()
        paths = {"--read": self.read, "--write": self.write, "--names": self.names}
        rest = list(arguments)
        while rest and rest[0] != "--":
            option = rest.pop(0)
            if option in (*paths, "--report") and rest:
                value = rest.pop(0)
                if option == "--report":
                    self.report = int(value)
                else:
                    paths[option].append(value)
            elif option in ("--no-network", "--no-sockets", "--shared-user", "--print-filter"):
                self.flags.add(option)
            else:
                print(
                    f"confine.py: wanted an option that is known, found {option!r}; "
                    "nothing was started",
                    file=sys.stderr,
                )
                sys.exit(125)
        self.program = rest[1:]
        if not self.program and "--print-filter" not in self.flags:
            print(
                "confine.py: wanted a program after --, found none; nothing was started",
                file=sys.stderr,
            )
            sys.exit(125)


def _drop_capabilities() -> None:
    """Give up every capability, and what a program of root would get of them."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # beyond the last that the kernel has, or not ours to drop
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    _checked("capset", _libc.capset(header, bytes(24)))


_SYSTEM_RULES = [
    *(Rule(call, _REFUSED) for call in SYSTEM_CALLS),
    Rule("clone", ALLOW, argument=0, mask=_NEW_NAMESPACES, values=(0,)),
    Rule("clone", _REFUSED),
    Rule("clone3", _MISSING),  # its flags are in memory; the C library goes on with clone
    Rule("ioctl", _REFUSED, argument=1, values=(0x5412, 0x541C)),  # TIOCSTI, TIOCLINUX
    Rule("prlimit64", ALLOW, argument=0, values=(0,)),  # one's own
    Rule("prlimit64", _REFUSED),
]
# Within a network namespace. VSOCK, for one, leads out of it.
_SOCKET_RULES = [
    Rule("socket", ALLOW, argument=0, values=(_AF_UNIX, 2, 10, 16)),  # IPv4, IPv6, NETLINK
    Rule("socket", _REFUSED),
]
# What a user may do to other processes and files of that user, and Landlock does not see.
_SHARED_USER_RULES = [
    *(Rule(call, _PRETENDED) for call in ("chmod", "fchmodat", "fchmodat2", "utimensat")),
    *(Rule(call, _REFUSED) for call in ("chown", "fchownat", "lchown", "setxattr", "setxattrat")),
    *(Rule(call, _REFUSED) for call in ("lsetxattr", "removexattr", "removexattrat")),
    *(Rule(call, _REFUSED) for call in ("lremovexattr", "migrate_pages", "move_pages", "mq_open")),
    *(Rule(call, _REFUSED) for call in ("msgget", "semget", "shmat", "shmget", "setpriority")),
    *(Rule(call, _REFUSED) for call in ("ioprio_set", "sched_setattr", "sched_setparam")),
    Rule("sched_setscheduler", _REFUSED),
    Rule("sched_setaffinity", ALLOW, argument=0, values=(0,)),  # of the calling thread
    Rule("sched_setaffinity", _REFUSED),
]


def _search(calls: list[tuple[int, list[Rule]]], default: int) -> list[bytes]:
    """Instructions that find the number in the accumulator among these and apply its rules.

    By halves: whoever installs a filter has the kernel try it on every number there is.
    """
    if len(calls) > 6:
        middle = len(calls) // 2
        below, rest = _search(calls[:middle], default), _search(calls[middle:], default)
        jump = _jump(calls[middle][0], 0, 1, operator=_AT_LEAST)
        return [jump, _instruction(_GO, len(below)), *below, *rest]
    code = []
    for number, rules in calls:
        block = []
        for rule in rules:
            if rule.argument is None:
                block.append(_return(rule.action))
                break
            block += [_load(_ARGUMENTS + 8 * rule.argument), _instruction(_AND, rule.mask)]
            for left, value in zip(range(len(rule.values), 0, -1), rule.values, strict=True):
                block.append(_jump(value, left, 0))
            block += [_instruction(_GO, 1), _return(rule.action)]
        else:
            block.append(_return(default))
        code += [_jump(number, 0, len(block)), *block]
    return [*code, _return(default)]


def _instruction(operation: int, k: int, when_true: int = 0, when_false: int = 0) -> bytes:
    return struct.pack("HBBI", operation, when_true, when_false, k)  # struct sock_filter


def _load(offset: int) -> bytes:
    return _instruction(0x20, offset)  # BPF_LD | BPF_W | BPF_ABS


def _jump(k: int, when_true: int, when_false: int, operator: int = 0x15) -> bytes:
    return _instruction(operator, k, when_true, when_false)  # BPF_JMP | BPF_JEQ | BPF_K


def _return(action: int) -> bytes:
    return _instruction(0x06, action)  # BPF_RET | BPF_K


def _add_path(ruleset: int, path: Path | str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            rights &= _ON_A_FILE
        beneath = struct.pack("=Qi", rights, descriptor)
        _checked("landlock_add_rule", _libc.syscall(_ADD_RULE, ruleset, 1, beneath, 0))
    finally:
        os.close(descriptor)


def _prctl(option: int, value: int) -> None:
    _checked("prctl", _libc.prctl(option, value, 0, 0, 0))


def _checked(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise CannotConfine(number, f"{what} failed: {os.strerror(number)}")
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
