"""Prints revision 0001 from `tables`. Until the first release `python tests/storage/render_revision.py` rewrites it;
from then on a change of `tables` needs a revision of its own."""

from pathlib import Path

from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations.ops import CreateTableOp, DropTableOp, UpgradeOps

from kelpie.storage import schema
from kelpie.storage.tables import metadata
from kelpie.world.sqlite.connections import memory_connection

HEADER = '''"""The first schema: everything in `tables` at the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None
'''


# In a database it is JSON; that it may be broken concerns its reader.
_KEPT = "kelpie.storage.rows.checksums.ChecksummedJson("


def render() -> str:
    context = MigrationContext.configure(memory_connection(), opts={"target_metadata": metadata})
    upgrade = produce_migrations(context, metadata).upgrade_ops
    assert isinstance(upgrade, UpgradeOps)
    body = _code(render_python_code(upgrade))
    created = [found.table_name for found in upgrade.ops if isinstance(found, CreateTableOp)]
    drops = "\n".join(_code(render_python_code(UpgradeOps([DropTableOp(name)]))) for name in reversed(created))
    return f"{HEADER}\n\ndef upgrade() -> None:\n{body}\n\n\ndef downgrade() -> None:\n{drops}\n"


def _code(rendered: str) -> str:
    lines = [line for line in rendered.splitlines() if not line.lstrip().startswith("# ###")]
    return "\n".join(lines).strip("\n").replace(_KEPT, "sa.JSON(")


if __name__ == "__main__":
    Path(schema.REVISIONS.locations[0], "0001_first.py").write_text(render())
