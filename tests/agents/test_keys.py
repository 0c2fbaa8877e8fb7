"""Keys: the broker alone has them, sends them where they belong, and no text of ours holds one."""

import base64
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from agents.broker import Mask, read_keys
from agents.encodings import encodings, spellings
from agents.journal import exchange
from agents.line import Line, NoLine, open_line
from agents.marks import NO_MARKS, make_marks
from agents.messages import ProviderFailure
from agents.model import read_model
from agents.redaction import REDACTED, redact, redacted, redacted_logs
from tests.agents.provider_server import Answer, ProviderServer, refused
from tests.agents.talk import HURRIED, Book, ask, said, talk, talk_to
from tests.planted import places_of

ROOT = Path(__file__).resolve().parents[2]
CLAUDE = "sk-ant-api03-Qm7vT2xW9zL4kR8pN1bY6cJ3hF5gD0sA_-uEiOaXw"
GPT = "planted.Zt5Kq8Wv2Yx7Rn4Mb9Lc6Pd3Sf1Hg0Jj"  # of no pattern: only known keys have it
NOTHING = {"tokens": 0, "microdollars": 0}
MARKS = make_marks([*spellings(CLAUDE), *spellings(GPT)])


@pytest.fixture(scope="module")
def server() -> Iterator[ProviderServer]:
    with ProviderServer(lambda asked: Answer(text="Fine.")) as server:
        yield server


@pytest.fixture(scope="module")
def keyed(server: ProviderServer) -> Iterator[Line]:
    """A broker whose keys belong to the test's server."""
    environment = {
        "ANTHROPIC_API_KEY": CLAUDE,
        "ANTHROPIC_BASE_URL": server.anthropic_url,
        "OPENAI_API_KEY": GPT,
        "OPENAI_BASE_URL": server.openai_url,
    }
    with open_line(None, environment) as line:
        yield line


def test_a_request_reaches_its_provider_with_the_key_and_without_our_token(
    keyed: Line, server: ProviderServer
) -> None:
    for provider, header, value in (
        ("anthropic", "x-api-key", CLAUDE),
        ("openai", "authorization", f"Bearer {GPT}"),
    ):
        said(talk(keyed, server, provider, Book()).converse(), ask())
        headers = server.asked[-1].headers
        assert headers[header] == value
        assert not [name for name in headers if name.startswith("x-seedbed")]
        assert keyed.token not in str(headers) and "held-by-the-broker" not in str(headers)


def test_a_key_goes_to_no_other_server(keyed: Line) -> None:
    with ProviderServer(lambda asked: Answer(text="Thanks.")) as other:
        for provider in ("anthropic", "openai"):
            said(talk(keyed, other, provider, Book()).converse(), ask())
            assert CLAUDE not in str(other.asked[-1].headers)
            assert GPT not in str(other.asked[-1].headers)
            assert "authorization" not in other.asked[-1].headers


def test_a_missing_key_is_said_by_its_name_without_a_call(line: Line) -> None:
    book = Book()
    correspondence = talk_to(line, read_model("anthropic:claude-opus-5"), book)
    with pytest.raises(ProviderFailure, match="ANTHROPIC_API_KEY is neither in") as failed:
        said(correspondence.converse(), ask())
    assert failed.value.permanent
    assert [dict(amounts) for amounts in book.settled.values()] == [NOTHING]


def test_a_server_that_cannot_be_reached_is_named_and_nothing_is_charged(line: Line) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        book = Book()
        correspondence = talk_to(line, read_model("openai:m", url), book)
        with pytest.raises(ProviderFailure, match=r"cannot connect to http://127\.0\.0\.1"):
            said(correspondence.converse(), ask())
    assert len(book.settled) == HURRIED.tries
    assert all(amounts == NOTHING for amounts in book.settled.values())


def test_whoever_does_not_know_the_token_is_refused(keyed: Line, server: ProviderServer) -> None:
    before = len(server.asked)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(keyed.socket))
        head = f"POST /v1/messages HTTP/1.1\r\nx-seedbed-origin: {server.anthropic_url}\r\n"
        head += "x-seedbed-provider: anthropic\r\nx-seedbed-token: guessed\r\n"
        client.sendall(f"{head}content-length: 2\r\n\r\n{{}}".encode())
        answer = client.recv(4096)
    assert b"403" in answer and CLAUDE.encode() not in answer
    assert len(server.asked) == before


@pytest.mark.skipif(sys.platform != "linux", reason="/proc and prctl are Linux's")
def test_nobody_can_read_the_brokers_memory_environment_or_arguments(keyed: Line) -> None:
    proc = Path(f"/proc/{keyed.process}")
    for secret in (CLAUDE, GPT, keyed.token):
        assert secret.encode() not in (proc / "cmdline").read_bytes()
    status = dict(
        line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line
    )
    assert status["NoNewPrivs"] == "1"
    assert "Max core file size        0                    0" in (proc / "limits").read_text()
    if os.geteuid() == 0:
        assert status["Uid"].split() == ["64337"] * 4 and status["Gid"].split() == ["64337"] * 4
        assert CLAUDE.encode() not in (proc / "environ").read_bytes()
    # A process of the broker's own user may not look into it: it is not dumpable.
    program = f"""
import os, sys
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(64337); os.setuid(64337)
for name in ("environ", "mem", "maps"):
    try:
        open(f"/proc/{keyed.process}/{{name}}", "rb").read(1)
    except PermissionError:
        continue
    sys.exit(f"{{name}} can be read")
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_broker_ends_with_whoever_started_it() -> None:
    program = """
import sys, time
from agents.line import open_line
with open_line(None, {"OPENAI_API_KEY": "a-key-of-the-test"}) as line:
    print(line.process, flush=True)
    time.sleep(60)
"""
    maker = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)
    with maker:
        assert maker.stdout is not None
        broker = int(maker.stdout.readline())
        watched = os.pidfd_open(broker)
        maker.send_signal(signal.SIGKILL)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    ended = poll.poll(20_000)
    os.close(watched)
    assert ended


def test_keys_are_gone_from_our_environment_and_from_what_the_kernel_shows_of_it() -> None:
    program = """
import os, subprocess, sys
from pathlib import Path
from agents.line import take_from_environment
taken = take_from_environment()
assert taken == {"OPENAI_API_KEY": "a-key-of-the-test", "OPENAI_BASE_URL": "http://x/v1"}, taken
assert "OPENAI_API_KEY" not in os.environ and "ANTHROPIC_API_KEY" not in os.environ
assert b"a-key-of-the-test" not in Path("/proc/self/environ").read_bytes()
child = subprocess.run(["env"], capture_output=True, text=True).stdout
assert "a-key-of-the-test" not in child and "KEEP=this" in child
assert b"KEEP=this" in Path("/proc/self/environ").read_bytes()
"""
    environment = {
        "OPENAI_API_KEY": "a-key-of-the-test",
        "OPENAI_BASE_URL": "http://x/v1",
        "ANTHROPIC_API_KEY": "",
        "KEEP": "this",
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0


def test_a_keys_file_is_read_if_its_owner_alone_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# mine\nexport ANTHROPIC_API_KEY='{CLAUDE}'\n\nOPENAI_API_KEY={GPT}\n")
    file.chmod(0o640)
    with pytest.raises(NoLine, match=r"owner alone.*mode 640.*chmod 600"), open_line(file):
        pass
    file.chmod(0o600)
    with open_line(file) as line:
        assert set(line.keys) == {"anthropic", "openai"}
        assert line.keys["openai"].startswith("…g0Jj (sha256 ")
    keys = read_keys(file, {"OPENAI_API_KEY": "another-of-the-environment"})
    assert keys["openai"].secret == GPT


@pytest.mark.parametrize(
    "text", [f"ANTHROPIC_API_KEY {CLAUDE}", f"MY_KEY={CLAUDE}", "OPENAI_API_KEY=short-one"]
)
def test_a_keys_file_that_cannot_be_used_is_refused_without_quoting_it(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(text + "\n")
    file.chmod(0o600)
    with pytest.raises(NoLine) as refusal, open_line(file):
        pass
    assert CLAUDE not in str(refusal.value) and "short-one" not in str(refusal.value)


# Redaction


def written(secret: str) -> dict[str, str]:
    """The secret as six programs would write it, each by its own means."""
    return {
        "plain": secret,
        "reversed": "".join(reversed(secret)),
        "base64": base64.b64encode(f"x{secret}yz".encode()).decode(),
        "base64 for URLs": base64.urlsafe_b64encode(f"xy{secret}".encode()).decode(),
        "hexadecimal": f"{secret}".encode().hex().upper(),
        "percent": "".join(f"%{byte:02X}" for byte in secret.encode()),
        "utf-16": secret.encode("utf-16-le").decode("latin-1"),
    }


@pytest.mark.parametrize("secret", [CLAUDE, GPT])
@pytest.mark.parametrize("encoding", written(GPT))
def test_a_known_key_is_redacted_in_every_encoding_wherever_it_stands(
    secret: str, encoding: str
) -> None:
    text = written(secret)[encoding]
    for before, after in (("", ""), ("a ä 😀 ", " and\nmore"), ("x" * 500, "y" * 500)):
        found = redact(before + text + after, MARKS)
        assert REDACTED in found
        assert not any(spelling.decode("latin-1") in found for spelling in spellings(secret))
        if encoding == "plain":
            assert found == f"{before}{REDACTED}{after}"


def test_base64_is_found_at_each_of_the_three_alignments() -> None:
    for before in ("", "a", "ab", "abc"):
        for after in ("", "a", "ab"):
            data = base64.b64encode(f"{before}{GPT}{after}".encode()).decode()
            assert GPT.encode() in base64.b64decode(data)
            assert REDACTED in redact(data, MARKS), (before, after)


def test_innocent_text_is_left_as_it_is() -> None:
    text = "The recipe's LEARNING_RATE = 3e-3; see https://example.org/a?b=c, task-sk-learn, ß 😀"
    assert redact(text, MARKS) == text
    assert redact("", MARKS) == ""
    assert redact(GPT[:-1], MARKS) == GPT[:-1]
    assert quote(GPT) == GPT  # so that what URLs escape of a key is nothing


@pytest.mark.parametrize(
    "text",
    [
        "sk-proj-4f5g6h7j8k9l0q1w2e3r",
        "Authorization: Bearer abcdef0123456789",
        "headers = {'x-api-key': 'abcdefgh12345678'}",
        "https://user:hunter2secret@host/path",
        "hf_abcdefghijklmnopqrstuvwx",
        "ghp_abcdefghijklmnopqrstuvwx0123",
        "AKIAABCDEFGHIJKLMNOP",
    ],
)
def test_what_looks_like_a_key_is_redacted_though_nobody_knows_it(text: str) -> None:
    found = redact(text, NO_MARKS)
    assert REDACTED in found
    assert not any(word in found for word in ("0q1w2e", "0123456789", "12345678", "hunter2"))


def test_json_is_redacted_in_keys_and_values() -> None:
    found = redacted({"a": [GPT, 1, None, {GPT: True}]}, MARKS)
    assert found == {"a": [REDACTED, 1, None, {REDACTED: True}]}


def test_logs_are_redacted_in_message_arguments_and_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Prefect's own handler, where some other test imported it, warns of a log without a flow run.
    monkeypatch.setattr(logging.getLogger("prefect.flow_runs"), "handlers", [])
    logger = logging.getLogger("prefect.flow_runs.of_a_test")
    with redacted_logs(MARKS), caplog.at_level("INFO"):
        logger.info("key %s, %d, %s", GPT, 3, {"key": CLAUDE})
        logger.info("key %(key)s", {"key": GPT})
        logger.info(f"plainly {CLAUDE}")
        try:
            raise ValueError(f"bad header {GPT}")
        except ValueError:
            logger.exception("failed", stack_info=True)
    text = caplog.text
    assert GPT not in text and CLAUDE not in text
    assert text.count(REDACTED) >= 5 and ", 3, " in text and "Traceback" in text


def test_a_server_that_sends_a_key_back_cannot_get_it_past_the_broker(keyed: Line) -> None:
    echoed = {
        "anthropic": refused(
            401, f"bad key {CLAUDE}, {base64.b64encode(CLAUDE.encode()).decode()}"
        ),
        "openai": Answer(text=f"Your key is {GPT}. {GPT[::-1]}"),
    }
    for provider, answer in echoed.items():
        book = Book()
        with ProviderServer(lambda asked, answer=answer: answer) as server:
            try:
                text = said(talk(keyed, server, provider, book).converse(), ask()).message.text
            except ProviderFailure as failure:
                text = str(failure)
        if provider == "anthropic":
            assert "***" in text
        for secret in (CLAUDE, GPT):
            for spelling in spellings(secret):
                assert spelling.decode("latin-1") not in text
                assert spelling.decode("latin-1") not in book.exchanges[0].text()


def test_a_mask_keeps_the_length_of_a_stream_however_it_is_cut() -> None:
    key = read_keys(None, {"OPENAI_API_KEY": GPT})["openai"]
    stream = f"data: {GPT}\n\ndata: {GPT[:10]} {GPT.encode().hex()}\n\n".encode()
    for size in (1, 3, 7, len(stream)):
        mask = Mask([key])
        parts = [mask.feed(stream[at : at + size]) for at in range(0, len(stream), size)]
        out = b"".join([*parts, mask.rest()])
        assert len(out) == len(stream)
        assert GPT.encode() not in out and GPT.encode().hex().encode() not in out
        assert f"data: {GPT[:10]} ".encode() in out  # the beginning of a key is none


def test_an_exchange_is_journalled_without_keys() -> None:
    request = ask(f"I found {GPT} and {CLAUDE.encode().hex()}")
    failure = ProviderFailure(f"bad key {GPT}", permanent=True)
    kept = exchange("openai:m", request, failure, MARKS).text()
    for spelling in [*spellings(GPT), *spellings(CLAUDE)]:
        assert spelling.decode("latin-1") not in kept
    parts = json.loads(kept)["request"]["messages"][0]["parts"]
    assert parts[0]["text"] == f"I found {REDACTED} and {REDACTED}"


def test_a_planted_secret_is_found_in_each_encoding(tmp_path: Path) -> None:
    for encoding, needles in encodings(GPT).items():
        folder = tmp_path / encoding
        folder.mkdir()
        (folder / "file").write_bytes(b"before " + needles[0] + b" after")
        assert places_of(GPT, folder) == [f"file: {encoding}"]
        assert places_of(CLAUDE, folder) == []
