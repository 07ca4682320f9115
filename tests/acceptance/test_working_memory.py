"""Working memory and checkpoints as users of letta-client see them: an agent keeps and counts with its tools over both
wires, streamed and not, and its whole memory comes back from a checkpoint."""

import json
from typing import Any

import httpx
import pytest

from tests.acceptance.sdk import every, got
from tests.acceptance.served import Served
from tests.acceptance.wire_model import HANDLES, OPENAI, WireModel

TOOLS = ["working_memory_set", "working_memory_update", "working_memory_get", "working_memory_list"]
DOCUMENT = {"steps": ["boil", {"minutes": 3.5}], "done": None}


async def new(client: Any, handle: str) -> Any:
    blocks = [{"label": "human", "value": "Name: Ada"}]
    return await got(client.agents.create(name="Keeper", model=handle, tools=TOOLS, memory_blocks=blocks))


async def returns(client: Any, agent: Any, *, stream: bool) -> list[tuple[str, str]]:
    """The results of the calls of one turn."""
    if stream:
        heard = await every(await got(client.agents.messages.create(agent.id, input="go", streaming=True)))
    else:
        heard = (await got(client.agents.messages.create(agent.id, input="go"))).messages
    return [(each.status, each.tool_return) for each in heard if each.message_type == "tool_return_message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("handle", HANDLES)
async def test_an_agent_keeps_and_counts(
    client: Any, server: Served, model: WireModel, handle: str, stream: bool
) -> None:
    agent = await new(client, handle)
    model.will(
        [("working_memory_set", {"key": "tea/plan", "value": DOCUMENT, "ttl_seconds": 600})],
        [("working_memory_update", {"key": "cups", "increment": 2})],
        [("working_memory_get", {"key": "nothing"})],
        [("working_memory_list", {"prefix": "tea/"})],
        "done",
    )
    told = await returns(client, agent, stream=stream)
    assert [status for status, _ in told] == ["success", "success", "error", "success"]
    [listed] = json.loads(told[-1][1])["entries"]
    assert (listed["key"], listed["value"]) == ("tea/plan", DOCUMENT)
    async with httpx.AsyncClient(base_url=server.url) as http:
        found = (await http.get(f"/v1/agents/{agent.id}/working-memory")).json()
    entries = {each["key"]: each["value"] for each in found}
    assert entries == {"cups": 2, "tea/plan": DOCUMENT}


async def test_a_whole_memory_comes_back(client: Any, server: Served, model: WireModel) -> None:
    agent = await new(client, OPENAI)
    model.will([("working_memory_update", {"key": "cups", "increment": 1})], "one cup")
    await got(client.agents.messages.create(agent.id, input="a cup of oolong"))
    await got(client.agents.passages.create(agent.id, text="Ada drinks oolong"))
    path = f"{server.url}/v1/agents/{agent.id}/memory"
    async with httpx.AsyncClient() as http:
        document = (await http.get(f"{path}/checkpoint")).json()
    said = [each.id for each in await every(client.agents.messages.list(agent.id))]
    await got(client.agents.messages.reset(agent.id))
    await got(client.agents.blocks.update("human", agent_id=agent.id, value="Name: Eve"))
    for passage in await got(client.agents.passages.list(agent.id)):
        await got(client.agents.passages.delete(passage.id, agent_id=agent.id))
    async with httpx.AsyncClient() as http:
        done = await http.post(f"{path}/restore", json=document)
    assert done.status_code == 200, done.text
    assert [each.id for each in await every(client.agents.messages.list(agent.id))] == said
    assert (await got(client.agents.blocks.retrieve("human", agent_id=agent.id))).value == "Name: Ada"
    assert [each.text for each in await got(client.agents.passages.list(agent.id))] == ["Ada drinks oolong"]
    model.will("still here")
    await got(client.agents.messages.create(agent.id, input="are you there?"))
    shown = json.dumps(model.asked[-1]["messages"])
    assert "oolong" in shown and "Name: Ada" in shown and "Name: Eve" not in shown
