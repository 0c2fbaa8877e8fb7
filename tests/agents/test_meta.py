"""The meta-agent: what code fills in, what it is told of a draft, and what it must not tell."""

import asyncio
import json
from typing import Any

import pytest

from agents.meta import Material, completed, propose, told_to_workers
from agents.tried import everything_tried, tried_table
from policies.draft import Violation
from policies.ladder import for_readers
from policies.policy import Claim, Promotion, SearchPolicy, StandingRecipe
from policies.report import Confirmation, RoundReport
from policies.rows import Rows
from policies.ruling import Ruling
from tests.agents.rounds import Row, choice_axis, play, policy_of, rate_axis, setting
from tests.agents.scripted import context_of, says, script

POLICY = policy_of(rate_axis("rate"), choice_axis("kind", "a", "b"))


def report(number: int = 1, **changes: Any) -> RoundReport:
    """A round: the rate raised twice by one and the same edit, and a kind that failed."""
    edit = setting("RATE", 0.1)
    rows = {
        0: Row(external=0.5123),
        1: Row(effect=0.12, edit=edit, external=0.5314),
        2: Row(effect=None, outcome="crashed", edit=setting("KIND", "b")),
    }
    found = play(POLICY, rows, number=number).report
    slots = [
        slot.model_copy(update={"diff_sha256": f"{slot.slot}" * 64}) if slot.axis else slot
        for slot in found.results.slots
    ]
    results = found.results.model_copy(update={"slots": slots, **changes})
    return found.model_copy(update={"results": results})


def material(*reports: RoundReport) -> Material:
    shown = for_readers(reports, "maximise")
    return Material(POLICY, shown, Rows(reports), width=4, looks=4)


def draft(**changes: Any) -> dict[str, Any]:
    return {**POLICY.data(), "version": 2, "parent": POLICY.digest(), **changes}


def test_everything_tried_has_one_row_for_each_diff_with_its_mean_effect_and_outcomes() -> None:
    tried = everything_tried(for_readers([report(1), report(2)], "maximise"))
    assert [(item.axis, item.rows) for item in tried[:2]] == [
        ("rate", ("r1/s1", "r2/s1")),
        ("kind", ("r1/s2", "r2/s2")),
    ]
    rate, kind = tried[0], tried[1]
    effects = [v.effect for r in (report(1), report(2)) for v in r.results.verdicts if v.slot == 1]
    assert rate.effect == pytest.approx(sum(e for e in effects if e is not None) / 2)
    assert rate.outcomes == "2 evaluated" and rate.diff == "1" * 12
    assert (kind.effect, kind.verdict, kind.outcomes) == (None, "unscored", "2 crashed")
    table = tried_table(tried)
    assert "RATE = 0.1 in recipes/r.py | r1/s1 r2/s1 | +0.1" in table and "0.53" not in table


def test_code_fills_in_findings_window_and_the_noise_on_external() -> None:
    found = report()
    noise = found.results.noise.model_copy(update={"external_sigma": 0.0345})
    rows = Rows([report(noise=noise)])
    claim = Claim(id="c", text="It helps.", rows=["r1/s1/dev/overall"])
    claims = [claim.model_dump(exclude={"findings"})]
    filled = json.loads(completed(json.dumps(draft(claims=claims)).encode(), POLICY, rows))
    assert filled["noise"]["external_sigma"] == 0.0345
    assert filled["window"] == rows.window().model_dump(mode="json")  # type: ignore[union-attr]
    assert filled["claims"][0]["findings"][0]["what"] == "score"


def test_an_effect_that_a_draft_may_not_know_is_filled_in_from_its_rows() -> None:
    edit = setting("RATE", 0.1)
    confirmed = Confirmation(
        axis="rate",
        edit=edit,
        runs=2,
        effect=None,
        bar=None,
        external_runs=2,
        external_effect=0.0678,
        external_bar=0.01,
        level=0.01,
        is_confirmed=True,
        rows=["r1/s1"],
    )
    promotion = Promotion(axis="rate", edit=edit, effect=0.0, rows=["r1/s1"])
    recipe = StandingRecipe(overrides=edit.overrides, provenance=[promotion]).model_dump()
    recipe["provenance"][0]["effect"] = None
    rows = Rows([report(confirmations=[confirmed])])
    filled = json.loads(completed(json.dumps(draft(standing_recipe=recipe)).encode(), POLICY, rows))
    assert filled["standing_recipe"]["provenance"][0]["effect"] == 0.0678


@pytest.mark.parametrize("reply", [b"", b"[]", b'{"version": 2}', b'{"standing_recipe": 3}'])
def test_what_is_no_policy_is_left_as_it_was(reply: bytes) -> None:
    assert completed(reply, POLICY, Rows([report()])) == reply


def test_numbers_that_may_be_external_ones_are_struck_out_of_what_a_draft_is_told() -> None:
    broken = (
        Violation("C9", "claims[0].findings[0]: 0.5314", '`r1/s1/external` holds {"score": 5e-05}'),
        Violation("C11", "trust", "dev +0.0456, external -0.0789"),
        Violation("C8", "budget.looks: 99", "the campaign allows 4 looks a round"),
    )

    async def hear(_reply: bytes) -> Ruling:
        return Ruling("0" * 64, None, broken, None)

    model = script(says("{}"))
    asyncio.run(propose(model, material(report()), hear))
    told = model.asked[1].messages[-1].text
    assert all(clause in told for clause in ("C9", "C11", "C8", "budget.looks: 99", "4 looks"))
    for number in ("0.5314", "5e-05", "0.0456", "0.0789"):
        assert number not in told
    assert "0.0191" not in context_of(model.asked[0])  # what slot 1 gained on external


@pytest.mark.parametrize(
    ("hypothesis", "is_told"),
    [
        ("A higher rate reached 0.5314 on external.", True),
        ("A higher rate scored 0.53.", True),
        ("See r1/s1.", True),
        ("A higher rate learns faster; 0.53 is a value to try.", False),
        ("A higher rate raises the score.", False),
    ],
)
def test_what_workers_read_names_no_trial_and_no_external_score(
    hypothesis: str, is_told: bool
) -> None:
    axis = POLICY.axes[0].model_copy(update={"hypothesis": hypothesis})
    policy = SearchPolicy.model_validate(
        draft(axes=[axis.model_dump(), *POLICY.data()["axes"][1:]])
    )
    found = told_to_workers(policy, material(report()))
    assert [violation.clause for violation in found] == (["C13"] if is_told else [])
    assert all(violation.quote == "axes[0].hypothesis" for violation in found)
