"""The filters of a list of tools as SQL."""

import sqlalchemy as sa

from kelpie.core.tools.tools import ToolQuery, ToolType
from kelpie.storage.rows.text_match import holds
from kelpie.storage.tables import tools

_LETTA_TYPES = tuple(kind.value for kind in ToolType if kind.value.startswith("letta_"))


def matching(query: ToolQuery) -> list[sa.ColumnElement[bool]]:
    """The conditions of a query, without those it does not set."""
    c = tools.c
    where: list[sa.ColumnElement[bool]] = []
    if query.name is not None:
        where.append(c.name == query.name)
    if query.names:
        where.append(c.name.in_(query.names))
    if query.tool_ids:
        where.append(c.id.in_(query.tool_ids))
    if query.search:
        where.append(holds(c.name, query.search))
    if query.tool_types:
        where.append(c.tool_type.in_([kind.value for kind in query.tool_types]))
    if query.exclude_tool_types:
        where.append(c.tool_type.not_in([kind.value for kind in query.exclude_tool_types]))
    if query.only_letta:
        where.append(c.tool_type.in_(_LETTA_TYPES))
    if query.exclude_letta:
        where.append(c.tool_type.not_in(_LETTA_TYPES))
    if query.project_id is not None:
        where.append(sa.or_(c.project_id == query.project_id, c.project_id.is_(None)))
    return where
