"""An estimate: what a plan will spend on models, role by role, before anything is spent."""

from dataclasses import dataclass
from typing import Any

from flows.plan import Plan
from flows.roles import Served
from policies.caps import amount_text
from policies.policy import SearchPolicy
from policies.tables import Role


@dataclass(frozen=True)
class Habit:
    """What one piece of a role's work is assumed to take: calls, and tokens of each."""

    calls: int
    told: int  # tokens of the input that are new to the provider
    reread: int  # tokens of the input that its cache has
    said: int


# A worker's every call reads the conversation so far again, from the cache where there is one.
HABITS: dict[Role, Habit] = {
    "worker": Habit(calls=30, told=2_000, reread=20_000, said=700),
    "collector": Habit(calls=1, told=20_000, reread=0, said=1_500),
    "meta": Habit(calls=2, told=30_000, reread=0, said=6_000),
}


@dataclass(frozen=True)
class Expected:
    """What one role is expected to spend in the whole campaign."""

    role: Role
    model: str
    works: int  # trials of a worker, rounds of the others
    calls: int
    tokens: int
    microdollars: int | None  # None: nobody knows the price
    price: str  # where the price is from

    def data(self) -> dict[str, Any]:
        return dict(vars(self))


def expected_spend(plan: Plan, policy: SearchPolicy, served: list[Served]) -> list[Expected]:
    """Role by role. Replicates need no worker: with them, a later round has fewer explorations."""
    kinds = [slot.kind for slot in policy.assignments(plan.width)]
    works = {"worker": kinds.count("explore") * plan.rounds}
    found = []
    for role in served:
        habit, times = HABITS[role.role], works.get(role.role, plan.rounds)
        calls = habit.calls * times
        cost = None
        if role.price is not None:
            cost = role.price.cost(
                input=calls * habit.told,
                output=calls * habit.said,
                cache_read=calls * habit.reread,
            )
        found.append(
            Expected(
                role.role,
                role.model.spec,
                times,
                calls,
                calls * (habit.told + habit.reread + habit.said),
                cost,
                role.price.source if role.price else "no price known",
            )
        )
    return found


def estimate_text(plan: Plan, expected: list[Expected]) -> str:
    """The estimate as lines for a person, with the caps that hold whatever it says."""
    lines = [
        f"{item.role}: {item.model}, {item.works} times, {item.calls} calls, {item.tokens:,} "
        f"tokens, {_money(item.microdollars)} ({item.price})"
        for item in expected
    ]
    known = [item.microdollars for item in expected if item.microdollars is not None]
    total = sum(known) if len(known) == len(expected) else None
    lines.append(
        f"in total: {sum(item.tokens for item in expected):,} tokens, {_money(total)}"
        if expected
        else "in total: nothing, since no role talks to a model"
    )
    caps = plan.spend.caps().amounts.items()
    capped = ", ".join(f"{amount_text(unit, cap)} a {scope}" for (unit, scope), cap in caps)
    lines.append(f"at most: {capped or 'no cap'}")
    return "\n".join(lines)


def _money(microdollars: int | None) -> str:
    return "cost unknown" if microdollars is None else amount_text("microdollars", microdollars)
