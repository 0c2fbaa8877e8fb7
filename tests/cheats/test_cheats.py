"""Every cheat ends as it must, without a score, is named, and touches nothing else."""

from collections.abc import Sequence

import pytest

from policies.report import SlotResult
from substrate.isolation import LEVELS, why_not
from tests.cheats.adapters import ADAPTERS
from tests.cheats.cheat import Cheat
from tests.cheats.data import DATA
from tests.cheats.forged import FORGED
from tests.cheats.processes import PROCESSES
from tests.cheats.reach import REACH
from tests.cheats.sealed import SEALED
from tests.cheats.verdict import judge_round, rounds_of
from tests.cheats.yard import Yard

CHEATS = (*FORGED, *ADAPTERS, *SEALED, *REACH, *PROCESSES)
# One round runs always.
SAMPLE = (
    "planted-score-file",
    "rewritten-orders",
    "untouched-base",
    "pickled",
    "evaluator-edit-undone",
    "data-of-its-own",
    "the-judge",
)

pytestmark = pytest.mark.skipif(
    why_not(LEVELS[0]) is not None, reason=f"wanted {LEVELS[0]} on this machine"
)


def test_there_are_at_least_forty_ways_and_no_two_of_one_name() -> None:
    names = [cheat.name for cheat in (*CHEATS, *DATA)]
    assert len(names) == len(set(names)) >= 40


def test_a_cheat_of_each_kind_gains_nothing(yard: Yard, honest_anchor: SlotResult) -> None:
    judge_round(yard, [cheat for cheat in CHEATS if cheat.name in SAMPLE], honest_anchor)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "cheats",
    rounds_of([cheat for cheat in CHEATS if cheat.name not in SAMPLE]),
    ids=lambda cheats: cheats[0].name,
)
def test_no_cheat_gains_anything(
    yard: Yard, honest_anchor: SlotResult, cheats: Sequence[Cheat]
) -> None:
    judge_round(yard, cheats, honest_anchor)
