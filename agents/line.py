"""A line to providers: the broker's socket, and what it is told with each request."""

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2

from agents.broker import KEY_NAMES, ORIGIN, PROVIDER, TOKEN, URL_NAMES
from agents.marks import Marks
from agents.model import Model, Provider
from agents.tries import Patience, TryFailed, broken

# What the SDKs let through of a stream that is cut, or that is no UTF-8 or no JSON.
BROKEN_LINE = (httpx2.HTTPError, UnicodeDecodeError, json.JSONDecodeError, RecursionError)
PASSED_ON = ("PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR")  # of our environment, to the broker
START_SECONDS = 20.0


class NoLine(RuntimeError):
    """The broker did not start."""


@dataclass(frozen=True)
class Line:
    """The way to every provider, for as long as the broker runs."""

    socket: Path
    token: str
    keys: dict[Provider, str]  # fingerprints of the keys that the broker has
    marks: Marks
    process: int

    def url(self, model: Model) -> str:
        """The base URL that the SDK is given: the broker, at the path of the model's server."""
        return f"http://broker{model.path}"

    def headers(self, model: Model) -> dict[str, str]:
        return {TOKEN: self.token, PROVIDER: model.provider, ORIGIN: model.origin}

    def http(self, patience: Patience) -> httpx2.AsyncClient:
        """A client whose every request goes to the broker, whatever the environment says."""
        return httpx2.AsyncClient(
            # No TLS on a Unix socket: the broker has it, on its way out.
            transport=httpx2.AsyncHTTPTransport(uds=str(self.socket), verify=False),
            timeout=httpx2.Timeout(patience.idle),
            trust_env=False,
            follow_redirects=False,
        )


@contextlib.contextmanager
def open_line(keys_file: Path | None, environment: dict[str, str] | None = None) -> Iterator[Line]:
    """Start the broker with the keys of the file and of `environment`; end it at the exit.

    Raises NoLine with what the broker found wrong.
    """
    folder = Path(tempfile.mkdtemp(prefix="seedbed-broker-"))  # mode 0700
    token = secrets.token_hex(32)
    told = {
        "token": token,
        "socket": str(folder / "socket"),
        "file": str(keys_file) if keys_file is not None else "",
        "environment": environment or {},
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "agents.broker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # nothing that it may say is worth the risk of a key
        env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
        start_new_session=True,  # Ctrl-C is for us; it ends when we do
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # it ended: nothing will be said
            process.stdin.write(json.dumps(told) + "\n")
            process.stdin.flush()
        del told, environment  # this frame lives as long as the broker
        said = json.loads(process.stdout.readline() or "{}")
        if "marks" not in said:
            raise NoLine(said.get("error") or "wanted the broker to start, found that it ended")
        yield Line(folder / "socket", token, said["keys"], Marks.of(said["marks"]), process.pid)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def failure_of(error: BaseException, patience: Patience) -> TryFailed:
    """What an error of the line means, its first cause said."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    if any(isinstance(one, httpx2.TimeoutException) for one in causes):
        return broken(f"nothing arrived for {patience.idle:g} s")
    words = dict.fromkeys(f"{type(one).__name__}: {one}" for one in causes[:3])
    return broken("; ".join(words))


def take_from_environment() -> dict[str, str]:
    """The keys and their base URLs in our environment, of which the keys are then gone.

    Gone from what children inherit, and from the block that the kernel shows to others of our user
    (`/proc/PID/environ`), which unsetting a variable leaves as it is.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    taken = {name: os.environ[name] for name in URL_NAMES.values() if os.environ.get(name)}
    for name in KEY_NAMES.values():
        if name in os.environ:
            address = libc.getenv(name.encode())
            if address:
                ctypes.memset(address, 0, len(ctypes.string_at(address)))
            taken[name] = os.environ.pop(name)
    return {name: value for name, value in taken.items() if value}
