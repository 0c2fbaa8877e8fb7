"""Integrity events: their closed list, what a round is worth with and without them, their rates."""

from typing import Any, get_args

import pytest

from policies.integrity import (
    MEANING,
    NOTED,
    EventKind,
    flagged_effect,
    is_flagged,
    rates,
)
from policies.ladder import for_readers
from policies.render import campaign_json, report_markdown
from policies.report import RoundReport, SetScore, SlotResult
from tests.policies import cases


def slots(*changes: dict[str, Any]) -> list[SlotResult]:
    rows = [cases.slot(number, **change) for number, change in enumerate(changes)]
    return [SlotResult.model_validate(row) for row in rows]


def value(score: SetScore | None) -> float | None:
    return score.value if score else None


FLAGGED = {"axis": "rate", "outcome": "tampered", "dev": None, "integrity": ["foreign_adapter"]}


def test_every_kind_has_one_sentence() -> None:
    assert set(MEANING) == set(get_args(EventKind)) and set(MEANING) > NOTED
    assert all(text.endswith(".") and text.count(". ") == 0 for text in MEANING.values())


def test_a_lost_keeper_alone_flags_nothing_since_the_machine_can_do_that_too() -> None:
    assert not is_flagged([]) and not is_flagged(["keeper_lost"])
    assert is_flagged(["keeper_lost", "seed_ignored"])


def test_the_effect_with_and_without_a_flagged_trial() -> None:
    # Standing mean 0.5. Without: +0.1 and -0.04, mean 0.03. With +0.4: mean 0.46 / 3, best 0.4.
    found = flagged_effect(
        slots(
            {},
            {"axis": "rate", "dev": cases.score(0.6)},
            {"axis": "rank", "dev": cases.score(0.46)},
            {**FLAGGED, "discarded": cases.score(0.9)},
            {**FLAGGED, "discarded": None},
        ),
        mean=0.5,
        sign=1,
        counted=value,
    )
    assert found is not None and found.trials == 2
    assert found.effect == pytest.approx(0.03) and found.best == pytest.approx(0.1)
    assert found.effect_with == pytest.approx(0.46 / 3) and found.best_with == pytest.approx(0.4)


def test_where_less_is_better_the_lower_score_is_the_better_effect() -> None:
    found = flagged_effect(
        slots({}, {"axis": "a", "dev": cases.score(0.4)}, {**FLAGGED, "dev": None}),
        mean=0.5,
        sign=-1,
        counted=value,
    )
    assert found is not None and found.effect == pytest.approx(0.1)
    assert found.effect_with == found.effect, "nothing of it was measured"


def test_a_round_without_flags_says_nothing() -> None:
    assert flagged_effect(slots({}, {"axis": "a"}), mean=0.5, sign=1, counted=value) is None


def flagged_report() -> RoundReport:
    flagged = {"trials": 1, "effect": 0.03, "effect_with": 0.15, "best": 0.1, "best_with": 0.4}
    rows = [cases.slot(0), cases.slot(1, "rate"), cases.slot(2, **FLAGGED)]
    rows[2] |= {"kind": "explore", "discarded": cases.score(0.9)}
    report = cases.report(1, rows, flagged=flagged)
    event = {"slot": 2, "attempt": 1, "kind": "foreign_adapter", "worker": "sampler"}
    account = report.account.model_dump() | {"integrity": [event | {"detail": "of *r1/s1*"}]}
    return RoundReport.model_validate(report.data() | {"account": account})


def test_a_report_names_events_rates_and_both_effects() -> None:
    text = report_markdown(flagged_report())
    section = text.split("## Integrity\n\n")[1].split("\n\n## ")[0]
    assert section == (
        "- slot 2, attempt 1, `sampler`: foreign\\_adapter: of \\*r1/s1\\*\n\n"
        "Flagged trials: 1 of 3 (`controller` 0 of 1, `sampler` 1 of 2).\n"
        "Mean effect on dev +0.0300 without flagged trials, +0.1500 with them; the best +0.1000 "
        "without, +0.4000 with."
    )


def test_rates_are_by_kind_of_worker_over_the_rounds() -> None:
    assert rates([flagged_report()] * 3) == [("controller", 0, 3), ("sampler", 3, 6)]


def test_who_searches_never_reads_a_discarded_score() -> None:
    (shown,) = for_readers([flagged_report()], "maximise")
    assert shown.results.flagged is None
    assert [slot.discarded for slot in shown.results.slots] == [None] * 3
    assert shown.results.slots[2].integrity == ["foreign_adapter"]


def test_programs_read_the_events_in_the_reports_json() -> None:
    (round_,) = campaign_json(_campaign(), [flagged_report()])["rounds"]
    assert round_["account"]["integrity"][0]["kind"] == "foreign_adapter"


def _campaign() -> Any:
    from policies.tables import Campaign

    digests = dict.fromkeys(("substrate_sha256", "judge_sha256", "constitution_sha256"), "1" * 64)
    return Campaign(
        id="c", name="c", plan="{}", seed=1, substrate_name="s", recipe="r", worker="w", **digests
    )
