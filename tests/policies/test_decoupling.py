"""The decoupling test, against numbers worked out by hand and against truths that it must tell."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Literal

import pytest

from policies.decoupling import decoupling, follow, misleading
from policies.evidence import Calibration, Record, Round
from policies.policy import Edit, StandingRecipe
from policies.report import Decoupling, DomainScore, SetScore, SlotResult
from tests.policies.test_evidence import METRIC, OTHER_METRIC

START = StandingRecipe()
EDIT = Edit(overrides={"recipes/r.py": {"RATE": 0.1}})
N = 100


def scored(parts: Mapping[str, float], metric: str = METRIC) -> SetScore:
    return SetScore(
        value=math.fsum(parts.values()) / len(parts),
        n=N * len(parts),
        domains={name: DomainScore(value=value, n=N) for name, value in parts.items()},
        metric="accuracy",
        metric_version=metric,
        engine="test",
    )


def run(
    slot: int,
    dev: Mapping[str, float],
    external: Mapping[str, float] | None,
    kind: Literal["anchor", "explore", "replicate"] = "replicate",
    axis: str = "rate",
) -> SlotResult:
    is_anchor = kind == "anchor"
    return SlotResult(
        slot=slot,
        kind=kind,
        axis=None if is_anchor else axis,
        hypothesis="",
        edit=Edit() if is_anchor else EDIT,
        diff_sha256=None,
        seed=slot,
        outcome="evaluated",
        adapter_sha256=None,
        dev=scored(dev),
        external=None if external is None else scored(external),
    )


def both(sums: float, lists: float) -> dict[str, float]:
    return {"lists": lists, "sums": sums}


# Five runs of the unmodified recipe: standard deviation 0.01 in each domain and on each set.
STEPS = (-0.01, 0.01, 0.0, -0.01, 0.01)
CALIBRATION = tuple(
    Calibration(i, scored(both(0.5 + a, 0.5 - b)), scored(both(0.4 - b, 0.4 + a)))
    for i, (a, b) in enumerate(zip(STEPS, STEPS[1:] + STEPS[:1], strict=True))
)


def examine(*slots: SlotResult, ignored: Sequence[str] = ()) -> dict[str, Decoupling]:
    anchor = run(0, both(0.5, 0.5), both(0.4, 0.4), "anchor")
    rounds = (Round(1, START, (anchor, *slots)),)
    record = Record(rounds, "maximise", CALIBRATION, frozenset(ignored))
    return {test.domain: test for test in decoupling(record)}


def test_dev_that_rises_without_external_is_decoupled_in_its_domain_and_not_overall() -> None:
    found = examine(
        run(1, both(0.80, 0.5), both(0.40, 0.4)), run(2, both(0.80, 0.5), both(0.40, 0.4))
    )
    assert {name: test.verdict for name, test in found.items()} == {
        "overall": "insufficient",
        "lists": "insufficient",
        "sums": "decoupled",
    }
    sums = found["sums"]
    assert sums.axis == "rate" and sums.pairs == 2
    assert (sums.dev_change, sums.external_change) == (pytest.approx(0.3), pytest.approx(0.0))
    # Half of 0.3 is the least that tracking asks of external.
    assert sums.shortfall == pytest.approx(0.15)
    # Squares of sums on dev: five runs, mean 0.5, anchor 0.5: 4 * 0.01^2 over 5 degrees, and the
    # two replicates' none over 1; the same on external. Two runs against six.
    sigma = math.sqrt(0.0004 / 6)
    spread = 1 / 2 + 1 / 6
    assert sums.error == pytest.approx(sigma * math.sqrt(spread * (0.25 + 1)))
    assert sums.external_error == pytest.approx(sigma * math.sqrt(spread))
    # Round 1 of HALF = 4: a fifth of 0.05, over three tests.
    assert sums.level == pytest.approx(0.05 / 5 / 3)
    assert sums.rows[:2] == ["r1/s1/dev/sums", "r1/s1/external/sums"]
    assert misleading(found.values(), frozenset()) == {"sums"}


def test_dev_that_external_follows_is_tracking() -> None:
    found = examine(run(1, both(0.7, 0.7), both(0.6, 0.6)), run(2, both(0.7, 0.7), both(0.6, 0.6)))
    assert {test.verdict for test in found.values()} == {"tracking"}


def test_where_dev_does_not_move_there_is_nothing_to_say() -> None:
    found = examine(run(1, both(0.5, 0.5), both(0.41, 0.39)))
    assert {test.verdict for test in found.values()} == {"insufficient"}


def test_an_edit_that_harms_both_is_no_alarm() -> None:
    found = examine(run(1, both(0.3, 0.3), both(0.2, 0.2)), run(2, both(0.3, 0.3), both(0.2, 0.2)))
    assert misleading(found.values(), frozenset()) == frozenset()


def test_external_that_falls_while_dev_stands_is_an_alarm() -> None:
    found = examine(run(1, both(0.5, 0.5), both(0.2, 0.2)), run(2, both(0.5, 0.5), both(0.2, 0.2)))
    assert misleading(found.values(), frozenset()) == {"lists", "sums"}


def test_what_the_best_of_a_round_owes_to_noise_is_taken_off_its_change() -> None:
    def change(kind: Literal["explore", "replicate"]) -> float:
        rivals = [run(i, both(0.5, 0.5), None, "explore", f"other-{i}") for i in range(2, 8)]
        found = examine(run(1, both(0.8, 0.5), both(0.4, 0.4), kind), *rivals)["sums"]
        assert found.dev_change is not None
        return found.dev_change

    # The best of seven normal values is expected 1.352 standard deviations high (tables; the
    # approximation says 1.364).
    sigma = math.sqrt(0.0004 / 5)
    assert change("replicate") == pytest.approx(0.3)
    assert change("explore") == pytest.approx(0.3 - 1.352 * sigma, abs=2e-4)


def test_a_standing_recipe_that_gained_on_dev_alone_is_found_by_its_own_runs() -> None:
    merged = StandingRecipe(overrides=EDIT.overrides)
    slots = [run(0, both(0.5, 0.5), both(0.4, 0.4), "anchor")]
    rounds = [Round(1, START, tuple(slots))]
    for number in (2, 3):
        anchor = run(0, both(0.8, 0.5), both(0.4, 0.4), "anchor")
        rounds.append(Round(number, merged, (anchor,)))
    record = Record(tuple(rounds), "maximise", CALIBRATION)
    sums = next(test for test in decoupling(record) if test.domain == "sums")
    assert (sums.verdict, sums.axis, sums.pairs) == ("decoupled", None, 2)
    assert sums.rows[0] == "r2/s0/dev/sums"


def test_less_is_better_where_the_direction_says_so() -> None:
    slots = [run(i, both(0.2, 0.5), both(0.40, 0.4)) for i in (1, 2)]
    anchor = run(0, both(0.5, 0.5), both(0.4, 0.4), "anchor")
    record = Record((Round(1, START, (anchor, *slots)),), "minimise", CALIBRATION)
    assert misleading(decoupling(record), frozenset()) == {"sums"}


def test_without_external_scores_or_their_noise_nothing_is_said() -> None:
    anchor = run(0, both(0.5, 0.5), both(0.4, 0.4), "anchor")
    slots = (anchor, run(1, both(0.9, 0.5), both(0.4, 0.4)))
    record = Record((Round(1, START, slots),), "maximise")
    assert {test.verdict for test in decoupling(record)} == {"insufficient"}
    assert decoupling(record)[0].probability is None
    blind = Record((Round(1, START, (run(1, both(0.9, 0.5), None),)),), "maximise", CALIBRATION)
    assert {test.pairs for test in decoupling(blind)} == {0}


def test_scores_that_are_not_finite_or_of_another_metric_are_no_pairs() -> None:
    odd = run(1, both(0.9, 0.5), both(0.4, 0.4))
    slots = [
        odd.model_copy(update={"external": scored(both(0.4, 0.4), OTHER_METRIC)}),
        odd.model_copy(update={"slot": 2, "external": scored(both(math.nan, 0.4))}),
        odd.model_copy(update={"slot": 3, "dev": scored(both(math.inf, 0.5))}),
        odd.model_copy(update={"slot": 4, "outcome": "tampered"}),
    ]
    assert {test.pairs for test in examine(*slots).values()} == {0}


def test_overall_leaves_out_what_is_ignored_already() -> None:
    slots = [run(i, both(0.9, 0.5), both(0.40, 0.4)) for i in (1, 2)]
    found = examine(*slots, ignored=["sums"])
    assert found["overall"].dev_change == pytest.approx(0.0)
    assert misleading(found.values(), frozenset({"sums"})) == {"sums"}


def test_tracking_is_asked_within_a_factor_of_two_either_way() -> None:
    assert [follow(d) for d in (0.2, 0.0, -0.2)] == [0.1, 0.0, -0.4]


@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_honest_dev_is_hardly_ever_called_decoupled_however_noisy_external_is(
    noise: float,
) -> None:
    alarms, campaigns = 0, 150
    for seed in range(campaigns):
        dice = random.Random(seed)

        def drawn(times: float, dice: random.Random = dice) -> dict[str, float]:
            return both(dice.gauss(0.5, 0.02 * times), dice.gauss(0.5, 0.02 * times))

        calibration = tuple(
            Calibration(i, scored(drawn(1)), scored(drawn(noise))) for i in range(4)
        )
        rounds: list[Round] = []
        for number in range(1, 7):
            anchor = run(0, drawn(1), drawn(noise), "anchor")
            devs = [drawn(1) for _ in range(7)]
            best = sorted(range(7), key=lambda i: -scored(devs[i]).value)[:2]
            slots = [
                run(i + 1, dev, drawn(noise) if i in best else None, "explore", f"a{i}")
                for i, dev in enumerate(devs)
            ]
            rounds.append(Round(number, START, (anchor, *slots)))
            if misleading(decoupling(Record(tuple(rounds), "maximise", calibration)), frozenset()):
                alarms += 1
                break
    assert alarms <= 0.06 * campaigns
