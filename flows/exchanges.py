"""Exchanges: what agents and models said to each other, in files by digest, and their rows."""

import hashlib
import os
import tempfile
from pathlib import Path

from agents.journal import Exchange, read_exchange
from agents.messages import Reply
from flows.house import House
from flows.settings import Settings
from policies.tables import AgentCall, Role, sha256_of


class ExchangeDamaged(RuntimeError):
    """An exchange's file is not what its row says."""


def record_exchange(
    house: House, campaign_id: str, role: Role, call: str, exchange: Exchange
) -> None:
    """Write an exchange's file, flushed to disk, then its row. Only then may anyone use it."""
    text = exchange.text()
    sha256 = sha256_of(text)
    _keep(exchange_file(house.settings, sha256), text)
    house.ledger.append(
        AgentCall(
            campaign=campaign_id,
            call=call,
            role=role,
            model=exchange.model,
            request_sha256=exchange.request_sha256(),
            exchange_sha256=sha256,
            stop=exchange.outcome.stop if isinstance(exchange.outcome, Reply) else "failed",
        )
    )


def exchanges_of(house: House, campaign_id: str, place: str = "") -> list[Exchange]:
    """What was said at a place such as `r1/s3/a1/worker` or `r1/meta`, or at all, in order.

    Raises ExchangeDamaged.
    """
    found = []
    for row in house.ledger.agent_calls(campaign_id):
        if not place or row.call.startswith(f"{place}/"):
            file = exchange_file(house.settings, row.exchange_sha256)
            content = file.read_bytes() if file.is_file() else b""
            if hashlib.sha256(content).hexdigest() != row.exchange_sha256:
                raise ExchangeDamaged(
                    f"wanted the exchange of {row.call} in {file}, found "
                    f"{'another text' if content else 'none'}; put back a copy of the file"
                )
            found.append(read_exchange(content.decode()))
    return found


def exchange_file(settings: Settings, sha256: str) -> Path:
    return settings.exchanges / sha256[:2] / f"{sha256}.json"


def _keep(file: Path, text: str) -> None:
    """A file of that text, whole or not at all; one that is there has it already."""
    if file.is_file():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="utf-8", delete=False) as new:
        new.write(text)
        new.flush()
        os.fsync(new.fileno())
    os.replace(new.name, file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
