"""Vectors that are made up for behind the turns: of many agents in one go, in bounded pieces, of all that was said."""

import pytest

from kelpie.llm.provider.interface import EmbeddingInfo
from kelpie.memory import embedding_backlog
from kelpie.memory.embedding_backlog import EmbeddingBacklog
from kelpie.search import embedding_coverage
from tests.agent.conftest import says
from tests.agent.meaningful import DIMENSIONS, EMBEDDING, MeaningfulHouse

OTHER = "test/other"


@pytest.fixture
async def house(tmp_path):
    made = await MeaningfulHouse(tmp_path / "kelpie.db").start()
    yield made
    await made.stop()


async def lacking(house, agents, model=EMBEDDING):
    """What of these agents has no vector of the model."""
    world = house.kelpie.world
    return await world.database.read(
        lambda tx: [
            item for agent in agents for _, item in embedding_coverage.without(tx, "message", agent, model, 0, 1000)
        ]
    )


async def said_by(house, count, words="agent {} speaks"):
    agents = [await house.agent() for _ in range(count)]
    for number, agent in enumerate(agents):
        house.model.script = [says(words.format(number))]
        await house.say(agent, f"question {number}")
    return agents


async def test_what_many_agents_said_is_embedded_in_one_go(house):
    agents = await said_by(house, 3)
    assert await lacking(house, agents)
    work = EmbeddingBacklog(house.kelpie.world, house.kelpie.runtime.embeddings)
    assert await work.work()
    assert {f"question {n}" for n in range(3)} | {f"agent {n} speaks" for n in range(3)} <= set(house.model.embedded)
    assert await lacking(house, agents) == []


async def test_long_texts_are_embedded_a_few_at_a_time_and_none_is_left_out(house, monkeypatch):
    monkeypatch.setattr(embedding_backlog, "PIECE_CHARS", 60)
    agents = await said_by(house, 3, "agent {} speaks of the one and the other thing, and at length")
    work, pieces = EmbeddingBacklog(house.kelpie.world, house.kelpie.runtime.embeddings), 0
    while await work.work():
        pieces += 1
    assert pieces >= 3
    assert await lacking(house, agents) == []


async def test_a_changed_model_reaches_the_last_of_long_texts(house, monkeypatch):
    monkeypatch.setattr(embedding_backlog, "PIECE_CHARS", 60)
    agents = await said_by(house, 2, "agent {} speaks of the one and the other thing, and at length")
    await house.embed_all()

    async def both():
        return [
            EmbeddingInfo(handle, handle[5:], "test", "openai", DIMENSIONS, "test") for handle in (EMBEDDING, OTHER)
        ]

    monkeypatch.setattr(house.model, "embeddings", both)
    for agent in agents:
        await house.kelpie.api().agents.update(agent, {"embedding": OTHER})
    await house.embed_all()
    assert await lacking(house, agents, OTHER) == []
    assert await lacking(house, agents) != [], "the old vectors are gone"
