"""Tries: how long a reply is waited for, how often it is asked for, when nothing will help."""

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TypeVar

from agents.messages import ProviderFailure

Returned = TypeVar("Returned")

# Answered before anything was generated: nothing was billed. Other errors may have come later.
UNBILLED = frozenset({400, 401, 402, 403, 404, 405, 409, 413, 422, 429, 529})
PERMANENT = frozenset({400, 401, 402, 403, 404, 405, 413, 422, 501})
PERMANENT_KINDS = frozenset(
    {
        "authentication_error",
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_quota",
        "invalid_request_error",
        "model_not_found",
        "not_found_error",
        "permission_error",
        "quota_exceeded",
    }
)
OUT_OF_MONEY = re.compile(r"insufficient.quota|exceeded your current quota|credit balance", re.I)
# What a provider refuses of one request's content or length: it says nothing of the next one.
OF_ONE_REQUEST = re.compile(
    r"context.(?:length|window)|maximum context|prompt is too long|"
    r"content.?(?:filter|policy|management)",
    re.I,
)
UNREACHABLE = "seedbed_unreachable"  # the broker could not connect: nothing was sent
SHOWN = 500  # characters of a provider's own words


class TryFailed(Exception):
    """One try gave no reply."""

    def __init__(
        self,
        cause: str,
        *,
        permanent: bool,
        billed: bool,
        retry_after: float | None = None,
        is_of_request: bool = False,
    ) -> None:
        super().__init__(cause)
        self.permanent = permanent
        self.billed = billed  # False only where nothing can have been billed
        self.retry_after = retry_after  # seconds that the provider asked to wait
        self.is_of_request = is_of_request  # no try helps this request; others may be answered


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a provider is waited for, in seconds, and how often it is asked."""

    idle: float = 60.0  # without a byte
    total: float = 900.0  # for one try, from the first byte sent to the last received
    tries: int = 5
    give_up: float = 900.0  # no try begins later than this after the first
    first_wait: float = 1.0  # the range of the first wait; each next one's is twice as wide
    longest_wait: float = 120.0  # whatever the provider asks for


@dataclass
class Quiet:
    """Until when a provider wants to be left alone. All who talk to it share one."""

    until: float = 0.0  # by the monotonic clock

    def ask(self, seconds: float) -> None:
        self.until = max(self.until, time.monotonic() + seconds)


@dataclass
class Tries:
    """Ask until there is a reply, with growing waits (full jitter) between the tries."""

    patience: Patience
    seed: int
    quiet: Quiet = field(default_factory=Quiet)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    async def until_answered(self, whom: str, once: Callable[[], Awaitable[Returned]]) -> Returned:
        """What `once` returns, the first time that it returns.

        Raises ProviderFailure with the first cause: at once for a permanent one, and for a request
        that is too long or filtered, else when tries or time are used up.
        """
        patience, began, first = self.patience, time.monotonic(), ""
        for number in range(1, patience.tries + 1):
            await self._wait_for_quiet()
            try:
                return await once()
            except TryFailed as failed:
                first = first or str(failed)
                if failed.permanent:
                    story = _story(whom, first, str(failed), number)
                    raise ProviderFailure(story, permanent=not failed.is_of_request) from failed
                wait = self._wait_after(number, failed)
                spent = time.monotonic() - began + wait > patience.give_up
                if number == patience.tries or spent:
                    raise ProviderFailure(
                        _story(whom, first, str(failed), number), permanent=False
                    ) from failed
                if failed.retry_after is not None:
                    self.quiet.ask(min(failed.retry_after, patience.longest_wait))
                await asyncio.sleep(wait)
        raise AssertionError("there is one try at least")

    def _wait_after(self, number: int, failed: TryFailed) -> float:
        patience = self.patience
        if failed.retry_after is not None:
            asked = min(failed.retry_after, patience.longest_wait)
            return asked + self._random.uniform(0, patience.first_wait)
        widest = min(patience.longest_wait, patience.first_wait * 2 ** (number - 1))
        return self._random.uniform(0, widest)

    async def _wait_for_quiet(self) -> None:
        while (left := self.quiet.until - time.monotonic()) > 0:
            await asyncio.sleep(left + self._random.uniform(0, self.patience.first_wait))


def from_status(
    status: int, kind: str, message: str, headers: Mapping[str, str], *, streaming: bool
) -> TryFailed:
    """What an error that the provider stated means. `streaming`: it had begun to answer."""
    shown = " ".join(message.split())[:SHOWN] or "no reason given"
    spoken = f"HTTP {status}{f' {kind}' if kind else ''}: {shown}"
    out_of_money = status == 429 and bool(OUT_OF_MONEY.search(f"{kind} {message}"))
    permanent = status in PERMANENT or kind in PERMANENT_KINDS or out_of_money
    billed = streaming or (status not in UNBILLED and kind != UNREACHABLE)
    return TryFailed(
        spoken,
        permanent=permanent,
        billed=billed,
        retry_after=_retry_after(headers),
        is_of_request=status in (400, 413) and bool(OF_ONE_REQUEST.search(f"{kind} {message}")),
    )


def broken(what: str) -> TryFailed:
    """The reply did not arrive whole, or was none: it may have been billed, and may be tried."""
    return TryFailed(what, permanent=False, billed=True)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, which the provider states as a number or as a date."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            seconds = float(text) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    with suppress(ValueError):
        date = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, date.timestamp() - time.time())
    return None


def _story(whom: str, first: str, last: str, tries: int) -> str:
    after = f" (after {tries} tries" + (f"; the last one: {last})" if last != first else ")")
    return f"{whom} gave no reply: {first}" + (after if tries > 1 else "")
