"""Every text that the ledger holds, for whoever looks for what must not be in it."""

from collections.abc import Iterator

from sqlalchemy import String, select, type_coerce

from policies.ledger import Ledger
from policies.tables import Row, table_of


def every_text(ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Table and content of every row, its texts on one line each.

    Values come as they are stored: a date in a lease that is none keeps nobody from the rest.
    """
    with ledger.read() as connection:
        for model in Row.__subclasses__():
            table = table_of(model)
            stored = (type_coerce(column, String) for column in table.columns)
            for row in connection.execute(select(*stored)):
                yield table.name, "\n".join(value for value in row if isinstance(value, str))
