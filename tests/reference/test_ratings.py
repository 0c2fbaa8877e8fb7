"""Ratings, matchmaking and replacement against numbers worked out by hand or published."""

import math
import random
from collections import Counter

import pytest

from training.ratings import (
    Rating,
    after_draw,
    after_match,
    after_win,
    draw_matches,
    in_grace,
    inherited,
    lower_bound,
    match_weights,
    replacement,
    win_probability,
)


def close(found: Rating, mean: float, deviation: float) -> None:
    assert found.mean == pytest.approx(mean, abs=5e-4)
    assert found.deviation == pytest.approx(deviation, abs=5e-4)


def test_a_win_between_fresh_players_is_that_of_the_published_tables() -> None:
    winner, loser = after_win(Rating(), Rating())
    close(winner, 29.396, 7.1715)
    close(loser, 20.604, 7.1715)


def test_a_draw_between_fresh_players_narrows_both() -> None:
    for rating in after_draw(Rating(), Rating()):
        close(rating, 25, 6.4575)


def test_a_draw_pulls_players_together_whoever_is_named_first() -> None:
    stronger, weaker = after_draw(Rating(30, 6), Rating(22, 5))
    close(stronger, 26.9969, 4.7424)
    close(weaker, 24.0857, 4.2997)
    assert after_draw(Rating(22, 5), Rating(30, 6)) == (weaker, stronger)


def test_an_upset_moves_both_players_past_each_other() -> None:
    winner, loser = after_win(Rating(22, 5), Rating(30, 6))
    close(winner, 25.6812, 4.4565)
    close(loser, 24.6995, 5.0335)


def test_an_expected_win_moves_little() -> None:
    winner, loser = after_win(Rating(60, 1), Rating(10, 1))
    close(winner, 60, math.hypot(1, 25 / 300))
    close(loser, 10, math.hypot(1, 25 / 300))


@pytest.mark.parametrize("gap", [1e2, 1e3, 1e4])
def test_ratings_stay_finite_where_the_normal_distribution_is_zero(gap: float) -> None:
    for pair in (after_win(Rating(0, 1), Rating(gap, 1)), after_draw(Rating(0, 1), Rating(gap, 1))):
        assert all(math.isfinite(rating.mean) and rating.deviation > 0 for rating in pair)
        assert pair[0].mean > 0 and pair[1].mean < gap


def test_the_chance_to_win_is_that_of_the_gap_over_its_spread() -> None:
    assert win_probability(Rating(), Rating()) == 0.5
    # The spread is the root of 3^2 + 4^2 + 2 (25/6)^2: 7.728. A gap of one spread is one sigma.
    spread = math.sqrt(25 + 2 * (25 / 6) ** 2)
    stronger, weaker = Rating(25 + spread, 3), Rating(25, 4)
    assert win_probability(stronger, weaker) == pytest.approx(0.841345, abs=1e-6)
    assert win_probability(weaker, stronger) == pytest.approx(0.158655, abs=1e-6)
    hopeless = Rating(25 - 10 * spread, 4)  # ten sigmas: 7.62e-24 in the tables
    assert win_probability(hopeless, Rating(25, 3)) == pytest.approx(7.62e-24, rel=1e-3, abs=0)


def test_a_student_wins_by_solving_more_than_its_rating_forecast() -> None:
    teacher, student = Rating(27, 2), Rating(24, 3)
    expected = win_probability(student, teacher)
    beaten, winner = after_match(teacher, student, expected + 0.01, expected)
    assert (winner, beaten) == after_win(student, teacher)
    assert after_match(teacher, student, expected - 0.01, expected) == after_win(teacher, student)
    assert after_match(teacher, student, expected, expected) == after_draw(teacher, student)


def test_a_teacher_without_a_valid_task_loses() -> None:
    teacher, student = after_match(Rating(), Rating(), None, 0.5)
    assert (student, teacher) == after_win(Rating(), Rating())


def forecast_after(matches: int, solve_rate: float, threshold: float | None) -> float:
    """A student's forecast solve rate after matches of 64 attempts at this true solve rate."""
    dice = random.Random(7)
    teacher, student = Rating(), Rating()
    for _ in range(matches):
        solved = sum(dice.random() < solve_rate for _ in range(64)) / 64
        expected = win_probability(student, teacher) if threshold is None else threshold
        teacher, student = after_match(teacher, student, solved, expected)
    return win_probability(student, teacher)


@pytest.mark.parametrize("solve_rate", [0.2, 0.5, 0.8])
def test_a_rating_becomes_a_forecast_of_the_solve_rate(solve_rate: float) -> None:
    assert forecast_after(200, solve_rate, None) == pytest.approx(solve_rate, abs=0.1)


@pytest.mark.parametrize("solve_rate", [0.2, 0.8])
def test_with_a_fixed_threshold_a_pair_drifts_apart(solve_rate: float) -> None:
    assert forecast_after(200, solve_rate, 0.5) == pytest.approx(round(solve_rate), abs=0.02)


def test_even_matches_weigh_most() -> None:
    students = [Rating(25 + gap) for gap in (0, 5, 10, 15)]
    found = match_weights(Rating(), students)
    assert found == pytest.approx([0.25, 0.228, 0.174, 0.111], abs=5e-4)
    assert match_weights(Rating(), students, power=2) == pytest.approx([w**2 for w in found])
    assert match_weights(Rating(), students, power=0) == [1, 1, 1, 1]


def test_everyone_is_matched_before_anyone_is_matched_twice() -> None:
    dice = random.Random(0)
    for _ in range(50):
        assert sorted(draw_matches([Rating()] * 4, [Rating()] * 4, dice)) == [0, 1, 2, 3]
        counts = Counter(draw_matches([Rating()] * 5, [Rating()] * 2, dice))
        assert sorted(counts.values()) == [2, 3]
        assert len(set(draw_matches([Rating()] * 2, [Rating()] * 5, dice))) == 2


def test_matches_are_drawn_by_weight() -> None:
    dice = random.Random(0)
    # Deviations near 0: the spread is 25/6 sqrt(2) = 5.893. Gaps of 0 and 10: weights 0.25 and
    # 0.04483 * 0.95517 = 0.04282, so the first is drawn in 0.8538 of the draws.
    students = [Rating(25, 1e-6), Rating(35, 1e-6)]
    drawn = [draw_matches([Rating(25, 1e-6)], students, dice)[0] for _ in range(4000)]
    assert drawn.count(0) / 4000 == pytest.approx(0.8538, abs=0.02)


def test_a_hopeless_match_is_still_drawn() -> None:
    far = [Rating(1e6, 1)] * 2
    drawn = {draw_matches([Rating(0, 1)], far, random.Random(seed))[0] for seed in range(20)}
    assert drawn == {0, 1}


def test_no_teacher_always_takes_what_the_others_left() -> None:
    # Both teachers want student 0; the one that draws first gets it, mostly.
    students = [Rating(25, 1e-6), Rating(60, 1e-6)]
    dice = random.Random(0)
    got = Counter(draw_matches([Rating(25, 1e-6)] * 2, students, dice).index(0) for _ in range(400))
    assert got[0] == pytest.approx(200, abs=50)


def test_the_lowest_bounds_are_replaced_and_the_rest_are_parents() -> None:
    ratings = [Rating(30, 1), Rating(20, 1), Rating(40, 8), Rating(25, 2)]
    assert [lower_bound(rating) for rating in ratings] == [27, 17, 16, 19]
    found = replacement(ratings)
    assert found.culled == (2,)
    assert found.pool == (1, 3, 0)
    assert replacement(ratings, share=0.5).culled == (2, 1)


@pytest.mark.parametrize(
    ("members", "share", "culled"),
    [(4, 0.25, 1), (8, 0.25, 2), (2, 0.25, 1), (3, 0.9, 2), (3, 1.0, 2), (100, 0.29, 29)],
)
def test_as_many_are_replaced_as_the_share_says_but_one_at_least_stays(
    members: int, share: float, culled: int
) -> None:
    ratings = [Rating(number) for number in range(members)]
    found = replacement(ratings, share=share)
    assert found.culled == tuple(range(culled))
    assert found.pool == tuple(range(culled, members))


def test_a_lone_member_is_replaced_by_its_own_child() -> None:
    found = replacement([Rating()])
    assert found.culled == found.pool == (0,)
    assert replacement([Rating()], spared=[0]).culled == ()


def test_a_newcomer_is_spared_for_one_event_and_may_be_a_parent() -> None:
    # Member 1 was born at event 1: its bound is the lowest, because its deviation is wide.
    ratings = [Rating(30, 1), Rating(25, 3), Rating(24, 1), Rating(26, 1)]
    born = [0, 1, 0, 0]
    assert in_grace(born, 2) == {1} and in_grace(born, 3) == set()
    assert replacement(ratings, in_grace(born, 2)).culled == (2,)
    assert 1 in replacement(ratings, in_grace(born, 2)).pool
    assert replacement(ratings, in_grace(born, 3)).culled == (1,)


def test_without_grace_newcomers_churn_and_with_it_they_stay() -> None:
    """Members of equal skill: how often the same slot is replaced at two events in a row."""

    def repeats(grace: int) -> int:
        dice = random.Random(3)
        ratings, born, last, count = [Rating()] * 4, [0] * 4, -1, 0
        for event in range(1, 60):
            for _ in range(10):
                for number, rating in enumerate(ratings):
                    won = dice.random() < 0.5
                    veteran = Rating(25, 1)
                    pair = after_win(rating, veteran) if won else after_win(veteran, rating)
                    ratings[number] = pair[0] if won else pair[1]
            culled = replacement(ratings, in_grace(born, event, grace=grace)).culled[0]
            ratings[culled], born[culled] = Rating(), event
            count, last = count + (culled == last), culled
        return count

    assert repeats(grace=1) == 0
    assert repeats(grace=0) > 15  # a quarter of 58 by chance


def test_spared_members_are_never_replaced() -> None:
    ratings = [Rating(number) for number in range(4)]
    assert replacement(ratings, spared=[0, 1, 2, 3]).culled == ()
    assert replacement(ratings, spared=[0, 1, 2], share=0.5).culled == (3,)


def test_a_child_inherits_its_parents_mean_and_little_of_their_certainty() -> None:
    assert inherited([Rating(30, 1), Rating(20, 2)]) == Rating(25, 25 / 12)
    assert inherited([Rating(31, 6)]) == Rating(31, 6)
