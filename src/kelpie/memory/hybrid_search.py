"""Hybrid search: one protocol for passages, messages, facts, tools and the searches that a turn makes for its tools.

The embedding models of the scope are looked up, the query is embedded, the nearest items are found, and words and
vectors are ranked together (`search.items.find`). Without vectors the words alone count, and the results say why.
A search slot is always held while a search runs in the database, and never while a model embeds the query.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import Overloaded, StorageError
from kelpie.core.search_hits import SearchMode
from kelpie.memory.embeddings import Embeddings
from kelpie.search.queries import NOTHING_NEAR, NearestItems, NearItems
from kelpie.search.vector_rows import Vector
from kelpie.world.database import Database, Tx

Found = TypeVar("Found")
Result = TypeVar("Result")


class SearchQuery(Protocol):
    """A query of any kind of item."""

    @property
    def text(self) -> str: ...

    @property
    def mode(self) -> SearchMode: ...


class VectorScope(Protocol):
    """One query over items with vectors: what differs between the kinds of items."""

    @property
    def query(self) -> SearchQuery: ...

    @property
    def consumer(self) -> Consumer:
        """Who searches, and takes turns with others for a search slot and a model."""
        ...

    def models(self, tx: Tx) -> Mapping[str, str]:
        """The embedding model of each scope that has vectors. Raises NotFound for what the caller may not see."""
        ...

    def nearest(
        self, tx: Tx, finder: NearestItems, models: Mapping[str, str], vectors: Mapping[str, Vector]
    ) -> NearItems:
        """The items nearest to the query, best first; `vectors` are the query's, by model."""
        ...


class SearchScope(VectorScope, Protocol[Found]):
    """A query whose items can also be ranked by words and loaded."""

    def ranked(self, tx: Tx, mode: SearchMode, near: NearItems) -> list[Found]:
        """The best items, best first. Raises NotFound for what the caller may not see."""
        ...


@dataclass(frozen=True, slots=True)
class SearchResults(Generic[Found]):
    """Results of a search, best first: the mode that was used, and why it is not the requested one."""

    found: list[Found]
    mode: SearchMode
    lacking: str | None = None
    lost: int = 0  # results left out because they are damaged on disk

    def without(self, is_lost: Callable[[Found], bool]) -> "SearchResults[Found]":
        """The same results without the damaged ones, which are counted instead."""
        whole = [each for each in self.found if not is_lost(each)]
        return replace(self, found=whole, lost=self.lost + len(self.found) - len(whole))


@dataclass(frozen=True, slots=True)
class NearestResults:
    """Items near to a query, for a search that is ranked later; `by_vectors` is False when words alone must count."""

    near: NearItems = NOTHING_NEAR
    by_vectors: bool = False
    lacking: str | None = None


@dataclass(frozen=True, slots=True)
class _EmbeddedQuery:
    """A query's vectors by model, and the models of the scopes; without vectors, why there are none."""

    models: Mapping[str, str]
    vectors: Mapping[str, Vector]
    lacking: str | None


@dataclass(frozen=True, slots=True)
class HybridSearch:
    """Searches in one database with the embedding models of one server."""

    database: Database
    embeddings: Embeddings

    async def search(self, scope: SearchScope[Found]) -> SearchResults[Found]:
        """The best items; by words alone when there are no vectors.

        Raises NotFound, StorageError, or Overloaded when too many searches wait.
        """
        lacking: str | None = None
        mode = scope.query.mode
        if mode != "fts" and scope.query.text.strip():
            embedded = await self._embed(scope)
            lacking = embedded.lacking
            if embedded.vectors:
                try:
                    found = await self._read(scope, lambda tx: scope.ranked(tx, mode, self._near(tx, scope, embedded)))
                    return SearchResults(found, mode, lacking)
                except StorageError as error:
                    lacking = self.embeddings.failed(error)
        # Neighbours and dates count without vectors too.
        by_words: SearchMode = "hybrid" if mode == "hybrid" else "fts"
        found = await self._read(scope, lambda tx: scope.ranked(tx, by_words, NOTHING_NEAR))
        return SearchResults(found, "fts", lacking)

    async def nearest(self, scope: VectorScope) -> NearestResults:
        """The first half of a search, for a caller that ranks and loads later. Raises NotFound or StorageError."""
        embedded = await self._embed(scope)
        if not embedded.vectors:
            return NearestResults(lacking=embedded.lacking)
        try:
            near = await self._read(scope, lambda tx: self._near(tx, scope, embedded))
        except StorageError as error:
            return NearestResults(lacking=self.embeddings.failed(error))
        except Overloaded as error:
            return NearestResults(lacking=f"the search by meaning was left out: {error}")
        return NearestResults(near, by_vectors=True)

    async def _embed(self, scope: VectorScope) -> _EmbeddedQuery:
        text = scope.query.text
        models = await self.database.read(scope.models)
        vectors = await self.embeddings.of_query(models.values(), text, scope.consumer)
        return _EmbeddedQuery(models, vectors.by_model(text), vectors.lacking)

    def _near(self, tx: Tx, scope: VectorScope, embedded: _EmbeddedQuery) -> NearItems:
        return scope.nearest(tx, self.embeddings.finder, embedded.models, embedded.vectors)

    async def _read(self, scope: VectorScope, statement: Callable[[Tx], Result]) -> Result:
        async with self.embeddings.slots.slot(scope.consumer):
            return await self.database.read(statement)
