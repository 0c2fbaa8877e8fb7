"""Processes, time and space: what goes on after the end, or takes more than it may."""

from substrate.cgroup_parents import why_no_cgroups
from tests.cheats.cheat import Cheat

# Ignores every signal that can be ignored, in a session of its own. `MARK` is in its command line.
DAEMON = """
daemon = (
    "import signal, time\\n"
    "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):\\n"
    "    signal.signal(number, signal.SIG_IGN)\\n"
    "time.sleep(%d)\\n%s"
)

def start_daemon(seconds=3600, then=""):
    call = [sys.executable, "-c", daemon % (seconds, then), MARK]
    subprocess.Popen(call, start_new_session=True, env={}, stdout=subprocess.DEVNULL)
"""

PROCESSES = [
    Cheat(
        "finishes-after-its-end",
        "Ends at once and leaves a process that writes the result later.",
        "crashed",
        "no out/result.json",
        f"""
{DAEMON}
start_daemon(1, "open('out/result.json', 'w').write('{{}}')")
""",
    ),
    Cheat(
        "daemons-that-ignore-signals",
        "Starts five processes of their own sessions that ignore signals, and fails.",
        "crashed",
        "nobody minds us",
        f"""
{DAEMON}
for _ in range(5):
    start_daemon()
raise RuntimeError("nobody minds us")
""",
    ),
    Cheat(
        "daemons-that-outlive-the-limit",
        "Lets the time run out with processes that ignore signals.",
        "timed_out",
        "no result with an adapter within",
        f"""
{DAEMON}
signal.signal(signal.SIGTERM, signal.SIG_IGN)
start_daemon()
time.sleep(3600)
""",
    ),
    Cheat(
        "self-relaunch",
        "Starts itself again and again, so that each of it is young.",
        "timed_out",
        "no result with an adapter within",
        """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(0.1)
os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
""",
    ),
    Cheat(
        "fork-bomb",
        "Starts processes that start processes, until there is room for no other.",
        "crashed",
        "processes at one time|Resource temporarily unavailable",
        """
for _ in range(8):
    os.fork()
time.sleep(3600)
""",
    ),
    Cheat(
        "memory-bomb",
        "Takes all memory there is.",
        "out_of_memory",
        "MiB resident|MemoryError",
        "hoard = []\nwhile True:\n    hoard.append(b'1' * (8 << 20))\n    time.sleep(0.01)",
    ),
    Cheat(
        "disk-bomb",
        "Writes one file until the disk is full.",
        "crashed",
        "File too large",
        """
with open("out/bomb", "wb") as file:
    while True:
        file.write(b"1" * (1 << 20))
""",
    ),
    Cheat(
        "disk-bomb-in-tmp",
        "Fills the temporary folder with small files.",
        # A control group counts them as memory; without one the folder is full first.
        "crashed" if why_no_cgroups() else "out_of_memory",
        "No space left" if why_no_cgroups() else "MiB resident",
        """
for number in range(1000):
    with open(f"/tmp/bomb-{number}", "wb") as file:
        file.write(b"1" * (8 << 20))
""",
    ),
    Cheat(
        "gigabyte-of-output",
        "Prints a gigabyte.",
        "crashed",
        "that was a gigabyte",
        """
block = b"x" * (1 << 20)
for _ in range(1024):
    os.write(1, block)
print("\\nthat was a gigabyte")
sys.exit(1)
""",
    ),
    Cheat(
        "output-in-no-encoding",
        "Prints what is no text, and orders to a terminal.",
        "crashed",
        "exit code 1",
        'os.write(2, b"\\xff\\xfe\\x80\\x1b[2J\\x1b]0;owned\\x07\\xed\\xa0\\x80")\nsys.exit(1)',
    ),
    Cheat(
        "fake-clock",
        "Stops the clock that it is asked to keep to.",
        "timed_out",
        "no result with an adapter within",
        """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
wait = time.sleep
time.time = time.monotonic = time.perf_counter = lambda: 0.0
while time.monotonic() < 1.0:
    wait(0.1)
""",
    ),
    Cheat(
        "kills-its-guard",
        "Kills its parent and every process that it sees.",
        "crashed",
        "found nothing",
        """
for pid in (1, os.getppid()):
    if pid != os.getpid():
        tried(lambda: os.kill(pid, signal.SIGSTOP))
        tried(lambda: os.kill(pid, signal.SIGTERM))
sys.exit("found nothing")
""",
    ),
]
