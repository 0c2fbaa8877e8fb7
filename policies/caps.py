"""Caps: the most that a campaign may spend, in all, in a round, in a trial, with one call."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Literal

Scope = Literal["call", "trial", "round", "campaign"]
Unit = Literal["microdollars", "tokens", "gpu_seconds", "looks"]
MICRO = 1_000_000


class SpendCapReached(RuntimeError):
    """Something could cost more than a cap leaves. It was not done.

    `scope` says whose cap: that of a call or a trial ends the trial, the others pause the campaign.
    """

    def __init__(self, message: str, scope: Scope = "campaign") -> None:
        super().__init__(message)
        self.scope: Scope = scope


@dataclass(frozen=True)
class SpendCaps:
    """Amounts by unit and scope. What is not named has no cap."""

    amounts: Mapping[tuple[Unit, Scope], int]

    def of(self, unit: Unit) -> dict[Scope, int]:
        return {scope: amount for (found, scope), amount in self.amounts.items() if found == unit}


def microdollars(dollars: Decimal) -> int:
    """Whole millionths of a dollar, rounded up."""
    return int((dollars * MICRO).to_integral_value(ROUND_CEILING))


def amount_text(unit: str, amount: int) -> str:
    """An amount as a person reads it."""
    if unit == "microdollars":
        return f"${Decimal(amount) / MICRO:,.4f}"
    return f"{amount:,} {unit.replace('_', '-').replace('gpu', 'GPU')}"
