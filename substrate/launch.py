"""The launch of a jailed program: its user, its limits, its walls, and then the program itself.

Runs in the keeper (substrate/keeper.py), and from `fork` on in the keeper's child. It does what the
orders say that `substrate/jail.py` wrote, and decides nothing.

Where the controller is root, bwrap runs as the jail's own user, who may not look into many a folder
that is to be bound, root's home first of all. So these are bound beforehand to places within reach,
in a mount namespace that ends with the jail.
"""

import ctypes
import os
import resource
import signal
import stat
from importlib.machinery import SourceFileLoader
from types import ModuleType

from substrate.cgroup import Cgroup

OPEN_FILES = 4096  # RLIMIT_NOFILE of the program, or the host's own hard limit where that is lower
VICTIM_SCORE = 500  # oom_score_adj: when memory runs out, the program dies and not the controller
TASKS_PER_PROCESS = 16  # threads included, on the average, by RLIMIT_NPROC and cgroups

# Folders of which one is there and within everybody's reach, on which to mount for a moment.
STAGES = ("/tmp", "/var/tmp", "/mnt", "/srv", "/opt", "/var")

# linux/prctl.h, linux/mount.h, linux/sched.h
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
CLONE_NEWNS = 0x20000

_CONFINE = os.path.join(os.path.dirname(__file__), "reference", "training", "confine.py")


def launch(orders: dict, stdin: bytes, group: Cgroup) -> tuple[int, int, int]:
    """Start the program in a session of its own, in its control group.

    Returns the process id of what was started, a descriptor from which its output is read, and one
    from which its walls' own report is read.
    """
    source = os.open(os.devnull, os.O_RDONLY)
    if stdin:
        # A file and not a pipe: nobody has to feed a program that reads slowly or not at all.
        source = _memory_file("stdin", stdin)
    output, sink = os.pipe()
    report, reporting = os.pipe()
    keeper = os.getpid()
    user = orders["user"]
    if user is not None:
        for folder in orders["owned"]:
            _hand_over(folder, user)
    pid = os.fork()
    if pid:
        for descriptor in (source, sink, reporting):
            os.close(descriptor)
        return pid, output, report
    try:
        group.enter()
        for descriptor, target in ((source, 0), (sink, 1), (sink, 2)):
            os.dup2(descriptor, target)  # every other descriptor is close-on-exec
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)  # an ignored signal would stay ignored in exec
        prctl(PR_SET_NO_NEW_PRIVS, 1)  # no setuid program, so the keeper may kill all it finds
        _offer_as_victim()
        _limit(resource.RLIMIT_FSIZE, orders["limits"]["file_mb"] << 20)
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
        _become(orders, user, keeper, reporting)
    except SystemExit as refused:  # of confine.py, which has said and reported why
        os._exit(int(str(refused)))
    except BaseException as error:  # the forked child must never return into the keeper's code
        message = f"[jail: cannot start {orders['argv'][0]!r}: {error}]\n".encode(errors="replace")
        os.write(2, message)
        if orders["level"] != "none":  # the walls failed, and not the program
            os.write(reporting, message)
            os._exit(125)
    os._exit(127)


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument. Raises OSError."""
    _checked(f"prctl({option}, {value})", _libc().prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def _become(orders: dict, user: int | None, keeper: int, reporting: int) -> None:
    argv, level = orders["argv"], orders["level"]
    command, environment = argv, orders["env"]
    if level == "bubblewrap":
        command, environment = _enclose(orders, user, reporting), {}
    if user is not None:
        tasks = TASKS_PER_PROCESS * orders["limits"]["processes"]
        _limit(resource.RLIMIT_NPROC, tasks)  # counts a user's: this one is in no other jail
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    # If the keeper is killed, at least the program itself goes with it. A change of user would
    # have undone it.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(127)
    if level != "bubblewrap":
        os.chdir(orders["cwd"])
    if level == "landlock":
        os.environ.clear()
        os.environ.update(environment)
        _confine.main([*orders["confine"], "--report", str(reporting), "--", *command])
    os.execvpe(command[0], command, environment)


def _enclose(orders: dict, user: int | None, reporting: int) -> list[str]:
    """The command of bwrap, with every option and variable in a file that only it reads."""
    rows: list[list[str | bytes]] = [list(row) for row in orders["rows"]]
    bwrap: str = orders["bwrap"]
    if user is not None:
        bwrap = _stage(rows, bwrap, orders["bwrap_home"])
    options: list[bytes] = []
    for row in rows:
        for word in row:
            if isinstance(word, bytes):
                options.append(str(_inherited(_memory_file("file", word))).encode())
            else:
                options.append(os.fsencode(word))
    options += [b"--chdir", os.fsencode(orders["cwd"])]
    for name, value in orders["env"].items():
        options += [b"--setenv", os.fsencode(name), os.fsencode(value)]
    if orders["filter"]:
        filter_file = _memory_file("filter", orders["filter"])
        options += [b"--seccomp", str(_inherited(filter_file)).encode()]
    os.set_inheritable(reporting, True)
    options += [b"--json-status-fd", str(reporting).encode()]
    text = b"".join(option + b"\0" for option in options)
    return [bwrap, "--args", str(_inherited(_memory_file("options", text))), "--", *orders["argv"]]


def _stage(rows: list[list[str | bytes]], bwrap: str, bwrap_home: str) -> str:
    """Bind what the jail's user cannot reach to where it can, and say so in the rows.

    Returns the path of bwrap there. Its libraries are found relative to it, in `bwrap_home`.
    """
    libc = _libc()
    stage = next(path for path in STAGES if os.path.isdir(path) and os.stat(path).st_mode & 1)
    _checked("unshare", libc.unshare(CLONE_NEWNS))
    _checked("mount /", libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    binds = [row for row in rows if row[0] in ("--bind", "--ro-bind", "--dev-bind")]
    binds = [row for row in binds if not _within_reach(str(row[1]), stage)]
    sources = [bwrap_home, *(str(row[1]) for row in binds)]
    # Held by descriptors, since the stage may hide the paths.
    opened = [os.open(source, os.O_PATH) for source in sources]
    flags = MS_NOSUID | MS_NODEV
    _checked("mount", libc.mount(b"jail", stage.encode(), b"tmpfs", flags, b"mode=0755"))
    for number, descriptor in enumerate(opened):
        place = f"{stage}/{number}"
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.mkdir(place)
        else:
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT, 0o600))
        held = f"/proc/self/fd/{descriptor}".encode()
        bound = libc.mount(held, place.encode(), None, MS_BIND | MS_REC, None)
        _checked(f"bind {sources[number]}", bound)
        os.close(descriptor)
    for number, row in enumerate(binds, start=1):
        row[1] = f"{stage}/{number}"
    return f"{stage}/0/{os.path.relpath(bwrap, bwrap_home)}"


def _within_reach(path: str, stage: str) -> bool:
    """Whether everybody may go there, and the stage does not hide it."""
    if path.startswith(stage):
        return False
    above = os.path.dirname(path)
    while above != "/":
        if not os.stat(above).st_mode & stat.S_IXOTH:
            return False
        above = os.path.dirname(above)
    return True


def _hand_over(folder: str, user: int) -> None:
    """Make a folder with all that is in it the jail's user's own.

    By descriptors of its folders: a link that is put there meanwhile leads this nowhere else.
    """
    for _, folders, files, inside in os.fwalk(folder):
        os.fchown(inside, user, user)
        for name in (*folders, *files):
            info = os.lstat(name, dir_fd=inside)
            # A second name of a file may be somebody else's.
            if stat.S_ISDIR(info.st_mode) or info.st_nlink == 1:
                os.chown(name, user, user, dir_fd=inside, follow_symlinks=False)


def _memory_file(name: str, content: bytes) -> int:
    descriptor = os.memfd_create(name)
    os.truncate(descriptor, len(content))
    view, done = memoryview(content), 0
    while done < len(content):
        done += os.pwrite(descriptor, view[done:], done)
    return descriptor


def _inherited(descriptor: int) -> int:
    os.set_inheritable(descriptor, True)
    return descriptor


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


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(what: str, result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what} refused: {os.strerror(error)}")


def _loaded(path: str) -> ModuleType:
    """A module of the training stack, which is no package of this room."""
    module = ModuleType("confine")
    SourceFileLoader(module.__name__, path).exec_module(module)
    return module


_confine = _loaded(_CONFINE)  # once for all jails, in their keepers' mother
