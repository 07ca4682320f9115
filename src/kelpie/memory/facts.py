"""The door to what an agent has learnt: its facts, listed and searched as they are now or were then, and its entities.

A search goes two ways, by words and by meaning, and makes one ranking of both; a fact that was replaced never stands
before the one that replaced it. Facts are made by the extraction alone; here they are read and deleted.
"""

from dataclasses import dataclass, replace

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import StorageError
from kelpie.core.ids import AgentId, FactId
from kelpie.core.memory.facts import Entity, Fact, FactQuery, FactSearch, FactSettings, FactState, FoundFact
from kelpie.core.search_hits import SearchMode
from kelpie.memory.embeddings import Embeddings, QueryVectors
from kelpie.search import vector_rows
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.conversations import fact_progress
from kelpie.storage.memory import entities, facts
from kelpie.world.database import Tx
from kelpie.world.world import World


@dataclass(frozen=True, slots=True)
class FoundFacts:
    """What was found, how it was looked for in the end, and why not as asked."""

    found: list[FoundFact]
    mode: SearchMode
    lacking: str | None = None


@dataclass(frozen=True, slots=True)
class FactStatus:
    """How the extraction is doing: its settings and state, None while it is off, and how many facts there are."""

    settings: FactSettings | None
    state: FactState | None
    count: int


class Facts:
    """The facts of the agents of the caller's organisation."""

    def __init__(self, world: World, meaning: Embeddings, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._meaning = meaning
        self._organization = caller.organization_id

    async def search(self, agent_id: AgentId, wanted: FactSearch) -> FoundFacts:
        """The best facts, best first. Raises NotFound."""
        database, now = self._world.database, self._world.clock.now()

        def models(tx: Tx) -> dict[str, str]:
            row_ownership.agent(tx, self._organization, agent_id)
            return vector_rows.models_of(tx, "fact", (agent_id,))

        used, meant = await database.read(models), QueryVectors()
        if wanted.mode != "fts" and wanted.text.strip():
            meant = await self._meaning.of_query(used.values(), wanted.text)
        meanings = meant.by_model(wanted.text)

        def read(tx: Tx) -> list[FoundFact]:
            near = facts.nearest(tx, self._meaning.finder, agent_id, wanted, used, meanings)
            return facts.search(tx, agent_id, wanted, now, near)

        lacking = meant.lacking
        if meanings:
            try:
                async with self._meaning.looking.place():
                    return FoundFacts(await database.read(read), wanted.mode, lacking)
            except StorageError as error:
                lacking = self._meaning.failed(error)
        by_words = replace(wanted, mode="fts")
        return FoundFacts(await database.read(lambda tx: facts.search(tx, agent_id, by_words, now)), "fts", lacking)

    async def status(self, agent_id: AgentId) -> FactStatus:
        """Raises NotFound."""

        def read(tx: Tx) -> FactStatus:
            row_ownership.agent(tx, self._organization, agent_id)
            settings = agents.get(tx, agent_id).facts
            return FactStatus(settings, fact_progress.get(tx, agent_id), facts.count(tx, agent_id))

        return await self._world.database.read(read)

    async def entities(self, agent_id: AgentId, limit: int, offset: int) -> list[Entity]:
        """What the agent's facts are about, what was spoken of last first. Raises NotFound."""

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
