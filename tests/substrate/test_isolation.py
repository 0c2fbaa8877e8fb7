"""The level of isolation that a machine has: found by trying, hidden by a variable, or refused."""

import pytest

from substrate.isolation import HIDDEN, NoWalls, best_level, how_to_raise, level_for, why_not


def test_the_highest_level_that_stands_is_taken() -> None:
    if why_not("bubblewrap") is None:
        assert best_level() == level_for("best") == "bubblewrap"
    elif why_not("landlock") is None:
        assert best_level() == "landlock"
    else:
        pytest.skip(f"wanted walls here: {why_not('bubblewrap')}; {why_not('landlock')}")


def test_without_bubblewrap_landlock_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    if (reason := why_not("landlock")) is not None:
        pytest.skip(f"wanted Landlock here: {reason}")
    monkeypatch.setenv(HIDDEN, "bubblewrap")
    assert best_level() == "landlock"
    assert why_not("bubblewrap") == f"hidden by {HIDDEN}"


def test_without_any_level_it_is_refused_with_every_reason_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(HIDDEN, "bubblewrap, landlock")
    with pytest.raises(NoWalls) as refused:
        level_for("best")
    said = str(refused.value)
    assert f"bubblewrap: hidden by {HIDDEN}; landlock: hidden by {HIDDEN}" in said
    assert how_to_raise("bubblewrap") in said and how_to_raise("landlock") in said
    assert said.endswith("--isolation none")


def test_none_is_taken_where_it_is_asked_for_whatever_the_machine_has() -> None:
    assert level_for("none") == "none"
