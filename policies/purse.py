"""The purse: what a campaign has spent of what it may, reserved at its worst before it is spent.

A subject names what an amount went to: `r1/s3/a1/worker/7` is the seventh call of the worker in
slot 3's first attempt, `r1/meta/2` the meta-agent's second. The caps of the trial (`r1/s3/`), the
round (`r1/`) and the campaign hold over all subjects that begin so. What is reserved and not
settled is charged as reserved: nobody knows that it cost less.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, Connection, case, func, select

from policies.caps import Scope, SpendCapReached, SpendCaps, Unit, amount_text
from policies.ledger import Ledger
from policies.tables import Spend, table_of

State = Literal["reserved", "settled"]
SPEND = table_of(Spend)
ESTIMATED = ("microdollars", "tokens", "gpu_seconds")  # reserved at their worst; others are counts
_PLACE = re.compile(r"(?:(?P<round>r\d+)/)?(?:(?P<slot>s\d+)/)?(?:a\d+/)?(?:(?P<role>[a-z]+)/)?")
_ADVICE = {
    "call": "ask for shorter answers, or start a campaign with a higher cap for one call",
    "trial": "what it has is used; start a campaign with a higher cap for one trial",
    "round": "raise it with `--dollars-per-round` or `--tokens-per-round`",
    "campaign": "raise it with `--dollars`, `--tokens` or `--gpu-seconds`",
}


@dataclass(frozen=True)
class Spent:
    """What a role spent of one unit."""

    role: str
    unit: str
    calls: int
    amount: int
    at_worst: int  # of the calls, those charged what was reserved, since nobody knows better


@dataclass(frozen=True)
class Purse:
    """The purse of one campaign. Any number of processes may take from it at once."""

    ledger: Ledger
    campaign: str
    caps: Callable[[], SpendCaps]  # asked each time: a person may raise them meanwhile

    def reserve(self, subject: str, amounts: Mapping[Unit, int]) -> None:
        """Take the worst case out of every cap that holds for the subject, or out of none.

        Raises policies.caps.SpendCapReached, with the widest cap that leaves no room.
        """
        caps = self.caps()

        def refusal(connection: Connection) -> Exception | None:
            found = [
                told
                for unit, amount in amounts.items()
                for told in self._refusals(connection, subject, unit, amount, caps)
            ]
            order = ("campaign", "round", "trial", "call")
            return min(found, key=lambda told: order.index(told.scope), default=None)

        self.ledger.append(*self._rows(subject, "reserved", amounts), unless=refusal)

    def settle(self, subject: str, amounts: Mapping[Unit, int]) -> None:
        """Say what it cost in the end, which may be more than was reserved: then it is so."""
        self.ledger.append(*self._rows(subject, "settled", amounts))

    def spent(self, unit: Unit, prefix: str = "") -> int:
        """What is charged to the subjects that begin with `prefix`."""
        with self.ledger.read() as connection:
            return self._charged(connection, unit, prefix)

    def next_number(self, place: str) -> int:
        """The number of the next call whose subject is `place/number`."""
        columns = select(func.count(SPEND.c.subject.distinct())).where(*self._within(f"{place}/"))
        with self.ledger.read() as connection:
            return 1 + connection.execute(columns).scalar_one()

    def _rows(self, subject: str, state: State, amounts: Mapping[Unit, int]) -> list[Spend]:
        rows = []
        for unit, amount in amounts.items():
            if amount < 0 or amount != int(amount):
                raise ValueError(
                    f"wanted whole {unit}, none below 0: found {amount!r} for {subject}"
                )
            row = Spend(
                campaign=self.campaign,
                subject=subject,
                unit=unit,
                state=state,
                amount=float(amount),
            )
            rows.append(row)
        return rows

    def _refusals(
        self, connection: Connection, subject: str, unit: Unit, amount: int, caps: SpendCaps
    ) -> list[SpendCapReached]:
        found = []
        prefixes = scopes_of(subject)
        for scope, cap in caps.of(unit).items():
            if scope == "call":
                taken = 0
            elif scope in prefixes:
                taken = self._charged(connection, unit, prefixes[scope])
            else:
                continue
            if taken + amount > cap:
                told = (
                    f"wanted {amount_text(unit, amount)} at most for {subject}, found "
                    f"{amount_text(unit, taken)} taken of the {scope}'s "
                    f"{amount_text(unit, cap)}; {_ADVICE[scope]}"
                )
                found.append(SpendCapReached(told, scope))
        return found

    def _charged(self, connection: Connection, unit: Unit, prefix: str) -> int:
        settled = SPEND.alias("settled")
        same = (
            (settled.c.campaign == SPEND.c.campaign)
            & (settled.c.subject == SPEND.c.subject)
            & (settled.c.unit == SPEND.c.unit)
            & (settled.c.state == "settled")
        )
        amount = case((settled.c.amount.is_(None), SPEND.c.amount), else_=settled.c.amount)
        total = (
            select(func.coalesce(func.sum(amount), 0))
            .select_from(SPEND.outerjoin(settled, same))
            .where(*self._within(prefix), SPEND.c.unit == unit, SPEND.c.state == "reserved")
        )
        return int(connection.execute(total).scalar_one())

    def _within(self, prefix: str) -> tuple[ColumnElement[bool], ...]:
        begins = SPEND.c.subject.startswith(prefix, autoescape=True)
        return (SPEND.c.campaign == self.campaign, *((begins,) if prefix else ()))


def look_spent(campaign: str, trial: str) -> list[Spend]:
    """The rows of one look at the external set: what it takes is known when it is taken."""
    key = {"campaign": campaign, "subject": f"{trial}/look/1", "unit": "looks", "amount": 1.0}
    return [Spend(**key, state="reserved"), Spend(**key, state="settled")]


def spent_text(spent: Spent) -> str:
    """A line for a person."""
    at_worst = f", {spent.at_worst} of them at their worst" if spent.at_worst else ""
    times = "once" if spent.calls == 1 else f"{spent.calls} times"
    return f"{spent.role}: {amount_text(spent.unit, spent.amount)}, charged {times}{at_worst}"


def scopes_of(subject: str) -> dict[Scope, str]:
    """What the subjects of its trial, its round and its campaign begin with, as far as it has."""
    place = _PLACE.match(subject)
    found: dict[Scope, str] = {"campaign": ""}
    if place is not None and place["round"]:
        found["round"] = f"{place['round']}/"
        if place["slot"]:
            found["trial"] = f"{place['round']}/{place['slot']}/"
    return found


def role_of(subject: str) -> str:
    """Who spent it: the last word of its place."""
    return subject.split("/")[-2] if "/" in subject else subject


def spent_by_role(rows: list[Spend]) -> list[Spent]:
    """What these rows say of each role and unit, by role and unit."""
    settled = {(row.subject, row.unit): row.amount for row in rows if row.state == "settled"}
    found: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    for row in rows:
        if row.state == "reserved":
            amount = settled.get((row.subject, row.unit), row.amount)
            charged = (amount, amount == row.amount and row.unit in ESTIMATED)
            found.setdefault((role_of(row.subject), row.unit), []).append(charged)
    return [
        Spent(
            role,
            unit,
            len(charges),
            int(sum(amount for amount, _ in charges)),
            sum(at_worst for _, at_worst in charges),
        )
        for (role, unit), charges in sorted(found.items())
    ]
