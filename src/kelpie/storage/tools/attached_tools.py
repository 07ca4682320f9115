"""The tools of many agents, for answers that show both. Agents share most of their tools, and tools change rarely, so a
tool that was read before is not read again while its version stays.

A transaction that writes keeps nothing for others: it could see a version of a tool that is never committed.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa

from kelpie.core.ids import AgentId
from kelpie.core.tools.tools import Tool
from kelpie.search.cache import SizedCache
from kelpie.storage.tables import agent_tools, tools
from kelpie.storage.tools.rows import from_row
from kelpie.world.database import Tx, remembered
from kelpie.world.statements import Prepared

CACHE_BYTES_MAX = 8 * 1024 * 1024  # of tools as JSON
_ID_CHUNK = 5000  # ids per IN list
_OTHERS = 1024  # bytes of the other fields of a tool

_LINKS = sa.select(
    agent_tools.c.agent_id, agent_tools.c.position, agent_tools.c.tool_id, tools.c.version, tools.c.updated_at
).join(tools, tools.c.id == agent_tools.c.tool_id)
_LINKS_OF_ONE = Prepared(_LINKS.where(agent_tools.c.agent_id == sa.bindparam("of_agent")))
_LINKS_OF_MANY = _LINKS.where(agent_tools.c.agent_id.in_(sa.bindparam("of_agents", expanding=True)))
_SIZES = sa.select(
    tools.c.id,
    sa.func.coalesce(sa.func.length(tools.c.source_code), 0)
    + sa.func.length(sa.cast(tools.c.json_schema, sa.Text))
    + sa.func.coalesce(sa.func.length(sa.cast(tools.c.args_json_schema, sa.Text)), 0),
).where(tools.c.id.in_(sa.bindparam("ids", expanding=True)))
_TOOLS = sa.select(tools).where(tools.c.id.in_(sa.bindparam("ids", expanding=True)))

_Version = tuple[str, int, int]  # id, version and time of the last change


class _KnownTool(NamedTuple):
    tool: Tool
    bytes: int  # approximately, as JSON


class _ToolCache(SizedCache[_Version, _KnownTool]):
    """Tools by version."""

    def __init__(self) -> None:
        super().__init__(CACHE_BYTES_MAX)


class AttachedTools:
    """Which tools some agents have; how large they are, and the tools themselves, are read as far as needed."""

    def __init__(self, tx: Tx, agent_ids: Sequence[AgentId], *, writes: bool) -> None:
        """`writes` says whether the transaction may write."""
        self._tx = tx
        self._writes = writes
        self._cache = remembered(tx, _ToolCache)
        self._links: dict[str, list[tuple[int, str]]] = {agent_id: [] for agent_id in agent_ids}
        self._versions: dict[str, _Version] = {}
        self._found: dict[str, _KnownTool] = {}
        for agent_id, position, tool_id, version, updated_at in self._rows(agent_ids):
            self._links[agent_id].append((position, tool_id))
            if tool_id not in self._versions:
                self._versions[tool_id] = key = (tool_id, version, updated_at)
                if (known := self._cache.get(key)) is not None:
                    self._found[tool_id] = known
        for links in self._links.values():
            links.sort()

    def sizes(self) -> dict[AgentId, int]:
        """The approximate size in bytes of the tools of each agent."""
        size_of = {tool_id: known.bytes for tool_id, known in self._found.items()}
        for ids in _chunks(tool_id for tool_id in self._versions if tool_id not in size_of):
            size_of.update((tool_id, size + _OTHERS) for tool_id, size in self._tx.execute(_SIZES, {"ids": ids}))
        return {
            AgentId(agent_id): sum(size_of[tool_id] for _, tool_id in links) for agent_id, links in self._links.items()
        }

    def of(self, agent_ids: Sequence[AgentId]) -> dict[AgentId, tuple[Tool, ...]]:
        """The tools of some of the agents, in the order they were attached."""
        wanted = {tool_id: None for agent_id in agent_ids for _, tool_id in self._links[agent_id]}
        for ids in _chunks(tool_id for tool_id in wanted if tool_id not in self._found):
            for tool in map(from_row, self._tx.execute(_TOOLS, {"ids": ids})):
                self._found[tool.id] = known = _KnownTool(tool, _size(tool))
                if not self._writes:
                    self._cache.put(self._versions[tool.id], known)
        return {
            agent_id: tuple([self._found[tool_id].tool for _, tool_id in self._links[agent_id]])
            for agent_id in agent_ids
        }

    def _rows(self, agent_ids: Sequence[AgentId]) -> Iterable[Any]:
        if len(agent_ids) == 1:
            yield from _LINKS_OF_ONE.rows(self._tx, {"of_agent": agent_ids[0]})
            return
        for ids in _chunks(agent_ids):
            yield from self._tx.execute(_LINKS_OF_MANY, {"of_agents": ids})


def _chunks(ids: Iterable[str]) -> Iterable[list[str]]:
    every = list(ids)
    return (every[start : start + _ID_CHUNK] for start in range(0, len(every), _ID_CHUNK))


def _size(tool: Tool) -> int:
    """Approximate size of a tool as JSON."""
    schemas = orjson.dumps((dict(tool.json_schema), dict(tool.args_json_schema or {})))
    return len(tool.source_code or "") + len(schemas) + _OTHERS
