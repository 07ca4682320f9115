"""Tool search: by the words of their names, tags, descriptions and parameters, by vectors, or both."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kelpie.core.access.consumers import Consumer
from kelpie.core.ids import OrganizationId
from kelpie.core.search_hits import SearchMode
from kelpie.core.tools.tools import ToolHit, ToolSearch
from kelpie.memory.embeddings import Embeddings
from kelpie.memory.hybrid_search import HybridSearch, SearchResults
from kelpie.search import vector_rows
from kelpie.search.queries import NearestItems, NearItems
from kelpie.search.vector_rows import Vector
from kelpie.storage.tools import search as rows
from kelpie.world.database import Database, Tx


@dataclass(frozen=True, slots=True)
class ToolScope:
    """The tools of one organization."""

    organization: OrganizationId
    query: ToolSearch

    @property
    def consumer(self) -> Consumer:
        return Consumer(self.organization)

    def models(self, tx: Tx) -> Mapping[str, str]:
        return vector_rows.models_of(tx, "tool", (self.organization,))

    def nearest(
        self, tx: Tx, finder: NearestItems, models: Mapping[str, str], vectors: Mapping[str, Vector]
    ) -> NearItems:
        return rows.nearest(tx, finder, self.organization, models[self.organization], self.query, vectors)

    def ranked(self, tx: Tx, mode: SearchMode, near: NearItems) -> list[ToolHit]:
        return rows.search(tx, self.organization, replace(self.query, mode=mode), near)


async def search(
    database: Database, embeddings: Embeddings, organization: OrganizationId, wanted: ToolSearch
) -> SearchResults[ToolHit]:
    """The best tools of an organization, best first; without words the newest first."""
    return await HybridSearch(database, embeddings).search(ToolScope(organization, wanted))
