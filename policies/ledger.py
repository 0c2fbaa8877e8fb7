"""The ledger: what the campaigns did, appended once and asked for ever after.

`append` takes rows of `policies.tables` and notes: those of one call land together with their
events in the hash chain (`policies/chain.py`), or none does. To ask for many gives a list, in the
order of their keys; to ask for one that ought to be there raises NotInLedger where it is not. Rows
come detached: changing one changes nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Connection, func, inspect, update
from sqlalchemy import delete as delete_from
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from policies.chain import EVENT, Link, Note, chain, first_break, note_link, row_link
from policies.database import open_database, writer
from policies.tables import (
    Adapter,
    AgentCall,
    Arm,
    Attempt,
    Calibration,
    Campaign,
    Candidate,
    Claim,
    DeadEnd,
    Event,
    FinalRun,
    Integrity,
    Lease,
    Look,
    Opening,
    Outbox,
    Patch,
    Policy,
    Report,
    Round,
    Row,
    Score,
    Spend,
    Substrate,
    Trial,
    table_of,
    utc_now,
)

SHOWN = 20  # of what there is instead, in an error
MEASURED = ("attempt", "trial", "score", "look", "integrity")  # the tables that a round fills
BY_CONTENT = (Substrate, Patch)  # the key is the hash of the content: one row serves all campaigns

R = TypeVar("R", bound=Row)


class DuplicateRow(ValueError):
    """A row with that key is in the ledger already, or twice in one call. Nothing was written."""

    def __init__(self, table: str, subject: str, found: str) -> None:
        super().__init__(
            f"wanted to append {table} {subject}: found its key taken ({found}); ask for what is "
            "there, and append only what is not"
        )
        self.table = table
        self.subject = subject


class NotInLedger(LookupError):
    """No row fits, or more than one does."""


class Ledger:
    """The ledger in one database. Any number of processes and threads may have it open."""

    def __init__(self, url: str) -> None:
        """Open `sqlite:///path` or a PostgreSQL URL, and bring its schema to this version's.

        Raises policies.database.UnknownSchema, having changed nothing, for a database that a later
        version or another program made.
        """
        self._engine = open_database(url)
        self._writer = writer(self._engine)

    def close(self) -> None:
        self._engine.dispose()

    # Append

    def append(
        self, *rows: Row | Note, unless: Callable[[Connection], Exception | None] | None = None
    ) -> None:
        """Append rows and notes with their events, in one transaction: all of them or none.

        `unless` is asked first, in that transaction, so that nobody writes between question and
        answer; what it returns is raised in place of the rows.

        A substrate or a patch that is there already is left as it is: its key is the hash of its
        content. After an error nothing was written; only where the commit itself failed that is
        unknown, so ask for the rows by key before appending them again.

        Raises DuplicateRow, ValueError for a value that its column does not take, and
        sqlalchemy.exc.OperationalError where the database cannot be written.
        """
        entries = [_entry(row) for row in rows]
        with self._writer.begin() as connection:
            if unless is not None and (refusal := unless(connection)) is not None:
                raise refusal
            links: list[Link] = []
            for model, values, link in entries:
                landed = model is None or _insert(connection, model, values)
                if landed and link is not None:
                    links.append(link)
            if links:
                connection.execute(EVENT.insert(), chain(connection, links, utc_now()))

    def note(self, campaign: str | None, kind: str, subject: str, body: Mapping[str, Any]) -> None:
        """Append one note: a change of state, such as `campaign.stopped`, with its details."""
        self.append(Note(campaign, kind, subject, body))

    # Ask

    def campaigns(self) -> list[Campaign]:
        """All campaigns, newest first."""
        rows = self._all(Campaign)
        return sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)

    def campaign(self, campaign: str) -> Campaign:
        return self._one(Campaign, id=campaign)

    def find_campaign(self, text: str | None) -> Campaign:
        """The newest campaign for None, else the one whose id is `text` or alone begins with it.

        Raises NotInLedger with the ids that there are.
        """
        there = self.campaigns()
        if text is None:
            fit = there[:1]
        else:
            fit = [row for row in there if row.id == text]
            fit = fit or [row for row in there if row.id.startswith(text)]
        if len(fit) == 1:
            return fit[0]
        wanted = "a campaign" if text is None else f"one campaign whose id begins with {text!r}"
        ids = ", ".join(row.id for row in fit or there)
        raise NotInLedger(
            f"wanted {wanted}: found {f'{len(fit)}: {ids}' if fit else 'none'}; "
            + ("start one with `seedbed run`" if not there else f"name one of {ids}")
        )

    def substrate(self, sha256: str) -> Substrate | None:
        """The sealed snapshot of that digest, once a campaign used it."""
        return self._find(Substrate, sha256=sha256)

    def substrates(self, name: str | None = None) -> list[Substrate]:
        """The sealed snapshots, of that name or of any, oldest first."""
        return sorted(self._all(Substrate, name=name), key=lambda row: (row.sealed_at, row.sha256))

    def policies(self, campaign: str) -> list[Policy]:
        return self._all(Policy, campaign=campaign)

    def policy(self, campaign: str, version: int | None = None) -> Policy:
        """That version of the policy; None is the newest."""
        if version is None:
            newest = select(func.max(Policy.version)).where(Policy.campaign == campaign)
            with Session(self._engine) as session:
                version = session.exec(newest).one() or 1
        return self._one(Policy, campaign=campaign, version=version)

    def rounds(self, campaign: str) -> list[Round]:
        return self._all(Round, campaign=campaign)

    def round(self, campaign: str, number: int) -> Round:
        return self._one(Round, campaign=campaign, number=number)

    def attempts(
        self, campaign: str, round: int | None = None, slot: int | None = None
    ) -> list[Attempt]:
        return self._all(Attempt, campaign=campaign, round=round, slot=slot)

    def trials(self, campaign: str, round: int | None = None) -> list[Trial]:
        return self._all(Trial, campaign=campaign, round=round)

    def scores(
        self,
        campaign: str,
        round: int | None = None,
        slot: int | None = None,
        set: str | None = None,
    ) -> list[Score]:
        """Scores, of one problem set or of all: by domain, and over the whole set as `overall`."""
        return self._all(Score, campaign=campaign, round=round, slot=slot, problem_set=set)

    def looks(self, campaign: str) -> list[Look]:
        """The looks at the external set, in the order in which they were taken."""
        return sorted(self._all(Look, campaign=campaign), key=lambda look: look.number)

    def reports(self, campaign: str) -> list[Report]:
        return self._all(Report, campaign=campaign)

    def integrity(
        self, campaign: str, round: int | None = None, slot: int | None = None
    ) -> list[Integrity]:
        """Integrity events, in the order of slots and attempts."""
        return self._all(Integrity, campaign=campaign, round=round, slot=slot)

    def makers(self, sha256: str, tensors_sha256: str) -> list[Adapter]:
        """The runs that are known to have delivered an adapter, or one of the same tensors."""
        same = (Adapter.sha256 == sha256) | (Adapter.tensors_sha256 == tensors_sha256)
        return self._all(Adapter, cast(ColumnElement[bool], same))

    def report(self, campaign: str, round: int) -> Report | None:
        """The report of a round, once it is complete."""
        return self._find(Report, campaign=campaign, round=round)

    def claims(self, campaign: str, policy_version: int | None = None) -> list[Claim]:
        return self._all(Claim, campaign=campaign, policy_version=policy_version)

    def dead_ends(self, campaign: str) -> list[DeadEnd]:
        return self._all(DeadEnd, campaign=campaign)

    def spends(self, campaign: str) -> list[Spend]:
        return self._all(Spend, campaign=campaign)

    def agent_calls(self, campaign: str) -> list[AgentCall]:
        """The calls of agents to models, in the order in which they ended."""
        return sorted(self._all(AgentCall, campaign=campaign), key=lambda row: (row.at, row.call))

    def patches(self) -> frozenset[str]:
        """The digests of all stored patches."""
        with Session(self._engine) as session:
            return frozenset(session.exec(select(Patch.sha256)))

    def patch(self, sha256: str) -> Patch | None:
        return self._find(Patch, sha256=sha256)

    def patch_text(self, sha256: str) -> str:
        return self._one(Patch, sha256=sha256).text

    def calibrations(
        self, substrate_sha256: str, recipe: str | None = None, rollouts: int | None = None
    ) -> list[Calibration]:
        """Runs and probes of a snapshot: of one recipe at one budget, or of all."""
        return self._all(
            Calibration, substrate_sha256=substrate_sha256, recipe=recipe, rollouts=rollouts
        )

    def candidate(self, campaign: str) -> Candidate | None:
        """What the campaign will be judged by, once it was chosen."""
        return self._find(Candidate, campaign=campaign)

    def final_runs(self, campaign: str, arm: Arm | None = None) -> list[FinalRun]:
        return self._all(FinalRun, campaign=campaign, arm=arm)

    def opening(self, campaign: str) -> Opening | None:
        """The opening of the campaign's lockbox, if it was opened."""
        return self._find(Opening, campaign=campaign)

    def events(self, campaign: str | None = None, kind: str | None = None) -> list[Event]:
        """Events, of one campaign or of all, in the order in which they happened."""
        return self._all(Event, campaign=campaign, kind=kind)

    def last_event(self) -> Event | None:
        """The chain's head."""
        newest = select(Event).order_by(col(Event.seq).desc()).limit(1)
        with Session(self._engine) as session:
            return session.exec(newest).first()

    def last_event_of_round(self, campaign: str, round: int) -> Event:
        """The newest event of what a round measured, from its attempts to its incidents."""
        within = f"{campaign}/r{round}/"
        measured = select(Event).where(
            Event.campaign == campaign,
            col(Event.kind).in_(MEASURED),
            col(Event.subject).startswith(within, autoescape=True),
        )
        with Session(self._engine) as session:
            last = session.exec(measured.order_by(col(Event.seq).desc()).limit(1)).first()
        if last is None:
            raise NotInLedger(
                f"wanted events of {within}: found none; run the round's trials first"
            )
        return last

    # Leases: held until they expire, unless renewed. A holder's name is one process's own.

    def claim_lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take a lease that is free, expired or the holder's already; False where it is not."""
        with self._writer.begin() as connection:
            now = _now(connection)
            until = {"holder": holder, "expires_at": now + timedelta(seconds=seconds)}
            free = (LEASE.c.expires_at <= now) | (LEASE.c.holder == holder)
            taken_over = update(LEASE).where(LEASE.c.name == name, free).values(until)
            if connection.execute(taken_over).rowcount:
                return True
            held = connection.execute(select(LEASE.c.name).where(LEASE.c.name == name)).first()
            if held is None:
                connection.execute(LEASE.insert(), {"name": name, **until})
            return held is None

    def renew_lease(self, name: str, holder: str, seconds: float) -> bool:
        """Prolong a lease, counted from now; False where it was lost or has expired."""
        with self._writer.begin() as connection:
            now = _now(connection)
            ours = (LEASE.c.name == name, LEASE.c.holder == holder, LEASE.c.expires_at > now)
            until = {"expires_at": now + timedelta(seconds=seconds)}
            return connection.execute(update(LEASE).where(*ours).values(until)).rowcount == 1

    def lease_holder(self, name: str) -> str | None:
        """Who claimed the lease last and has not given it back, whether or not it has expired."""
        lease = self._find(Lease, name=name)
        return lease.holder if lease else None

    def leases(self) -> list[Lease]:
        """Every lease that was claimed and not given back, whether or not it has expired."""
        return self._all(Lease)

    def release_lease(self, name: str, holder: str) -> None:
        """Give a lease back; one that another holds is left as it is."""
        with self._writer.begin() as connection:
            ours = (LEASE.c.name == name, LEASE.c.holder == holder)
            connection.execute(delete_from(LEASE).where(*ours))

    # Outbox

    def unpublished(self, campaign: str | None = None) -> list[Outbox]:
        """What is still to be published, oldest first."""
        return self._all(Outbox, col(Outbox.published_at).is_(None), campaign=campaign)

    def mark_published(self, outbox_id: int) -> None:
        """Say that an entry of the outbox was published. The first time counts."""
        entry = self._one(Outbox, id=outbox_id)
        if entry.published_at is None:
            outbox = table_of(Outbox)
            with self._writer.begin() as connection:
                published = update(outbox).where(outbox.c.id == outbox_id)
                connection.execute(published.values(published_at=utc_now()))

    # How asking is done

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees the ledger as it is now, whatever is appended meanwhile."""
        with self._engine.connect() as connection:
            yield connection

    def _all(
        self, model: type[R], *conditions: ColumnElement[bool], **columns: str | int | None
    ) -> list[R]:
        """Rows in the order of their keys; a column that is None may be anything."""
        fixed = {name: value for name, value in columns.items() if value is not None}
        query = select(model).where(*conditions).filter_by(**fixed)
        with Session(self._engine) as session:
            return list(session.exec(query.order_by(*inspect(model).primary_key)))

    def _find(self, model: type[R], **key: str | int) -> R | None:
        rows = self._all(model, **key)
        return rows[0] if rows else None

    def _one(self, model: type[R], **key: str | int) -> R:
        row = self._find(model, **key)
        if row is not None:
            return row
        wanted = ", ".join(f"{name} {value!r}" for name, value in key.items())
        raise NotInLedger(
            f"wanted {table_of(model).name} with {wanted}: found none in the ledger; "
            f"{self._there(model, key)}"
        )

    def _there(self, model: type[Row], key: Mapping[str, str | int]) -> str:
        """What there is instead of the row that was asked for."""
        columns = table_of(model).c
        *outer, last = key
        same = [columns[name] == key[name] for name in outer]
        query = select(columns[last]).where(*same).distinct().order_by(columns[last]).limit(SHOWN)
        with self.read() as connection:
            there = ", ".join(str(value) for value in connection.scalars(query))
        return f"there is {last} {there}" if there else "there is none at all"


def verify_chain(ledger: Ledger) -> str | None:
    """What is wrong with the first event that does not hold; None where all of them do."""
    with ledger.read() as connection:
        return first_break(connection)


LEASE = table_of(Lease)


def _entry(row: Row | Note) -> tuple[type[Row] | None, dict[str, Any], Link | None]:
    """The table, the columns and the link to be written. Raises ValueError for bad values."""
    if isinstance(row, Note):
        return None, {}, note_link(row)
    if isinstance(row, Event):
        raise ValueError("wanted rows and notes: found an event; append a Note, which becomes one")
    model = type(row)
    # A table's class takes any value when it is made; this is where they are checked.
    values = model.model_validate(row.model_dump(warnings=False)).model_dump()
    return model, values, row_link(model, values) if model.chained else None


def _insert(connection: Connection, model: type[Row], values: Mapping[str, Any]) -> bool:
    """Write a row; False where its content is there already. Raises DuplicateRow."""
    table = table_of(model)
    if model in BY_CONTENT:
        same = select(table.c.sha256).where(table.c.sha256 == values["sha256"])
        if connection.execute(same).first() is not None:
            return False
    try:
        connection.execute(table.insert(), {k: v for k, v in values.items() if v is not None})
    except IntegrityError as error:
        found = str(error.orig).splitlines()[0]
        if "unique constraint" not in found.lower():
            raise
        raise DuplicateRow(table.name, model.natural_key.format(**values), found) from error
    return True


def _now(connection: Connection) -> Any:
    """The database's clock; a SQLite file has that of the machine it is on."""
    if connection.dialect.name == "sqlite":
        return utc_now()
    return connection.execute(select(func.clock_timestamp())).scalar_one()
