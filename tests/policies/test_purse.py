"""The purse: nothing is spent that was not reserved, and what is reserved never passes a cap."""

import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from policies.caps import Scope, SpendCapReached, SpendCaps, Unit, amount_text, microdollars
from policies.ledger import DuplicateRow, Ledger, verify_chain
from policies.purse import Purse, Spent, look_spent, scopes_of, spent_by_role, spent_text

ROOT = Path(__file__).resolve().parents[2]


def purse(ledger: Ledger, amounts: dict[tuple[Unit, Scope], int]) -> Purse:
    return Purse(ledger, "c", lambda: SpendCaps(amounts))


def test_what_is_reserved_counts_until_it_is_settled_for_less(ledger: Ledger) -> None:
    mine = purse(ledger, {("tokens", "campaign"): 100})
    mine.reserve("r1/s1/a1/worker/1", {"tokens": 70})
    with pytest.raises(SpendCapReached, match=r"31 tokens .* 70 tokens taken .* 100 tokens;"):
        mine.reserve("r1/s2/a1/worker/1", {"tokens": 31})
    mine.settle("r1/s1/a1/worker/1", {"tokens": 20})
    mine.reserve("r1/s2/a1/worker/1", {"tokens": 80})
    assert mine.spent("tokens") == 100
    assert verify_chain(ledger) is None


def test_a_refused_reservation_leaves_no_row(ledger: Ledger) -> None:
    mine = purse(ledger, {("tokens", "campaign"): 100, ("microdollars", "campaign"): 5})
    with pytest.raises(SpendCapReached):
        mine.reserve("r1/meta/1", {"tokens": 10, "microdollars": 6})
    assert ledger.spends("c") == [] and ledger.events() == []


@pytest.mark.parametrize(
    ("scope", "free"),
    [
        ("call", "r1/s1/a1/worker/2"),
        ("trial", "r1/s2/a1/worker/1"),
        ("round", "r2/s1/a1/worker/1"),
        ("campaign", None),
    ],
)
def test_a_cap_holds_over_its_own_scope_alone(
    ledger: Ledger, scope: Scope, free: str | None
) -> None:
    mine = purse(ledger, {("tokens", scope): 10})
    mine.reserve("r1/s1/a1/worker/1", {"tokens": 6})
    with pytest.raises(SpendCapReached) as reached:
        mine.reserve("r1/s1/a2/worker/1", {"tokens": 11 if scope == "call" else 5})
    assert reached.value.scope == scope
    if free is not None:
        mine.reserve(free, {"tokens": 5})
    # Slot 10 and round 10 only begin as slot 1 and round 1 do.
    if scope in ("trial", "round"):
        place = "r1/s10" if scope == "trial" else "r10/s1"
        mine.reserve(f"{place}/a1/worker/1", {"tokens": 10})


def test_the_widest_cap_that_is_reached_is_named(ledger: Ledger) -> None:
    mine = purse(ledger, {("tokens", "trial"): 10, ("tokens", "campaign"): 10})
    with pytest.raises(SpendCapReached) as reached:
        mine.reserve("r1/s1/a1/worker/1", {"tokens": 11})
    assert reached.value.scope == "campaign"


def test_a_cap_that_is_raised_meanwhile_holds_from_then_on(ledger: Ledger) -> None:
    caps = {"now": 5}
    mine = Purse(ledger, "c", lambda: SpendCaps({("tokens", "campaign"): caps["now"]}))
    with pytest.raises(SpendCapReached):
        mine.reserve("r1/meta/1", {"tokens": 6})
    caps["now"] = 6
    mine.reserve("r1/meta/1", {"tokens": 6})


def test_what_cost_more_than_was_reserved_is_charged_as_it_is(ledger: Ledger) -> None:
    mine = purse(ledger, {("tokens", "campaign"): 100})
    mine.reserve("r1/meta/1", {"tokens": 60})
    mine.settle("r1/meta/1", {"tokens": 130})
    assert mine.spent("tokens") == 130
    with pytest.raises(SpendCapReached):
        mine.reserve("r1/meta/2", {"tokens": 0 + 1})


def test_an_amount_is_settled_once(ledger: Ledger) -> None:
    mine = purse(ledger, {})
    mine.reserve("r1/meta/1", {"tokens": 60})
    mine.settle("r1/meta/1", {"tokens": 0})
    with pytest.raises(DuplicateRow):
        mine.settle("r1/meta/1", {"tokens": 60})
    with pytest.raises(ValueError, match="none below 0"):
        mine.settle("r1/meta/2", {"tokens": -1})


def test_what_a_role_spent_is_summed_and_what_nobody_knows_is_said(ledger: Ledger) -> None:
    mine = purse(ledger, {})
    for call, settled in ((1, 40), (2, 60), (3, None)):  # the second: unknown, so at its worst
        mine.reserve(f"r1/s1/a1/worker/{call}", {"tokens": 60})
        if settled is not None:
            mine.settle(f"r1/s1/a1/worker/{call}", {"tokens": settled})
    ledger.append(*look_spent("c", "r1/s0"))
    looks, worker = spent_by_role(ledger.spends("c"))
    assert looks == Spent("look", "looks", 1, 1, 0)
    assert worker == Spent("worker", "tokens", 3, 160, 2)
    assert spent_text(worker) == "worker: 160 tokens, charged 3 times, 2 of them at their worst"
    assert mine.spent("tokens") == 160
    assert mine.next_number("r1/s1/a1/worker") == 4
    assert mine.next_number("r1/s1/a2/worker") == 1


def test_places_have_the_scopes_that_they_name() -> None:
    whole = {"campaign": "", "round": "r1/", "trial": "r1/s3/"}
    assert scopes_of("r1/s3/a1/worker/7") == whole
    assert scopes_of("r1/meta/2") == {"campaign": "", "round": "r1/"}
    assert scopes_of("end/candidate/1") == {"campaign": ""}


def test_eight_processes_at_once_take_no_more_than_there_is(url: str) -> None:
    program = """
import sys
from policies.caps import SpendCaps, SpendCapReached
from policies.ledger import Ledger
from policies.purse import Purse
url, slot = sys.argv[1:]
purse = Purse(Ledger(url), "c", lambda: SpendCaps({("tokens", "campaign"): 1000}))
print(flush=True)
sys.stdin.read()
taken = 0
for call in range(1, 100):
    try:
        purse.reserve(f"r1/s{slot}/a1/worker/{call}", {"tokens": 37})
    except SpendCapReached:
        break
    taken += 1
print(taken)
"""
    Ledger(url).close()
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, url, str(slot)],
            cwd=ROOT,
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        for slot in range(8)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
    taken = []
    for worker in workers:
        assert worker.stdout is not None
        with worker:
            taken.append(int(worker.stdout.read()))
            assert worker.wait() == 0
    assert sum(taken) == 27  # 27 x 37 = 999
    with closing(Ledger(url)) as ledger:
        assert Purse(ledger, "c", lambda: SpendCaps({})).spent("tokens") == 999


def test_money_is_whole_millionths_rounded_up() -> None:
    assert microdollars(Decimal("0.1")) == 100_000
    assert microdollars(Decimal("0.0000001")) == 1
    assert amount_text("microdollars", 1_234_567) == "$1.2346"
    assert amount_text("gpu_seconds", 7200) == "7,200 GPU-seconds"
