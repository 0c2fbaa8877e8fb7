"""The collector's words: every number in them is code's, or they are not used."""

import asyncio
import json

import pytest

from agents.messages import ProviderFailure
from agents.narrator import narrate, unfounded
from agents.numbers import numbers_in
from policies.ladder import for_readers
from policies.report import RoundReport, SlotAccount
from tests.agents.rounds import Row, choice_axis, play, policy_of, rate_axis, setting
from tests.agents.scripted import Line, reply, says, script


def shown(notes: str = "") -> RoundReport:
    """A round of four: dev 0.5 in the anchor, 0.62 and 0.48 with two edits; external 0.5123."""
    rows = {
        0: Row(external=0.5123),
        1: Row(effect=0.12, edit=setting("RATE", 0.1), external=0.5314),
        2: Row(effect=-0.02, edit=setting("KIND", "b")),
    }
    played = play(policy_of(rate_axis("rate"), choice_axis("kind", "a", "b")), rows)
    account = SlotAccount(
        slot=1,
        attempts=1,
        reason="",
        notes=notes,
        seconds={},
        cpu_seconds=0,
        peak_memory_mb=0,
        rollouts=0,
        tokens=0,
    )
    (report,) = for_readers([played.report], "maximise")
    return report.model_copy(
        update={"account": report.account.model_copy(update={"slots": [account]})}
    )


@pytest.mark.parametrize(
    "text",
    [
        "Nothing was settled.",
        "r1/s1 scored 0.6200 on dev, that is 62 %, in round 1.",
        "The rate of 0.1 changed dev by +0.12 (r1/s1), the other kind by \u22120.0200.",
        "Worse by 0.02 in one trial.",
        "recipes/r.py and RATE were changed; the anchor r1/s0 scored 0.50.",
    ],
)
def test_a_narrative_whose_numbers_are_in_the_rows_is_founded(text: str) -> None:
    assert unfounded(text, shown()) == ""


@pytest.mark.parametrize(
    "text",
    [
        "It scored 0.6300.",
        "It scored 63 %.",
        "It scored ６３％.",  # noqa: RUF001 - what is tested
        "It scored ٠.٩٩.",  # noqa: RUF001 - what is tested
        "Dev rose by a quarter.",
        "Dev rose by ¼.",
        "It doubled: seventeen of them.",
        "Dev rose by -0.12.",
        "External is 0.5314.",
        "External rose by 0.0191.",
        "RATE0.93 is best.",
        "It takes 1e-9.",
        "It scored .63.",
        "See r1/s9.",
        "See r7/s1.",
        "Chance Ⅸ of ⅓.",
    ],
)
def test_a_number_or_a_row_that_is_not_there_is_found(text: str) -> None:
    assert unfounded(text, shown()) != ""


def test_numbers_are_read_however_they_are_written() -> None:
    found = [
        (number.value, number.sign)
        for number in numbers_in(
            "+0.5, \u22122 and 1,234.5 or 46 per cent of ٣, 0.1\u20130.3; twenty"
        )
    ]
    assert found == [
        (0.5, 1), (-2.0, -1), (1234.5, 0), (0.46, 0), (3.0, 0), (0.1, 0), (0.3, 0), (20.0, 0)
    ]  # fmt: skip


def answer(text: str) -> str:
    return json.dumps({"narrative": text})


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (says(answer("It scored 0.99.")), "0.99"),
        (says("It went well."), "Invalid JSON"),
        (says(answer("ok") + answer("ok")), "Invalid JSON"),
        (says(answer("")), "at least 1 character"),
        (says(answer("x" * 6001)), "at most 6000"),
        (says(json.dumps({"narrative": "ok", "policy": {}})), "Extra inputs"),
        (says(json.dumps({"narrative": ["ok"]})), "valid string"),
        (says(answer("cut off"), "length"), "length"),
        (says("No.", "refusal"), "refusal"),
        (reply([], "end"), "Invalid JSON"),
        (ProviderFailure("529 for 15 minutes", permanent=False), "529 for 15 minutes"),
    ],
)
def test_an_answer_that_does_not_hold_is_not_used_and_says_why(line: Line, fault: str) -> None:
    came = asyncio.run(narrate(script(line), shown()))
    assert came.text is None and fault in came.fault and len(came.prompt) == 64


def test_a_good_answer_is_used_and_the_model_was_asked_once_without_what_it_may_not_know() -> None:
    model = script(says(f"```json\n{answer('r1/s1 gained +0.12.')}\n```"))
    came = asyncio.run(narrate(model, shown(notes="My external score is 0.9999.")))
    assert (came.text, came.fault) == ("r1/s1 gained +0.12.", "")
    (asked,) = model.asked
    told = asked.messages[0].text
    assert "0.5314" not in told and '"round":1' in told and asked.tools == ()
    assert unfounded("It scored 0.9999.", shown(notes="It scored 0.9999.")) != ""


def test_a_provider_that_no_try_will_help_stops_the_campaign() -> None:
    with pytest.raises(ProviderFailure):
        asyncio.run(narrate(script(ProviderFailure("401", permanent=True)), shown()))
