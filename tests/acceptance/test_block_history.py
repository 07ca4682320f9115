"""Core memory as users of letta-client see it: edits by people and agents over both wires, streamed and not, are in the
history of the block with the turn they were made in; what is too much is refused, and what was can be brought back."""

from typing import Any

import httpx
import pytest

from tests.acceptance.sdk import every, got
from tests.acceptance.served import Served
from tests.acceptance.wire_model import HANDLES, WireModel

APPEND = "core_memory_append"


async def new(client: Any, handle: str, **more: Any) -> Any:
    blocks = [{"label": "human", "value": "Likes tea."}]
    return await got(client.agents.create(model=handle, tools=[APPEND], memory_blocks=blocks, **more))


async def say(client: Any, agent: Any, streaming: bool) -> list[Any]:
    if streaming:
        stream = client.agents.messages.create(agent.id, input="go", streaming=True, stream_tokens=True)
        return await every(await got(stream))
    return (await got(client.agents.messages.create(agent.id, input="go"))).messages


def results(messages: list[Any]) -> list[Any]:
    return [one for one in messages if one.message_type == "tool_return_message"]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("handle", HANDLES)
async def test_an_edit_is_in_the_history_with_its_turn_and_can_be_taken_back(
    client: Any, server: Served, model: WireModel, handle: str, streaming: bool
) -> None:
    agent = await new(client, handle)
    block = await got(client.agents.blocks.retrieve("human", agent_id=agent.id))
    model.will([(APPEND, {"label": "human", "content": "Lives in Ulm."})], "done")
    (done,) = results(await say(client, agent, streaming))
    await got(client.blocks.update(block.id, value="Likes tea.\nLives in Rome."))
    async with httpx.AsyncClient(base_url=f"{server.url}/v1/blocks/{block.id}") as api:
        third, second, first = (await api.get("/history")).json()
        assert [each["version"] for each in (first, second, third)] == [1, 2, 3]
        assert [each["author"]["type"] for each in (first, second, third)] == ["user", "agent", "user"]
        assert second["author"]["id"] == agent.id and second["tool"] == APPEND
        assert (second["run_id"], second["step_id"]) == (done.run_id, done.step_id)
        changed = (await api.get("/diff", params={"from": 2, "to": 3})).json()["unified"]
        assert changed.endswith("@@ -1,2 +1,2 @@\n Likes tea.\n-Lives in Ulm.\n+Lives in Rome.\n")
        back = await api.post("/rollback", json={"version": 2, "expected_version": 3})
        assert back.json()["version"] == 4
    assert (await got(client.blocks.retrieve(block.id))).value == "Likes tea.\nLives in Ulm."
    model.will("ok")
    await say(client, agent, streaming)
    prompt = str(model.asked[-1])
    assert "Lives in Ulm." in prompt and "Lives in Rome." not in prompt


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("handle", HANDLES)
async def test_an_agent_cannot_write_more_than_its_window_has_room_for_and_people_can(
    client: Any, model: WireModel, handle: str, streaming: bool
) -> None:
    agent = await new(client, handle, context_window_limit=8_000)
    model.will([(APPEND, {"label": "human", "content": "x" * 7_990})], "done")
    (refused,) = results(await say(client, agent, streaming))
    assert refused.status == "error" and "have 10 bytes together, the limit is 8000" in refused.tool_return
    assert (await got(client.agents.blocks.retrieve("human", agent_id=agent.id))).value == "Likes tea."
    assert "the limit is 8000" in str(model.asked[-1]), "the model is told, too"
    block = await got(client.agents.blocks.update("human", agent_id=agent.id, value="y" * 9_000))
    assert len(block.value) == 9_000
