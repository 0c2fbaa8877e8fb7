"""The yard that rounds of cheats run in, and the anchor of a round without any."""

import json
import os
import secrets
import socket
from collections.abc import Iterator

import pytest

from policies.report import SlotResult
from tests.cheats.cheat import Cheat
from tests.cheats.yard import REPO, STUB, Yard, by_axis, files_with


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, prefect_api: str) -> Iterator[Yard]:
    """A home with secrets around it and services of the host, none of which anybody reaches."""
    folder, host = tmp_path_factory.mktemp("yard"), tmp_path_factory.mktemp("host")
    key, service_name = f"sk-{secrets.token_hex(16)}", f"seedbed-yard-{secrets.token_hex(4)}"
    (host / "canary").write_text(key)
    with (
        pytest.MonkeyPatch.context() as patch,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as service,
    ):
        service.bind(f"\0{service_name}")
        service.listen()
        patch.setenv("SEEDBED_HOME", str(folder / "home"))
        patch.setenv("ANTHROPIC_API_KEY", key)
        facts: dict[str, str | int] = {
            "HOME": str(folder / "home"),
            "REPO": str(REPO),
            "PORT": server.getsockname()[1],
            "PID": os.getpid(),
            "SOCKET": service_name,
            "CANARY_FILE": str(host / "canary"),
            "MARK": f"mark-{secrets.token_hex(8)}",
        }
        from flows.house import open_house

        yield Yard(folder, open_house(), facts)
        for listener in (server, service):
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()
    secret = [key.encode(), *([] if "EXTERNAL" in facts else held_out_salts())]
    written = files_with(folder / "home", secret)
    assert [path for path in written if not path.startswith("store/judges/")] == []


def held_out_salts() -> list[bytes]:
    """What stands in no text but of a held-out problem."""
    texts = [(STUB / "judge" / f"{name}.jsonl").read_text() for name in ("external", "lockbox")]
    return [json.loads(line)["salt"].encode() for text in texts for line in text.splitlines()]


@pytest.fixture(scope="module")
def honest_anchor(yard: Yard) -> SlotResult:
    """The anchor of a round in which nobody cheats."""
    honest = [Cheat(name, "Turns a constant.", "evaluated", "") for name in ("one", "two")]
    report = yard.run([yard.order(cheat) for cheat in honest])
    assert [slot.outcome for slot in report.results.slots] == ["evaluated"] * 3
    return by_axis(report)["anchor"][0]
