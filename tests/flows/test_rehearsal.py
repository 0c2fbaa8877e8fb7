"""The doctor talks to a model as a run does, and says what failed first."""

import json
import os
from pathlib import Path

import pytest

from flows.doctor import Finding
from flows.rehearsal import rehearse
from tests.agents.provider_server import Answer, Asked, Call, ProviderServer, refused
from tests.flows.commands import seedbed


def able(asked: Asked) -> Answer:
    if asked.body.get("tools"):
        return Answer(tools=(Call("look", {"path": "notes.txt"}),))
    return Answer(text='{"lines": 3}')


def findings(
    answer: object, monkeypatch: pytest.MonkeyPatch, home: Path, spec: str = "anthropic:m"
) -> list[Finding]:
    monkeypatch.setenv("SEEDBED_HOME", str(home))
    monkeypatch.setenv("SEEDBED_KEYS", str(home / "no-keys"))
    with ProviderServer(answer) as server:  # pyright: ignore[reportArgumentType]
        return rehearse(spec, server.base_url("anthropic" if "anthropic" in spec else "openai"))


@pytest.mark.parametrize("spec", ["anthropic:m", "openai:m"])
def test_a_model_that_uses_tools_and_keeps_to_schemas_passes(
    spec: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = findings(able, monkeypatch, tmp_path, spec)
    assert [finding.what for finding in found] == [
        "keys",
        "price",
        f"{spec}, a tool",
        f"{spec}, a schema",
    ]
    assert all(finding.ok for finding in found)
    assert "none is known" in found[1].found and found[3].found == "240 tokens"


@pytest.mark.parametrize(
    ("answer", "what", "words"),
    [
        (refused(401, "invalid x-api-key"), "a tool", "invalid x-api-key"),
        (refused(404, "no model m", kind="not_found_error"), "a tool", "no model m"),
        (Answer(text="I would rather not."), "a tool", "wanted a use of the tool, found none"),
        (Answer(text="", stop="length"), "a tool", "stopped for length"),
    ],
)
def test_what_fails_first_is_said(
    answer: Answer, what: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    *_, last = findings(lambda asked: answer, monkeypatch, tmp_path)
    assert not last.ok and last.what == f"anthropic:m, {what}" and words in last.found


def test_a_model_that_keeps_to_no_schema_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def answer(asked: Asked) -> Answer:
        return able(asked) if asked.body.get("tools") else Answer(text="It has three.")

    *_, last = findings(answer, monkeypatch, tmp_path)
    assert not last.ok and "found 'It has three.'" in last.found


def test_doctor_asks_the_model_that_it_is_given_and_exits_2_where_it_fails(tmp_path: Path) -> None:
    with ProviderServer(lambda asked: refused(401, "bad key")) as server:
        keys = {**os.environ, "OPENAI_API_KEY": "", "SEEDBED_KEYS": str(tmp_path / "no-keys")}
        arguments = ["doctor", "--worker", "openai:m", "--base-url", server.openai_url, "--json"]
        done = seedbed(tmp_path / "home", *arguments, environment=keys)
    assert done.returncode == 2
    last = json.loads(done.stdout)[-1]
    assert last["what"] == "openai:m, a tool" and "HTTP 401" in last["found"]
    assert len(server.asked) == 1
