"""Hybrid search: vectors and words, the fallback to words and its reason, search slots, cancellation."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kelpie.core.access.callers import DEFAULT_CALLER
from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import ModelError, ModelFault, NotFound, StorageError
from kelpie.core.memory.passages import PassageQuery
from kelpie.core.search_hits import SearchMode
from kelpie.core.settings.settings import Settings
from kelpie.llm.routing.models import Models
from kelpie.memory.embeddings import NOT_YET, Embeddings
from kelpie.memory.hybrid_search import HybridSearch, NearestResults, SearchQuery, SearchResults
from kelpie.memory.search_scopes import PassageScope
from kelpie.search.queries import NOTHING_NEAR, LikelyItems, NearestItems, NearItems
from kelpie.search.vector_rows import Vector
from kelpie.world.database import Database, Tx
from tests.memory.shared_models import SharedModels

MODEL, BROKEN = "test/model", "test/broken"
NEAR = NearItems({MODEL: LikelyItems(((7, 0.9),))})
VECTOR = b"\x00\x00\x80?" * 4
DEADLINE_S = 30.0


class FakeModels(SharedModels):
    """Embeds every text as the same vector; one of its models fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hold: asyncio.Barrier | None = None

    async def embed(self, handle: str, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        self.asked.append(handle)
        if self.hold is not None:
            await self.hold.wait()
        if handle == BROKEN:
            raise ModelError(ModelFault.server, "the model is broken")
        return [VECTOR for _ in texts]

    async def own_embedding(self) -> str:
        return MODEL


class FakeDatabase:
    """Runs statements without a transaction and counts how many read at the same time."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0

    async def read(self, statement: Callable[[Tx], Any]) -> Any:
        self.now, self.all = self.now + 1, self.all + 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            return statement(cast("Tx", None))
        finally:
            self.now -= 1


@dataclass
class FakeScope:
    """Items whose statements are recorded."""

    mode: SearchMode = "hybrid"
    text: str = "fox"
    consumer: Consumer = Consumer("org-1")
    scopes: Mapping[str, str] = field(default_factory=lambda: {"archive": MODEL})
    vector_error: Exception | None = None
    ranked_with: list[tuple[SearchMode, NearItems]] = field(default_factory=list)

    @property
    def query(self) -> SearchQuery:
        return self

    def models(self, tx: Tx) -> Mapping[str, str]:
        return self.scopes

    def nearest(
        self, tx: Tx, finder: NearestItems, models: Mapping[str, str], vectors: Mapping[str, Vector]
    ) -> NearItems:
        assert models == self.scopes and set(vectors) <= set(models.values())
        if self.vector_error is not None:
            raise self.vector_error
        return NEAR

    def ranked(self, tx: Tx, mode: SearchMode, near: NearItems) -> list[str]:
        self.ranked_with.append((mode, near))
        return ["lost fox", "fox"]


class Bench:
    def __init__(self) -> None:
        self.models, self.database = FakeModels(), FakeDatabase()
        self.embeddings = Embeddings(cast("Models", self.models), Settings(), cast("NearestItems", object()))
        self.search = HybridSearch(cast("Database", self.database), self.embeddings)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("mode", ["hybrid", "vector"])
async def test_vectors_and_words_are_ranked_together(bench: Bench, mode: SearchMode) -> None:
    scope = FakeScope(mode)
    assert await bench.search.search(scope) == SearchResults(["lost fox", "fox"], mode)
    assert scope.ranked_with == [(mode, NEAR)]
    assert await bench.search.nearest(scope) == NearestResults(NEAR, by_vectors=True)


@pytest.mark.parametrize("scope", [FakeScope("fts"), FakeScope("hybrid", "  ")], ids=["words", "no words"])
async def test_a_search_by_words_asks_no_model(bench: Bench, scope: FakeScope) -> None:
    assert (await bench.search.search(scope)).mode == "fts"
    assert (bench.models.asked, bench.database.all) == ([], 1)
    assert scope.ranked_with == [(scope.mode, NOTHING_NEAR)]


async def test_without_embedded_items_words_count_and_the_result_says_so(bench: Bench) -> None:
    scope = FakeScope(scopes={})
    found = await bench.search.search(scope)
    assert (found.mode, found.lacking) == ("fts", NOT_YET)
    assert scope.ranked_with == [("hybrid", NOTHING_NEAR)]
    assert await bench.search.nearest(scope) == NearestResults(lacking=NOT_YET)


async def test_a_model_that_fails_leaves_words_and_the_result_says_so(bench: Bench) -> None:
    scope = FakeScope(scopes={"archive": BROKEN})
    found = await bench.search.search(scope)
    assert found.mode == "fts" and "the model is broken" in (found.lacking or "")
    near = await bench.search.nearest(scope)
    assert (near.near, near.by_vectors, near.lacking) == (NOTHING_NEAR, False, found.lacking)


async def test_one_model_of_several_that_fails_is_reported_beside_the_results(bench: Bench) -> None:
    found = await bench.search.search(FakeScope(scopes={"first": MODEL, "second": BROKEN}))
    assert found.mode == "hybrid" and "the model is broken" in (found.lacking or "")


async def test_a_vector_search_that_fails_leaves_words_and_the_result_says_so(bench: Bench) -> None:
    scope = FakeScope(vector_error=StorageError("the disk is broken"))
    found = await bench.search.search(scope)
    assert (found.found, found.mode) == (["lost fox", "fox"], "fts")
    assert found.lacking == "the search by meaning failed: the disk is broken"
    assert await bench.search.nearest(scope) == NearestResults(lacking=found.lacking)


async def test_what_the_caller_may_not_see_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFound):
        await bench.search.search(FakeScope(vector_error=NotFound("Archive", "archive-1")))


@pytest.mark.parametrize(
    "make",
    [
        lambda: FakeScope("fts"),
        lambda: FakeScope(scopes={}),
        lambda: FakeScope("hybrid"),
        lambda: FakeScope(vector_error=StorageError("the disk is broken")),
    ],
    ids=["words", "not embedded", "vectors", "vector search fails"],
)
async def test_a_search_holds_a_slot_whichever_way_it_goes(bench: Bench, make: Callable[[], FakeScope]) -> None:
    async with bench.embeddings.slots.slot(Consumer("org-2")):
        task = asyncio.create_task(bench.search.search(make()))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not task.done()
    async with asyncio.timeout(DEADLINE_S):
        assert (await task).found


async def test_a_query_is_embedded_without_a_slot(bench: Bench) -> None:
    bench.models.hold = asyncio.Barrier(5)
    tasks = [asyncio.create_task(bench.search.search(FakeScope())) for _ in range(4)]
    async with asyncio.timeout(DEADLINE_S):
        assert (await bench.search.search(FakeScope("fts"))).found
        await bench.models.hold.wait()  # the four queries are being embedded at the same time
        await asyncio.gather(*tasks)


async def test_a_cancelled_search_gives_its_slot_back(bench: Bench) -> None:
    async with bench.embeddings.slots.slot(Consumer("org-2")):
        task = asyncio.create_task(bench.search.search(FakeScope("fts")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with asyncio.timeout(DEADLINE_S):
        assert (await bench.search.search(FakeScope("fts"))).found


async def test_damaged_results_are_counted_and_left_out(bench: Bench) -> None:
    found = (await bench.search.search(FakeScope("fts"))).without(lambda each: each.startswith("lost"))
    assert found == SearchResults(["fox"], "fts", None, 1)


class EmptyDatabase(FakeDatabase):
    """Finds nothing."""

    async def read(self, statement: Callable[[Tx], Any]) -> list[Any]:
        return await super().read(lambda tx: [])


async def test_many_searches_read_one_after_the_other(bench: Bench) -> None:
    database = EmptyDatabase()
    search = HybridSearch(cast("Database", database), bench.embeddings)
    scope = PassageScope(DEFAULT_CALLER.organization_id, None, PassageQuery("fox", 10, mode="fts"))
    await asyncio.gather(*(search.search(scope) for _ in range(20)))
    assert (database.all, database.most) == (20, 1)
