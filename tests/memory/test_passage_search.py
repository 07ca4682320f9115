"""However many search, only a few of them are at the database at once."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from kelpie.core.access.callers import DEFAULT_CALLER
from kelpie.core.memory.passages import PassageQuery
from kelpie.core.settings.settings import Settings
from kelpie.llm.routing.models import Models
from kelpie.memory.embeddings import Embeddings
from kelpie.memory.passage_search import search
from kelpie.world.database import Database, Tx


class Counting:
    """A database that finds nothing, and counts who is reading."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0

    async def read(self, fn: Callable[[Tx], Any]) -> list[Any]:
        self.now, self.all = self.now + 1, self.all + 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return []


async def test_searches_leave_readers_to_others() -> None:
    database, meaning = Counting(), Embeddings(cast("Models", None), Settings())
    organization, query = DEFAULT_CALLER.organization_id, PassageQuery("fox", 10, mode="fts")
    await asyncio.gather(*(search(cast("Database", database), meaning, organization, None, query) for _ in range(20)))
    assert (database.all, database.most) == (20, 1)
