"""What Alembic runs for every command: it works on the connection it is given and opens none itself."""

from alembic import context

from kelpie.storage.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
