"""Confinement: what Landlock and seccomp take from a process, and that it stays taken."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from training import confine

CONFINE = Path(confine.__file__)
PYTHON = [sys.executable, "-I", "-S", "-c"]
pytestmark = pytest.mark.skipif(
    not (confine.landlock_abi() and confine.has_seccomp()),
    reason="wanted Landlock and seccomp, found a kernel without",
)

# Python itself, wherever it and its libraries are.
SYSTEM = [path for path in ("/usr", "/lib", "/lib64", "/etc/ld.so.cache") if Path(path).exists()]
SYSTEM += sorted({sys.prefix, sys.base_prefix})


def run(
    code: str, *arguments: object, read: Sequence[object] = (), write: Sequence[object] = (),
    flags: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run Python code under `confine.py`, started by its path."""
    orders = [item for path in (*SYSTEM, *read) for item in ("--read", str(path))]
    orders += [item for path in write for item in ("--write", str(path))]
    return subprocess.run(
        [
            *(sys.executable, "-I", "-S", str(CONFINE), *orders, *flags, "--"),
            *(*PYTHON, code, *map(str, arguments)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


# Says of each attempt whether it was made or how it failed.
TRY = """
import os, socket, sys
def attempt(name, call):
    try:
        call()
        print(name, "done")
    except OSError as error:
        print(name, type(error).__name__)
"""


def outcomes(code: str, *arguments: object, **orders: Sequence[object]) -> dict[str, str]:
    ended = run(TRY + code, *arguments, **orders)  # pyright: ignore[reportArgumentType]
    assert ended.returncode == 0, ended.stderr
    return dict(line.split() for line in ended.stdout.splitlines())


def test_files_open_under_the_named_paths_only(tmp_path: Path) -> None:
    for name in ("read", "write", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("text")
    (tmp_path / "read" / "link").symlink_to(tmp_path / "other" / "file")
    code = """
base = sys.argv[1]
attempt("read", lambda: open(base + "/read/file"))
attempt("change", lambda: open(base + "/read/file", "a"))
attempt("add", lambda: open(base + "/read/new", "w"))
attempt("delete", lambda: os.unlink(base + "/read/file"))
attempt("follow", lambda: open(base + "/read/link"))
attempt("climb", lambda: open(base + "/read/../other/file"))
attempt("write", lambda: open(base + "/write/new", "w").write("x"))
attempt("make", lambda: os.mkdir(base + "/write/folder"))
attempt("link", lambda: os.link(base + "/other/file", base + "/write/hard"))
attempt("move", lambda: os.rename(base + "/other/file", base + "/write/moved"))
attempt("other", lambda: open(base + "/other/file"))
attempt("list", lambda: os.listdir(base + "/other"))
"""
    found = outcomes(code, tmp_path, read=[tmp_path / "read"], write=[tmp_path / "write"])
    done = {name for name, outcome in found.items() if outcome == "done"}
    assert done == {"read", "write", "make"}
    assert (tmp_path / "other" / "file").read_text() == "text"


def test_names_may_be_listed_where_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    code = """
attempt("list", lambda: os.listdir(sys.argv[1]))
attempt("read", lambda: open(sys.argv[1] + "/secret"))
attempt("write", lambda: open(sys.argv[1] + "/new", "w"))
"""
    found = outcomes(code, tmp_path, flags=["--names", str(tmp_path)])
    assert found == {"list": "done", "read": "PermissionError", "write": "PermissionError"}


def test_one_file_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    code = """
attempt("one", lambda: open(sys.argv[1] + "/one", "a").write("x"))
attempt("two", lambda: open(sys.argv[1] + "/two"))
"""
    found = outcomes(code, tmp_path, write=[tmp_path / "one"])
    assert found == {"one": "done", "two": "PermissionError"}


def test_without_network_only_unix_sockets_are_made() -> None:
    code = """
attempt("tcp", lambda: socket.socket(socket.AF_INET))
attempt("udp", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW))
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
"""
    found = outcomes(code, flags=["--no-network"])
    assert found == {"tcp": "PermissionError", "udp": "PermissionError"} | {
        "packet": "PermissionError",
        "unix": "done",
    }


@pytest.mark.skipif(confine.landlock_abi() < 6, reason="wanted Landlock ABI 6, for signals")
def test_no_process_outside_is_signalled_and_no_port_reached() -> None:
    code = """
attempt("signal", lambda: os.kill(int(sys.argv[1]), 0))
attempt("bind", lambda: socket.socket().bind(("127.0.0.1", 0)))
attempt("connect", lambda: socket.create_connection(("127.0.0.1", 9)))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0seedbed-none"))
"""
    found = outcomes(code, os.getpid())
    assert found["signal"] == found["bind"] == found["connect"] == "PermissionError"
    assert found["abstract"] in ("PermissionError", "ConnectionRefusedError")


def test_a_child_is_as_confined_as_its_parent(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    code = """
import subprocess
run = subprocess.run([sys.executable, "-I", "-S", "-c", "open('%s/secret')" % sys.argv[1]],
                     capture_output=True, text=True)
print(run.stderr.strip().splitlines()[-1].split(":")[0], run.returncode)
"""
    ended = run(TRY + code, tmp_path)
    assert ended.stdout == "PermissionError 1\n", ended.stderr


def test_mounts_traces_and_namespaces_are_refused() -> None:
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
attempt("mount", lambda: call("mount", b"none", b"/", b"tmpfs", 0, None))
attempt("ptrace", lambda: call("ptrace", 0, 0, None, None))
attempt("unshare", lambda: call("unshare", 0x10000000))
attempt("chroot", lambda: os.chroot("/"))
"""
    assert set(outcomes(code).values()) == {"PermissionError"}


@pytest.mark.parametrize(
    ("orders", "code", "said"),
    [
        (["--read", "/nowhere/at/all", "--", "true"], 125, "No such file"),
        (["--read", "/usr", "--", "/nowhere/at/all"], 127, "No such file|Permission denied"),
        (["--write"], 125, "an option that is known, found '--write'"),
        (["--read", "/usr"], 125, "a program after --, found none"),
    ],
)
def test_orders_that_cannot_be_followed_start_nothing(
    orders: list[str], code: int, said: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(CONFINE), *orders],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code
    assert any(words in ended.stderr for words in said.split("|"))
    assert ended.stderr.rstrip().endswith("nothing was started")


def test_a_rule_looks_at_an_argument_and_the_first_that_holds_decides() -> None:
    code = f"""
import errno, os, sys
sys.path.insert(0, {str(CONFINE.parent.parent)!r})
from training.confine import ALLOW, Rule, assemble, errno_action, forbid_privileges, install_filter
forbid_privileges()
install_filter(assemble([
    Rule("write", ALLOW, argument=0, values=(1, 2)),
    Rule("write", errno_action(errno.EXDEV), argument=2, values=(7,)),
    Rule("write", errno_action(errno.ENOSPC)),
    Rule("kill", errno_action(errno.E2BIG), argument=1, mask=0b100, values=(0b100,)),
], ALLOW))
for call in (lambda: os.write(5, b"x"), lambda: os.write(5, b"seventh"), lambda: os.kill(0, 4),
             lambda: os.kill(os.getpid(), 0)):
    try:
        print(call())
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["ENOSPC", "EXDEV", "E2BIG", "None"]


def test_every_call_that_a_rule_may_name_has_its_number_on_one_machine_at_least() -> None:
    for name, numbers in confine.CALLS.items():
        assert any(number is not None for number in numbers), name
    for column in (0, 1):
        known = [numbers[column] for numbers in confine.CALLS.values()]
        given = [number for number in known if number is not None]
        assert len(given) == len(set(given))
