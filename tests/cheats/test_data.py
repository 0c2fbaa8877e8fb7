"""Held-out data and foreign weights: what is trained on and delivered must be the trial's own."""

import base64
from collections.abc import Sequence

import pytest

from policies.report import SlotResult
from substrate.isolation import LEVELS, why_not
from tests.cheats.cheat import Cheat
from tests.cheats.data import DATA
from tests.cheats.verdict import judge_round, rounds_of
from tests.cheats.yard import STUB, Yard

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_not(LEVELS[0]) is not None, reason=f"wanted {LEVELS[0]} here"),
]


@pytest.fixture(scope="module")
def informed(yard: Yard) -> Yard:
    """A yard whose workers know the held-out problems and an adapter of an earlier campaign."""
    honest = [Cheat(name, "Turns a constant.", "evaluated", "") for name in ("one", "two")]
    report = yard.run([yard.order(cheat) for cheat in honest], seed=9)
    earlier = yard.house.adapters / str(report.results.slots[0].adapter_sha256)
    weights = (earlier / "adapter_model.safetensors").read_bytes()
    yard.facts["EXTERNAL"] = (STUB / "judge" / "external.jsonl").read_text("utf-8")
    yard.facts["EARLIER"] = base64.b64encode(weights).decode()
    return yard


@pytest.mark.parametrize("cheats", rounds_of(DATA), ids=lambda cheats: cheats[0].name)
def test_what_is_not_its_own_counts_for_nothing(
    informed: Yard, honest_anchor: SlotResult, cheats: Sequence[Cheat]
) -> None:
    judge_round(informed, cheats, honest_anchor)
