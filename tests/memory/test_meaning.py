"""Texts as vectors: whom they are asked of, how long that may take, and for whom."""

import asyncio
import struct
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kelpie.core.access.callers import Caller
from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import NotFound
from kelpie.core.ids import OrganizationId, UserId
from kelpie.core.memory.passages import NewPassage, PassageQuery
from kelpie.core.settings.settings import Settings
from kelpie.memory import embeddings
from kelpie.memory.embedding_backlog import EmbeddingBacklog, _Piece
from kelpie.memory.embeddings import Embeddings, QueryVectors
from tests.agent import embedding_rig
from tests.agent.embedding_rig import EmbeddingRig
from tests.memory.shared_models import SharedModels
from tests.tools.workshop import open_world

STRANGER = Caller(
    UserId("user-00000000-0000-4000-8000-00000000000b"), OrganizationId("org-00000000-0000-4000-8000-00000000000b")
)


class Slow(SharedModels):
    """Models that answer only when all of them are asked, but for one, which never does."""

    def __init__(self, count: int) -> None:
        self.all_asked = asyncio.Barrier(count)

    async def embed(self, handle: str, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        await self.all_asked.wait()
        if handle == "hangs":
            await asyncio.Event().wait()
        return [struct.pack("<2f", 1.0, 0.0) for _ in texts]


async def test_models_are_asked_at_once_and_one_that_hangs_keeps_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embeddings, "LOOK_S", 0.5)
    models: Any = Slow(3)
    meant = await Embeddings(models, Settings()).of_query(
        ["one", "hangs", "two", "one", None], "text", Consumer("org-1")
    )
    assert list(meant.by_model("text")) == ["one", "two"]
    assert meant.lacking is not None and "hangs did not answer" in meant.lacking


async def test_a_model_that_gives_other_vectors_under_its_name_costs_the_meaning_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig: Any = await EmbeddingRig(tmp_path / "kelpie.db").start()
    try:
        agent, archives = await rig.agent(), rig.kelpie.api().archives
        await archives.remember(agent, NewPassage("a cat"))
        monkeypatch.setattr(embedding_rig, "DIMENSIONS", 32)
        for _ in range(2):
            searched = await archives.search_of_agent(agent, PassageQuery("the cat", 5))
            assert searched.mode == "fts" and "a cat" in [each.passage.text for each in searched.found]
            assert "embedded again" in searched.lacking
            await archives.remember(agent, NewPassage("another cat"))
    finally:
        await rig.stop()


async def test_nothing_is_embedded_for_an_agent_of_somebody_else(tmp_path: Path) -> None:
    rig: Any = await EmbeddingRig(tmp_path / "kelpie.db").start()
    try:
        agent = await rig.agent()
        with pytest.raises(NotFound):
            await rig.kelpie.api(STRANGER).archives.remember(agent, NewPassage("of a stranger"))
        assert "of a stranger" not in rig.model.embedded
    finally:
        await rig.stop()


class Thread(SharedModels):
    """The model on this machine: it embeds one piece at a time, each when it is told to."""

    def __init__(self) -> None:
        self.pieces: list[Sequence[str]] = []
        self.begun, self.go_on = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def embed(self, handle: str, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        self.pieces.append(texts)
        self.begun.release()
        await self.go_on.acquire()
        return [struct.pack("<2f", 1.0, 0.0) for _ in texts]


async def test_a_thousand_texts_of_one_organization_keep_another_waiting_for_one_piece() -> None:
    models: Any = Thread()
    meant, texts = Embeddings(models, Settings()), [f"text {number}" for number in range(1000)]
    many = asyncio.create_task(meant.of_stored(["kelpie/model"], texts, Consumer("org-1")))
    await models.begun.acquire()
    one = asyncio.create_task(meant.of_query(["kelpie/model"], "question", Consumer("org-2")))
    await asyncio.sleep(0)
    models.go_on.release()
    await models.begun.acquire()
    assert [len(piece) for piece in models.pieces] == [16, 1] and models.pieces[1] == ["question"]
    for _ in range(100):
        models.go_on.release()
    assert (await one).vectors["question"] and len((await many).vectors) == 1000


async def test_a_model_that_fails_is_left_alone_for_its_organization_and_for_a_while(tmp_path: Path) -> None:
    """Two organizations may have given their providers the same name."""
    lacking: list[str | None] = ["down", None]

    async def of_backlog(*_: object) -> QueryVectors:
        return QueryVectors({}, lacking.pop(0))

    embeddings: Any = SimpleNamespace(of_backlog=of_backlog)
    async with open_world(tmp_path) as world:
        backlog, clock = EmbeddingBacklog(world, embeddings), cast("Any", world.clock)
        piece = _Piece("message", "own/m", ["message-1"], {"message-1": "words"}, organization="org-1")
        await backlog._embed(piece)
        assert not backlog._works("own/m", "org-1")
        assert backlog._works("own/m", "org-2") and backlog._works("own/n", "org-1")
        clock._now += 10**12
        assert backlog._works("own/m", "org-1")
        await backlog._embed(piece)
        assert backlog._works("own/m", "org-1"), "it answered, with no vector for this text"
