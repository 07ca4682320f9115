"""Archives and passages over HTTP, on a whole Kelpie, checked against the SDK's own models."""

from typing import Any

import httpx
import pytest
from letta_client.types import Archive, Passage, PassageSearchResponse
from letta_client.types.agents import PassageSearchResponse as MemorySearchResponse
from pydantic import TypeAdapter
from sqlalchemy import text

from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, ArchiveId, OrganizationId, PassageId, UserId
from kelpie.core.memory.passages import PASSAGE_CHARS_MAX, ArchiveQuery, NewArchive, NewPassage, PassageQuery
from kelpie.core.paging import Page
from kelpie.storage.archives import removal as archive_removal
from tests.server.rig import Puppet, called, make_agent

USER, ORGANIZATION = "user-00000000-0000-4000-8000-000000000000", "org-00000000-0000-4000-8000-000000000000"
UNKNOWN = "archive-00000000-0000-4000-8000-0000000000ff"
STRANGER = Caller(
    UserId("user-00000000-0000-4000-8000-000000000009"), OrganizationId("org-00000000-0000-4000-8000-000000000009")
)
Found = TypeAdapter(PassageSearchResponse)


async def make_archive(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/archives/", json={"name": "notes", **fields})
    assert answer.status_code == 200, answer.text
    Archive.model_validate(answer.json(), strict=False)
    return answer.json()


async def rows(kelpie: Kelpie) -> dict[str, int]:
    """How many rows there are of what these tests make; the server's own tools can be searched too, and stay."""
    own = "SELECT id FROM search_items WHERE kind = 'tool'"
    tables = {name: name for name in ("archives", "agent_archives", "passages", "passage_tags")} | {
        "search_items": f"search_items WHERE id NOT IN ({own})",
        "search_segments": "search_segments",
    }
    statement = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {source}" for name, source in tables.items())
    counts = await kelpie.world.database.read(lambda tx: [tuple(row) for row in tx.execute(text(statement))])
    return {str(name): int(number) for name, number in counts}


async def test_an_archive_with_every_field_is_read_back(client: httpx.AsyncClient) -> None:
    made = await make_archive(client, description="d", embedding="fake/embed")
    assert (made["name"], made["description"], made["vector_db_provider"]) == ("notes", "d", "native")
    assert (made["created_by_id"], made["last_updated_by_id"], made["organization_id"]) == (USER, USER, ORGANIZATION)
    assert (made["metadata"], made["created_at"]) == (None, made["updated_at"])
    config = made["embedding_config"]
    assert (config["handle"], config["embedding_dim"], config["embedding_chunk_size"]) == ("fake/embed", 8, 300)
    assert (await client.get(f"/v1/archives/{made['id']}")).json() == made
    old = {"embedding_model": "embed", "handle": "fake/embed", "embedding_chunk_size": 77}
    also = await make_archive(client, embedding_config=old)
    assert also["embedding_config"] == {**config, "embedding_chunk_size": 77}
    plain = await make_archive(client)
    assert (plain["embedding_config"], plain["description"]) == (None, None)


async def test_an_archive_changes_by_name_and_description(client: httpx.AsyncClient) -> None:
    made = await make_archive(client, description="d")
    path = f"/v1/archives/{made['id']}"
    changed = (await client.patch(path, json={"name": "new"})).json()
    assert changed == {**made, "name": "new", "updated_at": changed["updated_at"]}
    assert changed["updated_at"] > made["updated_at"]
    again = (await client.patch(path, json={"description": "e", "name": None})).json()
    assert (again["name"], again["description"]) == ("new", "e")
    assert (await client.get(path)).json() == again


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "name"),
        ({"name": ""}, 422, "name"),
        ({"name": "x" * 501}, 422, "name"),
        ({"name": "a", "embedding": "slashless"}, 400, "embedding"),
        ({"name": "a", "embedding": "no/such"}, 404, "no/such"),
    ],
)
async def test_a_bad_archive_is_refused_and_not_stored(
    client: httpx.AsyncClient, body: dict[str, Any], status: int, field: str
) -> None:
    answer = await client.post("/v1/archives/", json=body)
    assert (answer.status_code, field in answer.text) == (status, True), answer.text
    assert (await client.get("/v1/archives/")).json() == []


async def test_archives_are_listed_in_pages_both_ways(client: httpx.AsyncClient) -> None:
    made = [(await make_archive(client, name=f"a{number % 2}"))["id"] for number in range(5)]

    async def listed(**params: Any) -> list[int]:
        answer = await client.get("/v1/archives/", params=params)
        assert answer.status_code == 200, answer.text
        return [made.index(one["id"]) for one in answer.json()]

    assert await listed() == [4, 3, 2, 1, 0]
    assert await listed(order="asc", limit=2) == [0, 1]
    assert await listed(order="asc", limit=2, after=made[1]) == [2, 3]
    assert await listed(limit=2, before=made[1]) == [3, 2]
    assert await listed(name="a1") == [3, 1]
    agent = await make_agent(client)
    assert await listed(agent_id=agent["id"]) == []
    await client.patch(f"/v1/agents/{agent['id']}/archives/attach/{made[2]}")
    assert await listed(agent_id=agent["id"]) == [2]
    for params in ({"after": "bogus"}, {"before": UNKNOWN}):
        assert (await client.get("/v1/archives/", params=params)).status_code == 404
    for params in ({"limit": -1}, {"order": "up"}, {"order_by": "name"}, {"limit": "x"}):
        assert (await client.get("/v1/archives/", params=params)).status_code == 422
    assert (await client.get("/v1/archives/", params={"agent_id": "agent-1"})).status_code == 400


async def test_a_passage_with_every_field_is_read_back(client: httpx.AsyncClient) -> None:
    archive = await make_archive(client, embedding="fake/embed")
    body = {
        "text": "Roses are red",
        "metadata": {"a": [1]},
        "tags": ["z", "a", "z"],
        "created_at": "2024-01-02T03:04:05Z",
    }
    made = (await client.post(f"/v1/archives/{archive['id']}/passages", json=body)).json()
    Passage.model_validate(made)
    assert (made["text"], made["metadata"], made["tags"]) == ("Roses are red", {"a": [1]}, ["a", "z"])
    assert (made["created_at"], made["archive_id"]) == ("2024-01-02T03:04:05Z", archive["id"])
    assert made["updated_at"] > made["created_at"] and made["is_deleted"] is False
    assert (made["embedding"], made["embedding_config"]) == (None, archive["embedding_config"])
    agent = await make_agent(client)
    await client.patch(f"/v1/agents/{agent['id']}/archives/attach/{archive['id']}")
    assert (await client.get(f"/v1/agents/{agent['id']}/archival-memory")).json() == [made]
    plain = (await client.post(f"/v1/archives/{archive['id']}/passages", json={"text": ""})).json()
    assert (plain["metadata"], plain["tags"], plain["created_at"]) == ({}, None, plain["updated_at"])


async def test_a_batch_is_stored_as_a_whole(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    archive = await make_archive(client)
    path = f"/v1/archives/{archive['id']}/passages/batch"
    body = {"passages": [{"text": "now", "tags": ["n"]}, {"text": "then", "created_at": "2024-01-02T03:04:05+02:00"}]}
    made = (await client.post(path, json=body)).json()
    assert [one["text"] for one in made] == ["then", "now"], "oldest first"
    assert made[0]["created_at"] == "2024-01-02T01:04:05Z"
    too_long = {"passages": [{"text": "fits"}, {"text": "x" * (PASSAGE_CHARS_MAX + 1)}]}
    answer = await client.post(path, json=too_long)
    assert answer.status_code == 400 and "passages[1].text" in answer.json()["detail"]
    assert "in parts" in answer.json()["detail"], "it says what to do"
    too_old = {"passages": [{"text": "fits"}, {"text": "a", "created_at": "0001-01-01T00:00:00+14:00"}]}
    answer = await client.post(path, json=too_old)
    assert answer.status_code == 400 and "passages[1].created_at" in answer.json()["detail"]
    for bad, field in (({}, "text"), ({"text": 1}, "text"), ({"text": "a", "tags": "a"}, "tags")):
        answer = await client.post(path, json={"passages": [{"text": "a"}, bad, {"text": "b"}]})
        assert answer.status_code == 422 and f"'passages', 1, '{field}'" in answer.json()["detail"]
    assert (await client.post(path, json={"passages": [{"text": "a"}] * 1001})).status_code == 422
    assert (await client.post(path, json={"passages": []})).json() == []
    assert (await rows(kelpie))["passages"] == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": 1},
        {"text": "a", "created_at": "yesterday"},
        {"text": "a", "created_at": "0001-01-01T00:00:00+14:00"},
        {"text": "a", "created_at": "9999-12-31T23:00:00-14:00"},
        {"text": "a", "tags": "a"},
        {"text": "a", "metadata": []},
    ],
)
async def test_a_bad_passage_is_refused_and_not_stored(
    client: httpx.AsyncClient, kelpie: Kelpie, body: dict[str, Any]
) -> None:
    archive, agent = await make_archive(client), await make_agent(client)
    answers = [await client.post(f"/v1/archives/{archive['id']}/passages", json=body)]
    if "metadata" not in body:
        answers.append(await client.post(f"/v1/agents/{agent['id']}/archival-memory", json=body))
    assert {answer.status_code for answer in answers} <= {400, 422}
    assert (await rows(kelpie))["passages"] == 0
    assert (await rows(kelpie))["archives"] == 1, "and no archive was made for it"


async def test_an_agent_has_one_archive_and_writes_to_it(
    client: httpx.AsyncClient, puppet: Puppet, kelpie: Kelpie
) -> None:
    agent = await make_agent(client, tools=["archival_memory_insert"])
    archive, second = await make_archive(client), await make_archive(client)
    path = f"/v1/agents/{agent['id']}/archives"
    for _ in range(2):
        answer = await client.patch(f"{path}/attach/{archive['id']}")
        assert (answer.status_code, answer.json()) == (200, None)
    refused = await client.patch(f"{path}/attach/{second['id']}")
    assert (refused.status_code, archive["id"] in refused.json()["detail"]) == (409, True)
    stored = (
        await client.post(f"/v1/agents/{agent['id']}/archival-memory", json={"text": "one", "tags": ["t"]})
    ).json()
    assert [one["archive_id"] for one in stored] == [archive["id"]]
    puppet.script.append(called("archival_memory_insert", '{"content": "two"}'))
    await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "remember"})
    listed = (await client.get(f"/v1/agents/{agent['id']}/archival-memory")).json()
    assert [(one["text"], one["archive_id"]) for one in listed] == [("one", archive["id"]), ("two", archive["id"])]
    assert [one["id"] for one in (await client.get(f"/v1/archives/{archive['id']}/agents")).json()] == [agent["id"]]
    for _ in range(2):
        answer = await client.patch(f"{path}/detach/{archive['id']}")
        assert (answer.status_code, answer.json()) == (200, None)
    assert (await client.get(f"/v1/agents/{agent['id']}/archival-memory")).json() == []
    assert (await client.get(f"/v1/archives/{archive['id']}/agents")).json() == []
    assert (await client.patch(f"{path}/attach/{UNKNOWN}")).status_code == 404
    assert (await client.patch(f"{path}/detach/{UNKNOWN}")).status_code == 404
    nobody = AgentId("agent-00000000-0000-4000-8000-0000000000ff")
    assert (await client.patch(f"/v1/agents/{nobody}/archives/attach/{archive['id']}")).status_code == 404
    assert (await rows(kelpie))["passages"] == 2


async def test_an_archive_is_made_when_an_agent_first_stores(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, embedding="fake/embed", embedding_chunk_size=123)
    (made,) = (await client.post(f"/v1/agents/{agent['id']}/archival-memory", json={"text": "one"})).json()
    (archive,) = (await client.get("/v1/archives/", params={"agent_id": agent["id"]})).json()
    assert made["archive_id"] == archive["id"] and made["embedding_config"] == archive["embedding_config"]
    assert archive["embedding_config"]["embedding_chunk_size"] == 123
    assert (archive["created_by_id"], archive["description"] is not None) == (USER, True)
    nobody = "agent-00000000-0000-4000-8000-0000000000ff"
    assert (await client.post(f"/v1/agents/{nobody}/archival-memory", json={"text": "one"})).status_code == 404
    assert (await client.get(f"/v1/agents/{nobody}/archival-memory")).json() == []
    assert len((await client.get("/v1/archives/")).json()) == 1


async def test_memory_is_listed_in_pages_and_by_part(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client)
    path = f"/v1/agents/{agent['id']}/archival-memory"
    made: list[str] = []
    for number in range(5):
        body = {"text": f"Green {number}" if number % 2 else f"red 100% {number}"}
        made.append((await client.post(path, json=body)).json()[0]["id"])

    async def listed(**params: Any) -> list[int]:
        return [made.index(one["id"]) for one in (await client.get(path, params=params)).json()]

    assert await listed() == [0, 1, 2, 3, 4]
    assert await listed(limit=2, after=made[1]) == [2, 3]
    assert await listed(limit=2, before=made[3]) == [1, 2]
    assert await listed(ascending=False, limit=2) == [4, 3]
    assert await listed(ascending=False, limit=2, after=made[3]) == [2, 1]
    assert await listed(search="GREEN") == [1, 3]
    assert await listed(search="0%", ascending=False) == [4, 2, 0]
    assert await listed(search="g_een") == []
    assert (await client.get(path, params={"search": "x" * 10_001})).status_code == 422
    assert (await client.get(path, params={"limit": -1})).status_code == 422


async def test_memory_is_searched_by_words_tags_and_dates(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, timezone="Asia/Tokyo")
    path = f"/v1/agents/{agent['id']}/archival-memory"
    for body in (
        {"text": "the sky is blue", "tags": ["sky", "blue"], "created_at": "2023-05-06T20:00:00Z"},
        {"text": "blue grass", "tags": ["grass"], "created_at": "2024-01-01T00:00:00Z"},
        {"text": "red roses"},
    ):
        assert (await client.post(path, json=body)).status_code == 200

    async def found(query: str, **params: Any) -> list[str]:
        answer = await client.get(f"{path}/search", params={"query": query, **params})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        MemorySearchResponse.model_validate(body)
        assert body["count"] == len(body["results"]) and body["search_mode"] == "fts"
        return [one["content"] for one in body["results"]]

    assert await found("sky blue") == ["the sky is blue", "blue grass"], "those with every word come first"
    assert await found("blue", top_k=1, tags=["grass"]) == ["blue grass"]
    assert set(await found("blue", tags=["sky", "grass"])) == {"the sky is blue", "blue grass"}
    assert await found("blue", tags=["sky", "grass"], tag_match_mode="all") == []
    assert await found("blue", tags=["sky", "blue"], tag_match_mode="all") == ["the sky is blue"]
    assert await found("blue", end_datetime="2023-12-31") == ["the sky is blue"]
    assert await found("blue", start_datetime="2023-05-07T04:59:00", end_datetime="2023-05-07T05:01:00") == [
        "the sky is blue"
    ], "a time without a zone is the agent's"
    assert await found("heaven") == [], "words only: nothing is guessed"
    shown = (await client.get(f"{path}/search", params={"query": "sky"})).json()["results"][0]
    assert (shown["timestamp"], shown["tags"]) == ("2023-05-07T05:00:00+09:00", ["blue", "sky"])
    for params, status in (
        ({}, 422),
        ({"query": "x", "start_datetime": "notadate"}, 422),
        ({"query": "x", "top_k": 0}, 422),
        ({"query": "x", "tag_match_mode": "none"}, 422),
        ({"query": "x", "search_mode": "magic"}, 422),
        ({"query": "x", "end_datetime": "0001-01-01"}, 400),
    ):
        assert (await client.get(f"{path}/search", params=params)).status_code == status, params
    nobody = "agent-00000000-0000-4000-8000-0000000000ff"
    answer = await client.get(f"/v1/agents/{nobody}/archival-memory/search", params={"query": "x"})
    assert answer.status_code == 404


async def test_passages_are_searched_in_an_archive_an_agents_or_all(client: httpx.AsyncClient) -> None:
    agent, archive = await make_agent(client), await make_archive(client)
    await client.post(f"/v1/agents/{agent['id']}/archival-memory", json={"text": "apple pie", "tags": ["p"]})
    batch = {"passages": [{"text": "apple", "created_at": "2024-01-01T00:00:00Z"}, {"text": "pear", "tags": ["p"]}]}
    await client.post(f"/v1/archives/{archive['id']}/passages/batch", json=batch)

    async def found(**body: Any) -> list[str]:
        answer = await client.post("/v1/passages/search", json=body)
        assert answer.status_code == 200, answer.text
        Found.validate_python(answer.json())
        for one in answer.json():
            assert (one["score"] > 0) == bool(body.get("query"))
            assert one["metadata"].get("search_mode") == ("fts" if body.get("query") else None)
        return [one["passage"]["text"] for one in answer.json()]

    assert sorted(await found(query="apple")) == ["apple", "apple pie"]
    assert await found(query="apple", archive_id=archive["id"]) == ["apple"]
    assert await found(query="apple", agent_id=agent["id"], archive_id=archive["id"]) == ["apple pie"]
    assert await found() == ["apple", "apple pie", "pear"], "oldest first"
    assert await found(tags=["p"]) == ["apple pie", "pear"]
    assert await found(limit=1) == ["apple"]
    assert await found(end_date="2024-01-01T00:00:00Z") == ["apple"]
    assert await found(start_date="2024-01-01T00:00:01Z", tags=["p"], tag_match_mode="all", query="pear") == ["pear"]
    for body, status in (
        ({"archive_id": UNKNOWN}, 404),
        ({"agent_id": "agent-00000000-0000-4000-8000-0000000000ff"}, 404),
        ({"archive_id": "x"}, 400),
        ({"limit": 0}, 422),
        ({"limit": 101}, 422),
        ({"query": "x", "search_mode": "magic"}, 422),
    ):
        answer = await client.post("/v1/passages/search", json=body)
        assert answer.status_code == status, body
    note = (await client.post("/v1/passages/search", json={"query": "apple"})).json()[0]["metadata"]["search_note"]
    assert "no embedding model" in note, "it says why it is by words alone"


async def test_what_is_deleted_is_gone_from_the_search_too(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    agent, archive = await make_agent(client), await make_archive(client)
    memory = f"/v1/agents/{agent['id']}/archival-memory"
    (mine,) = (await client.post(memory, json={"text": "apple", "tags": ["t"]})).json()
    (kept,) = (await client.post(memory, json={"text": "apple", "tags": ["t"]})).json()
    path = f"/v1/archives/{archive['id']}/passages"
    theirs = (await client.post(path, json={"text": "apple", "tags": ["t"]})).json()
    assert (await client.delete(f"{memory}/{theirs['id']}")).status_code == 404, "it is in another archive"
    assert (await client.delete(f"{path}/{mine['id']}")).status_code == 404
    answer = await client.delete(f"{memory}/{mine['id']}")
    assert (answer.status_code, list(answer.json())) == (200, ["message"])
    assert (await client.delete(f"{memory}/{mine['id']}")).status_code == 404
    found = (await client.post("/v1/passages/search", json={"query": "apple"})).json()
    assert {one["passage"]["id"] for one in found} == {kept["id"], theirs["id"]}
    answer = await client.delete(f"{path}/{theirs['id']}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await rows(kelpie))["passage_tags"] == 1
    answer = await client.delete(f"/v1/archives/{archive['id']}")
    assert (answer.status_code, answer.content) == (204, b"")
    for method in ("GET", "DELETE"):
        assert (await client.request(method, f"/v1/archives/{archive['id']}")).status_code == 404
    assert (await client.get(f"/v1/archives/{archive['id']}/agents")).status_code == 404
    await client.delete(f"/v1/agents/{agent['id']}")
    assert {name: number for name, number in (await rows(kelpie)).items() if number} == {}
    assert (await client.post("/v1/passages/search", json={"query": "apple"})).json() == []


async def test_nobody_sees_the_archives_of_others(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    agent, archive = await make_agent(client), await make_archive(client)
    agent_id, archive_id = AgentId(agent["id"]), ArchiveId(archive["id"])
    await client.patch(f"/v1/agents/{agent_id}/archives/attach/{archive_id}")
    (mine,) = (await client.post(f"/v1/agents/{agent_id}/archival-memory", json={"text": "apple"})).json()
    before, theirs = await rows(kelpie), kelpie.api(STRANGER).archives
    own, _ = await theirs.create(NewArchive("theirs"))
    assert (own.organization_id, own.created_by_id) == (STRANGER.organization_id, STRANGER.user_id)
    page, query, passage = Page(), PassageQuery("apple"), PassageId(mine["id"])
    refused: list[Any] = [
        theirs.get(archive_id),
        theirs.update(archive_id, {"name": "x"}),
        theirs.delete(archive_id),
        theirs.agents_of(archive_id, page),
        theirs.store(archive_id, [NewPassage("x")]),
        theirs.remember(agent_id, NewPassage("x")),
        theirs.forget(archive_id, passage),
        theirs.forget(own.id, passage),
        theirs.forget_of_agent(agent_id, passage),
        theirs.attach(agent_id, own.id),
        theirs.detach(agent_id, archive_id),
        theirs.search_of_agent(agent_id, query),
        theirs.search(archive_id, query),
        theirs.page(ArchiveQuery(Page(after=archive_id))),
    ]
    for call in refused:
        with pytest.raises(NotFound):
            await call
    assert (await theirs.search(None, query)).found == []
    assert await theirs.of_agent(agent_id, page) == []
    assert await theirs.get_many([archive_id]) == {}
    assert [one.id for one in await theirs.page(ArchiveQuery())] == [own.id]
    await theirs.delete(own.id)
    assert await rows(kelpie) == before


async def test_a_large_archive_is_swept_up_by_itself(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    archive = await make_archive(client)
    batch = {"passages": [{"text": f"apple {number}", "tags": ["t"]} for number in range(archive_removal.ROWS_MAX + 1)]}
    assert (await client.post(f"/v1/archives/{archive['id']}/passages/batch", json=batch)).status_code == 200
    assert (await client.delete(f"/v1/archives/{archive['id']}")).status_code == 204
    assert (await client.get(f"/v1/archives/{archive['id']}")).status_code == 404
    assert (await client.post("/v1/passages/search", json={"query": "apple"})).json() == []
    await kelpie._cleanup.clean_up()
    assert set((await rows(kelpie)).values()) == {0}
