"""Agent types over HTTP: which are made, which are refused and how, and what a client is shown of them."""

from typing import Any

import httpx
import pytest

from kelpie.agent.prompt.agent_types import TYPES


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"agent_type": "split_thread_agent"}, 400, "system"),
        ({"agent_type": "split_thread_agent", "system": "You are split."}, 200, ""),
        ({"agent_type": "voice_convo_agent"}, 422, "enable_sleeptime"),
        ({"agent_type": "voice_convo_agent", "enable_sleeptime": True}, 200, ""),
        ({"agent_type": "voice_convo_agent", "enable_sleeptime": True, "folder_ids": ["x"]}, 400, "source-<uuid4>"),
        ({"agent_type": "voice_sleeptime_agent"}, 200, ""),
        ({"agent_type": "sleeptime_agent"}, 200, ""),
        ({"agent_type": "react_agent"}, 200, ""),
        ({"agent_type": "workflow_agent"}, 200, ""),
        ({"agent_type": "memgpt_v2_agent"}, 200, ""),
    ],
)
async def test_types_are_made_or_refused(
    client: httpx.AsyncClient, body: dict[str, Any], status: int, word: str
) -> None:
    answer = await client.post("/v1/agents/", json=body)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert word in answer.json()["detail"]
        return
    made = answer.json()
    spec = TYPES[made["agent_type"]]
    assert made["agent_type"] == made["memory"]["agent_type"] == body["agent_type"]
    assert {tool["name"] for tool in made["tools"]} == set(spec.base_tools)
    assert made["llm_config"]["put_inner_thoughts_in_kwargs"] is True
    assert made["llm_config"]["enable_reasoner"] is True
    assert made["message_buffer_autoclear"] is (body["agent_type"] == "workflow_agent")
    read = (await client.get(f"/v1/agents/{made['id']}", params={"include": ["agent.tools"]})).json()
    assert (read["message_ids"], read["tool_rules"]) == (made["message_ids"], made["tool_rules"])


async def test_a_boot_exchange_is_shown_as_something_said(client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/agents/", json={"agent_type": "memgpt_v2_agent"})).json()
    shown = (await client.get(f"/v1/agents/{made['id']}/messages")).json()
    kinds = [message["message_type"] for message in shown]
    assert kinds == ["system_message", "reasoning_message", "assistant_message", "user_message"]
