"""Vectors that are made up for behind the turns: of many agents in one go, in bounded pieces, of all that was said."""

import pytest

from kelpie.core.memory.passages import NewArchive, NewPassage
from kelpie.llm.provider.interface import EmbeddingInfo
from kelpie.memory import embedding_backlog
from kelpie.memory.embedding_backlog import EmbeddingBacklog
from kelpie.search import embedding_coverage, vector_rows
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


@pytest.fixture
def both(rig, monkeypatch):
    """The model can be asked under two names."""
    handles = (EMBEDDING, OTHER)

    async def models():
        return [EmbeddingInfo(handle, handle[5:], "test", "openai", DIMENSIONS, "test") for handle in handles]

    monkeypatch.setattr(rig.model, "embeddings", models)


async def archive_with(rig, *texts):
    """An archive whose passages have vectors, and these texts, which have none."""
    archives = rig.kelpie.api().archives
    archive, _ = await archives.create(NewArchive("shelf"))
    await archives.store(archive.id, [NewPassage("the first one")])
    rig.model.broken = True
    await archives.store(archive.id, [NewPassage(text) for text in texts])
    rig.model.broken = False
    return archive.id


async def models_of(rig, archive_id):
    """Of each passage the models of its vectors."""

    def read(tx):
        rows = tx.exec_driver_sql(
            "SELECT p.text, v.model FROM passages p JOIN search_items i ON i.item_id = p.id "
            "JOIN search_vectors v ON v.item = i.id WHERE p.archive_id = ?",
            (archive_id,),
        )
        return sorted(map(tuple, rows))

    return await rig.kelpie.world.database.read(read)


@pytest.mark.usefixtures("both")
async def test_a_late_vector_is_made_by_the_model_that_is_searched_by_as_well(rig):
    archive_id = await archive_with(rig, "a late one")
    await rig.kelpie.api().archives.update(archive_id, {"embedding": OTHER})
    assert await EmbeddingBacklog(rig.kelpie.world, rig.kelpie.runtime.embeddings).work()
    late = [model for text, model in await models_of(rig, archive_id) if text == "a late one"]
    assert late == [EMBEDDING, OTHER], "until the change is over, the archive is searched by the old model"
    await rig.embed_all()
    assert await models_of(rig, archive_id) == [("a late one", OTHER), ("the first one", OTHER)]


@pytest.mark.usefixtures("both")
async def test_what_is_stored_during_a_change_has_vectors_of_both_models(rig):
    archives, archive_id = rig.kelpie.api().archives, await archive_with(rig, "a late one")
    await archives.update(archive_id, {"embedding": OTHER})
    await archives.store(archive_id, [NewPassage("stored meanwhile")])
    assert {model for text, model in await models_of(rig, archive_id) if text == "stored meanwhile"} == {
        EMBEDDING,
        OTHER,
    }


@pytest.mark.usefixtures("both")
async def test_a_model_that_is_changed_back_and_forth_reaches_every_passage(rig):
    archives, archive_id = rig.kelpie.api().archives, await archive_with(rig, "one", "two")
    work, pieces_max = EmbeddingBacklog(rig.kelpie.world, rig.kelpie.runtime.embeddings), 20
    for model in (OTHER, EMBEDDING, OTHER):
        await archives.update(archive_id, {"embedding": model})
        for _ in range(pieces_max):
            if not await work.work():
                break
        texts = ("one", "the first one", "two")
        assert await models_of(rig, archive_id) == [(text, model) for text in texts]
        _, progress = await archives.get(archive_id)
        assert (progress.searched_by, progress.done, progress.total) == (model, 3, 3)


@pytest.mark.usefixtures("both")
async def test_the_old_vector_stays_where_there_is_no_new_one(rig):
    """A passage that came after the last look has only the old vector: it must not go."""
    archive_id, database = await archive_with(rig), rig.kelpie.world.database

    def change(tx):
        vector_rows.search_by(tx, "passage", archive_id, OTHER)
        return vector_rows.remove_others(tx, "passage", archive_id, OTHER, 100)

    assert await database.transact(change)
    assert await models_of(rig, archive_id) == [("the first one", EMBEDDING)]


@pytest.mark.usefixtures("both")
async def test_a_changed_model_reaches_the_last_of_long_texts(rig, monkeypatch):
    monkeypatch.setattr(embedding_backlog, "PIECE_CHARS", 60)
    agents = await said_by(rig, 2, "agent {} speaks of the one and the other thing, and at length")
    await rig.embed_all()
    for agent in agents:
        await rig.kelpie.api().agents.update(agent, {"embedding": OTHER})
    await rig.embed_all()
    assert await lacking(rig, agents, OTHER) == []
    assert await lacking(rig, agents) != [], "the old vectors are gone"
