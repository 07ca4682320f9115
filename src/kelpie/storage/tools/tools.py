"""Tools as rows, and their attachments to agents. A tool's name is unique in its organisation."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict, InvalidInput, NotFound
from kelpie.core.ids import AgentId, OrganizationId, ToolId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.core.tools.tools import Tool, ToolQuery
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.rows import paging
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.tables import agent_tools, tools
from kelpie.storage.tools import search as tool_search
from kelpie.storage.tools.by_name import by_names
from kelpie.storage.tools.filters import matching
from kelpie.storage.tools.rows import from_row, to_column, to_row
from kelpie.world.database import Tx

_FIXED = frozenset(
    {"id", "organization_id", "created_at", "updated_at", "created_by_id", "last_updated_by_id", "version"}
)
_CHANGEABLE = frozenset(field.name for field in fields(Tool)) - _FIXED

_ALL = sa.select(tools)
_ONE = _ALL.where(tools.c.id == sa.bindparam("of_tool"))
_ONE_LOCKED = _ONE.with_for_update()
_INSERT = sa.insert(tools)
_DELETE = sa.delete(tools).where(tools.c.id == sa.bindparam("of_tool"))


def get(tx: Tx, tool_id: ToolId, *, lock: bool = False) -> Tool:
    """Raises NotFound."""
    row = tx.execute(_ONE_LOCKED if lock else _ONE, {"of_tool": tool_id}).first()
    if row is None:
        raise NotFound("Tool", tool_id)
    return from_row(row)


def select(tx: Tx, organization: OrganizationId, query: ToolQuery) -> list[Tool]:
    """The tools that match every filter, on the requested page."""
    found = _ALL.where(tools.c.organization_id == organization, *matching(query))
    return [
        from_row(row) for row in paging.page(tx, found, tools, query.page, within={"organization_id": organization})
    ]


def count(tx: Tx, organization: OrganizationId, query: ToolQuery) -> int:
    """Number of tools that match the filters, on all pages together."""
    number = sa.select(sa.func.count()).select_from(tools)
    return int(tx.execute(number.where(tools.c.organization_id == organization, *matching(query))).scalar_one())


# --- changing -------------------------------------------------------------------------------------------------------


def insert(tx: Tx, tool: Tool) -> None:
    """Writes a new tool. Raises Conflict when its name is taken."""
    try:
        tx.execute(_INSERT, to_row(tool))
    except IntegrityError as error:
        raise _name_conflict(tool.name) from error
    tool_search.put_many(tx, tool.organization_id, (tool,))


def insert_builtin(tx: Tx, organization: OrganizationId, made: Sequence[Tool]) -> None:
    """Writes new tools of an organisation whose names the caller knows to be free."""
    if made:
        tx.execute(_INSERT, [to_row(tool) for tool in made])
        tool_search.put_many(tx, organization, made)


def _name_conflict(name: str) -> Conflict:
    return Conflict(f"a tool with the name '{name}' already exists; update that one or use another name")


@lru_cache(maxsize=256)
def _update_statement(names: tuple[str, ...]) -> sa.Update:
    new = {name: sa.bindparam(f"new_{name}", type_=tools.c[name].type) for name in names}
    return sa.update(tools).where(tools.c.id == sa.bindparam("of_tool")).values(new)


def update(
    tx: Tx, tool_id: ToolId, changes: Mapping[str, Any], now: Micros, by: str | None
) -> tuple[Tool, bool, tuple[AgentId, ...]]:
    """Applies changes by field name; returns the tool, whether anything changed, and then the agents that have it.

    Raises NotFound, Conflict when the new name is taken, and InvalidInput for an unknown field.
    """
    for name in changes:
        if name not in _CHANGEABLE:
            raise InvalidInput(name, "this field of a tool cannot be changed")
    before = get(tx, tool_id, lock=True)
    old = to_row(before)
    real = {name: to_column(value) for name, value in changes.items() if to_column(value) != old[name]}
    if not real:
        return before, False, ()
    if real.get("name") and by_names(tx, before.organization_id, [real["name"]]):
        raise _name_conflict(real["name"])
    columns = real | {"updated_at": now, "last_updated_by_id": by, "version": before.version + 1}
    bound = {f"new_{name}": value for name, value in columns.items()}
    tx.execute(_update_statement(tuple(sorted(columns))), bound | {"of_tool": tool_id})
    after = get(tx, tool_id)
    if tool_search.FIELDS & real.keys():
        tool_search.replace(tx, before, after)
    return after, True, agents_with(tx, tool_id)


def upsert(tx: Tx, tool: Tool) -> tuple[Tool, tuple[AgentId, ...]]:
    """Inserts the tool, or copies its settings to the one that has its name; that one keeps its id and creation time,
    and its tags, its metadata and whether it needs approval unless new ones are given."""
    there = by_names(tx, tool.organization_id, [tool.name]).get(tool.name)
    if there is None:
        insert(tx, tool)
        return get(tx, tool.id), ()
    given = {"tags": bool(tool.tags), "default_requires_approval": tool.default_requires_approval is not None}
    changes = {name: getattr(tool, name) for name in sorted(_CHANGEABLE) if given.get(name, True)}
    changes["metadata"] = {**(there.metadata or {}), **(tool.metadata or {})}
    after, _, affected = update(tx, there.id, changes, tool.updated_at, tool.last_updated_by_id)
    return after, affected


def delete(tx: Tx, tool_id: ToolId) -> tuple[AgentId, ...]:
    """Deletes the tool, also from its agents, which are returned. Raises NotFound."""
    get(tx, tool_id, lock=True)
    affected = agents_with(tx, tool_id)
    tx.execute(_DETACH_ALL, {"of_tool": tool_id})
    tool_search.remove_many(tx, (tool_id,))
    tx.execute(_DELETE, {"of_tool": tool_id})
    return affected


# --- attachments to agents --------------------------------------------------------------------------------------------

_HAS = sa.select(agent_tools.c.position).where(
    agent_tools.c.agent_id == sa.bindparam("of_agent"), agent_tools.c.tool_id == sa.bindparam("of_tool")
)
_NEXT_POSITION = sa.select(sa.func.coalesce(sa.func.max(agent_tools.c.position), -1) + 1).where(
    agent_tools.c.agent_id == sa.bindparam("of_agent")
)
_ATTACH = Insert(agent_tools)
_DETACH = sa.delete(agent_tools).where(
    agent_tools.c.agent_id == sa.bindparam("of_agent"), agent_tools.c.tool_id == sa.bindparam("of_tool")
)
_CLEAR = sa.delete(agent_tools).where(agent_tools.c.agent_id == sa.bindparam("of_agent"))
_DETACH_ALL = sa.delete(agent_tools).where(agent_tools.c.tool_id == sa.bindparam("of_tool"))
_HOLDERS = (
    sa.select(agent_tools.c.agent_id)
    .where(agent_tools.c.tool_id == sa.bindparam("of_tool"))
    .order_by(agent_tools.c.agent_id)
)
_ATTACHED = sa.select(tools, agent_tools.c.agent_id).join(agent_tools, agent_tools.c.tool_id == tools.c.id)
_OF_AGENT = _ATTACHED.where(agent_tools.c.agent_id == sa.bindparam("of_agent"))
_OF_AGENT_ORDERED = _OF_AGENT.order_by(agent_tools.c.position, tools.c.id)


def attach(tx: Tx, agent_id: AgentId, tool_id: ToolId) -> bool:
    """Attaches the tool to the agent, after those it has; False when it had it. Raises NotFound for either."""
    get(tx, tool_id)
    agent_rows.require(tx, agent_id)
    if tx.execute(_HAS, {"of_agent": agent_id, "of_tool": tool_id}).scalar() is not None:
        return False
    position = tx.execute(_NEXT_POSITION, {"of_agent": agent_id}).scalar_one()
    _ATTACH.run(tx, [{"agent_id": agent_id, "tool_id": tool_id, "position": position}])
    return True


def detach(tx: Tx, agent_id: AgentId, tool_id: ToolId) -> bool:
    """Detaches the tool from the agent; False when it did not have it."""
    return tx.execute(_DETACH, {"of_agent": agent_id, "of_tool": tool_id}).rowcount > 0


def replace_for_agent(tx: Tx, agent_id: AgentId, tool_ids: Sequence[ToolId]) -> None:
    """Makes these the tools of the agent, in this order. Raises NotFound."""
    tx.execute(_CLEAR, {"of_agent": agent_id})
    for tool_id in dict.fromkeys(tool_ids):
        attach(tx, agent_id, tool_id)


def give_to_new(tx: Tx, agent_id: AgentId, tool_ids: Sequence[ToolId]) -> None:
    """Attaches its tools to an agent that was just created, in this order; the caller knows that they exist."""
    if tool_ids:
        each = enumerate(dict.fromkeys(tool_ids))
        _ATTACH.run(tx, [{"agent_id": agent_id, "tool_id": tool_id, "position": at} for at, tool_id in each])


def agents_with(tx: Tx, tool_id: ToolId) -> tuple[AgentId, ...]:
    """Every agent that has the tool."""
    return tuple(AgentId(row[0]) for row in tx.execute(_HOLDERS, {"of_tool": tool_id}))


def of_agent(tx: Tx, agent_id: AgentId) -> list[Tool]:
    """The tools of one agent, in the order they were attached."""
    return [from_row(row) for row in tx.execute(_OF_AGENT_ORDERED, {"of_agent": agent_id})]


def page_of_agent(tx: Tx, organization: OrganizationId, agent_id: AgentId, page: Page) -> list[Tool]:
    """The tools of one agent, in the requested order and on the requested page."""
    rows = paging.page(tx, _OF_AGENT, tools, page, {"of_agent": agent_id}, within={"organization_id": organization})
    return [from_row(row) for row in rows]
