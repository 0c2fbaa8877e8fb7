"""The yard around a jail: what a program inside must not reach, planted and watched."""

import ctypes
import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from substrate.interpreter import python_places
from substrate.jail import Limits, jail_orders, keep
from substrate.walls import Level, Walls

ATTEMPTS = Path(__file__).with_name("attempts.py")
FILE_MB = 4
VICTIM = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: open(sys.argv[1], "w").close())
print("ready", flush=True)
while True:
    signal.pause()
"""
IPC_CREAT, IPC_RMID = 0o1000, 0


@dataclass(frozen=True)
class Found:
    """What came of one run of all attempts."""

    through: list[str]  # attempts that came through, as they say or as the yard sees
    failed: list[str]  # needs of an honest program that were not met
    made: list[str]  # every attempt

    def __bool__(self) -> bool:
        return bool(self.through or self.failed)


@dataclass
class Yard:
    """Canaries, listeners and a victim, and the folder of the jailed program among them."""

    home: Path
    facts: dict[str, Any]
    udp: socket.socket

    @property
    def fork(self) -> Path:
        return self.home / "forks" / "mine"

    def walls(self, level: Level) -> Walls:
        shelf = self.home / "shelf"
        places = (shelf, ATTEMPTS, *python_places(sys.executable))
        return Walls(level=level, writable=(self.fork,), readable=places)

    def orders(self, level: Level, user: int | None, *, in_python_only: bool) -> dict[str, Any]:
        """The orders of a jail in which every attempt is made, or those of shells are left out."""
        walls = self.walls(level)
        facts = self.facts | {"level": level, "places": self._places(level, user)}
        facts["in_python_only"] = in_python_only
        (self.fork / "facts.json").write_text(json.dumps(facts))  # not in argv, which is seen
        return jail_orders(
            [sys.executable, "-I", "-S", str(ATTEMPTS), str(self.fork / "facts.json")],
            cwd=self.fork,
            env={},
            limits=Limits(seconds=60, memory_mb=1024, file_mb=FILE_MB),
            walls=walls,
            user=user,
        )

    async def run(self, orders: dict[str, Any]) -> Found:
        """Make every attempt within these orders, and look what became of the yard."""
        if orders["level"] == "none":
            raise ValueError("wanted walls around attempts, found none: they would do harm")
        before = self._state()
        log = self.home / "log"
        ending = await keep(orders, log=log)
        said = log.read_text(errors="replace")
        if ending.exit_code != 0:
            return Found([], [f"ended with {ending}: {said[-300:]}"], [])
        found = json.loads(said.splitlines()[-1])
        after = self._state()
        changed = [f"changed: {name}" for name in before if before[name] != after[name]]
        if changed:
            self._plant()
        return Found(found["through"] + changed, found["failed"], found["made"])

    def _places(self, level: Level, user: int | None) -> list[str]:
        orders = jail_orders(
            ["true"], cwd=self.fork, env={}, limits=Limits(seconds=1, memory_mb=1, file_mb=1),
            walls=self.walls(level), user=user,
        )  # fmt: skip
        if level == "landlock":
            options = orders["confine"]
            named = [options[i + 1] for i, word in enumerate(options) if word == "--read"]
        else:
            kinds = ("--ro-bind", "--symlink", "--file")
            named = [row[-1] for row in orders["rows"] if row[0] in kinds]
        return [path for path in named if os.access(path, os.R_OK) and os.path.exists(path)]

    def _plant(self) -> None:
        for name in ("canary", "movable", "judge", "adapter", "other_fork"):
            path = Path(self.facts[name])
            path.unlink(missing_ok=True)
            path.write_text(self.facts["secret"])
            path.chmod(0o666)
        for name in ("made", "file"):
            (self.home / "shelf" / name).unlink(missing_ok=True)
            (self.home / "open" / name).unlink(missing_ok=True)
        (self.home / "shelf" / "file").write_text("for all to read")
        (self.home / "shelf" / "file").chmod(0o666)
        for place in ("/tmp", "/dev/shm"):
            Path(place, self.facts["marker"]).unlink(missing_ok=True)
        (self.home / "signalled").unlink(missing_ok=True)

    def _state(self) -> dict[str, object]:
        """Of all that is outside, what a program inside might change."""
        state: dict[str, object] = {}
        for name in ("canary", "movable", "judge", "adapter", "other_fork"):
            path = Path(self.facts[name])
            info = path.stat() if path.exists() else None
            state[name] = info and (path.read_bytes(), info.st_mode, info.st_uid, info.st_gid)
            state[f"attributes of {name}"] = info and os.listxattr(path)
        file = self.home / "shelf" / "file"
        state["shelf"] = sorted(os.listdir(file.parent)), file.read_bytes(), file.stat().st_mode
        state["open folder"] = os.listdir(self.home / "open")
        for place in ("/tmp", "/dev/shm"):
            state[place] = Path(place, self.facts["marker"]).exists()
        state["victim, signalled"] = (self.home / "signalled").exists()
        limits = Path(f"/proc/{self.facts['victim']}/limits").read_text()
        state["victim, limits"] = limits
        try:
            self.udp.recv(10)
            state["udp"] = secrets.token_hex()
        except BlockingIOError:
            state["udp"] = None
        return state


@contextmanager
def open_yard(home: Path) -> Iterator[Yard]:
    """A yard in `home`, with all its processes and sockets, which end with it."""
    marker = f"seedbed-escape-{secrets.token_hex(4)}"
    with ExitStack() as held:
        home.chmod(0o755)  # as readable as can be: walls are tested, not modes of files
        for name in ("forks/mine", "forks/other", "judge", "adapters", "open", "shelf"):
            (home / name).mkdir(parents=True)
        for name in ("open", "shelf", "forks/other"):
            (home / name).chmod(0o777)
        tcp = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        for address in (f"\0{marker}", str(home / "socket")):
            server = held.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(address)
            server.listen()
        (home / "socket").chmod(0o777)
        key = "sk-" + secrets.token_hex(8)
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(home / "signalled"), "seedbed-victim", key],
            cwd=home,
            env={"API_KEY": key},
            stdout=subprocess.PIPE,
        )
        held.callback(_end, victim)
        assert victim.stdout is not None and victim.stdout.readline() == b"ready\n"
        connection = sqlite3.connect(home / "seedbed.db")
        with connection:
            connection.execute("CREATE TABLE secrets AS SELECT 'x' AS key")
        connection.close()
        libc = ctypes.CDLL(None, use_errno=True)
        shm_key = secrets.randbelow(1 << 30) + 1
        segment = libc.shmget(shm_key, 4096, IPC_CREAT | 0o666)
        held.callback(libc.shmctl, segment, IPC_RMID, None)
        yard = Yard(
            home,
            {
                "canary": str(home / "canary"),
                "movable": str(home / "forks" / "other" / "movable"),
                "other_fork": str(home / "forks" / "other" / "file"),
                "judge": str(home / "judge" / "external.jsonl"),
                "adapter": str(home / "adapters" / "weights"),
                "database": str(home / "seedbed.db"),
                "home": str(home),
                "shelf": str(home / "shelf"),
                "open_folder": str(home / "open"),
                "unix_socket": str(home / "socket"),
                "abstract": marker,
                "marker": marker,
                "secret": secrets.token_hex(16),
                "key": key,
                "victim": victim.pid,
                "controller": os.getpid(),
                "controller_user": os.getuid(),
                "port": tcp.getsockname()[1],
                "udp_port": udp.getsockname()[1],
                "shm_key": shm_key,
                "hostname": socket.gethostname(),
                "file_mb": FILE_MB,
            },
            udp,
        )
        yard._plant()
        held.callback(yard._plant)
        yield yard


def _end(victim: subprocess.Popen[bytes]) -> None:
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    if victim.stdout is not None:
        victim.stdout.close()
