"""The baseline and what must not beat it, against numbers worked out by hand."""

from typing import Any

import pytest

from policies.baseline import baseline, faults, margin, set_baseline
from policies.report import SetScore
from policies.tables import Calibration

SHA = "ab" * 32


def row(probe: Any, number: int, dev: float | None, outcome: Any = "evaluated") -> Calibration:
    score = SetScore(value=dev or 0, n=100, domains={}, metric="m", metric_version=SHA, engine="e")
    return Calibration(
        substrate_sha256=SHA,
        recipe="stub",
        rollouts=8,
        probe=probe,
        number=number,
        seed=number,
        outcome=outcome,
        reason="why",
        dev=None if dev is None else score.model_dump_json(),
        account="{}",
    )


# Mean 0.5; deviations -0.02, 0, 0.02: sum of squares 0.0008, over 2 degrees: sigma 0.02.
RUNS = [row("recipe", 1, 0.48), row("recipe", 2, 0.50), row("recipe", 3, 0.52)]


def test_mean_and_sigma_are_those_of_the_runs_alone() -> None:
    found = set_baseline([*RUNS, row("base", 1, 0.1), row("recipe", 4, None, "crashed")], "dev")
    assert found is not None
    assert (found.n, found.low, found.high) == (3, 0.48, 0.52)
    assert found.mean == pytest.approx(0.5)
    assert found.sigma == pytest.approx(0.02)


def test_one_run_has_no_sigma_and_none_no_baseline() -> None:
    one = baseline([0.5])
    assert one is not None and one.sigma is None
    assert baseline([]) is None
    assert set_baseline(RUNS, "external") is None


def test_the_margin_is_that_of_a_one_sided_prediction() -> None:
    # t of 2 degrees at 95 % is 2.92; sqrt(1 + 1/3) is 1.1547; 2.92 * 0.02 * 1.1547 = 0.06743.
    assert margin(3, 0.02) == pytest.approx(0.06743, abs=1e-5)


@pytest.mark.parametrize(("dev", "beats"), [(0.0, False), (0.567, False), (0.568, True)])
def test_a_probe_beats_the_baseline_above_the_margin(dev: float, beats: bool) -> None:
    found = faults([*RUNS, row("constant", 1, dev)], "maximise")
    assert [text.split(":")[:2] for text in found] == (
        [["probe-beats-baseline", " constant"]] if beats else []
    )


def test_where_less_is_better_a_probe_beats_the_baseline_from_below() -> None:
    assert faults([*RUNS, row("base", 1, 0.40)], "minimise")
    assert not faults([*RUNS, row("base", 1, 0.60)], "minimise")


def test_a_probe_that_was_refused_beats_nothing_and_one_that_failed_is_named() -> None:
    assert faults([*RUNS, row("base", 1, None, "no_change")], "maximise") == []
    (found,) = faults([*RUNS, row("empty", 1, None, "infrastructure")], "maximise")
    assert found == "probe-unmeasured: empty: infrastructure: why"


def test_without_two_scored_runs_there_is_no_baseline() -> None:
    (found,) = faults([RUNS[0], row("recipe", 2, None, "crashed")], "maximise")
    assert found.startswith("no-baseline: wanted at least two, found 1")
