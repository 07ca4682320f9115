"""The vectors in answers with passages: a long list of large vectors would not fit into memory."""

from pathlib import Path

import pytest

from kelpie.memory import archives
from tests.llm.local_fakes import embedding, local_fake
from tests.server.rig import make_agent
from tests.server.test_models_api import served

HANDLE = "lmstudio/text-embedding"
COUNT = 5


async def test_only_the_first_passages_of_an_answer_have_their_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archives.VECTORS_MAX == 200, "what docs/letta-compatibility.md says"
    monkeypatch.setattr(archives, "VECTORS_MAX", 3)
    async with local_fake() as local:
        local.at("GET /api/v0/models", {"data": [{"id": "text-embedding", "type": "embeddings"}]})
        embedding(local, {"": [0.0, 1.0]})
        async with served(tmp_path, lmstudio_base_url=local.url) as client:
            archive = (await client.post("/v1/archives/", json={"name": "notes", "embedding": HANDLE})).json()
            agent = await make_agent(client, model="kelpie/demo")
            await client.patch(f"/v1/agents/{agent['id']}/archives/attach/{archive['id']}")
            given = [{"text": f"number {at}", "created_at": f"2024-01-0{at + 1}T00:00:00Z"} for at in range(COUNT)]
            batch = await client.post(f"/v1/archives/{archive['id']}/passages/batch", json={"passages": given})
            path = f"/v1/agents/{agent['id']}/archival-memory"
            listed = (await client.get(path, params={"ascending": True})).json()
            (newest,) = (await client.get(path, params={"ascending": False, "limit": 1})).json()
    for way in (batch.json(), listed):
        assert [one["text"] for one in way] == [f"number {at}" for at in range(COUNT)]
        assert [one["embedding"] and one["embedding"] for one in way] == [[0.0, 1.0]] * 3 + [None] * 2
    assert newest["text"] == "number 4" and newest["embedding"] == [0.0, 1.0], "alone it has its vector"


async def test_the_size_of_all_vectors_is_told_in_gigabytes(tmp_path: Path) -> None:
    async with local_fake() as local:
        local.at("GET /api/v0/models", {"data": [{"id": "text-embedding", "type": "embeddings"}]})
        embedding(local, {"": [0.0] * 7 + [1.0]})
        async with served(tmp_path, lmstudio_base_url=local.url) as client:
            assert (await client.get("/v1/embeddings/total_storage_size")).json() == 0.0
            archive = (await client.post("/v1/archives/", json={"name": "notes", "embedding": HANDLE})).json()
            given = [{"text": f"number {at}"} for at in range(COUNT)]
            await client.post(f"/v1/archives/{archive['id']}/passages/batch", json={"passages": given})
            told = (await client.get("/v1/embeddings/total_storage_size")).json()
    assert told * 1024**3 == COUNT * 8 * 4
