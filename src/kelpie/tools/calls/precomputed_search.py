"""Precomputation for tool calls: vectors and nearest items are found before the commit; no transaction may wait.

The call itself still runs inside the commit and reads the rows there; what was precomputed only says which ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kelpie.core.conversations.messages import MessageSearch
from kelpie.core.memory.facts import FactSearch
from kelpie.core.memory.passages import PassageQuery
from kelpie.memory.embeddings import Embeddings
from kelpie.memory.hybrid_search import HybridSearch, NearestResults, VectorScope
from kelpie.memory.search_scopes import AgentPassageScope, FactScope, MessageScope
from kelpie.storage.archives import embedding_models
from kelpie.tools.calls.interface import CallContext, Precomputed
from kelpie.world.database import Database


@dataclass(frozen=True, slots=True)
class Precompute:
    """Precomputes for calls what their tools need."""

    database: Database
    embeddings: Embeddings

    async def of_stored(self, call: CallContext, text: str) -> Precomputed:
        """The vectors of a text that the agent is about to store."""
        default = await self.embeddings.default()
        models = await self.database.read(lambda tx: embedding_models.of_new(tx, call.agent.id, default))
        embedded = await self.embeddings.of_stored(models, [text], call.agent.consumer)
        return Precomputed(vectors=embedded.vectors.get(text, ()), lacking=embedded.lacking)

    async def of_passages(self, call: CallContext, query: PassageQuery) -> Precomputed:
        """The passages of the agent that are nearest to the query."""
        found = await self._nearest(AgentPassageScope(call.agent.organization_id, call.agent.id, query))
        return Precomputed(passages=found.near, by_vectors=found.by_vectors, lacking=found.lacking)

    async def of_messages(self, call: CallContext, wanted: MessageSearch) -> Precomputed:
        """The messages to or by the agent that are nearest to the query."""
        found = await self._nearest(MessageScope(call.agent.organization_id, wanted))
        return Precomputed(messages=found.near, by_vectors=found.by_vectors, lacking=found.lacking)

    async def of_facts(self, call: CallContext, wanted: FactSearch) -> Precomputed:
        """The facts of the agent that are nearest to the query."""
        found = await self._nearest(FactScope(call.agent.organization_id, call.agent.id, wanted, call.now))
        return Precomputed(facts=found.near, by_vectors=found.by_vectors, lacking=found.lacking)

    async def _nearest(self, scope: VectorScope) -> NearestResults:
        return await HybridSearch(self.database, self.embeddings).nearest(scope)


class Preparation(Protocol):
    """Precomputation of one tool."""

    async def __call__(self, precompute: Precompute, call: CallContext, arguments: Mapping[str, Any]) -> Precomputed:
        """Raises ToolError for invalid arguments; the tool itself then reports them."""
        ...
