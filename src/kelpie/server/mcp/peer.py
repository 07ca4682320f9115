"""The client behind one MCP request: what it may reach, and which version of the protocol it speaks.

Nothing outlives a request: Kelpie gives no session ids, so there is no session to bound, to lose at a restart or to
take over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kelpie.core.access.credential_scopes import Authorization, Scope
from kelpie.core.agents.agent import AgentQuery, Include
from kelpie.core.errors import InvalidId, InvalidInput
from kelpie.core.ids import AgentId
from kelpie.core.paging import Page
from kelpie.mcp.protocol.tasks import EXTENSION
from kelpie.mcp.protocol.versions import V2025_11, at_least, is_stateless
from kelpie.server.http import route_access

if TYPE_CHECKING:
    from kelpie.api import Api


@dataclass(frozen=True, slots=True)
class Peer:
    """The client of one request. Every tool and resource asks `require` what it needs, as the REST route would."""

    api: "Api"
    given: Authorization
    version: str
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def stateless(self) -> bool:
        return is_stateless(self.version)

    @property
    def takes_tasks(self) -> bool:
        """True if a result may be a task without the client asking for it."""
        extensions = self.capabilities.get("extensions")
        return self.stateless and isinstance(extensions, Mapping) and EXTENSION in extensions

    @property
    def asks_for_tasks(self) -> bool:
        """True if a call may ask for a task."""
        return not self.stateless and at_least(self.version, V2025_11)

    @property
    def may_write(self) -> bool:
        return self.given.operator or Scope.write in self.given.scopes

    def require(self, method: str, path: str) -> None:
        """Raises Forbidden when the credential does not cover the REST request that does the same."""
        route_access.check(self.given, method, path)

    async def agent(self, named: str) -> AgentId:
        """The agent with this id or name. Raises InvalidInput."""
        try:
            return AgentId.parse(named)
        except InvalidId:
            pass  # then it is a name
        only = route_access.listed_agents(self.given)
        query = AgentQuery(page=Page(limit=2), name=named, only=only)
        found = await self.api.agents.page(query, Include())
        if not found:
            raise InvalidInput("agent", f"there is no agent named '{named[:80]}'; list_agents shows all agents")
        if len(found) > 1:
            raise InvalidInput("agent", f"several agents are named '{named[:80]}'; give the id of one of them")
        return found[0].agent.id
