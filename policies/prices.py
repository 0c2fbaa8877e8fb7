"""Prices: what a model's tokens cost, from the dated table beside this file or the user's own."""

import re
import tomllib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from policies.caps import MICRO, microdollars

TABLE = Path(__file__).parent / "prices.toml"
KINDS = ("input", "output", "cache_read", "cache_write")
_DATED_NAME = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")  # of a version of a model


class BadPrices(ValueError):
    """A table of prices cannot be used."""


@dataclass(frozen=True)
class Price:
    """Millionths of a dollar for a million tokens of each kind, and where that is from."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    source: str

    def cost(self, *, input: int, output: int, cache_read: int = 0, cache_write: int = 0) -> int:
        """Millionths of a dollar, rounded up."""
        counts = (input, output, cache_read, cache_write)
        rates = (self.input, self.output, self.cache_read, self.cache_write)
        return -(-sum(n * rate for n, rate in zip(counts, rates, strict=True)) // MICRO)

    def most(self, *, input: int, output: int) -> int:
        """The same where every token of the input is of the dearest kind."""
        dearest = max(self.input, self.cache_read, self.cache_write)
        return -(-(input * dearest + output * self.output) // MICRO)


def read_prices(own: Path | None = None) -> dict[str, Price]:
    """Prices by model, such as `anthropic:claude-opus-5`; those of the user's file come first.

    Raises BadPrices.
    """
    tables = [TABLE] + ([own] if own is not None and own.is_file() else [])
    prices: dict[str, Price] = {}
    for path in tables:
        prices |= _read(path)
    return prices


def price_of(model: str, prices: dict[str, Price]) -> Price | None:
    """The price of that very model, else of the one whose dated version it is. None: not known."""
    return prices.get(model) or prices.get(_DATED_NAME.sub("", model))


def _read(path: Path) -> dict[str, Price]:
    try:
        data = tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)
    except (OSError, ValueError) as error:
        raise BadPrices(
            f"wanted a table of prices in {path}, found: {error}; correct it"
        ) from error
    dated = data.get("dated")
    found = {}
    for model, entry in data.get("models", {}).items():
        where = f"models.{model!r} in {path}"
        named = set(entry) if isinstance(entry, dict) else set()
        if named - {*KINDS, "dated"} or not named >= {"input", "output"}:
            raise BadPrices(
                f"wanted {', '.join(KINDS)} in dollars per million tokens for {where}, found "
                f"{entry!r}; correct it"
            )
        amounts = {kind: entry[kind] for kind in KINDS if kind in entry}
        for kind, amount in amounts.items():
            number = isinstance(amount, int | Decimal) and not isinstance(amount, bool)
            if not number or not Decimal(amount).is_finite() or amount < 0:
                raise BadPrices(
                    f"wanted dollars per million tokens as {kind} of {where}, found {amount!r}; "
                    "give a number, 0 for what is free"
                )
        # What a provider has no price of its own for costs what it costs to read anew.
        amounts = {"cache_read": amounts["input"], "cache_write": amounts["input"], **amounts}
        rates = {kind: microdollars(Decimal(amount)) for kind, amount in amounts.items()}
        source = f"{path.name} of {entry.get('dated', dated) or 'no date'}"
        found[model] = Price(**rates, source=source)
    return found
