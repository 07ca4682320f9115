"""Clients that leave a stream, over a real socket: the turn goes on, unless they asked for its end."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from kelpie.server.app import create_app
from tests.server.rig import Puppet, client_of, make_agent, open_rig, said


async def _leave(port: int, path: str, body: dict[str, Any], puppet: Puppet) -> None:
    """Asks for a stream, waits until the model is at work, and hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    lines = (f"POST {path} HTTP/1.1", "host: 127.0.0.1:8283", "content-type: application/json")
    writer.write("\r\n".join((*lines, f"content-length: {len(data)}", "", "")).encode() + data)
    assert b" 200 " in await reader.readline()
    await puppet.waiting.wait()
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(("stops", "status"), [(False, "completed"), (True, "cancelled")])
async def test_whoever_leaves_ends_the_turn_only_if_they_asked_for_it(tmp_path: Path, stops: bool, status: str) -> None:
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie) as client, asyncio.timeout(30):
        agent = (await make_agent(client))["id"]
        gate = asyncio.Event()
        puppet.script += [gate, said("to nobody")]
        server = uvicorn.Server(uvicorn.Config(create_app(kelpie), port=0, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn tells it no other way
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        body = {"input": "hi", "kelpie_stop_on_disconnect": stops}
        await _leave(port, f"/v1/agents/{agent}/messages/stream", body, puppet)
        if not stops:
            gate.set()
        while True:
            found = (await client.get("/v1/runs/", params={"agent_id": agent})).json()
            if found and found[0]["status"] not in ("created", "running"):
                break
            await asyncio.sleep(0.01)
        assert [run["status"] for run in found] == [status]
        gate.set()
        assert (await client.post(f"/v1/agents/{agent}/messages", json={"input": "well?"})).status_code == 200
        server.should_exit = True
        await serving
