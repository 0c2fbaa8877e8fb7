"""What Alembic runs: the migrations, on the connection and in the transaction it is handed."""

from alembic import context
from sqlmodel import SQLModel

from policies import tables as tables  # fills the metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=SQLModel.metadata
)
with context.begin_transaction():
    context.run_migrations()
