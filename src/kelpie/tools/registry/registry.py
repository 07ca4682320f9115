"""Tools: registered, changed, and attached to agents.

Registering is by name: a tool that has the name already is updated and keeps its id, so agents keep it. Source code is
read by a worker process and never run here. Names of built-in tools are reserved; a custom tool that had one before
Kelpie did keeps it, and hides the built-in tool until it is removed or renamed.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.agent import EVERYTHING, AgentView
from kelpie.core.ids import AgentId, ToolId
from kelpie.core.paging import Page
from kelpie.core.tools.sandbox_caps import NO_CAPS, SandboxCaps
from kelpie.core.tools.tools import NewTool, Tool, ToolHit, ToolQuery, ToolSearch, ToolType
from kelpie.memory.embeddings import Embeddings
from kelpie.memory.hybrid_search import SearchResults
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.tools import tools as rows
from kelpie.storage.views import agents as agent_views
from kelpie.tools.builtin import BUILTINS
from kelpie.tools.calls import approval_rule
from kelpie.tools.calls.interface import TransactionalTool
from kelpie.tools.calls.precomputed_search import Preparation
from kelpie.tools.custom.definition import (
    check_function,
    check_requirements,
    check_return_limit,
    check_source,
    derived_schema,
    is_python,
    make,
)
from kelpie.tools.registry import search
from kelpie.tools.registry import writes as tool_writes
from kelpie.tools.registry.writes import ensure_builtins, log_shadowed
from kelpie.tools.schema.source_reader import SourceReader
from kelpie.world.database import Tx
from kelpie.world.world import World

_MADE_READY = frozenset({"source_code", "source_type", "pip_requirements", "npm_requirements"})


def transactional(name: str) -> TransactionalTool | None:
    """The function of the built-in tool of this name, if there is one."""
    builtin = BUILTINS.get(name)
    return None if builtin is None else builtin.run


def preparation(name: str) -> Preparation | None:
    """The function that precomputes for the built-in tool of this name before it runs, if it needs one."""
    builtin = BUILTINS.get(name)
    return None if builtin is None else builtin.precompute


class Tools:
    """Tools of the caller's organization. `reload_agents` is called with the agents that must reload, after the commit;
    `prepare` installs what a tool needs before it is stored, and raises InvalidInput when it cannot; `caps` are the
    operator's, on what a tool may ask for.
    """

    def __init__(
        self,
        world: World,
        embeddings: Embeddings,
        reload_agents: Callable[[Iterable[AgentId]], None],
        caller: Caller = DEFAULT_CALLER,
        prepare: Callable[[Tool], Awaitable[None]] | None = None,
        caps: SandboxCaps = NO_CAPS,
    ) -> None:
        self._world = world
        self._embeddings = embeddings
        self._reload_agents = reload_agents
        self._prepare = prepare
        self._caps = caps
        self._caller = caller
        self._organization = caller.organization_id
        self.sources = SourceReader(world.workers, caller.organization_id)

    async def create(self, new: NewTool) -> Tool:
        """Registers a tool, or updates the one of that name. Raises InvalidInput, or Conflict for a reserved name."""
        tool = await self.prepared(new)
        after, affected = await self._world.database.transact(lambda tx: tool_writes.upsert(tx, tool))
        self._reload_agents(affected)
        return after

    async def prepared(self, new: NewTool) -> Tool:
        """The tool, checked and with its packages installed, but not registered. Raises InvalidInput."""
        self._caps.check(new.sandbox, new.return_char_limit)
        tool = await make(self.sources, new, self._world.ids.new(ToolId), self._world.clock.now(), self._caller)
        if self._prepare is not None:
            await self._prepare(tool)
        return tool

    async def upsert(self, new: NewTool) -> Tool:
        """The same as `create`: registering is by name either way."""
        return await self.create(new)

    async def get(self, tool_id: ToolId) -> Tool:
        """Raises NotFound."""
        return await self._world.database.read(lambda tx: rows.get(tx, self._ours(tx, tool_id)))

    async def by_name(self, name: str) -> Tool | None:
        """The tool of this name, if there is one."""
        found = await self._world.database.read(lambda tx: rows.by_names(tx, self._organization, [name]))
        return found.get(name)

    async def count(self, query: ToolQuery) -> int:
        """The number of matching tools, on all pages together."""
        return await self._world.database.read(lambda tx: rows.count(tx, self._organization, query))

    async def update(self, tool_id: ToolId, changes: Mapping[str, Any]) -> Tool:
        """Changes fields by name. New source code gives a new schema, unless one comes with it.

        Raises NotFound, InvalidInput, and Conflict for a field that the caller may not change.
        """
        changes = dict(changes)
        check_return_limit(changes.get("return_char_limit"))
        self._caps.check(changes.get("sandbox"), changes.get("return_char_limit"))
        check_requirements(changes.get("pip_requirements"), changes.get("npm_requirements"))
        derived = await derived_schema(self.sources, changes)
        if _MADE_READY & changes.keys():
            await self._make_ready(await self.get(tool_id), changes)
        now = self._world.clock.now()
        user = self._caller.user_id
        after, affected = await self._world.database.transact(
            lambda tx: tool_writes.update(tx, self._ours(tx, tool_id), changes, derived, now, user)
        )
        self._reload_agents(affected)
        return after

    async def _make_ready(self, before: Tool, changes: Mapping[str, Any]) -> None:
        after = replace(before, **{name: changes[name] for name in sorted(_MADE_READY & changes.keys())})
        if after.tool_type is not ToolType.custom or after.source_code is None:
            return
        await check_source(self.sources, after.source_code, after.source_type)
        if "source_code" in changes and changes.get("json_schema") and is_python(after.source_type):
            await check_function(self.sources, after.source_code, changes["json_schema"])
        if self._prepare is not None:
            await self._prepare(after)

    async def delete(self, tool_id: ToolId) -> None:
        """Deletes the tool, also from its agents. Raises NotFound."""
        self._reload_agents(
            await self._world.database.transact(
                lambda tx: agent_rows.bump_many(tx, rows.delete(tx, self._ours(tx, tool_id)))
            )
        )

    async def of_agent(self, agent_id: AgentId, page: Page) -> list[Tool]:
        """The agent's tools. Raises NotFound for an unknown agent."""
        return await self._world.database.read(
            lambda tx: rows.page_of_agent(tx, self._organization, self._our_agent(tx, agent_id), page)
        )

    async def attach(self, agent_id: AgentId, tool_id: ToolId) -> AgentView:
        """Attaches the tool to the agent, if it is not, and returns the new agent. Raises NotFound for either."""
        now = self._world.clock.now()
        return await self._change(agent_id, lambda tx: tool_writes.attach(tx, agent_id, self._ours(tx, tool_id), now))

    async def detach(self, agent_id: AgentId, tool_id: ToolId) -> AgentView:
        """Detaches the tool from the agent, if it has it, and returns the agent afterwards. Raises NotFound for the
        agent.
        """
        now = self._world.clock.now()
        return await self._change(agent_id, lambda tx: tool_writes.detach(tx, agent_id, tool_id, now))

    async def set_approval(self, agent_id: AgentId, tool_name: str, on: bool) -> AgentView:
        """Makes calls of a tool by the agent wait for approval, or no longer. Raises NotFound for the agent."""
        now = self._world.clock.now()
        return await self._change(agent_id, lambda tx: approval_rule.switch(tx, agent_id, tool_name, on, now))

    async def _change(self, agent_id: AgentId, change: Callable[[Tx], object]) -> AgentView:
        def write(tx: Tx) -> AgentView:
            self._our_agent(tx, agent_id)
            change(tx)
            return agent_views.one(tx, agent_id, EVERYTHING, self._world.keyring)

        view = await self._world.database.transact(write)
        self._reload_agents((agent_id,))
        return view

    async def search(self, wanted: ToolSearch) -> SearchResults[ToolHit]:
        """The best tools, best first; without words the newest first."""
        return await search.search(self._world.database, self._embeddings, self._organization, wanted)

    async def ensure_builtins(self) -> list[Tool]:
        """Updates the rows of the built-in tools to this version of Kelpie, in one transaction, and returns them."""
        now = self._world.clock.now()
        found, affected = await self._world.database.transact(lambda tx: ensure_builtins(tx, self._organization, now))
        self._reload_agents(affected)
        log_shadowed(found)
        return found

    def _ours(self, tx: Tx, tool_id: ToolId) -> ToolId:
        row_ownership.tool(tx, self._organization, tool_id)
        return tool_id

    def _our_agent(self, tx: Tx, agent_id: AgentId) -> AgentId:
        row_ownership.agent(tx, self._organization, agent_id)
        return agent_id

    async def page(self, query: ToolQuery) -> list[Tool]:
        """Raises InvalidInput for an invalid page."""
        return await self._world.database.read(lambda tx: rows.select(tx, self._organization, query))
