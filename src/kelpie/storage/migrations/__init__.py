"""Moves a database from one schema revision to another with Alembic, inside the caller's transaction.

Only `storage.schema` imports this package, and only when a database is not at the newest revision: Alembic is slow to
import. A revision, once released, is never edited. SQLite's DDL is transactional, so a migration that fails midway
changes nothing. Foreign keys stay on while it runs: a revision must never drop or rebuild a table others point to,
because the rows that point to it would be deleted with it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text


def upgrade(tx: Connection, locations: Sequence[str], revision: str) -> None:
    """Runs every revision from where the database is up to this one."""
    command.upgrade(_config(tx, locations), revision)


def downgrade(tx: Connection, locations: Sequence[str], revision: str) -> None:
    """Takes back every revision above this one; "base" takes back all and drops every table."""
    command.downgrade(_config(tx, locations), revision)


def history(locations: Sequence[str]) -> tuple[str, ...]:
    """All revisions, oldest first."""
    script = ScriptDirectory.from_config(_config(None, locations))
    return tuple(reversed([found.revision for found in script.walk_revisions()]))


def _config(tx: Connection | None, locations: Sequence[str]) -> Config:
    config = Config()
    config.set_main_option("script_location", _plain(str(Path(__file__).parent)))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", _plain(os.pathsep.join(locations)))
    if tx is not None:
        # Makes SQLAlchemy's own transaction exist, so that Alembic joins it and commits nothing itself.
        tx.execute(text("SELECT 1"))
        config.attributes["connection"] = tx
    return config


def _plain(value: str) -> str:
    """Alembic's configuration takes a percent sign as the start of a reference."""
    return value.replace("%", "%%")
