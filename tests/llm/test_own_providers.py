"""An organization's own providers: what is stored counts, however many ask at once, and calls under way are not cut."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from kelpie.core.errors import ModelError, NotFound, StorageError
from kelpie.core.ids import DEFAULT_ORGANIZATION, OrganizationId, ProviderId
from kelpie.core.models.model_providers import ModelProvider, ProviderAccess
from kelpie.core.settings.settings import Settings
from kelpie.llm.routing import models as models_module
from kelpie.llm.routing.models import Models
from tests.llm.fakes import TransportHttp, asking, world

STORED = ModelProvider(
    ProviderId("provider-00000000-0000-4000-8000-000000000001"),
    DEFAULT_ORGANIZATION,
    "mine",
    ProviderAccess("openai", "sk-one-two-three", base_url="https://models.example/v1"),
    revision=1,
    created_at=1,
    updated_at=1,
)


class Stored:
    """What a database has; `gate` holds up the reads."""

    def __init__(self) -> None:
        self.rows: list[ModelProvider] = [STORED]
        self.reads = 0
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False

    async def __call__(self, organization: OrganizationId) -> Sequence[ModelProvider]:
        self.reads += 1
        self.begun.set()
        found = list(self.rows)
        await self.gate.wait()
        if self.fails:
            raise StorageError("no disk")
        return found if organization == DEFAULT_ORGANIZATION else []


def models_with(stored: Stored, http: TransportHttp | None = None, **settings: Any) -> Models:
    return Models(world(http), Settings(**settings), read_own=stored).of(DEFAULT_ORGANIZATION)


async def test_a_shared_handle_reads_nothing() -> None:
    stored = Stored()
    models = models_with(stored)
    await models.load("openai/gpt-4o", "kelpie/demo", "ollama/x")
    assert stored.reads == 0
    await models.load("openai/gpt-4o", "mine/gpt-4o")
    assert stored.reads == 1 and models.is_own("mine")


async def test_one_read_serves_all_who_asked_before_it_began() -> None:
    stored = Stored()
    models = models_with(stored)
    stored.gate.clear()
    first = asyncio.create_task(models.load("mine/x"))
    await stored.begun.wait()
    stored.rows = []  # deleted while the first read is under way
    later = [asyncio.create_task(models.load("mine/x")) for _ in range(10)]
    await asyncio.sleep(0)
    stored.gate.set()
    await asyncio.gather(first, *later)
    assert stored.reads == 2 and not models.is_own("mine")


async def test_a_read_that_failed_serves_nobody() -> None:
    stored = Stored()
    models = models_with(stored)
    stored.fails = True
    stored.gate.clear()
    asked = [asyncio.create_task(models.load("mine/x")) for _ in range(3)]
    await stored.begun.wait()
    stored.gate.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in found] == [StorageError] * 3


async def test_a_call_under_way_keeps_its_connection() -> None:
    stored, begun, go_on, closed = Stored(), asyncio.Event(), asyncio.Event(), list[str]()

    class Transport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            begun.set()
            await go_on.wait()
            assert not closed
            message = {"role": "assistant", "content": "hello"}
            return httpx.Response(200, json={"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})

        async def aclose(self) -> None:
            closed.append("closed")

    models = models_with(stored, TransportHttp(Transport()))
    await models.load()
    provider, name = models.provider("mine/gpt-4o")

    async def call() -> None:
        async for _ in provider.stream(asking(model=name)):
            pass

    calling = asyncio.create_task(call())
    async with asyncio.timeout(20):
        await begun.wait()
        stored.rows = [replace(STORED, revision=2, access=replace(STORED.access, api_key="sk-another-key"))]
        await models.load()
        assert closed == []
        go_on.set()
        await calling
    assert closed == ["closed"]
    stored.rows = []
    await models.load("mine/gpt-4o")
    with pytest.raises(NotFound, match="There is no provider 'mine'"):
        models.provider("mine/gpt-4o")


async def test_other_organizations_have_none_of_it() -> None:
    stored = Stored()
    models = models_with(stored)
    await models.load()
    other = models.of("org-00000000-0000-4000-8000-000000000009")
    await other.load()
    assert models.known("mine/gpt-4o") is not None and other.known("mine/gpt-4o") is None
    assert models.of(DEFAULT_ORGANIZATION) is models and other.of(DEFAULT_ORGANIZATION) is models


async def test_a_change_of_a_provider_frees_none_of_its_limit_and_another_provider_has_its_own() -> None:
    stored, begun, go_on = Stored(), asyncio.Event(), asyncio.Event()

    class Transport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            begun.set()
            await go_on.wait()
            message = {"role": "assistant", "content": "hello"}
            return httpx.Response(200, json={"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})

    limits: dict[str, Any] = {"provider_limits": ("byok: calls=1",), "provider_wait_s": 0.01}
    models = models_with(stored, TransportHttp(Transport()), **limits)

    async def call() -> None:
        await models.load()
        provider, name = models.provider("mine/gpt-4o")
        async for _ in provider.stream(asking(model=name)):
            pass

    async with asyncio.timeout(20):
        calling = asyncio.create_task(call())
        await begun.wait()
        stored.rows = [replace(STORED, revision=2, access=replace(STORED.access, api_key="sk-another-key"))]
        with pytest.raises(ModelError, match="1 calls at once"):
            await call()
        another = ProviderId("provider-00000000-0000-4000-8000-000000000002")
        stored.rows = [replace(STORED, id=another)]  # deleted, and made anew under its name
        begun.clear()
        other = asyncio.create_task(call())
        await begun.wait()
        go_on.set()
        await asyncio.gather(calling, other)


async def test_a_key_that_is_readable_again_is_used() -> None:
    stored = Stored()
    stored.rows = [replace(STORED, unreadable={"api_key": "It was encrypted with a key that is missing."})]
    models = models_with(stored)
    await models.load()
    with pytest.raises(ModelError, match="cannot be used: api_key"):
        await models.renew("mine")
    stored.rows = [STORED]
    await models.load()
    provider = models._find("mine/x")[0]  # pyright: ignore[reportPrivateUsage]
    assert provider.name == "mine" and type(provider).__name__ != "UnusableProvider"


async def test_the_organization_that_asked_last_is_held_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_module, "ORGANIZATIONS_MAX", 2)
    stored = Stored()
    models = models_with(stored)
    one, two = (models.of(f"org-00000000-0000-4000-8000-00000000000{number}") for number in (7, 8))
    assert models.of("org-00000000-0000-4000-8000-000000000007") is one
    models.of("org-00000000-0000-4000-8000-000000000009")
    assert models.of("org-00000000-0000-4000-8000-000000000007") is one
    assert models.of("org-00000000-0000-4000-8000-000000000008") is not two
