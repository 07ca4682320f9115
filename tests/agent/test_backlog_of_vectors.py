"""Vectors that are made up for behind the turns: of many agents in one go, in bounded pieces, of all that was said."""

import pytest

from kelpie.llm.provider.interface import EmbeddingInfo
from kelpie.memory import embedding_backlog
from kelpie.memory.embedding_backlog import EmbeddingBacklog
from kelpie.search import embedding_coverage
from tests.agent.conftest import says
from tests.agent.embedding_rig import DIMENSIONS, EMBEDDING, EmbeddingRig

OTHER = "test/other"


@pytest.fixture
async def rig(tmp_path):
    made = await EmbeddingRig(tmp_path / "kelpie.db").start()
    yield made
    await made.stop()


async def lacking(rig, agents, model=EMBEDDING):
    """What of these agents has no vector of the model."""
    world = rig.kelpie.world
    return await world.database.read(
        lambda tx: [
            item for agent in agents for _, item in embedding_coverage.without(tx, "message", agent, model, 0, 1000)
        ]
    )


async def said_by(rig, count, words="agent {} speaks"):
    agents = [await rig.agent() for _ in range(count)]
    for number, agent in enumerate(agents):
        rig.model.script = [says(words.format(number))]
        await rig.say(agent, f"question {number}")
    return agents


async def test_what_many_agents_said_is_embedded_in_one_go(rig):
    agents = await said_by(rig, 3)
    assert await lacking(rig, agents)
    work = EmbeddingBacklog(rig.kelpie.world, rig.kelpie.runtime.embeddings)
    assert await work.work()
    assert {f"question {n}" for n in range(3)} | {f"agent {n} speaks" for n in range(3)} <= set(rig.model.embedded)
    assert await lacking(rig, agents) == []


async def test_an_agent_that_said_much_does_not_keep_the_words_of_another_waiting(rig, monkeypatch):
    monkeypatch.setattr(embedding_backlog, "PIECE", 2)
    (quiet,) = await said_by(rig, 1)
    loud = await rig.agent()
    for number in range(5):
        await rig.say(loud, f"loud {number}")
    work = EmbeddingBacklog(rig.kelpie.world, rig.kelpie.runtime.embeddings)
    assert await work.work()
    assert len(await lacking(rig, [quiet])) == 1, "one of its two texts was embedded in the first piece"


async def test_long_texts_are_embedded_a_few_at_a_time_and_none_is_left_out(rig, monkeypatch):
    monkeypatch.setattr(embedding_backlog, "PIECE_CHARS", 60)
    agents = await said_by(rig, 3, "agent {} speaks of the one and the other thing, and at length")
    work, pieces = EmbeddingBacklog(rig.kelpie.world, rig.kelpie.runtime.embeddings), 0
    while await work.work():
        pieces += 1
    assert pieces >= 3
    assert await lacking(rig, agents) == []


async def test_a_changed_model_reaches_the_last_of_long_texts(rig, monkeypatch):
    monkeypatch.setattr(embedding_backlog, "PIECE_CHARS", 60)
    agents = await said_by(rig, 2, "agent {} speaks of the one and the other thing, and at length")
    await rig.embed_all()

    monkeypatch.setattr(rig.model, "embeddings", both)
    for agent in agents:
        await rig.kelpie.api().agents.update(agent, {"embedding": OTHER})
    await rig.embed_all()
    assert await lacking(rig, agents, OTHER) == []
    assert await lacking(rig, agents) != [], "the old vectors are gone"


async def both():
    return [EmbeddingInfo(handle, handle[5:], "test", "openai", DIMENSIONS, "test") for handle in (EMBEDDING, OTHER)]


async def test_a_model_that_was_used_before_may_be_chosen_again(rig, monkeypatch):
    monkeypatch.setattr(rig.model, "embeddings", both)
    agents, work = await said_by(rig, 2), EmbeddingBacklog(rig.kelpie.world, rig.kelpie.runtime.embeddings)
    for model, other in ((OTHER, EMBEDDING), (EMBEDDING, OTHER)) * 2:
        for agent in agents:
            await rig.kelpie.api().agents.update(agent, {"embedding": model})
        for _ in range(20):
            if not await work.work():
                break
        assert await lacking(rig, agents, model) == [] and await lacking(rig, agents, other) != []
