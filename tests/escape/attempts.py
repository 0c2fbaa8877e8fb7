"""Attempts to get out of a jail: run inside of it, each says whether it came through.

Started by its path with one argument, the path of the facts of a Yard (yard.py), which it removes.
Prints a JSON object: the names of the attempts that came through by themselves, of the honest needs
that failed, and of all attempts. What can only be seen from outside, a changed file or a signalled
process, the yard sees.
"""

import ctypes
import errno
import json
import mmap
import os
import pwd
import resource
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

YARD = json.loads(Path(sys.argv[1]).read_text())
Path(sys.argv[1]).unlink()  # it names the secrets
LEVEL, CANARY, VICTIM = YARD["level"], YARD["canary"], YARD["victim"]
FORK, SHELF = Path.cwd(), Path(YARD["shelf"])
LIBC = ctypes.CDLL(None, use_errno=True)
DEVICES = {"null", "zero", "full", "random", "urandom", "tty", "console", "core", "fd", "ptmx"}
DEVICES |= {"pts", "shm", "stdin", "stdout", "stderr"}
ATTEMPTS: dict[str, Callable[[], object]] = {}
NEEDS: dict[str, Callable[[], object]] = {}


def attempt(call: Callable[[], object]) -> Callable[[], object]:
    """Came through if it returns something true; an OSError is a wall."""
    ATTEMPTS[call.__name__] = call
    return call


def need(call: Callable[[], object]) -> Callable[[], object]:
    """Fails if it returns something false or raises."""
    NEEDS[call.__name__] = call
    return call


def system_call(number: int, *arguments: object) -> bool:
    """Whether the kernel would do it, or would if its arguments were better."""
    if LIBC.syscall(ctypes.c_long(number), *arguments) >= 0:
        return True
    return ctypes.get_errno() not in (errno.EPERM, errno.EACCES, errno.ENOSYS)


def shell(name: str, script: str) -> None:
    """A script that comes through if it prints the canary's text or ends with `echo through`."""

    def run() -> bool:
        done = subprocess.run(
            ["/bin/bash", "-c", script, "bash", CANARY, str(YARD["port"]), str(VICTIM)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
        )
        return YARD["secret"] in done.stdout or done.stdout.endswith("through\n")

    ATTEMPTS[f"shell_{name}"] = run


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


INHERITED = [number for number in range(3, 200) if is_open(number)]


@attempt
def descriptor_was_inherited() -> object:
    return INHERITED


def contains_secret(path: str | Path) -> bool:
    return YARD["secret"].encode() in Path(path).read_bytes()


# Reading what is not there to be read


@attempt
def canary_is_read() -> object:
    return contains_secret(CANARY)


@attempt
def database_is_read() -> object:
    return Path(YARD["database"]).read_bytes()


@attempt
def database_is_attached() -> object:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("ATTACH DATABASE ? AS stolen", (f"file:{YARD['database']}",))
        return connection.execute("SELECT * FROM stolen.secrets").fetchall()
    except sqlite3.Error:
        return False
    finally:
        connection.close()


@attempt
def another_fork_is_read() -> object:
    return contains_secret(YARD["other_fork"])


@attempt
def judge_is_read() -> object:
    return contains_secret(YARD["judge"])


@attempt
def adapter_is_read() -> object:
    return contains_secret(YARD["adapter"])


@attempt
def home_is_listed() -> object:
    return set(os.listdir(YARD["home"])) & {"judge", "adapters", "canary"}


@attempt
def hosts_temporary_folder_is_seen() -> object:
    return os.path.basename(YARD["home"]) in os.listdir("/tmp") and (
        "judge" in os.listdir(YARD["home"])
    )


@attempt
def shadow_is_read() -> object:
    return Path("/etc/shadow").read_bytes()


@attempt
def hosts_users_are_read() -> object:
    return Path("/etc/passwd").read_text().count("\n") > 2


@attempt
def link_to_the_canary_is_followed() -> object:
    link = FORK / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(CANARY)
    return contains_secret(link)


@attempt
def path_with_dots_leads_out() -> object:
    return contains_secret(f"{FORK}/../canary")


@attempt
def proc_root_leads_out() -> object:
    return contains_secret(f"/proc/self/root{CANARY}")


@attempt
def root_of_process_1_leads_out() -> object:
    return contains_secret(f"/proc/1/root{CANARY}")


@attempt
def working_folder_of_the_victim_leads_out() -> object:
    return contains_secret(f"/proc/{VICTIM}/cwd/canary")


@attempt
def descriptors_of_the_controller_are_listed() -> object:
    return os.listdir(f"/proc/{YARD['controller']}/fd")


@attempt
def file_is_opened_by_handle() -> object:
    return system_call(304 if os.uname().machine == "x86_64" else 265, -100, None, 0)


@attempt
def canary_is_linked_into_the_fork() -> object:
    os.link(CANARY, FORK / "hard")
    return contains_secret(FORK / "hard")


@attempt
def canary_is_moved_into_the_fork() -> object:
    os.rename(YARD["movable"], FORK / "moved")
    return True


# Environments and processes


@attempt
def own_environment_has_the_key() -> object:
    return any(YARD["key"] in value for value in os.environ.values())


@attempt
def environment_of_process_1_is_read() -> object:
    return Path("/proc/1/environ").read_bytes()


@attempt
def environments_of_others_have_the_key() -> object:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if YARD["key"].encode() in Path(f"/proc/{pid}/environ").read_bytes():
                return True
        except OSError:
            continue
    return False


@attempt
def arguments_of_others_have_the_key() -> object:
    lines = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit()]
    return any(YARD["key"].encode() in line.read_bytes() for line in lines)


@attempt
def processes_of_the_host_are_counted() -> object:
    return len([name for name in os.listdir("/proc") if name.isdigit()]) > 12


@attempt
def victim_is_signalled() -> object:
    os.kill(VICTIM, signal.SIGUSR1)
    return False  # the yard sees it: another process may have that number here


@attempt
def victim_is_held_by_a_descriptor() -> object:
    signal.pidfd_send_signal(os.pidfd_open(VICTIM), signal.SIGUSR1)
    return False


@attempt
def victim_is_traced() -> object:
    return LIBC.ptrace(0x4206, VICTIM, 0, 0) == 0  # PTRACE_SEIZE


@attempt
def memory_of_the_victim_is_read() -> object:
    number = 310 if os.uname().machine == "x86_64" else 270
    return system_call(number, VICTIM, None, 0, None, 0, 0)


@attempt
def limits_of_the_victim_are_changed() -> object:
    resource.prlimit(VICTIM, resource.RLIMIT_CORE, (0, 0))
    return False


@attempt
def limits_of_another_process_are_read() -> object:
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        return bool(resource.prlimit(child, resource.RLIMIT_CORE))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@attempt
def session_is_anothers() -> object:
    return os.getsid(0) == 0


@attempt
def user_is_root_with_bubblewrap() -> object:
    return LEVEL == "bubblewrap" and os.getuid() == 0


@attempt
def user_is_shared_with_other_jails() -> object:
    return LEVEL == "bubblewrap" and YARD["controller_user"] == 0 and os.getuid() < 61000


@attempt
def capability_is_left() -> object:
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    return LIBC.capget(header, data) == 0 and any(data)


@attempt
def privileges_may_be_gained() -> object:
    return LIBC.prctl(39, 0, 0, 0, 0) != 1  # PR_GET_NO_NEW_PRIVS


# The network and what is like it


@attempt
def port_of_the_host_is_reached() -> object:
    with socket.create_connection(("127.0.0.1", YARD["port"]), timeout=2):
        return True


@attempt
def packet_is_sent_to_the_host() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"out", ("127.0.0.1", YARD["udp_port"]))
    return False  # the yard sees it


@attempt
def abstract_socket_is_reached() -> object:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + YARD["abstract"])
        return True


@attempt
def socket_in_the_file_system_is_reached() -> object:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(YARD["unix_socket"])
        return True


@attempt
def virtual_machine_socket_is_made() -> object:
    socket.socket(40, socket.SOCK_STREAM).close()  # AF_VSOCK
    return True


@attempt
def packet_socket_is_made() -> object:
    socket.socket(17, socket.SOCK_RAW).close()
    return True


@attempt
def crypto_socket_is_made() -> object:
    socket.socket(38, socket.SOCK_SEQPACKET).close()  # AF_ALG: kernel surface
    return True


@attempt
def interfaces_of_the_host_are_listed() -> object:
    return LEVEL == "bubblewrap" and [name for _, name in socket.if_nameindex() if name != "lo"]


@attempt
def shared_memory_is_attached() -> object:
    LIBC.shmat.restype = ctypes.c_void_p
    segment = LIBC.shmget(YARD["shm_key"], 0, 0)
    return segment >= 0 and LIBC.shmat(segment, None, 0o10000) != ctypes.c_void_p(-1).value


@attempt
def host_is_named() -> object:
    return LEVEL == "bubblewrap" and socket.gethostname() == YARD["hostname"]


@attempt
def control_group_is_named() -> object:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return [line for line in lines if line.rpartition(":")[2] != "/"]


# The kernel


def clone(flags: int) -> bool:
    """Whether a process can be made in namespaces of its own."""
    number = 56 if os.uname().machine == "x86_64" else 220
    child = LIBC.syscall(number, ctypes.c_ulong(flags | signal.SIGCHLD), None, None, None, None)
    if child == 0:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)
    return child > 0


@attempt
def user_namespace_is_made_by_clone() -> object:
    return clone(0x10000000)


@attempt
def user_namespace_is_made_by_clone3() -> object:
    arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, signal.SIGCHLD)
    child = LIBC.syscall(435, arguments, ctypes.c_size_t(88))
    if child == 0:
        os._exit(0)
    return child > 0 and os.waitpid(child, 0)


@attempt
def user_namespace_is_made_by_unshare() -> object:
    child = os.fork()
    if child == 0:
        os._exit(0 if LIBC.unshare(0x10000000) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


@attempt
def namespace_of_the_victim_is_entered() -> object:
    return LIBC.setns(os.open(f"/proc/{VICTIM}/ns/net", os.O_RDONLY), 0) == 0


@attempt
def file_system_is_mounted() -> object:
    return LIBC.mount(b"none", str(FORK).encode(), b"tmpfs", 0, None) == 0


@attempt
def root_is_changed() -> object:
    os.chroot(FORK)
    return True


@attempt
def kernel_program_is_loaded() -> object:
    return system_call(321 if os.uname().machine == "x86_64" else 280, 0, None, 0)


@attempt
def counters_are_opened() -> object:
    return system_call(298 if os.uname().machine == "x86_64" else 241, None, 0, -1, -1, 0)


@attempt
def ring_of_calls_is_made() -> object:
    return system_call(425, 1, None)


@attempt
def keyring_is_used() -> object:
    return system_call(250 if os.uname().machine == "x86_64" else 219, 0, -3, 0)


@attempt
def page_faults_are_handled() -> object:
    return system_call(323 if os.uname().machine == "x86_64" else 282, 1)


@attempt
def terminal_is_typed_into() -> object:
    number = 16 if os.uname().machine == "x86_64" else 29
    return system_call(number, 0, 0x5412, None)  # TIOCSTI


@attempt
def device_is_there() -> object:
    return set(os.listdir("/dev")) - DEVICES


@attempt
def disk_is_opened() -> object:
    blocks = [Path("/dev", name) for name in os.listdir("/dev")]
    return any(stat.S_ISBLK(node.stat().st_mode) and node.open("rb") for node in blocks)


@attempt
def setting_of_the_kernel_is_written() -> object:
    with open("/proc/sys/kernel/core_pattern", "w"):
        return True


# Writing: the yard sees what came of it


@attempt
def file_is_made_outside() -> object:
    Path(YARD["open_folder"], "made").write_text("x")
    return False


@attempt
def canary_is_appended_to() -> object:
    with open(CANARY, "a") as file:
        file.write("x")
    return False


@attempt
def canary_is_truncated() -> object:
    os.truncate(CANARY, 0)
    return False


@attempt
def canary_is_deleted() -> object:
    os.unlink(CANARY)
    return False


@attempt
def mode_of_the_canary_is_changed() -> object:
    os.chmod(CANARY, 0o777)
    return False


@attempt
def owner_of_the_canary_is_changed() -> object:
    os.chown(CANARY, 1, 1)
    return False


@attempt
def attribute_of_the_canary_is_set() -> object:
    os.setxattr(CANARY, "user.left", b"x")
    return True


@attempt
def shelf_is_written() -> object:
    (SHELF / "made").write_text("x")
    return True


@attempt
def file_on_the_shelf_is_changed() -> object:
    with (SHELF / "file").open("a") as file:
        file.write("x")
    return True


@attempt
def mode_on_the_shelf_is_changed() -> object:
    os.chmod(SHELF / "file", 0o777)
    return False


@attempt
def system_is_written() -> object:
    for folder in ("/usr/bin", "/usr/lib", "/etc", "/dev", "/", sys.prefix):
        path = Path(folder, YARD["marker"])
        try:
            path.write_text("x")
        except OSError:
            continue
        path.unlink()
        return folder
    return False


@attempt
def mount_is_writable() -> object:
    own = (str(FORK), os.environ["HOME"], "/tmp", "/dev/shm", "/dev/pts", "/proc", "/dev/")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        target, options = line.split()[4:6]
        if "ro" not in options.split(",") and not target.startswith(own):
            return target
    return False


@attempt
def shared_memory_file_is_left() -> object:
    Path("/dev/shm", YARD["marker"]).write_text("x")
    return False


@attempt
def temporary_file_is_left() -> object:
    Path("/tmp", YARD["marker"]).write_text("x")
    return False


@attempt
def file_is_larger_than_the_limit() -> object:
    with open("large", "wb") as file:
        file.truncate((YARD["file_mb"] << 20) + 1)
    return True


@attempt
def memory_files_have_no_end() -> object:
    if LEVEL != "bubblewrap":
        return False
    sizes = [os.statvfs(folder) for folder in ("/tmp", "/dev/shm")]
    return any(size.f_blocks * size.f_frsize > (300 << 20) for size in sizes)


@attempt
def core_is_dumped() -> object:
    return resource.getrlimit(resource.RLIMIT_CORE)[1] != 0


@attempt
def tasks_have_no_end() -> object:
    own = YARD["controller_user"] == 0 and os.getuid() != 0
    return own and resource.getrlimit(resource.RLIMIT_NPROC)[0] > 100_000


shell("reads_the_canary", 'cat "$1"')
shell("reads_with_dd", 'dd if="$1" 2>/dev/null')
shell("finds_the_canary", "find / -xdev -name canary -exec cat {} + 2>/dev/null")
shell("packs_the_home", 'tar cf - "$(dirname "$1")" 2>/dev/null | tr -d "\\0"')
shell("opens_a_port", '(exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && echo through')
shell("asks_with_curl", 'curl -s -m 2 "http://127.0.0.1:$2/" >/dev/null 2>&1 && echo through')
shell("downloads_with_pip", "python3 -m pip download -q --no-deps -d . six 2>&1 && echo through")
shell("sees_the_victim", 'ps ax 2>/dev/null | grep -q "[s]eedbed-victim" && echo through')
shell("signals_the_victim", 'kill -USR1 "$3"')
shell("copies_over_the_canary", 'cp /dev/null "$1"')
shell("links_and_reads", 'ln -sf "$1" soft; cat soft')
shell("walks_through_proc", 'cat /proc/[0-9]*/root"$1" /proc/[0-9]*/cwd/canary 2>/dev/null')
shell("becomes_root", 'su -c "echo through" 2>/dev/null; sudo -n echo through 2>/dev/null')
shell("preloads_into_su", 'LD_PRELOAD="$PWD/x.so" su -c "echo through" 2>/dev/null')
shell("runs_a_hook", 'git -C "$(dirname "$1")" status >/dev/null 2>&1 && echo through')
shell("leaves_a_job", 'echo "* * * * * true" | crontab - 2>/dev/null && echo through')


# What an honest program needs


@need
def fork_is_writable() -> object:
    Path("mine").write_text("x")
    return True


@need
def home_is_writable() -> object:
    Path(os.environ["HOME"], "mine").write_text("x")
    return True


@need
def shelf_is_readable() -> object:
    return (SHELF / "file").read_text()


@need
def null_takes_what_it_gets() -> object:
    with open("/dev/null", "w") as file:
        return file.write("x")


@need
def places_are_there() -> object:
    missing = [path for path in YARD["places"] if not os.access(path, os.R_OK)]
    return not missing or sys.stderr.write(f"missing: {missing}\n") < 0


@need
def memory_is_shared_between_processes() -> object:
    shared = mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        shared[0] = 7
        os._exit(0)
    os.waitpid(child, 0)
    return shared[0] == 7


@need
def pair_of_sockets_is_made() -> object:
    one, other = socket.socketpair()
    one.send(b"x")
    return other.recv(1) == b"x"


@need
def own_processes_are_signalled() -> object:
    child = os.fork()
    if child == 0:
        signal.pause()
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


@need
def bubblewrap_has_tmp_shm_proc_users_and_hosts() -> object:
    if LEVEL != "bubblewrap":
        return True
    Path("/dev/shm/mine").write_text("x")
    Path("/tmp/mine").write_text("x")
    if stat.S_IMODE(os.stat("/tmp").st_mode) != 0o1777 or not Path("/proc/self/status").exists():
        return False
    groups, hosts = Path("/etc/group").read_text(), Path("/etc/hosts").read_text()
    return pwd.getpwuid(os.getuid()).pw_name == "jail" and "jail" in groups and "localhost" in hosts


def main() -> None:
    # Some would do harm outside of a jail. Its walls may lack a stone here, and never be missing.
    assert LEVEL in ("bubblewrap", "landlock") and os.environ["SEEDBED_JAIL"]
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # ours to survive
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    through, failed = [], []
    for name, call in NEEDS.items():
        try:
            if not call():
                failed.append(name)
        except Exception as error:
            failed.append(f"{name}: {error}")
    for name, call in ATTEMPTS.items():
        if YARD["in_python_only"] and name.startswith("shell_"):
            continue
        try:
            if call():
                through.append(name)
        except (OSError, AttributeError, subprocess.SubprocessError):
            continue
    print(json.dumps({"through": through, "failed": failed, "made": sorted(ATTEMPTS)}))


if __name__ == "__main__":
    main()
