"""A headless Chromium by its own debugging protocol: open a page, wait, take a picture."""

import base64
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import connect
from websockets.sync.connection import Connection

FLAGS = (
    "--headless",
    "--no-sandbox",  # a container's root has no user namespaces to build one of
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-port=0",
)
START_SECONDS = 30.0
PAGE_SECONDS = 60.0
SETTLE_SECONDS = 1.5  # for pictures and animations after the text is there


class Page:
    """One tab of a browser."""

    def __init__(self, socket: Connection) -> None:
        self._socket = socket
        self._calls = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol. Raises RuntimeError with its answer if it refuses."""
        self._calls += 1
        call = {"id": self._calls, "method": method, "params": parameters}
        self._socket.send(json.dumps(call))
        while True:
            answer = json.loads(self._socket.recv(timeout=PAGE_SECONDS))
            if answer.get("id") == self._calls:
                if "error" in answer:
                    raise RuntimeError(f"wanted {method}, found {answer['error']}")
                return answer["result"]

    def evaluate(self, script: str) -> Any:
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return found["result"].get("value")

    def open(self, url: str, *, until: str) -> str:
        """Go to `url` and wait until the page shows the words `until`. Returns all its words."""
        self.call("Page.navigate", url=url)
        return self.wait(until)

    def wait(self, until: str) -> str:
        give_up = time.monotonic() + PAGE_SECONDS
        while True:
            words = self.evaluate("document.body ? document.body.innerText : ''") or ""
            if until in words:
                time.sleep(SETTLE_SECONDS)
                return words
            if time.monotonic() > give_up:
                raise RuntimeError(f"wanted a page that says {until!r}, found {words!r}")
            time.sleep(0.1)

    def picture(self, file: Path) -> None:
        """A PNG of what the window shows."""
        found = self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        file.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def opened(program: str, width: int, height: int) -> Iterator[Page]:
    """A browser with one empty tab of this size in pixels."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = _port(Path(profile))
            tab = httpx.put(f"http://127.0.0.1:{port}/json/new", trust_env=False).json()
            with connect(tab["webSocketDebuggerUrl"], max_size=None) as socket:
                page = Page(socket)
                page.call("Page.enable")
                page.call(
                    "Emulation.setDeviceMetricsOverride",
                    **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
                )
                yield page
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(profile: Path) -> int:
    file = profile / "DevToolsActivePort"
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.05)
    raise RuntimeError(f"wanted Chromium to name its port in {file}, found that it did not")
