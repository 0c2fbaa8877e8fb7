"""The broker: the one process that has the keys of providers. It adds them to requests, no more.

It serves HTTP/1.1 on a Unix socket that only its maker may use. A request names the provider and
the origin that it is for, and shows this run's token. The broker puts the provider's key into the
header, sends the request there, and passes the answer's bytes on as they come, framing and cuts
included. Should a request's body or an answer hold a key, in any of its spellings, stars of equal
length take its place.

A key goes to its provider's own origin, and to that of the base URL that is kept beside it
(`ANTHROPIC_BASE_URL`, `OPENAI_BASE_URL`), and nowhere else: other servers get requests without one.

Started by `agents.line.open_line`, which writes one line of JSON to its standard input and keeps
that open: when it closes, the broker ends. As root, it becomes a user of its own once it has read
the keys. It dumps no core, and no process of its user can read its memory. Standard library only.
"""

import contextlib
import ctypes
import hashlib
import hmac
import json
import os
import resource
import select
import socket
import ssl
import stat
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agents.encodings import SHORTEST, spellings
from agents.marks import make_marks
from agents.model import OWN_URLS, Provider, origin_of

KEY_NAMES: dict[Provider, str] = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
URL_NAMES: dict[Provider, str] = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
TOKEN = "x-seedbed-token"
PROVIDER = "x-seedbed-provider"
ORIGIN = "x-seedbed-origin"
OWN_USER = 64_337  # of no account that a system has
CONNECT_SECONDS = 10.0
HEAD_SECONDS = 60.0  # for a request to arrive
HEAD_BYTES = 2**16
BODY_BYTES = 2**26
NOT_SENT = {TOKEN, PROVIDER, ORIGIN, "authorization", "x-api-key", "host", "connection"}
NOT_SENT |= {"accept-encoding", "proxy-authorization", "cookie"}


class BadKeys(ValueError):
    """The keys cannot be used."""


@dataclass(frozen=True)
class Key:
    """A provider's key, and the origins that it may be sent to."""

    provider: Provider
    secret: str
    origins: frozenset[str]

    @property
    def fingerprint(self) -> str:
        """What a person tells it by: never more than its last four characters and a hash."""
        digest = hashlib.sha256(self.secret.encode()).hexdigest()
        return f"…{self.secret[-4:]} (sha256 {digest[:8]})"

    @cached_property
    def spellings(self) -> tuple[bytes, ...]:
        return spellings(self.secret)

    def header(self) -> str:
        if self.provider == "anthropic":
            return f"x-api-key: {self.secret}"
        return f"authorization: Bearer {self.secret}"


def read_keys(file: Path | None, environment: dict[str, str]) -> dict[Provider, Key]:
    """The keys of the file, else of the environment. Raises BadKeys, which quotes none of them."""
    there = {**environment, **(_keys_file(file) if file is not None else {})}
    keys: dict[Provider, Key] = {}
    for provider, name in KEY_NAMES.items():
        secret = there.get(name, "").strip()
        if not secret:
            continue
        if len(secret) < SHORTEST or not secret.isascii() or not secret.isprintable():
            raise BadKeys(
                f"wanted a key in {name}, found {len(secret)} characters that are none; copy it "
                "again from the provider"
            )
        urls = [OWN_URLS[provider], there.get(URL_NAMES[provider], "").strip()]
        keys[provider] = Key(provider, secret, frozenset(origin_of(url) for url in urls if url))
    return keys


def main() -> None:
    """Read keys and token, say `ready`, serve until standard input ends."""
    told = json.loads(sys.stdin.readline())
    try:
        keys = read_keys(Path(told["file"]) if told["file"] else None, told["environment"])
    except (BadKeys, OSError) as error:
        _tell({"error": str(error)})
        raise SystemExit(2) from None
    server = socket.socket(socket.AF_UNIX)
    server.bind(told["socket"])
    os.chmod(told["socket"], 0o600)
    server.listen(64)
    # While the files of Python can be read: what it has not loaded by then it never will.
    tls, marks = ssl.create_default_context(), make_marks(_spellings(keys.values()))
    "localhost".encode("idna")
    _withdraw()
    _tell(
        {
            "keys": {name: key.fingerprint for name, key in keys.items()},
            "origins": {name: sorted(key.origins) for name, key in keys.items()},
            "marks": marks.data(),
        }
    )
    broker = Broker(keys, told["token"], tls)
    threading.Thread(target=broker.serve, args=(server,), daemon=True).start()
    sys.stdin.read()
    os._exit(0)


class Mask:
    """Puts stars over the keys in a stream of bytes, of equal length: its framing stays right."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self.needles = _spellings(keys)
        self.held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be passed on: all but an end that may be the beginning of a key."""
        data = self.masked(self.held + data)
        keep = max((self._overlap(data, needle) for needle in self.needles), default=0)
        self.held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def rest(self) -> bytes:
        held, self.held = self.held, b""
        return held

    def masked(self, data: bytes) -> bytes:
        for needle in self.needles:
            data = data.replace(needle, b"*" * len(needle))
        return data

    def _overlap(self, data: bytes, needle: bytes) -> int:
        """Length of the longest end of `data` that `needle` begins with."""
        at = data.find(needle[:1], max(0, len(data) - len(needle) + 1))
        while at >= 0:
            if needle.startswith(data[at:]):
                return len(data) - at
            at = data.find(needle[:1], at + 1)
        return 0


@dataclass(frozen=True)
class Broker:
    """What every connection needs."""

    keys: dict[Provider, Key]
    token: str
    tls: ssl.SSLContext

    def serve(self, server: socket.socket) -> None:
        while True:
            client, _ = server.accept()
            threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client: socket.socket) -> None:
        """One connection, one request."""
        with client, contextlib.suppress(OSError):
            client.settimeout(HEAD_SECONDS)
            try:
                provider_side, request = self.forward(*_read(client))
            except _Refusal as refusal:
                client.sendall(refusal.response())
                return
            with provider_side:
                provider_side.sendall(request)
                _relay(provider_side, client, Mask(self.keys.values()))

    def forward(
        self, first: str, headers: dict[str, str], body: bytes
    ) -> tuple[socket.socket, bytes]:
        """A connection to the provider, and the request as it goes there."""
        if not hmac.compare_digest(headers.get(TOKEN, ""), self.token):
            raise _Refusal(403, "permission_error", "the broker does not know this token")
        provider, origin = headers.get(PROVIDER, ""), origin_of(headers.get(ORIGIN, ""))
        if provider not in OWN_URLS:
            raise _Refusal(400, "invalid_request_error", f"no provider is named {provider!r}")
        key = self.keys.get(provider)
        if key is None and origin == origin_of(OWN_URLS[provider]):
            why = f"{KEY_NAMES[provider]} is neither in the environment nor in the keys file"
            raise _Refusal(401, "authentication_error", why)
        lines = [first, f"host: {urlsplit(origin).netloc}", "connection: close"]
        lines.append("accept-encoding: identity")  # what is packed cannot be masked
        lines += [f"{name}: {value}" for name, value in headers.items() if name not in NOT_SENT]
        if key is not None and origin in key.origins:
            lines.append(key.header())
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        try:
            return _connect(origin, self.tls), head + Mask(self.keys.values()).masked(body)
        except (OSError, ValueError) as error:
            why = f"cannot connect to {origin}: {error}"
            raise _Refusal(502, "seedbed_unreachable", why) from error


def _spellings(keys: Iterable[Key]) -> list[bytes]:
    return [spelling for key in keys for spelling in key.spellings]


def _keys_file(file: Path) -> dict[str, str]:
    """`NAME=value` lines; `#` begins a comment line."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with open(descriptor, encoding="utf-8") as lines:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077:
            raise BadKeys(
                f"wanted a keys file that its owner alone may read, found mode "
                f"{stat.S_IMODE(found.st_mode):o} at {file}; `chmod 600` it"
            )
        if found.st_uid != os.geteuid():
            raise BadKeys(
                f"wanted a keys file of this user, found one of user {found.st_uid} at {file}; "
                "`chown` it, or name your own in SEEDBED_KEYS"
            )
        pairs: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            name, equals, value = line.strip().partition("=")
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name = name.removeprefix("export ").strip()
            if not equals or name not in {*KEY_NAMES.values(), *URL_NAMES.values()}:
                known = ", ".join([*KEY_NAMES.values(), *URL_NAMES.values()])
                raise BadKeys(
                    f"wanted lines NAME=value with {known}, found another at line {number} of "
                    f"{file}; correct it"  # not quoted: it may be a key
                )
            pairs[name] = value.strip().strip("\"'")
    return pairs


def _withdraw() -> None:
    """Become nobody who can be read: a user of its own, no core, not dumpable, no new rights."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # some containers hold root without this right
            os.setgroups([])
            os.setgid(OWN_USER)
            os.setuid(OWN_USER)
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((4, 0), (38, 1)):  # PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl: the broker cannot protect its memory")


def _tell(data: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


class _Refusal(Exception):
    """What the broker itself answers."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message

    def response(self) -> bytes:
        error = {"type": self.kind, "message": self.message, "code": self.kind}
        body = json.dumps({"type": "error", "error": error}).encode()
        head = f"HTTP/1.1 {self.status} Refused\r\ncontent-type: application/json\r\n"
        return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


def _read(client: socket.socket) -> tuple[str, dict[str, str], bytes]:
    """The request's first line, its headers by name in lower case, its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(HEAD_BYTES)
        data += part
        if not part or len(data) > 2 * HEAD_BYTES:
            raise OSError("no request")
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = headers.get("content-length", "")
    if not length.isascii() or not length.isdigit() or int(length) > BODY_BYTES:
        why = f"wanted a content-length up to {BODY_BYTES}, found {length!r}"
        raise _Refusal(413, "request_too_large", why)
    return first, headers, body + _exactly(client, int(length) - len(body))


def _exactly(client: socket.socket, count: int) -> bytes:
    parts = []
    while count > 0:
        part = client.recv(min(count, 2**20))
        if not part:
            raise OSError("the request was cut")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _connect(origin: str, tls: ssl.SSLContext) -> socket.socket:
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("that is no origin")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    plain = socket.create_connection((parts.hostname, port), timeout=CONNECT_SECONDS)
    if parts.scheme == "http":
        return plain
    try:
        return tls.wrap_socket(plain, server_hostname=parts.hostname)
    except BaseException:
        plain.close()
        raise


def _relay(provider_side: socket.socket, client: socket.socket, mask: Mask) -> None:
    """Pass bytes on until either side ends. The client decides how long to wait."""
    provider_side.settimeout(None)
    client.settimeout(None)
    while True:
        waiting = isinstance(provider_side, ssl.SSLSocket) and provider_side.pending() > 0
        ready = [provider_side] if waiting else select.select([provider_side, client], [], [])[0]
        if client in ready and not client.recv(2**16):
            return  # it gave up
        if provider_side in ready:
            data = provider_side.recv(2**16)
            if not data:
                client.sendall(mask.rest())
                return
            client.sendall(mask.feed(data))


if __name__ == "__main__":
    main()
