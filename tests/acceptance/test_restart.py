"""A server that was stopped and started again has everything as it was, and its agents talk on."""

from pathlib import Path

import pytest

from tests.acceptance.newcomer import TYPES, everything, new_agent, say
from tests.acceptance.sdk import KINDS, every, got, sdk_client
from tests.acceptance.served import served


@pytest.mark.parametrize("kind", KINDS)
async def test_a_restart_changes_nothing(tmp_path: Path, kind: str) -> None:
    with served(tmp_path / "data") as server:
        async with sdk_client(kind, server.url) as client:
            agents = [await new_agent(client, one) for one in TYPES]
            for one in agents:
                await say(client, one, "my name is Ada and I like tea")
                await every(await got(client.agents.messages.create(one.id, input="hello", streaming=True)))
            before = [await everything(client, one) for one in agents]
        server.restart()
        async with sdk_client(kind, server.url) as client:
            assert [await everything(client, one) for one in agents] == before
            for one, was in zip(agents, before, strict=True):
                told = await say(client, one, "what do you know about me?")
                assert "tea" in told.messages[-1].content
                now = await everything(client, one)
                assert now["messages"][: len(was["messages"])] == was["messages"]
                assert len(now["runs"]) == len(was["runs"]) + 1
