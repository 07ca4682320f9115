"""Facts API: the facts and entities of an agent, listed and searched as they are now or were at a given time.

A fact that was replaced never stands before the one that replaced it. Facts are made by the extraction alone; here they
are only read and deleted.
"""

from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.dates.date_mentions import mentions
from kelpie.core.ids import AgentId, FactId
from kelpie.core.memory.facts import Entity, Fact, FactQuery, FactSearch, FactSettings, FactState, FoundFact
from kelpie.memory.embeddings import Embeddings
from kelpie.memory.hybrid_search import HybridSearch, SearchResults
from kelpie.memory.search_scopes import FactScope
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.conversations import fact_progress
from kelpie.storage.memory import entities, facts
from kelpie.world.database import Tx
from kelpie.world.world import World

_UTC = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class FactStatus:
    """Status of the extraction: its settings and state, None while it is off, and the number of facts."""

    settings: FactSettings | None
    state: FactState | None
    count: int


class Facts:
    """The facts of the agents of the caller's organization."""

    def __init__(self, world: World, embeddings: Embeddings, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._embeddings = embeddings
        self._organization = caller.organization_id

    async def search(self, agent_id: AgentId, wanted: FactSearch) -> SearchResults[FoundFact]:
        """The best facts, best first. Raises NotFound."""
        now = self._world.clock.now()
        asked = replace(wanted, mentions=mentions(wanted.text, now, _UTC))
        scope = FactScope(self._organization, agent_id, asked, now)
        return await HybridSearch(self._world.database, self._embeddings).search(scope)

    async def status(self, agent_id: AgentId) -> FactStatus:
        """Raises NotFound."""

        def read(tx: Tx) -> FactStatus:
            row_ownership.agent(tx, self._organization, agent_id)
            settings = agents.get(tx, agent_id).facts
            return FactStatus(settings, fact_progress.get(tx, agent_id), facts.count(tx, agent_id))

        return await self._world.database.read(read)

    async def entities(self, agent_id: AgentId, limit: int, offset: int) -> list[Entity]:
        """Entities of the agent's facts, last mentioned first. Raises NotFound."""

        def read(tx: Tx) -> list[Entity]:
            row_ownership.agent(tx, self._organization, agent_id)
            return entities.page(tx, agent_id, limit, offset)

        return await self._world.database.read(read)

    async def select(self, agent_id: AgentId, query: FactQuery) -> list[FoundFact]:
        """Facts, the newest first. Raises NotFound."""
        now = self._world.clock.now() if query.at is None else query.at

        def read(tx: Tx) -> list[Fact]:
            row_ownership.agent(tx, self._organization, agent_id)
            return facts.select_facts(tx, agent_id, query)

        return [FoundFact(fact, fact.holds(now)) for fact in await self._world.database.read(read)]

    async def remove(self, agent_id: AgentId, fact_id: FactId) -> None:
        """Deletes a fact; what it had replaced is true again. Raises NotFound."""

        def write(tx: Tx) -> None:
            row_ownership.agent(tx, self._organization, agent_id)
            facts.remove(tx, agent_id, fact_id)

        await self._world.database.transact(write)
