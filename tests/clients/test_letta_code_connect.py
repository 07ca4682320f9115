"""`letta connect` of Letta Code: it checks a key, stores it as a provider, and changes it the second time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from kelpie.server.app import create_app
from tests.clients.letta_code import NEW, program, ran
from tests.server.keyed_provider import KeyedProvider
from tests.server.rig import open_rig

KEY, OTHER = "sk-the-first-key", "sk-the-other-key"


@asynccontextmanager
async def listening(tmp_path: Path, provider: KeyedProvider) -> AsyncIterator[str]:
    """A server whose calls to any provider reach this one; its address."""
    async with open_rig(tmp_path, http=provider.http) as (kelpie, _):
        server = uvicorn.Server(uvicorn.Config(create_app(kelpie), port=0, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:  # noqa: ASYNC110 - uvicorn tells it no other way
                await asyncio.sleep(0.01)
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


async def test_letta_code_connects_a_provider(tmp_path: Path) -> None:
    program(NEW)  # the command of the older one fails before it asks a server: "Settings not initialized"
    provider = KeyedProvider({KEY: "first", OTHER: "other"})
    async with listening(tmp_path, provider) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:

        async def connect(key: str) -> str:
            return await asyncio.to_thread(ran, NEW, tmp_path / "home", url, "connect", "openai", "--api-key", key)

        assert "Connected" in await connect(KEY)
        (made,) = (await client.get("/v1/providers")).json()
        assert (made["name"], made["provider_type"]) == ("lc-openai", "openai")
        handles = [each["handle"] for each in (await client.get("/v1/models/?provider_category=byok")).json()]
        assert handles == ["lc-openai/gpt-4o", "lc-openai/gpt-4o-mini"]
        assert {(each.host, each.key) for each in provider.asked} == {("api.openai.com", KEY)}
        with pytest.raises(AssertionError, match="Failed to connect"):
            await connect("sk-an-unknown-key")
        assert "Connected" in await connect(OTHER)
        (changed,) = (await client.get("/v1/providers")).json()
        assert changed["id"] == made["id"]
        provider.asked.clear()
        assert (await client.post(f"/v1/providers/{made['id']}/check")).status_code == 200
        assert {each.key for each in provider.asked} == {OTHER}
