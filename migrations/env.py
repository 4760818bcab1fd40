"""Alembic's entry: runs revisions on the connection that `unistream.metadata.migrate` has opened."""

from alembic import context

from unistream.base.errors import ConfigError
from unistream.metadata.migrate import configure_options

connection = context.config.attributes.get("connection")
if connection is None:
    raise ConfigError("run `unistream db upgrade`, not alembic itself: it opens the database and locks it")

context.configure(connection=connection, **configure_options())
with context.begin_transaction():
    context.run_migrations()
