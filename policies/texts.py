"""Every text that the ledger holds, for whoever looks for what must not be in it."""

from collections.abc import Iterator

from sqlalchemy import select

from policies.ledger import Ledger
from policies.tables import Row, table_of


def every_text(ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Table and content of every row, its texts on one line each."""
    with ledger.read() as connection:
        for model in Row.__subclasses__():
            table = table_of(model)
            for row in connection.execute(select(table)):
                yield table.name, "\n".join(value for value in row if isinstance(value, str))
