"""The list of models without a slash at the end: OpenAI's clients get agents, and all others Letta's list."""

import httpx
import pytest

from tests.server.rig import Puppet, make_agent

OPENAI = (
    "OpenAI/Python 3.49.0",
    "AsyncOpenAI/Python 1.30.1",
    "AzureOpenAI/Python 1.30.1",
    "AsyncAzureOpenAI/Python 1.30.1",
    "OpenAI/JS 7.55.0",
    "AzureOpenAI/JS 4.0.0",
    "OpenAI/Go 1.0.0",
    "OpenAI/Java 4.0.0",
)
OTHERS = (
    "Letta/Python 1.12.1",
    "AsyncLetta/Python 1.12.1",
    "letta-client/0.1.324",
    "@letta-ai/letta-client/1.7.0",
    "Letta/JS 1.7.0",
    "letta-code/0.32.18",
    "python-httpx/0.28.1",
    "node",
    "",
    "Mozilla/5.0 (like OpenAI/Python 1.0)",
)


@pytest.mark.parametrize("path", ["/v1/models", "/latest/models"])
async def test_the_user_agent_decides(client: httpx.AsyncClient, puppet: Puppet, path: str) -> None:
    await make_agent(client, name="bea")
    for user_agent in OPENAI:
        told = (await client.get(path, headers={"user-agent": user_agent})).json()
        assert told["object"] == "list" and [one["id"] for one in told["data"]] == ["bea"], user_agent
    for user_agent in OTHERS:
        for asked in (path, f"{path}/"):
            told = (await client.get(asked, headers={"user-agent": user_agent})).json()
            assert [one["handle"] for one in told] == ["fake/model"], user_agent
    slashed = (await client.get("/v1/models/", headers={"user-agent": OPENAI[0]})).json()
    assert isinstance(slashed, list)
