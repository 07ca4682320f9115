"""No search, tool or listing gives out what is another agent's or organisation's, whatever anything is called."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from _pytest.outcomes import Failed
from sqlalchemy import select, true

from kelpie.agent.resources.conversations.message_search import MessageSearcher
from kelpie.core.conversations.messages import MessageQuery, MessageSearch
from kelpie.core.errors import NotFound
from kelpie.core.memory.passages import ArchiveQuery, PassageQuery
from kelpie.core.paging import Page
from kelpie.core.settings.settings import Settings
from kelpie.memory.archives import Archives
from kelpie.memory.embeddings import Embeddings
from kelpie.storage.archives import passage_search
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.conversations import message_search
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.storage.tables import archives as archive_table
from kelpie.tools.builtin import BUILTINS
from kelpie.tools.calls.interface import CallContext
from kelpie.tools.calls.precomputed_search import Precompute
from kelpie.world.world import World
from tests.memory.shared_models import SharedModels
from tests.memory.town import MODEL, Inhabitant, Town, vector_of
from tests.tools.workshop import NOW

LOOKS_OF_AGENTS = 8
MODES = ("fts", "vector", "hybrid")


class Embedder(SharedModels):
    """Stands for the server's models."""

    async def embed(self, handle: str, texts: list[str], *, patient: bool = False) -> list[bytes]:
        return [vector_of(text) for text in texts]

    async def own_embedding(self) -> str:
        return MODEL


class Walk:
    """Looks at the town from everywhere, and counts what was seen."""

    def __init__(self, world: World, town: Town) -> None:
        self.world, self.town = world, town
        self.meaning = Embeddings(Embedder(), Settings(default_embedding=MODEL))  # type: ignore[arg-type]
        self.precompute = Precompute(world.database, self.meaning)
        self.seen = 0

    def saw(self, texts: list[str], allowed: set[int], *what: Any) -> None:
        self.seen += self.town.check(texts, allowed, what)

    async def api(self, one: Inhabitant) -> None:
        """What a person of its organisation can look for."""
        rng, own = self.town.rng, self.town.of_organization(one.agent.organization_id)
        archives = Archives(self.world, Embedder(), self.meaning, PieceSize(), one.caller)  # type: ignore[arg-type]
        messages = MessageSearcher(self.world, self.meaning, one.caller)
        words, mode, page = self.town.hostile(), rng.choice(MODES), Page(limit=5)
        tags = tuple(self.town.hostile().split(" ")[:2]) if rng.random() < 0.3 else ()
        query = PassageQuery(words, 20, tags=tags, mode=mode)
        everywhere, mine = await archives.search(None, query), await archives.search_of_agent(one.agent.id, query)
        self.saw([each.passage.text for each in everywhere.found], own, "search", words, mode)
        shared = self.town.of_archive(one.archive)
        self.saw([each.passage.text for each in mine.found], shared, "archive", words, mode)
        self.saw([each.text for each in await archives.of_agent(one.agent.id, page, words[:3])], shared, "list", words)
        assert {each.organization_id for each in await archives.page(ArchiveQuery(page))} <= {one.agent.organization_id}
        for agent_id, allowed in ((None, own), (one.agent.id, {one.number})):
            found = await messages.search(MessageSearch(words, 20, agent_id, mode=mode))
            self.saw([message.said for message, _ in found.found], allowed, "messages", words, mode)
        self.saw([message.said for message in await messages.page(MessageQuery(limit=5))], own, "messages")

    async def trespass(self, one: Inhabitant) -> None:
        """Somebody else's ids lead nowhere."""
        other = self.town.rng.choice(self.town.people)
        if other.agent.organization_id == one.agent.organization_id:
            return
        archives = Archives(self.world, Embedder(), self.meaning, PieceSize(), one.caller)  # type: ignore[arg-type]
        for attempt in (
            archives.search(other.archive, PassageQuery("secret", 5)),
            archives.search_of_agent(other.agent.id, PassageQuery("secret", 5)),
            archives.get(other.archive),
        ):
            with pytest.raises(NotFound):
                await attempt
        messages = MessageSearcher(self.world, self.meaning, one.caller)
        for mode in MODES:
            assert (await messages.search(MessageSearch("secret", 5, other.agent.id, mode=mode))).found == []

    async def tool(self, one: Inhabitant, name: str, key: str, **arguments: Any) -> None:
        """What the agent itself can look for, by words and meaning, as a turn does it."""
        builtin, context = BUILTINS[name], CallContext(one.agent, NOW + 10, "")
        precomputed = await builtin.precompute(self.precompute, context, arguments) if builtin.precompute else None
        run = builtin.run
        assert run is not None
        call = context if precomputed is None else CallContext(one.agent, NOW + 10, "", precomputed=precomputed)
        found = json.loads((await self.world.database.read(lambda tx: run(tx, call, arguments))).text)
        allowed = self.town.of_archive(one.archive) if key == "archive" or "archival" in name else {one.number}
        self.saw([each["content"] for each in found[key]], allowed, name, arguments)

    async def tools(self, one: Inhabitant) -> None:
        words = self.town.hostile()
        for query in (words, ""):
            await self.tool(one, "conversation_search", "results", query=query)
        await self.tool(one, "conversation_search_date", "results", start_date="2023-11-14")
        await self.tool(one, "archival_memory_search", "results", query=words, tags=[self.town.hostile()])
        await self.tool(one, "archival_memory_search", "results", query=words)
        for key in ("results", "archive"):
            await self.tool(one, "search_memory", key, convo_keyword_queries=[words])
        labelled = await self.world.database.read(lambda tx: block_attachments.by_label(tx, one.agent.id, "human"))
        assert labelled is not None
        self.saw([labelled.value], {one.number}, "block")

    async def everywhere(self, count: int) -> int:
        """Agents look more often than people do: theirs are the cheaper looks."""
        for place, one in enumerate(self.town.rng.sample(self.town.people, count)):
            if place % LOOKS_OF_AGENTS == 0:
                await self.api(one)
            await self.trespass(one)
            await self.tools(one)
        return self.seen


async def walked(world: World, seed: int, size: int, count: int) -> int:
    town = Town(seed, size)
    await world.database.transact(town.build)
    return await Walk(world, town).everywhere(count)


async def test_nobody_is_given_what_is_anothers(world: World) -> None:
    assert await walked(world, 1, 800, 40) > 400


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 22))
async def test_nobody_is_given_what_is_anothers_in_many_towns(world: World, seed: int) -> None:
    assert await walked(world, seed, 3000, 300) > 3000


# --- and the walk would see it ----------------------------------------------------------------------------------------


def _messages_of_all_organisations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(message_search, "_OF_ORGANIZATION", true())


def _messages_of_all_agents(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(message_search._FILTERS, "agent_id", true())


def _passages_of_all(patch: pytest.MonkeyPatch) -> None:
    conditions = passage_search._conditions
    patch.setattr(passage_search, "_conditions", lambda shape, **known: conditions(shape, **known)[1:])
    patch.setattr(passage_search, "_ARCHIVES", select(archive_table.c.id))  # whose archives are looked through at all


@pytest.mark.parametrize("mutation", [_messages_of_all_organisations, _messages_of_all_agents, _passages_of_all])
async def test_a_scope_that_is_left_out_is_seen(
    world: World, monkeypatch: pytest.MonkeyPatch, mutation: Callable[[pytest.MonkeyPatch], None]
) -> None:
    kept = (
        message_search._condition,
        message_search._newest,
        message_search._these,
        passage_search._same_row,
        passage_search._these,
        passage_search._aged,
    )
    town = Town(1, 60)
    await world.database.transact(town.build)
    try:
        with monkeypatch.context() as patch:
            for cached in kept:
                cached.cache_clear()
            mutation(patch)
            with pytest.raises((AssertionError, Failed)):
                await Walk(world, town).everywhere(40)
    finally:
        for cached in kept:
            cached.cache_clear()
    assert await Walk(world, town).everywhere(8) > 0
