"""The hash chain over the ledger's rows: an event for each, which names the hash of the one before.

hash = sha256 of the canonical JSON of [previous, seq, campaign, kind, subject, body, at]. `body`
holds the digest of the row (of the canonical JSON of all its columns) or is a note's own JSON; `at`
is ISO 8601 in UTC with microseconds. Whoever changes, drops, adds or moves a row has to rewrite
every event after it. A chain rewritten to its end, or cut short, is consistent in itself: only a
head that was kept elsewhere shows those.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import OperationalError

from policies.canonical import canonical_json, digest
from policies.tables import Campaign, Event, Row, table_of

EVENT = table_of(Event)


@dataclass(frozen=True)
class Note:
    """A change of state that no table holds. Its kind has a dot in it: `campaign.stopped`."""

    campaign: str | None
    kind: str
    subject: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Link:
    """What an event says, before it has its place in the chain."""

    campaign: str | None
    kind: str
    subject: str
    body: str


def row_link(model: type[Row], values: Mapping[str, Any]) -> Link:
    """The link of a row. `values`: all columns by name, as Python values."""
    return Link(
        values["id"] if model is Campaign else values.get("campaign"),
        table_of(model).name,
        model.natural_key.format_map(values),
        # Canonical JSON, spelled out: verification does this for every row that there is.
        f'{{"sha256":"{digest({name: _plain(value) for name, value in values.items()})}"}}',
    )


def note_link(note: Note) -> Link:
    """The link of a note. Raises ValueError for a kind without a dot: that is a table's name."""
    if "." not in note.kind:
        raise ValueError(
            f"a note's kind is wanted with a dot in it: found {note.kind!r}; name what it is about "
            "and what happened, such as 'campaign.stopped'"
        )
    return Link(note.campaign, note.kind, note.subject, canonical_json(dict(note.body)))


def chain(connection: Connection, links: Iterable[Link], at: datetime) -> list[dict[str, Any]]:
    """The links as rows of `event`, to be inserted in the transaction that holds `connection`."""
    head = connection.execute(_HEAD).first()
    seq, previous = (head.seq, head.hash) if head else (0, "")
    events: list[dict[str, Any]] = []
    for link in links:
        seq += 1
        event = {
            "seq": seq,
            "campaign": link.campaign,
            "kind": link.kind,
            "subject": link.subject,
            "body": link.body,
            "at": at,
            "previous": previous,
        }
        columns = (previous, seq, link.campaign, link.kind, link.subject, link.body, _plain(at))
        event["hash"] = previous = digest(columns)
        events.append(event)
    return events


def first_break(connection: Connection) -> str | None:
    """What is wrong with the first event that does not hold, or None: the whole ledger holds.

    Recomputes every hash and every row's digest. A row without an event is named last; one that
    holds what no column of its kind takes is named first.
    """
    models = {table_of(model).name: model for model in Row.__subclasses__() if model.chained}
    rows: dict[tuple[str, str], tuple[str | None, str]] = {}
    for model in models.values():
        try:
            links = list(_links(connection, model))
        except _UNREADABLE:
            if fault := _first_unreadable(connection, model):
                return fault
            raise
        rows |= {(link.kind, link.subject): (link.campaign, link.body) for link in links}
    try:
        return _first_broken(connection, rows, models.keys())
    except _UNREADABLE:
        if fault := _first_unreadable(connection, Event):
            return fault
        raise


def _first_broken(
    connection: Connection,
    rows: dict[tuple[str, str], tuple[str | None, str]],
    tables: Collection[str],
) -> str | None:
    """The first event that does not follow, or is not what its row says; then rows without one."""
    previous = ""
    events = connection.execute(select(*(EVENT.c[name] for name in _EVENT)).order_by(EVENT.c.seq))
    for place, event in enumerate(map(tuple, events), start=1):
        seq, campaign, kind, subject, body, at, named, hash = event
        where = f"event {seq} ({kind} {subject})"
        if seq != place:
            return f"event {place} is missing: the one after it is {where}"
        if named != previous:
            return f"{where} does not follow the event before it: one of the two was altered"
        if hash != digest([named, seq, campaign, kind, subject, body, _plain(at)]):
            return f"{where} was altered: its hash is not that of its columns"
        if kind in tables:
            row = rows.pop((kind, subject), None)
            if row is None:
                return f"{where} has no row: it was deleted, its key altered, or written twice"
            if row != (campaign, body):
                return f"{where} is not what the row says: the row was altered"
        elif not _is_note(body):
            return f"{where} was altered: no note has the body {body!r:.80}"
        previous = hash
    for kind, subject in rows:
        return f"{kind} {subject} has no event: it was written past the ledger"
    return None


def _links(connection: Connection, model: type[Row]) -> Iterator[Link]:
    """The link of every row of a table, as the row is now."""
    table = table_of(model)
    names = table.columns.keys()
    for row in connection.execute(select(table)):
        yield row_link(model, dict(zip(names, row, strict=True)))


def _first_unreadable(connection: Connection, model: type[Row]) -> str | None:
    """The first row that holds what the ledger cannot have written, None where there is none.

    SQLite takes any value in any column: a date that is none, text of no encoding, infinity.
    """
    table = table_of(model)
    keys = [column.name for column in table.primary_key]
    try:
        found = connection.exec_driver_sql(f"SELECT {', '.join(keys)} FROM {table.name}").all()
    except OperationalError as error:
        return f"{table.name} has a row whose key cannot be read, which was altered: {error.orig}"
    for key in found:
        one = select(table).where(*(table.c[k] == v for k, v in zip(keys, key, strict=True)))
        try:
            for row in connection.execute(one):
                row_link(model, dict(zip(table.columns.keys(), row, strict=True)))
        except _UNREADABLE as error:
            why = error.orig if isinstance(error, OperationalError) else error
            subject = model.natural_key.format_map(dict(zip(keys, key, strict=True)))
            return f"{table.name} {subject} was altered: the ledger writes no such value ({why})"
    return None


def _is_note(body: str) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


_UNREADABLE = (ValueError, TypeError, OperationalError)
_EVENT = ("seq", "campaign", "kind", "subject", "body", "at", "previous", "hash")
_HEAD = select(EVENT.c.seq, EVENT.c.hash).order_by(EVENT.c.seq.desc()).limit(1)


def _plain(value: Any) -> Any:
    """The value as JSON, the same before and after a stay in any of the databases."""
    kind = type(value)
    if kind is str or kind is int:  # nearly all of them
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, float):
        return value + 0.0  # SQLite keeps no negative zero
    return value
