"""Queries over searchable items, and what is near to them in meaning.

The vector search is a port: the caller passes it in, because its dependencies are heavy.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy import Connection

from kelpie.core.dates.date_mentions import Mention
from kelpie.core.search_hits import SearchMode
from kelpie.core.time import Micros
from kelpie.search.text.fulltext import Kind
from kelpie.search.vector_rows import Vector

Near = tuple[int, float]  # the number of an item and its cosine to the query
Times = Callable[[Connection, Sequence[str]], Mapping[str, tuple[Micros, Micros]]]  # of items: from when to when
DEPTH = 2
DEPTH_MIN = 30


@dataclass(frozen=True, slots=True)
class ItemQuery:
    """A search query. `meanings` is the query as a vector of each model; in a scope of another model only its words
    count. `mentions` are the dates in the query, for which `times` gives those of the items."""

    words: str
    limit: int
    mode: SearchMode = "hybrid"
    meanings: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    mentions: tuple[Mention, ...] = ()
    times: Times | None = None

    @property
    def depth(self) -> int:
        """Number of items that each of two rankings gives to the merged one; by meaning alone, a few more than
        requested."""
        if self.mode == "vector":
            return self.limit + self.limit // 2
        return max(DEPTH_MIN, DEPTH * self.limit)


@dataclass(frozen=True, slots=True)
class LikelyItems:
    """The items that are likely the nearest, with their cosines or good guesses of them, best first; and the cosines
    that are known already, also those of others."""

    best: Sequence[Near] = ()
    known: Mapping[int, float] = field(default_factory=dict[int, float])


class NearestItems(Protocol):
    """Port to the vector search, implemented by `vector_search.Nearest`."""

    def search(
        self,
        tx: Connection,
        kind: Kind,
        scopes: Sequence[str],
        query: Vector,
        limit: int,
        only: Sequence[int] | None = None,
    ) -> list[Near]: ...

    def likely(
        self,
        tx: Connection,
        kind: Kind,
        scopes: Sequence[str],
        query: Vector,
        limit: int,
        only: Sequence[int] | None = None,
    ) -> LikelyItems: ...

    def cosines(self, tx: Connection, query: Vector, numbers: Collection[int]) -> dict[int, float]: ...


@dataclass(frozen=True, slots=True)
class NearItems:
    """The items that are likely nearest to a query by each embedding model, and the means to compare others with it."""

    by_model: Mapping[str, LikelyItems] = field(default_factory=dict[str, LikelyItems])
    finder: NearestItems | None = None
    queries: Mapping[str, Vector] = field(default_factory=dict[str, Vector])

    @property
    def found(self) -> list[Near]:
        """Those of all models, best first."""
        return sorted((near for some in self.by_model.values() for near in some.best), key=lambda pair: -pair[1])

    def cosines(self, tx: Connection, numbers: Collection[int]) -> dict[str, dict[int, float]]:
        """The cosines of items by model: of each item, that of the first model it has a vector of.

        Raises StorageError when a model's vectors cannot be compared.
        """
        found: dict[str, dict[int, float]] = {}
        left = set(numbers)
        for model, likely in self.by_model.items():
            known = {number: likely.known[number] for number in left if number in likely.known}
            left -= known.keys()
            if self.finder is not None and left:
                known |= self.finder.cosines(tx, self.queries[model], left)
                left -= known.keys()
            found[model] = known
        return found

    def __bool__(self) -> bool:
        return any(likely.best for likely in self.by_model.values())


NOTHING_NEAR = NearItems()
