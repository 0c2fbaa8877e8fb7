"""The ladder, against numbers worked out by hand and against whoever reads it to climb."""

import math
import random

import pytest

from policies.ladder import climb, for_readers, policy_for_readers
from policies.policy import Claim, Finding, NoiseModel
from policies.report import Confirmation, SetScore
from tests.agents.rounds import Row, choice_axis, play, policy_of, rate_axis, setting
from tests.policies.test_evidence import OTHER_METRIC, score


def external(value: float, n: int = 100) -> SetScore:
    return score(value, n=n)


def test_a_score_is_told_only_where_it_beats_the_best_by_a_step() -> None:
    # 100 problems: a step of 0.1. 0.5 is told; 0.55 is within a step of it; 0.61 is above.
    shown = climb([external(v) for v in (0.5, 0.55, 0.3, 0.61, 0.62)], "maximise")
    assert shown == pytest.approx([0.5, 0.5, 0.5, 0.6, 0.6])


def test_less_is_better_where_the_direction_says_so() -> None:
    shown = climb([external(v) for v in (0.5, 0.9, 0.45, 0.36)], "minimise")
    assert shown == pytest.approx([0.5, 0.5, 0.5, 0.4])  # 3.6 steps round to 4


def test_what_is_missing_stays_missing_and_another_metric_has_a_ladder_of_its_own() -> None:
    other = external(0.2).model_copy(update={"metric_version": OTHER_METRIC})
    shown = climb([None, external(0.5), external(math.nan), other, external(0.52)], "maximise")
    assert shown[0] is shown[2] is None
    assert [shown[1], shown[3], shown[4]] == pytest.approx([0.5, 0.2, 0.5])


def test_a_reader_who_votes_by_what_beat_the_best_learns_next_to_nothing() -> None:
    """The attack of Blum and Hardt: guess labels at random, keep the guesses that score well."""

    def learnt(*, with_ladder: bool) -> float:
        dice, n = random.Random(0), 400
        labels = [dice.choice((-1, 1)) for _ in range(n)]
        guesses = [[dice.choice((-1, 1)) for _ in range(n)] for _ in range(300)]
        scores = [
            sum(g == label for g, label in zip(guess, labels, strict=True)) / n for guess in guesses
        ]
        told: list[float | None] = list(scores)
        if with_ladder:
            told = climb([external(value, n) for value in scores], "maximise")
        kept = [g for g, seen in zip(guesses, told, strict=True) if seen is not None and seen > 0.5]
        votes = [sum(column) for column in zip(*kept, strict=True)] if kept else [0] * n
        right = [(vote > 0) == (label > 0) for vote, label in zip(votes, labels, strict=True)]
        return sum(right) / n

    assert learnt(with_ladder=False) > 0.65
    assert learnt(with_ladder=True) < 0.56


def test_readers_see_reports_without_the_external_scores_and_what_would_give_them_away() -> None:
    rows = {
        0: Row(external=0.5123),
        1: Row(effect=0.1, edit=setting("RATE", 0.1), external=0.5314),
        2: Row(effect=-0.1, edit=setting("KIND", "b")),
    }
    played = play(policy_of(rate_axis("rate"), choice_axis("kind", "a", "b")), rows)
    (shown,) = for_readers([played.report], "maximise")
    text = shown.model_dump_json()
    assert "0.5123" not in text and "0.5314" not in text and "0.0191" not in text
    # 400 problems: a step of 0.05; 0.5123 rounds to ten of them, 0.5314 is within one of it.
    values = [slot.external.value for slot in shown.results.slots if slot.external]
    assert values == pytest.approx([0.5, 0.5])
    assert shown.results.verdicts[0].effect == played.report.results.verdicts[0].effect
    assert played.report.results.spread.external == 0.5123


def test_readers_see_neither_what_replicates_did_on_external_nor_what_a_claim_found_there() -> None:
    policy = policy_of(rate_axis("rate"), choice_axis("kind", "a", "b"))
    confirmed = Confirmation(
        axis="rate",
        edit=setting("RATE", 0.1),
        runs=2,
        effect=0.0125,
        bar=0.01,
        external_runs=2,
        external_effect=0.0678,
        external_bar=0.0345,
        level=0.01,
        is_confirmed=True,
        rows=["r1/s1"],
    )
    report = play(policy, {0: Row(), 1: Row(edit=setting("RATE", 0.1))}).report
    results = report.results.model_copy(update={"confirmations": [confirmed]})
    (shown,) = for_readers([report.model_copy(update={"results": results})], "maximise")
    text = shown.model_dump_json()
    assert "0.0678" not in text and "0.0345" not in text
    assert shown.results.confirmations[0].effect == 0.0125

    found = Finding(row="r1/s1/external", what="score", value=0.5678)
    claim = Claim(id="c", text="It helps.", rows=["r1/s1/external"], findings=[found])
    believed = policy.model_copy(
        update={"claims": [claim], "noise": NoiseModel(sigma=0.01, external_sigma=0.0456)}
    )
    told = str(policy_for_readers(believed))
    assert "0.5678" not in told and "0.0456" not in told
    assert "It helps." in told and "0.01" in told
