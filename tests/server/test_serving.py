"""Real sockets: the official SDK streams from a real server, and the server ends well."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import letta_client
import pytest
from letta_client import AsyncLetta

from kelpie.app import Kelpie
from kelpie.core.errors import ConfigurationError, ModelError, ModelFault
from kelpie.server.run import serve
from tests.server.rig import Puppet, called, open_rig, said

DEADLINE_S = 60.0


@asynccontextmanager
async def serving(kelpie: Kelpie, deadline_s: float = DEADLINE_S) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    """A server on a free port, stopped by the signal an operator would send."""
    ready: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(kelpie, kelpie.settings, lambda host, port: ready.set_result((host, port))))
    async with asyncio.timeout(deadline_s):
        await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        host, port = await ready
        try:
            yield f"http://{host}:{port}", task
        finally:
            if not task.done():
                os.kill(os.getpid(), signal.SIGTERM)
                await task


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[tuple[Kelpie, Puppet]]:
    async with open_rig(tmp_path, lifecycle=False) as rig:
        yield rig


@pytest.fixture
async def sdk(opened: tuple[Kelpie, Puppet]) -> AsyncIterator[AsyncLetta]:
    async with (
        serving(opened[0]) as (url, _),
        AsyncLetta(base_url=url, api_key="unused", max_retries=0) as client,
    ):
        yield client


async def events(stream: Any) -> list[Any]:
    return [event async for event in stream]


async def test_the_sdk_streams_steps(opened: tuple[Kelpie, Puppet], sdk: AsyncLetta) -> None:
    opened[1].script += [called("memory_insert", '{"label": "human", "new_string": "tea"}'), said("Noted.")]
    agent = await sdk.agents.create(memory_blocks=[{"label": "human", "value": "Bob"}])
    found = await events(await sdk.agents.messages.stream(agent.id, input="I like tea"))
    assert [event.message_type for event in found] == [
        "ping",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
        "stop_reason",
        "usage_statistics",
    ]
    assert found[3].content == "Noted." and found[4].stop_reason == "end_turn" and found[5].step_count == 2
    assert found[0].run_id == found[3].run_id
    block = await sdk.agents.blocks.retrieve("human", agent_id=agent.id)
    assert "tea" in block.value


async def test_the_sdk_streams_tokens(opened: tuple[Kelpie, Puppet], sdk: AsyncLetta) -> None:
    opened[1].script.append(said("Hello there Bob"))
    agent = await sdk.agents.create()
    stream = await sdk.agents.messages.stream(agent.id, input="hi", stream_tokens=True, include_pings=False)
    found = await events(stream)
    deltas = [event for event in found if event.message_type == "assistant_message"]
    assert [event.content for event in deltas] == ["Hello", "there", "Bob"]
    assert len({(event.id, event.otid) for event in deltas}) == 1
    listed = [m async for m in sdk.agents.messages.list(agent.id)]
    assert (listed[-1].id, listed[-1].otid) == (deltas[0].id, deltas[0].otid)
    assert [event.message_type for event in found[-2:]] == ["stop_reason", "usage_statistics"]


async def test_create_with_streaming_is_a_stream_too(sdk: AsyncLetta) -> None:
    agent = await sdk.agents.create()
    found = await events(await sdk.agents.messages.create(agent.id, input="hi", streaming=True))
    assert [event.message_type for event in found][-3:] == ["assistant_message", "stop_reason", "usage_statistics"]


async def test_a_failure_in_a_stream_raises_in_the_sdk(opened: tuple[Kelpie, Puppet], sdk: AsyncLetta) -> None:
    opened[1].script.append(ModelError(ModelFault.rate_limit, "Too many requests.", detail="slow down"))
    agent = await sdk.agents.create()
    with pytest.raises(letta_client.APIStatusError, match="Too many requests"):
        await events(await sdk.agents.messages.stream(agent.id, input="hi"))


async def test_the_sdk_raises_its_own_errors(sdk: AsyncLetta) -> None:
    with pytest.raises(letta_client.NotFoundError):
        await sdk.agents.retrieve("agent-00000000-0000-4000-8000-0000000000ff")
    with pytest.raises(letta_client.UnprocessableEntityError):
        await sdk.agents.retrieve("bad")
    with pytest.raises(letta_client.BadRequestError):
        await sdk.agents.create(name="bad\nname")


async def test_the_sdks_pages_find_everything(sdk: AsyncLetta) -> None:
    made = [(await sdk.agents.create(name=f"a{n}")).id for n in range(5)]
    assert [agent.id async for agent in sdk.agents.list(limit=2)] == made[::-1]
    assert (await sdk.health()).status == "ok"


async def test_a_vanished_client_does_not_stop_the_turn(opened: tuple[Kelpie, Puppet]) -> None:
    kelpie, puppet = opened
    gate = asyncio.Event()
    puppet.script += [gate, said("Finished anyway.")]
    async with serving(kelpie) as (url, _), httpx.AsyncClient(base_url=url) as client:
        agent_id = (await client.post("/v1/agents/", json={})).json()["id"]
        async with client.stream("POST", f"/v1/agents/{agent_id}/messages/stream", json={"input": "hi"}) as answer:
            async for line in answer.aiter_lines():
                if "ping" in line:
                    break
            await puppet.waiting.wait()
        gate.set()  # the client is gone, the model answers only now
        while len(found := (await client.get(f"/v1/agents/{agent_id}/messages")).json()) < 3:
            continue
        assert found[-1]["content"] == "Finished anyway."


async def test_a_signal_lets_the_request_under_way_finish(opened: tuple[Kelpie, Puppet]) -> None:
    kelpie, puppet = opened
    gate = asyncio.Event()
    puppet.script += [gate, said("Just in time.")]
    async with serving(kelpie) as (url, task), httpx.AsyncClient(base_url=url) as client:
        agent_id = (await client.post("/v1/agents/", json={})).json()["id"]
        answer = asyncio.create_task(client.post(f"/v1/agents/{agent_id}/messages", json={"input": "hi"}))
        await puppet.waiting.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        while await _accepts(url):
            continue
        gate.set()
        assert (await answer).json()["messages"][0]["content"] == "Just in time."
        await task


async def test_a_port_in_use_is_one_clear_sentence(opened: tuple[Kelpie, Puppet]) -> None:
    kelpie, _ = opened
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = replace(kelpie.settings, port=taken.getsockname()[1])
        with pytest.raises(ConfigurationError, match=r"KELPIE_PORT: port \d+ on 127.0.0.1 is in use"):
            await serve(kelpie, settings, lambda host, port: None)


async def test_bodies_are_bounded_on_real_sockets(tmp_path: Path) -> None:
    async with (
        open_rig(tmp_path, lifecycle=False, body_bytes_max=1000) as (kelpie, _),
        serving(kelpie) as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        headers = {"Content-Type": "application/json"}
        assert (await client.post("/v1/agents/", content=b" " * 1001, headers=headers)).status_code == 413
        assert (await client.get("/v1/health/")).status_code == 200


async def _accepts(url: str) -> bool:
    address = httpx.URL(url)
    try:
        _, writer = await asyncio.open_connection(address.host, address.port)
    except OSError:
        return False
    writer.close()
    return True


async def test_the_sdks_own_retry_says_nothing_twice(opened: tuple[Kelpie, Puppet], sdk: AsyncLetta) -> None:
    patient = sdk.with_options(max_retries=2)
    agent = await sdk.agents.create(memory_blocks=[{"label": "human", "value": ""}])
    puppet = opened[1]
    puppet.script += [
        called("memory_insert", '{"label": "human", "new_string": "tea"}'),
        ModelError(ModelFault.server, "It failed."),
    ]
    with pytest.raises(letta_client.InternalServerError):
        await patient.agents.messages.create(agent.id, input="I like tea")
    assert len(puppet.asked) == 2, "part of the turn is history, so the SDK is told not to send it again"
    puppet.script.append(ModelError(ModelFault.server, "It failed."))
    await patient.agents.messages.create(agent.id, input="hello")  # nothing was history yet: the second try succeeds
    said_by_user = [m.content async for m in sdk.agents.messages.list(agent.id) if m.message_type == "user_message"]
    assert said_by_user == ["I like tea", "hello"]
