"""Tools by their names, which every new agent needs: a row that reads as it did before is not converted again.

What is kept depends on nothing but the content of the row, so it is right in every transaction.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson
import sqlalchemy as sa

from kelpie.core.ids import OrganizationId
from kelpie.core.tools.tools import Tool
from kelpie.storage.tables import tools
from kelpie.storage.tools.rows import from_row
from kelpie.world.database import Tx
from kelpie.world.statements import Prepared

_NAMES_MAX = 64  # of one statement with a place for each; more than there are built-in tools, which each start reads
_KEPT_MAX = 128  # rows
_CHARS_MAX = 16_000  # of the source and the schema of a row that is kept

_JSON = tuple(at for at, column in enumerate(tools.c) if isinstance(column.type, sa.JSON))
_SOURCE, _SCHEMA = (list(tools.c.keys()).index(name) for name in ("source_code", "json_schema"))
_OURS = tools.c.organization_id == sa.bindparam("of_organization")
_ANY = sa.select(tools).where(_OURS, tools.c.name.in_(sa.bindparam("names", expanding=True)))


def by_names(tx: Tx, organization: OrganizationId, names: Sequence[str]) -> dict[str, Tool]:
    """The existing tools of these names, by name."""
    if not names:
        return {}
    if tx.dialect.name != "sqlite" or len(names) > _NAMES_MAX:
        rows = tx.execute(_ANY, {"of_organization": organization, "names": list(names)})
        return {tool.name: tool for tool in map(from_row, rows)}
    bound = {"of_organization": organization, **{f"name{at}": name for at, name in enumerate(names)}}
    found = [_tool(tuple(row)) for row in _unread(len(names)).rows(tx, bound)]
    return {tool.name: tool for tool in found}


@lru_cache(maxsize=_NAMES_MAX + 1)
def _unread(names: int) -> Prepared:
    """The rows of so many names, with JSON as the text that is stored."""
    columns = [sa.type_coerce(each, sa.Text) if at in _JSON else each for at, each in enumerate(tools.c)]
    named = sa.or_(*(tools.c.name == sa.bindparam(f"name{at}") for at in range(names)))
    return Prepared(sa.select(*columns).where(_OURS, named))


def _tool(row: tuple[Any, ...]) -> Tool:
    chars = len(row[_SOURCE] or "") + len(row[_SCHEMA])
    return _kept(row) if chars <= _CHARS_MAX else _read(row)


def _read(row: tuple[Any, ...]) -> Tool:
    values = list(row)
    for at in _JSON:
        values[at] = None if row[at] is None else orjson.loads(row[at])
    return from_row(values)


@lru_cache(maxsize=_KEPT_MAX)
def _kept(row: tuple[Any, ...]) -> Tool:
    return _read(row)
