"""Differences of two arms, against numbers worked out by hand."""

import pytest

from policies.comparison import compare


def by_seed(*values: float, first: int = 0) -> dict[tuple[int, ...], float]:
    return {(seed,): value for seed, value in enumerate(values, start=first)}


def test_values_of_the_same_seeds_are_compared_within_their_seeds() -> None:
    # Differences 0.1, 0.2, 0.3: mean 0.2, standard error 0.1 / sqrt(3) = 0.057735; t(2) = 4.302653.
    found = compare(by_seed(0.6, 0.8, 1.0), by_seed(0.5, 0.6, 0.7))
    assert found.way == "paired" and found.n == (3, 3)
    assert found.difference == pytest.approx(0.2)
    assert found.low == pytest.approx(0.2 - 4.302653 * 0.057735, abs=1e-5)
    assert found.high == pytest.approx(0.2 + 4.302653 * 0.057735, abs=1e-5)
    assert not found.is_resolved


def test_values_of_other_seeds_are_compared_by_welch() -> None:
    # Variances 1 (n 3) and 4 (n 3): error sqrt(1/3 + 4/3) = 1.290994; degrees
    # (5/3)^2 / ((1/9 + 16/9) / 2) = 2.941176; t there is 3.218...: width 4.155.
    found = compare(by_seed(1, 2, 3), by_seed(10, 12, 14, first=7))
    assert found.way == "unpaired" and found.difference == -10
    assert found.high == pytest.approx(-10 + 3.2187 * 1.290994, abs=0.01)
    assert found.is_resolved


def test_one_value_a_side_gives_a_difference_without_an_interval() -> None:
    found = compare(by_seed(0.5), by_seed(0.4))
    assert found.difference == pytest.approx(0.1)
    assert (found.low, found.high, found.way, found.is_resolved) == (None, None, "none", False)


def test_an_arm_without_values_has_no_difference() -> None:
    found = compare({}, by_seed(0.4, 0.5))
    assert found.means == (None, pytest.approx(0.45)) and found.difference is None


def test_values_without_spread_have_an_interval_of_no_width() -> None:
    found = compare(by_seed(1, 1), by_seed(2, 2, first=5))
    assert (found.low, found.high) == (-1, -1) and found.is_resolved
