"""The list of models at /v1/models, without a slash, as every client asks for it: only OpenAI's get agents."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import letta_client
import openai
import pytest

from tests.acceptance.served import Served
from tests.acceptance.wire_model import OPENAI
from tests.clients.test_openai_clients import HERE, NODE, agent, sdk_of
from tests.parts import lacks

__all__ = ["agent"]

# Each prints "letta" for Letta's list and "openai" for OpenAI's; the slash is left out by hand where a client has one.
OLD_CLIENT = """
import sys
from letta_client import Letta
client = Letta(base_url=sys.argv[1])
asked = client._client_wrapper.httpx_client.request("v1/models", method="GET")
listed = client.models.list()
print("letta" if isinstance(asked.json(), list) and listed[0].handle else "openai")
"""
TYPESCRIPT = """
import Letta from "@letta-ai/letta-client";
const client = new Letta({ baseURL: process.argv[1], apiKey: "none" });
const [asked, listed] = [await client.get("/v1/models"), await client.models.list()];
console.log(Array.isArray(asked) && listed[0].handle ? "letta" : "openai");
"""


def printed(*command: str, cwd: Path | None = None, **env: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LETTA_", "OPENAI_"))}
    ended = subprocess.run(command, env=kept | env, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


async def test_the_python_clients(server: Served, agent: str) -> None:
    with letta_client.Letta(base_url=server.url, api_key="none") as letta:
        asked: Any = letta.get("/v1/models", cast_to=object)
        assert OPENAI in [one["handle"] for one in asked]
        assert OPENAI in [one.handle for one in letta.models.list()]
    async with letta_client.AsyncLetta(base_url=server.url, api_key="none") as later:
        asked = await later.get("/v1/models", cast_to=object)
        assert OPENAI in [one["handle"] for one in asked]
    assert agent in [one.id for one in sdk_of(server, "/v1").models.list()]
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as sdk:
        assert agent in [one.id async for one in sdk.models.list()]


def test_letta_client_0_1(server: Served, agent: str) -> None:
    folder = Path(sys.prefix) / "clients" / "letta-client-0.1"
    if not folder.is_dir():
        lacks("clients", "letta-client 0.1 is not installed")
    assert printed(sys.executable, "-c", OLD_CLIENT, server.url, PYTHONPATH=str(folder)) == "letta"


@pytest.mark.needs("node")
def test_the_typescript_client(server: Served, agent: str) -> None:
    folder = HERE.parent / "typescript"
    if not (folder / "node_modules" / "@letta-ai").is_dir():
        lacks("clients", "the TypeScript client is not installed")
    assert printed(NODE, "--input-type=module", "-e", TYPESCRIPT, server.url, cwd=folder) == "letta"
