"""The end's effect, against numbers worked out by hand."""

import pytest

from policies.final import effect


def test_the_interval_is_student_s_from_the_pooled_deviation() -> None:
    # Means 0.60 and 0.50; squares 0.0002 and 0.0002 over 4 degrees: sigma 0.01.
    # t of 4 degrees at 97.5 % is 2.7764; sqrt(1/3 + 1/3) is 0.81650: width 0.022669.
    found = effect([0.59, 0.60, 0.61], [0.49, 0.50, 0.51], direction="maximise", problems=100_000)
    assert found is not None
    assert (found.runs, found.means) == ((3, 3), (pytest.approx(0.6), pytest.approx(0.5)))
    assert found.effect == pytest.approx(0.1)
    assert found.low == pytest.approx(0.1 - 0.022669, abs=1e-6)
    assert found.high == pytest.approx(0.1 + 0.022669, abs=1e-6)
    assert found.is_confirmed


def test_where_less_is_better_a_lower_score_is_a_gain() -> None:
    found = effect([0.40, 0.41], [0.50, 0.51], direction="minimise", problems=1000)
    assert found is not None and found.effect == pytest.approx(0.1) and found.is_confirmed


def test_what_chance_can_do_is_not_confirmed() -> None:
    # Means 0.51 and 0.50; squares 0.0008 and 0.0008 over 4: sigma 0.02, width 0.0453 > 0.01.
    found = effect([0.49, 0.51, 0.53], [0.48, 0.50, 0.52], direction="maximise", problems=1000)
    assert found is not None and not found.is_confirmed


def test_equal_scores_are_known_no_better_than_to_their_rounding() -> None:
    # sigma is at least 1 / (10 * sqrt(12)) = 0.028868; t of 2 degrees 4.3027; sqrt(1) = 1.
    found = effect([0.6, 0.6], [0.5, 0.5], direction="maximise", problems=10)
    assert found is not None
    assert found.low == pytest.approx(0.1 - 4.3027 * 0.028868, abs=1e-5)


@pytest.mark.parametrize(("candidate", "base"), [([], [0.5, 0.5]), ([0.5], []), ([0.5], [0.4])])
def test_without_runs_or_without_spread_there_is_no_effect(
    candidate: list[float], base: list[float]
) -> None:
    assert effect(candidate, base, direction="maximise", problems=10) is None
