"""Agents whose models think by themselves: what is shown of it is what is sent, and thoughts are sent back."""

from pathlib import Path
from typing import Any

from letta_client.types import AnthropicModelSettings, OpenAIModelSettings

from tests.llm.fakes import Fake, answer, completion, events, fake
from tests.llm.shapes import framed
from tests.server.rig import make_agent
from tests.server.test_models_api import served

CLAUDE = "anthropic/claude-sonnet-4-5-20250929"
ENABLED = {"type": "enabled", "budget_tokens": 1024}
THOUGHT = {"type": "thinking", "thinking": "Considering.", "signature": "EsigA"}
SECRET = {"type": "redacted_thinking", "data": "EsecretB"}
MODELS = {"data": [{"id": name} for name in ("claude-sonnet-4-5-20250929", "claude-3-5-haiku-20241022")]}


def claude(*content: dict[str, Any]) -> Any:
    stop = "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
    usage = {"input_tokens": 5, "output_tokens": 3}
    return answer({"type": "message", "content": list(content), "stop_reason": stop, "usage": usage})


def use(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": arguments}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def keys(remote: Fake) -> dict[str, Any]:
    return {"anthropic_base_url": remote.url, "anthropic_api_key": "sk-ant"}


def kinds(answered: Any) -> list[str]:
    return [message["message_type"] for message in answered.json()["messages"]]


async def test_thinking_is_shown_sent_and_sent_back(tmp_path: Path) -> None:
    async with fake() as remote, served(tmp_path, **keys(remote)) as client:
        remote.will(
            answer(MODELS),
            claude(THOUGHT, SECRET, use("conversation_search", query="x")),
            claude(THOUGHT, said("Nothing found.")),
            claude(said("Bye.")),
        )
        agent = await make_agent(client, model=CLAUDE)
        first = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "look for x"})
        await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "bye"})
        sent = [heard.body for heard in remote.heard if heard.path.endswith("/messages")]
    shown = AnthropicModelSettings.model_validate(agent["model_settings"])
    assert agent["model_settings"]["thinking"] == ENABLED and shown.thinking is not None
    config = agent["llm_config"]
    assert (config["enable_reasoner"], config["max_reasoning_tokens"]) == (True, 1024)
    assert agent["compaction_settings"]["model"] == "anthropic/claude-haiku-4-5"

    assert [body["thinking"] for body in sent] == [ENABLED] * 3
    assert all(body["max_tokens"] > 1024 and "temperature" not in body for body in sent)
    assert kinds(first)[:3] == ["reasoning_message", "hidden_reasoning_message", "tool_call_message"]
    assert kinds(first)[-2:] == ["reasoning_message", "assistant_message"]
    thought = first.json()["messages"][0]
    assert (thought["source"], thought["signature"]) == ("reasoner_model", "EsigA")
    assert sent[1]["messages"][1]["content"][:2] == [THOUGHT, SECRET]  # within the turn
    again = [block for turn in sent[2]["messages"] if turn["role"] == "assistant" for block in turn["content"]]
    assert [block["type"] for block in again] == ["thinking", "redacted_thinking", "tool_use", "thinking", "text"]


async def test_who_thinks_by_itself_is_not_asked_for_thoughts_in_its_calls(tmp_path: Path) -> None:
    async with fake() as remote, served(tmp_path, **keys(remote)) as client:
        remote.will(
            answer(MODELS),
            claude(THOUGHT, said("Let me see."), use("send_message", message="Hello!")),
            claude(use("send_message", thinking="As told.", message="Hi!")),
        )
        agent = await make_agent(client, model=CLAUDE, agent_type="memgpt_v2_agent")
        first = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
        off = {"provider_type": "anthropic", "thinking": {"type": "disabled"}}
        changed = (await client.patch(f"/v1/agents/{agent['id']}", json={"model_settings": off})).json()
        second = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
        sent = [heard.body for heard in remote.heard if heard.path.endswith("/messages")]
    assert agent["llm_config"]["put_inner_thoughts_in_kwargs"] is False
    assert changed["llm_config"]["put_inner_thoughts_in_kwargs"] is True
    assert changed["model_settings"]["thinking"]["type"] == "disabled"
    assert changed["llm_config"]["max_reasoning_tokens"] == 0

    first_tools, second_tools = ({tool["name"]: tool["input_schema"] for tool in body["tools"]} for body in sent)
    assert all("thinking" not in schema["properties"] for schema in first_tools.values())
    assert all("thinking" in schema["required"] for schema in second_tools.values())
    assert (sent[0]["thinking"], sent[0]["tool_choice"]["type"]) == (ENABLED, "auto")  # no tool can be forced then
    assert "thinking" not in sent[1] and sent[1]["tool_choice"]["type"] == "any"
    assert kinds(first) == ["reasoning_message", "reasoning_message", "assistant_message"]
    assert first.json()["messages"][-1]["content"] == "Hello!"
    assert kinds(second) == ["reasoning_message", "assistant_message"]


async def test_answers_by_tool_are_streamed_also_when_the_model_thinks_by_itself(tmp_path: Path) -> None:
    frames = framed(
        {"type": "message_start", "message": {"usage": {"input_tokens": 5}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "EsigA"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": use("send_message")},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"message"'},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ':"Hi"}'}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    )
    async with fake() as remote, served(tmp_path, **keys(remote)) as client:
        remote.will(answer(MODELS), events(*frames))
        agent = await make_agent(client, model=CLAUDE, agent_type="memgpt_v2_agent")
        body = {"input": "hi", "streaming": True, "stream_tokens": True, "include_pings": False}
        streamed = (await client.post(f"/v1/agents/{agent['id']}/messages", json=body)).text
        history = (await client.get(f"/v1/agents/{agent['id']}/messages")).json()
    assert streamed.index('"reasoning":"Hm."') < streamed.index('"content":"Hi"')
    (stored,) = [each for each in history if each.get("source") == "reasoner_model"]
    assert (stored["reasoning"], stored["signature"]) == ("Hm.", "EsigA")


async def test_a_complaint_about_thinking_does_not_stop_an_agent(tmp_path: Path) -> None:
    wrong = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
    refusal = answer({"type": "error", "error": {"type": "invalid_request_error", "message": wrong}}, 400)
    async with fake() as remote, served(tmp_path, **keys(remote)) as client:
        remote.will(answer(MODELS), refusal, claude(use("send_message", message="Hello!")))
        agent = await make_agent(client, model=CLAUDE, agent_type="memgpt_v2_agent")
        answered = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
        sent = [heard.body for heard in remote.heard if heard.path.endswith("/messages")]
    assert answered.json()["messages"][-1]["content"] == "Hello!"
    assert [body.get("thinking") for body in sent] == [ENABLED, None]


async def test_a_model_that_cannot_think_is_neither_shown_nor_told_to(tmp_path: Path) -> None:
    async with fake() as remote, served(tmp_path, **keys(remote)) as client:
        remote.will(answer(MODELS), claude(said("Hello.")))
        agent = await make_agent(client, model="anthropic/claude-3-5-haiku-20241022")
        await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
        sent = remote.heard[-1].body
    assert agent["model_settings"]["thinking"] == {"type": "disabled"}
    assert agent["llm_config"]["enable_reasoner"] is False
    assert "thinking" not in sent and sent["temperature"] == 1.0


async def test_the_effort_of_gpt_5_is_shown_and_sent_and_left_to_the_provider_elsewhere(tmp_path: Path) -> None:
    async with fake() as remote, served(tmp_path, openai_base_url=remote.url) as client:
        remote.will(answer({"data": [{"id": "gpt-5-mini"}, {"id": "o3"}]}), answer(completion({"content": "Hello."})))
        small = await make_agent(client, model="openai/gpt-5-mini")
        other = await make_agent(client, name="two", model="openai/o3")
        for agent in (small, other):
            await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
        sent = [heard.body for heard in remote.heard if heard.method == "POST"]
    OpenAIModelSettings.model_validate(small["model_settings"])
    OpenAIModelSettings.model_validate(other["model_settings"])
    assert small["model_settings"]["reasoning"] == {"reasoning_effort": "minimal"}
    assert small["llm_config"]["reasoning_effort"] == "minimal" and small["llm_config"]["enable_reasoner"] is True
    assert other["model_settings"]["reasoning"] is None
    assert [body.get("reasoning_effort") for body in sent] == ["minimal", None]


async def test_settings_meant_for_another_provider_are_neither_shown_nor_sent(tmp_path: Path) -> None:
    async with fake() as remote, served(tmp_path, openai_base_url=remote.url) as client:
        remote.will(answer({"data": [{"id": "gpt-4o"}]}), answer(completion({"content": "Hello."})))
        wrong = {"provider_type": "anthropic", "thinking": ENABLED, "max_output_tokens": 99}
        agent = await make_agent(client, model="openai/gpt-4o", model_settings=wrong)
        await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
        sent = remote.heard[-1].body
    assert "thinking" not in agent["model_settings"] and agent["llm_config"]["enable_reasoner"] is False
    assert agent["model_settings"]["max_output_tokens"] == sent["max_tokens"] == 99
    assert "thinking" not in sent
