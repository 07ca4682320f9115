"""The size of the vectors of a local embedding model: measured where the server does not report it, once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kelpie.llm.local.server import LocalServer
from tests.llm.fakes import answer
from tests.llm.local_fakes import LocalFake, local_fake, local_server

ROUTE = "POST /v1/embeddings"
SIZES = {"small": 2, "large": 5}


def vectors(size: int) -> dict[str, object]:
    return {"object": "list", "data": [{"index": 0, "embedding": [0.5] * size}], "model": "m"}


@asynccontextmanager
async def lmstudio() -> AsyncIterator[tuple[LocalFake, LocalServer]]:
    async with local_fake() as fake, local_server(fake.url, "lmstudio") as server:
        entries = [{"id": name, "type": "embeddings"} for name in SIZES]
        fake.at("GET /api/v0/models", {"data": [{"id": "chat", "type": "llm"}, *entries]})
        for name, size in SIZES.items():
            fake.at(f"{ROUTE} {name}", vectors(size))
        yield fake, server


async def test_each_model_is_measured_by_its_own_vector_and_once() -> None:
    async with lmstudio() as (fake, server):
        for _ in range(3):
            await server.models()
            found = {each.name: each.dimensions for each in await server.embeddings()}
            assert found == SIZES
        assert sorted(heard.body["model"] for heard in fake.asked(ROUTE)) == ["large", "small"]


async def test_only_the_models_that_are_asked_for_are_measured() -> None:
    async with lmstudio() as (fake, server):
        assert [each.name for each in await server.embeddings(["large"])] == ["large"]
        assert [heard.body["model"] for heard in fake.asked(ROUTE)] == ["large"]


async def test_a_model_that_cannot_be_measured_is_left_out_with_the_reason_until_it_can() -> None:
    async with lmstudio() as (fake, server):
        fake.at(f"{ROUTE} small", answer({"error": "out of memory"}, 400), vectors(2))
        for _ in range(2):
            assert [each.name for each in await server.embeddings()] == ["large"]
        assert len(fake.asked(ROUTE)) == 2, "it is not asked again before the models are listed again"
        reasons = {each.name: each.reason for each in server.hidden}
        assert "it could not be used" in reasons["small"] and "it could not be used" not in reasons["large"]
        await server.models()
        assert {each.name: each.dimensions for each in await server.embeddings()} == SIZES
        assert not any("could not be used" in each.reason for each in server.hidden)
