"""What is found out about a call before the commit it runs in: vectors take time to make, and no transaction may wait.

The call itself still runs inside the commit and looks at the rows there; what was found before only says where.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kelpie.core.conversations.messages import MessageSearch
from kelpie.core.memory.facts import FactSearch
from kelpie.core.memory.passages import PassageQuery
from kelpie.memory.embeddings import Embeddings
from kelpie.search import vector_rows
from kelpie.search.items import Near
from kelpie.storage.archives import archives, embedding_models, passage_search
from kelpie.storage.conversations import message_search
from kelpie.storage.memory import facts
from kelpie.tools.calls.interface import CallContext, Precomputed
from kelpie.world.database import Database, Tx


@dataclass(frozen=True, slots=True)
class Precompute:
    """Finds things out for calls."""

    database: Database
    meaning: Embeddings

    async def of_stored(self, call: CallContext, text: str) -> Precomputed:
        """The vectors of what the agent is about to store."""
        default = await self.meaning.default()
        models = await self.database.read(lambda tx: embedding_models.of_new(tx, call.agent.id, default))
        meant = await self.meaning.of_stored(models, [text])
        return Precomputed(vectors=meant.vectors.get(text, ()), lacking=meant.lacking)

    async def of_passages(self, call: CallContext, query: PassageQuery) -> Precomputed:
        """What the agent has stored that is near in meaning."""
        agent_id, found = call.agent.id, self.meaning.finder

        def models(tx: Tx) -> tuple[str | None, dict[str, str]]:
            archive_id = archives.archive_of(tx, agent_id)
            return archive_id, vector_rows.models_of(tx, "passage", (archive_id,)) if archive_id else {}

        archive_id, used = await self.database.read(models)
        meant = await self.meaning.of_query(used.values(), query.text)
        meanings = meant.by_model(query.text)
        if not meanings or archive_id is None:
            return Precomputed(lacking=meant.lacking)

        def near(tx: Tx) -> list[Near]:
            archive = archives.archive_of(tx, agent_id)  # it may have been given another one meanwhile
            return passage_search.nearest(tx, found, archive, used, query, meanings) if archive in used else []

        async with self.meaning.looking.place():
            return Precomputed(passages=tuple(await self.database.read(near)), by_meaning=True)

    async def of_messages(self, call: CallContext, wanted: MessageSearch) -> Precomputed:
        """What was said to or by the agent that is near in meaning."""
        organization, finder = call.agent.organization_id, self.meaning.finder
        used = await self.database.read(lambda tx: message_search.models(tx, organization, call.agent.id))
        meant = await self.meaning.of_query(used.values(), wanted.text)
        meanings = meant.by_model(wanted.text)
        if not meanings:
            return Precomputed(lacking=meant.lacking)
        async with self.meaning.looking.place():
            near = await self.database.read(
                lambda tx: message_search.nearest(tx, finder, organization, used, wanted, meanings)
            )
        return Precomputed(messages=tuple(near), by_meaning=True)

    async def of_facts(self, call: CallContext, wanted: FactSearch) -> Precomputed:
        """What the agent has learnt that is near in meaning."""
        agent_id, finder = call.agent.id, self.meaning.finder
        used = await self.database.read(lambda tx: vector_rows.models_of(tx, "fact", (agent_id,)))
        meant = await self.meaning.of_query(used.values(), wanted.text)
        meanings = meant.by_model(wanted.text)
        if not meanings:
            return Precomputed(lacking=meant.lacking)
        async with self.meaning.looking.place():
            near = await self.database.read(lambda tx: facts.nearest(tx, finder, agent_id, wanted, used, meanings))
        return Precomputed(facts=tuple(near), by_meaning=True)


class Preparation(Protocol):
    """Finds out for a tool what it cannot find out inside a transaction."""

    async def __call__(self, foresight: Precompute, call: CallContext, arguments: Mapping[str, Any]) -> Precomputed:
        """Raises ToolError for arguments that cannot be; the tool itself then says so."""
        ...
