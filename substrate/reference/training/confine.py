"""Confinement that a process puts on itself and can never take off: Landlock and seccomp.

In a program:

    forbid_privileges()
    restrict_files(read=[Path("/usr")], write=[])
    install_filter(assemble(rules, default=errno_action(errno.EPERM)))

In front of another program, started by this file's path:

    python -I -S confine.py --read /usr --write out --no-network -- PROGRAM ARGUMENT...

The program then reads and executes what lies under a `--read` path, does as it likes under a
`--write` path, and neither opens nor makes a file elsewhere. With Landlock ABI 4 it makes no TCP
connection, with ABI 6 it signals no process outside and finds no abstract socket outside. With
`--no-network` no socket but a Unix one can be made. Exit code 125: the confinement is not to be had
or its orders are wrong; stderr says why, and nothing was started.

What Landlock leaves: names, sizes and modes of files can be read (stat), and process ids seen.
Sources: landlock(7), seccomp(2), linux/landlock.h, linux/seccomp.h, linux/bpf_common.h; system call
numbers from asm/unistd_64.h and asm-generic/unistd.h. Linux on x86-64 and 64-bit ARM only.
"""

import argparse
import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# name: (x86-64, 64-bit ARM); None where the machine has no such call
CALLS: dict[str, tuple[int | None, int | None]] = {
    "accept": (43, 202),
    "accept4": (288, 242),
    "add_key": (248, 217),
    "alarm": (37, None),
    "bind": (49, 200),
    "bpf": (321, 280),
    "brk": (12, 214),
    "chroot": (161, 51),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441),
    "epoll_wait": (232, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "finit_module": (313, 273),
    "fork": (57, None),
    "fsopen": (430, 430),
    "futex": (202, 98),
    "futex_waitv": (449, 449),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "listen": (50, 201),
    "madvise": (28, 233),
    "mmap": (9, 222),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "open_tree": (428, 428),
    "pause": (34, None),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "poll": (7, None),
    "ppoll": (271, 73),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pselect6": (270, 72),
    "ptrace": (101, 117),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigqueueinfo": (129, 138),
    "rt_sigreturn": (15, 139),
    "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_yield": (24, 124),
    "select": (23, None),
    "setitimer": (38, 103),
    "setns": (308, 268),
    "setrlimit": (160, 164),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapon": (167, 224),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vfork": (58, None),
    "write": (1, 64),
}

# What no confined program needs: new privileges, other processes' insides, the system's settings.
SYSTEM_CALLS = (
    *("add_key", "bpf", "chroot", "delete_module", "finit_module", "fsopen", "init_module"),
    *("io_uring_setup", "kexec_load", "keyctl", "mount", "mount_setattr", "move_mount"),
    *("open_tree", "perf_event_open", "pidfd_getfd", "pivot_root", "process_madvise"),
    *("process_vm_readv", "process_vm_writev", "ptrace", "reboot", "request_key", "setns"),
    *("swapon", "umount2", "unshare", "userfaultfd"),
)

ALLOW, KILL = 0x7FFF0000, 0x80000000  # SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS (SIGSYS)

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of CALLS, AUDIT_ARCH_*
_X32 = 0x40000000  # __X32_SYSCALL_BIT: a second set of numbers on x86-64

# linux/prctl.h, linux/seccomp.h
_PR_SET_DUMPABLE, _PR_GET_SECCOMP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 21, 22, 38
_SECCOMP_MODE_FILTER = 2
_AT_LEAST, _AND, _GO = 0x35, 0x54, 0x05  # BPF: JMP | JGE | K, ALU | AND | K, JMP | JA
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; 8 bytes an argument

# linux/landlock.h; the numbers of its three calls are the same on every machine
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ = 0b1101  # EXECUTE, READ_FILE, READ_DIR
_ON_A_FILE = 0b1100_0000_0000_0111  # EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE, IOCTL_DEV
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many rights an ABI knows; 16 from ABI 5 on

_libc = ctypes.CDLL(None, use_errno=True)


class CannotConfine(OSError):
    """The kernel does not offer, or refuses, this confinement."""


@dataclass(frozen=True)
class Rule:
    """What a seccomp filter does with one call: always, or where an argument has given bits.

    The rule holds if `argument` is None, or if the low 32 bits of that argument, masked with
    `mask`, are one of `values`. Otherwise the next rule for this call decides, then the default.
    """

    call: str
    action: int
    argument: int | None = None
    values: tuple[int, ...] = ()
    mask: int = 0xFFFFFFFF


@dataclass(frozen=True)
class Filter:
    """An assembled filter: its instructions, and the struct sock_fprog that points to them."""

    instructions: bytes
    program: bytes


def errno_action(number: int) -> int:
    """The action that fails a call with this errno instead of running it."""
    return 0x00050000 | number


def landlock_abi() -> int:
    """The version of Landlock that this kernel offers, 0 if none."""
    return max(0, _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def has_seccomp() -> bool:
    """Whether this kernel filters system calls, on a machine whose numbers we know."""
    known = sys.platform == "linux" and platform.machine() in _MACHINES
    return known and _libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) in (0, 2)


def forbid_privileges() -> None:
    """No program that this process becomes gains by setuid; what follows here requires it."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def forbid_inspection() -> None:
    """No process of the same user may trace this one, nor may it leave a core file."""
    _prctl(_PR_SET_DUMPABLE, 0)


def restrict_files(read: Sequence[Path], write: Sequence[Path]) -> None:
    """Open and make nothing outside of these paths, for this process and all that it starts.

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
        for paths, rights in ((read, _READ), (write, files)):
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
    if platform.machine() not in _MACHINES:
        raise CannotConfine(
            errno.ENOSYS, f"wanted one of {sorted(_MACHINES)}, found {platform.machine()!r}"
        )
    column, architecture = _MACHINES[platform.machine()]
    by_number: dict[int, list[Rule]] = {}
    for rule in rules:
        number = CALLS[rule.call][column]
        if number is not None:
            by_number.setdefault(number, []).append(rule)
    code = [_load(_ARCH), _jump(architecture, 1, 0), _return(KILL), _load(_NUMBER)]
    if platform.machine() == "x86_64":
        code += [_jump(_X32, 0, 1, operator=_AT_LEAST), _return(KILL)]
    data = b"".join(code + _search(sorted(by_number.items()), default))
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    return Filter(data, struct.pack("HxxxxxxP", len(data) // 8, address))


def install_filter(made: Filter) -> None:
    """Put a filter on this process and all that it starts, on top of those that it has.

    Raises CannotConfine where seccomp is missing or privileges were not forbidden before.
    """
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, made.program, 0, 0) < 0:
        _checked("prctl(PR_SET_SECCOMP)", -1)


def main(arguments: Sequence[str]) -> None:
    """Confine this process, then become the program after `--`."""
    parser = argparse.ArgumentParser(prog="confine.py", description="Run a program confined.")
    parser.add_argument("--read", action="append", default=[], type=Path, metavar="PATH")
    parser.add_argument("--write", action="append", default=[], type=Path, metavar="PATH")
    parser.add_argument("--no-network", action="store_true")
    parser.add_argument("program", nargs="+")
    orders = parser.parse_args(arguments)
    refused = errno_action(errno.EPERM)
    rules = [Rule(call, refused) for call in SYSTEM_CALLS]
    if orders.no_network:
        rules += [
            Rule("socket", ALLOW, argument=0, values=(1,)),
            Rule("socket", refused),
        ]  # AF_UNIX
    try:
        forbid_privileges()
        restrict_files(orders.read, orders.write)
        install_filter(assemble(rules, default=ALLOW))
        os.execvp(orders.program[0], orders.program)
    except OSError as error:
        print(f"confine.py: {error}; nothing was started", file=sys.stderr)
        sys.exit(125)


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


def _add_path(ruleset: int, path: Path, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not path.is_dir():
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
