"""Archives, passages, identities and tags as the official clients use them, against a server of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import letta_client
import pytest

from tests.acceptance.sdk import KINDS, every, got, sdk_client
from tests.acceptance.served import Served

MODEL = "kelpie/demo"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    served = Served(Path(tmp_path_factory.mktemp("archives")))
    served.start()
    yield served.url
    served.stop()


async def refused(error: type[letta_client.APIStatusError], call: Any) -> str:
    """What the client hears of a request that cannot be carried out. The call is made here, as it may raise at once."""
    with pytest.raises(error) as told:
        await got(call())
    return str(told.value)


@pytest.mark.parametrize("kind", KINDS)
async def test_archives_from_first_to_last(url: str, kind: str) -> None:
    async with sdk_client(kind, url) as client:
        made = await got(client.archives.create(name=f"notes {kind}", description="d"))
        assert await got(client.archives.retrieve(made.id)) == made
        changed = await got(client.archives.update(made.id, name=f"kept {kind}"))
        assert (changed.name, changed.description) == (f"kept {kind}", "d")
        others = [(await got(client.archives.create(name=f"many {kind}"))).id for _ in range(3)]
        assert [
            one.id for one in await every(client.archives.list(name=f"many {kind}", limit=2, order="asc"))
        ] == others
        one = await got(
            client.archives.passages.create(
                made.id, text="Roses are red", tags=["b", "a"], metadata={"k": 1}, created_at="2024-01-02T03:04:05Z"
            )
        )
        assert (one.text, one.tags, one.metadata) == ("Roses are red", ["a", "b"], {"k": 1})
        more = await got(client.archives.passages.create_many(made.id, passages=[{"text": "x"}, {"text": "y"}]))
        assert sorted(passage.text for passage in more) == ["x", "y"]
        batch = [{"text": "fits"}, {"text": "z" * 100_001}]
        told = await refused(
            letta_client.BadRequestError, lambda: client.archives.passages.create_many(made.id, passages=batch)
        )
        assert "passages[1].text" in told
        every_one = await got(client.passages.search(query="fits", archive_id=made.id))
        assert "fits" not in [hit.passage.text for hit in every_one], "none was stored"
        found = await got(client.passages.search(query="roses", archive_id=made.id, tags=["a"]))
        assert [(hit.passage.id, hit.score > 0) for hit in found] == [(one.id, True)]
        await got(client.archives.passages.delete(one.id, archive_id=made.id))
        left = await got(client.passages.search(query="roses", archive_id=made.id))
        assert one.id not in [hit.passage.id for hit in left], "others may be near in meaning"
        words = {"query": "roses", "archive_id": made.id, "search_mode": "fts"}
        assert await got(client.post("/v1/passages/search", body=words, cast_to=object)) == []
        for archive_id in (made.id, *others):
            await got(client.archives.delete(archive_id))
        await refused(letta_client.NotFoundError, lambda: client.archives.retrieve(made.id))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_is_found_as_soon_as_it_is_registered(url: str, kind: str) -> None:
    said = f"Ask for {kind} ferries."
    source = f'def ferry_{kind}(when: str) -> str:\n    """{said}\n\n    Args:\n        when: departure\n    """\n'
    async with sdk_client(kind, url) as client:
        made = await got(client.tools.create(source_code=f"{source}    return when\n", tags=["travel", kind]))
        for wanted in (
            {"search_mode": "fts"},
            {"search_mode": "hybrid", "tags": ["travel"]},
            {"tool_types": ["custom"]},
        ):
            first, *_ = await got(client.tools.search(query=f"{kind} ferries departure", limit=3, **wanted))
            assert (first.tool.id, first.fts_rank) == (made.id, 1) and "departure" in first.embedded_text
        assert await got(client.tools.search(query=f"{kind} ferries", tags=["elsewhere"])) == []
        await got(client.tools.delete(made.id))
        left = await got(client.tools.search(query=f"{kind} ferries", search_mode="fts"))
        assert made.id not in [hit.tool.id for hit in left]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_agents_memory_from_first_to_last(url: str, kind: str) -> None:
    async with sdk_client(kind, url) as client:
        agent = await got(client.agents.create(name="keeper", model=MODEL))
        (first,) = await got(client.agents.passages.create(agent.id, text="the sky is blue", tags=["sky"]))
        (second,) = await got(
            client.agents.passages.create(agent.id, text="old news", created_at="2020-01-01T00:00:00Z")
        )
        assert [one.id for one in await got(client.agents.passages.list(agent.id))] == [second.id, first.id]
        hits = await got(client.agents.passages.search(agent.id, query="sky", tags=["sky"], top_k=3))
        assert (hits.count, hits.results[0].content, hits.results[0].tags) == (1, "the sky is blue", ["sky"])
        (archive,) = await every(client.archives.list(agent_id=agent.id))
        assert archive.id == first.archive_id
        other = await got(client.archives.create(name="other"))
        await refused(letta_client.ConflictError, lambda: client.agents.archives.attach(other.id, agent_id=agent.id))
        await got(client.agents.archives.detach(archive.id, agent_id=agent.id))
        await got(client.agents.archives.attach(other.id, agent_id=agent.id))
        (third,) = await got(client.agents.passages.create(agent.id, text="elsewhere"))
        assert third.archive_id == other.id
        await got(client.agents.passages.delete(third.id, agent_id=agent.id))
        assert await got(client.agents.passages.list(agent.id)) == []
        await got(client.agents.delete(agent.id))
        assert (await got(client.archives.retrieve(other.id))).id == other.id, (
            "what was attached is not the agent's own"
        )


@pytest.mark.parametrize("kind", KINDS)
async def test_identities_of_agents_and_tags_of_all(url: str, kind: str) -> None:
    async with sdk_client(kind, url) as client:
        body = {"identifier_key": f"ann {kind}", "name": "Ann", "identity_type": "user"}
        made = await got(client.post("/v1/identities/", body=body, cast_to=object))
        agent = await got(
            client.agents.create(name="hers", model=MODEL, tags=[f"mine {kind}"], identity_ids=[made["id"]])
        )
        assert [one.identifier_key for one in agent.identities] == [f"ann {kind}"]
        assert [one.id for one in await every(client.agents.list(identifier_keys=[f"ann {kind}"]))] == [agent.id]
        await got(client.agents.identities.detach(made["id"], agent_id=agent.id))
        assert await every(client.agents.list(identity_id=made["id"])) == []
        await got(client.agents.identities.attach(made["id"], agent_id=agent.id))
        read = await got(client.agents.retrieve(agent.id, include=["agent.identities"]))
        assert read.identities == agent.identities and read.identity_ids == [made["id"]]
        block = await got(client.blocks.create(label="human", value="v", tags=[f"ours {kind}"]))
        await got(client.patch(f"/v1/blocks/{block.id}/identities/attach/{made['id']}", cast_to=object))
        assert [one.id for one in await every(client.blocks.list(identity_id=made["id"]))] == [block.id]
        assert await got(client.tags.list(name=kind)) == [f"mine {kind}", f"ours {kind}"]
        await refused(
            letta_client.ConflictError,
            lambda: client.agents.update(agent.id, identity_ids=["identity-00000000-0000-4000-8000-0000000000ff"]),
        )
        await got(client.agents.delete(agent.id))
        await got(client.blocks.delete(block.id))
        assert await got(client.tags.list(name=kind)) == []
