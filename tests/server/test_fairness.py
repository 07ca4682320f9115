"""One organization at full load and its neighbour: sandboxes, callbacks, and what a tool may ask for."""

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from kelpie.agent.maintenance import run_callbacks
from kelpie.core.models.provider_limits import ProviderLimits
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.confinement import MEGABYTE
from kelpie.fairness import processor_time
from kelpie.fairness.processor_time import SECOND_NS
from kelpie.llm.catalog.price_list import Prices
from kelpie.llm.limits.limited_provider import LimitedProvider
from kelpie.llm.limits.limiter import Limiter
from kelpie.llm.provider.interface import Event as ModelEvent
from kelpie.llm.provider.interface import Request
from kelpie.llm.provider.retry import RetryLimits
from kelpie.local import open_kelpie
from kelpie.world.clock import SystemClock
from tests.server.rig import Puppet, called, client_of, open_rig

DEADLINE_S = 60.0
LOOK_S = 0.01
NAPS = 8
TARPITS = 16
BUSY_NS = 50 * SECOND_NS  # within the time for which an organization counts as active
NAP = '''
import time

def nap(seconds: float) -> str:
    """Sleeps.

    Args:
        seconds (float): how long
    """
    time.sleep(seconds)
    return "rested"
'''

Headers = Mapping[str, str]


@asynccontextmanager
async def street(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, list[Headers], list[str]]]:
    """A server with two organizations: their credentials, and an agent of each with the tool `nap`."""
    kelpie = open_kelpie(Settings(data_dir=str(tmp_path), **settings))
    await kelpie.start()
    try:
        async with client_of(kelpie) as client, asyncio.timeout(DEADLINE_S):
            users = [await move_in(client, name) for name in ("one", "two")]
            yield client, [user for user, _ in users], [agent for _, agent in users]
    finally:
        await kelpie.stop(0.0)


async def a_user(client: httpx.AsyncClient, name: str) -> Headers:
    """The credentials of a user of a new organization."""
    organization = await made(client, "/v1/admin/orgs/", {"name": name})
    user = await made(client, "/v1/admin/users/", {"name": name, "organization_id": organization["id"]})
    return {"user_id": user["id"]}


async def move_in(client: httpx.AsyncClient, name: str) -> tuple[Headers, str]:
    me = await a_user(client, name)
    await made(client, "/v1/tools/", {"source_code": NAP}, me)
    return me, (await made(client, "/v1/agents/", {"name": name, "tools": ["nap"]}, me))["id"]


async def made(client: httpx.AsyncClient, path: str, body: Any, headers: Headers | None = None) -> dict[str, Any]:
    answer = await client.post(path, json=body, headers=headers)
    assert answer.status_code == 200, f"{path}: {answer.text}"
    return answer.json()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(int(DEADLINE_S / LOOK_S)):
        if await holds():
            return
        await asyncio.sleep(LOOK_S)
    pytest.fail("it never came to this")


async def nap(client: httpx.AsyncClient, agent: str, me: Headers, seconds: float) -> dict[str, Any]:
    return await made(client, f"/v1/agents/{agent}/tools/nap/run", {"args": {"seconds": seconds}}, me)


@pytest.mark.needs("sandbox")
async def test_jobs_that_take_long_do_not_keep_another_organization_waiting(tmp_path: Path) -> None:
    async with street(tmp_path, sandbox_cells_max=4) as (client, (one, two), (agent, neighbour)):
        naps = [asyncio.create_task(nap(client, agent, one, 3600)) for _ in range(NAPS)]

        async def the_share_is_taken() -> bool:
            counts = (await client.get("/v1/kelpie/sandbox")).json()["counts"]
            return (counts["running"], counts["waiting"]) == (3, NAPS - 3)

        await until(the_share_is_taken)
        told = await nap(client, neighbour, two, 0)
        assert (told["status"], told["func_return"]) == ("success", "rested")
        assert not any(each.done() for each in naps)
        for each in naps:
            each.cancel()
        await asyncio.gather(*naps, return_exceptions=True)


async def test_receivers_that_never_answer_do_not_keep_anothers_callback_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_callbacks, "TIMEOUT_S", 3600.0)
    rung, held = asyncio.Event(), list[asyncio.StreamWriter]()

    async def swallow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    async def ring(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()
        rung.set()

    tarpit, bell = [await asyncio.start_server(each, "127.0.0.1", 0) for each in (swallow, ring)]
    urls = [f"http://127.0.0.1:{each.sockets[0].getsockname()[1]}/" for each in (tarpit, bell)]
    async with tarpit, bell, street(tmp_path, callback_private=True) as (client, (one, two), (agent, neighbour)):
        path = "/v1/agents/{}/messages/async"
        for _ in range(TARPITS):
            await made(client, path.format(agent), {"input": "x", "callback_url": urls[0]}, one)

        async def the_share_is_taken() -> bool:
            return len(held) == 6

        await until(the_share_is_taken)
        run = await made(client, path.format(neighbour), {"input": "x", "callback_url": urls[1]}, two)
        await rung.wait()
        assert len(held) == 6, "six of eight are its share"

        async def it_is_recorded() -> bool:
            told = (await client.get(f"/v1/runs/{run['id']}", headers=two)).json()
            return told["callback_status_code"] == 204

        await until(it_is_recorded)
        for writer in held:
            writer.close()


ASKED: dict[str, tuple[Any, str]] = {
    "memory_mb": (65_536, "KELPIE_TOOL_MEMORY_MB"),
    "scratch_mb": (16_384, "KELPIE_TOOL_SCRATCH_MB"),
    "processes": (4096, "KELPIE_TOOL_PROCESSES"),
    "timeout_s": (3600, "KELPIE_TOOL_TIMEOUT_SECONDS"),
    "cpu_share": (64, "KELPIE_TOOL_CPU_SHARE"),
    "output_mb": (16, "KELPIE_TOOL_OUTPUT_MB"),
    "egress": (["example.com"], "KELPIE_TOOL_EGRESS"),
}


async def test_a_tool_that_asks_for_more_than_the_operator_allows_is_refused(tmp_path: Path) -> None:
    async with street(tmp_path, tool_egress=("*.example.org",)) as (client, (me, _), _):
        tool = (await client.get("/v1/tools/?name=nap", headers=me)).json()[0]
        for field, (value, setting) in ASKED.items():
            body = {"source_code": NAP, "kelpie_sandbox": {field: value}}
            for method, path, sent in (
                ("POST", "/v1/tools/", body),
                ("PUT", "/v1/tools/", body),
                ("PATCH", f"/v1/tools/{tool['id']}", {"kelpie_sandbox": {field: value}}),
                ("POST", "/v1/tools/run", {**body, "args": {"seconds": 0}}),
            ):
                answer = await client.request(method, path, json=sent, headers=me)
                assert answer.status_code == 422, f"{method} {path} {field}: {answer.text}"
                assert f"kelpie_sandbox.{field}" in answer.text and setting in answer.text, answer.text
        assert (await client.get(f"/v1/tools/{tool['id']}", headers=me)).json()["kelpie_sandbox"] == {}
        most = {"memory_mb": 1024, "scratch_mb": 1024, "processes": 256, "timeout_s": 600, "cpu_share": 2}
        body = {"source_code": NAP, "kelpie_sandbox": {**most, "egress": ["api.example.org"]}}
        assert (await made(client, "/v1/tools/", body, me))["kelpie_sandbox"]["memory_mb"] == 1024


@pytest.mark.needs("sandbox")
async def test_a_stored_tool_gets_what_is_allowed_and_its_failure_says_so(tmp_path: Path) -> None:
    async with street(tmp_path, tool_timeout_s=0.0) as (client, (me, _), (agent, _)):
        asked = {"timeout_s": 3600, "memory_mb": 512}
        await made(client, "/v1/tools/", {"source_code": NAP, "kelpie_sandbox": asked}, me)
    kelpie = open_kelpie(Settings(data_dir=str(tmp_path), tool_timeout_s=0.5))
    await kelpie.start()
    try:
        async with client_of(kelpie) as client, asyncio.timeout(DEADLINE_S):
            told = await nap(client, agent, me, 3600)
            assert told["status"] == "error" and "time limit of 0.5 s" in str(told)
            assert "timeout_s 3600 (allowed here: 0.5)" in str(told) and "memory_mb" not in str(told)
            assert kelpie.settings.policy.quota.memory_bytes == 1024 * MEGABYTE
    finally:
        await kelpie.stop(0.0)


async def test_an_organization_that_used_more_than_its_share_of_the_processor_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.count()
    monkeypatch.setattr(processor_time, "ACTIVE_NS", 10**18)
    monkeypatch.setattr(SystemClock, "monotonic_ns", lambda _: next(moments))
    async with street(tmp_path, processor_share=0.05) as (client, (one, two), (agent, _)):
        moments = itertools.count(next(moments), 100 * 10**9)  # each step takes so long
        answered = await client.get(f"/v1/agents/{agent}", headers=one)
        refused = await client.get(f"/v1/agents/{agent}", headers=one)
        beside = await client.get("/v1/agents/", headers=two)
    assert (answered.status_code, refused.status_code, beside.status_code) == (200, 429, 200)
    assert "share of the server's processor time" in refused.json()["detail"]
    assert int(refused.headers["retry-after"]) > 30


class BusyModel(Puppet, SystemClock):
    """A model whose calls occupy the processor, and the clock of its server: time goes by only in them."""

    def __init__(self) -> None:
        super().__init__()
        self.moment_ns = SECOND_NS
        self.busy_ns = 0  # in the next call

    def monotonic_ns(self) -> int:
        return self.moment_ns

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        self.moment_ns, self.busy_ns = self.moment_ns + self.busy_ns, 0
        async for event in super().stream(request):
            yield event


class LimitedModel(Puppet):
    """The provider of a model, within limits as those of a real server are."""

    def __init__(self, model: BusyModel) -> None:
        super().__init__()
        limiter = Limiter(model.name, ProviderLimits(), 30.0)
        self._limited = LimitedProvider(model, limiter, RetryLimits(), Prices({}), random.Random(1))

    def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        return self._limited.stream(request)


@asynccontextmanager
async def shared(tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, BusyModel, Headers, str]]:
    """A server that two organizations use, its model, and of one of them the credentials and an agent."""
    model = BusyModel()
    rig = open_rig(tmp_path, clock=model, puppet=LimitedModel(model), processor_share=0.25)
    async with rig as (kelpie, _), client_of(kelpie) as client, asyncio.timeout(DEADLINE_S):
        one, two = [await a_user(client, name) for name in ("one", "two")]
        agent = (await made(client, "/v1/agents/", {"name": "busy"}, one))["id"]
        model.moment_ns += SECOND_NS  # from time to time the processor is divided anew
        assert (await client.get("/v1/agents/", headers=two)).status_code == 200
        yield client, model, one, agent


async def test_the_time_that_a_turn_takes_counts_for_its_organization(tmp_path: Path) -> None:
    async with shared(tmp_path) as (client, model, me, agent):
        assert (await client.get(f"/v1/agents/{agent}", headers=me)).status_code == 200
        model.busy_ns = BUSY_NS
        await made(client, f"/v1/agents/{agent}/messages", {"input": "x"}, me)
        refused = await client.get(f"/v1/agents/{agent}", headers=me)
    assert refused.status_code == 429
    assert "share of the server's processor time" in refused.json()["detail"]


async def test_the_next_step_of_a_turn_waits_while_its_organization_has_used_more_than_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, over = asyncio.Queue[float](), asyncio.Event()

    async def wait(seconds: float) -> None:
        waits.put_nowait(seconds)
        await over.wait()

    async with shared(tmp_path) as (client, model, me, agent):
        monkeypatch.setattr(processor_time, "asyncio", SimpleNamespace(sleep=wait))
        model.busy_ns = BUSY_NS
        model.script.append(called("no_such_tool", "{}"))
        turn = asyncio.create_task(made(client, f"/v1/agents/{agent}/messages", {"input": "x"}, me))
        waiting = asyncio.create_task(waits.get())
        await asyncio.wait((turn, waiting), return_when=asyncio.FIRST_COMPLETED)
        assert waiting.done() and not turn.done(), "the turn went on at once"
        assert waiting.result() == processor_time.WAIT_NS / SECOND_NS
        assert len(model.asked) == 1
        over.set()
        await turn
        assert len(model.asked) == 2
