"""Alembic's environment script, run for every command: it works on the given connection and opens none itself."""

from alembic import context

from kelpie.storage.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
