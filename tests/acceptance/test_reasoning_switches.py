"""The switches for reasoning, for each agent type on each kind of model: what is stored and shown, what the provider is
sent, and what clients see in answers, streams, lists and the messages of a run."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.acceptance.served import Served
from tests.acceptance.wire_model import WireModel, anthropic_wire, openai_wire, wire_model

PLAIN, REASONING = "openai/gpt-4.1-mini", "openai/gpt-5-mini"
CLAUDE, OLD_CLAUDE = "anthropic/claude-sonnet-4-5-20250929", "anthropic/claude-3-5-haiku-20241022"
HANDLES = (PLAIN, REASONING, CLAUDE, OLD_CLAUDE)
TYPES = ("letta_v1_agent", "memgpt_v2_agent", "memgpt_agent", "react_agent")
OFF: tuple[dict[str, Any], ...] = ({"reasoning": False}, {"enable_reasoner": False})
ON: tuple[dict[str, Any], ...] = ({}, {"reasoning": True}, {"reasoning": True, "enable_reasoner": False})
THOUGHTS = ("reasoning_message", "hidden_reasoning_message")
ENABLED = {"type": "enabled", "budget_tokens": 1024}


class Obliging(WireModel):
    """Answers with `send_message` where it is offered; it thinks where it is asked to: by itself, or in its call."""

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, bytes]:
        self.asked.append(body)
        tools = schemas(body)
        said: Any = "Hello."
        if "send_message" in tools:
            asked = "thinking" in tools["send_message"]["properties"]
            said = [("send_message", ({"thinking": "Hm."} if asked else {}) | {"message": "Hello."})]
        number, stream = len(self.asked), bool(body.get("stream"))
        if path.endswith("/chat/completions"):
            return openai_wire(said, number, stream=stream)
        return anthropic_wire(said, number, stream=stream, thought="Hm." if body.get("thinking") else None)


def schemas(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters of the offered tools, by name."""
    tools = [tool.get("function", tool) for tool in body.get("tools") or ()]
    return {tool["name"]: tool.get("parameters") or tool["input_schema"] for tool in tools}


@pytest.fixture(scope="module")
def model() -> Iterator[WireModel]:
    with wire_model(Obliging(), HANDLES) as made:
        yield made


@pytest.fixture(scope="module")
def http(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as made:
        yield made


def create(http: httpx.Client, kind: str, handle: str, **fields: Any) -> dict[str, Any]:
    body = {"agent_type": kind, "model": handle, "system": "Help.", "include_base_tools": True, **fields}
    if kind == "react_agent":
        body["tools"] = ["send_message"]
    answer = http.post("/v1/agents/", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def shown(agent: dict[str, Any]) -> tuple[Any, ...]:
    """What an agent shows about its reasoning."""
    config = agent["llm_config"]
    thinking = agent["model_settings"].get("thinking") or {}
    values = (config["put_inner_thoughts_in_kwargs"], config["enable_reasoner"], config["max_reasoning_tokens"])
    return (*values, thinking.get("type"))


def seen(http: httpx.Client, model: WireModel, agent: dict[str, Any]) -> tuple[set[str], bool, Any]:
    """The kinds of thoughts that clients see, the same in every way they look; whether tool calls ask for thoughts; and
    the thinking parameter that was sent."""
    path = f"/v1/agents/{agent['id']}/messages"
    model.asked.clear()
    sent = http.post(path, json={"input": "hi"}).json()
    assert [each["content"] for each in sent["messages"] if each["message_type"] == "assistant_message"] == ["Hello."]
    (run_id,) = {each["run_id"] for each in sent["messages"]}
    body = {"input": "hi", "stream_tokens": True, "include_pings": False}
    lines = [line.removeprefix("data: ") for line in http.post(f"{path}/stream", json=body).text.splitlines()]
    streamed = [json.loads(line) for line in lines if line.startswith("{")]
    assert "".join(each["content"] for each in streamed if each["message_type"] == "assistant_message") == "Hello."
    stored = http.get(path, params={"limit": 100}).json()
    own = [each for each in stored if each["run_id"] is not None]  # without the messages that an agent is made with
    listed, ran = own, http.get(f"/v1/runs/{run_id}/messages").json()
    kinds = [{each["message_type"] for each in way} & {*THOUGHTS} for way in (sent["messages"], streamed, listed, ran)]
    assert all(each == kinds[0] for each in kinds), kinds
    for way in (sent["messages"], streamed, listed, ran):  # these models disclose nothing of what they hide
        hidden = [each for each in way if each["message_type"] == "hidden_reasoning_message"]
        assert {(each["state"], each["hidden_reasoning"]) for each in hidden} <= {("omitted", None)}
    ids = {(each["id"], each["otid"]) for each in streamed if each["message_type"] in (*THOUGHTS, "assistant_message")}
    assert ids <= {(each["id"], each["otid"]) for each in own}  # a preview is the message that was stored
    asked = ["thinking" in schema["properties"] for body in model.asked for schema in schemas(body).values()]
    assert len({*asked}) == 1 and len(model.asked) == 2
    return kinds[0], asked[0], model.asked[0].get("thinking")


def default_of(kind: str, handle: str) -> tuple[tuple[Any, ...], tuple[set[str], bool, Any]]:
    """What an agent shows and what its turn is like when nothing is switched."""
    if handle == CLAUDE:
        return (False, True, 1024, "enabled"), ({"reasoning_message"}, False, ENABLED)
    if handle == REASONING:
        return (False, True, 0, None), ({"hidden_reasoning_message"}, False, None)
    thinking = "disabled" if handle == OLD_CLAUDE else None
    if kind == "letta_v1_agent":
        return (False, False, 0, thinking), (set(), False, None)
    return (True, True, 0, thinking), ({"reasoning_message"}, True, None)


@pytest.mark.parametrize("handle", HANDLES)
@pytest.mark.parametrize("kind", TYPES)
def test_a_new_agent_thinks_unless_it_is_switched_off(
    http: httpx.Client, model: WireModel, kind: str, handle: str
) -> None:
    states, turns = default_of(kind, handle)
    on = [create(http, kind, handle, **switch) for switch in ON]
    assert [shown(agent) for agent in on] == [states] * len(ON)
    assert seen(http, model, on[0]) == turns
    off = [create(http, kind, handle, **switch) for switch in OFF]
    if handle == REASONING:  # OpenAI's reasoning models cannot be switched off
        assert [shown(agent) for agent in off] == [states] * len(OFF)
        assert seen(http, model, off[0]) == turns
        return
    thinking = None if handle == PLAIN else "disabled"
    assert [shown(agent) for agent in off] == [(False, False, 0, thinking)] * len(OFF)
    assert seen(http, model, off[0]) == (set(), False, None)


def test_a_change_of_the_model_ends_thoughts_in_tool_calls(http: httpx.Client, model: WireModel) -> None:
    settings = {"provider_type": "openai", "temperature": 0.5}
    for change in ({"model": PLAIN}, {"model": PLAIN, "model_settings": settings}, {"model": OLD_CLAUDE}):
        agent = create(http, "memgpt_v2_agent", PLAIN)
        path = f"/v1/agents/{agent['id']}"
        assert http.post(f"{path}/messages", json={"input": "hi"}).status_code == 200
        assert http.patch(path, json={"reasoning": False}).json()["llm_config"]["put_inner_thoughts_in_kwargs"] is True
        changed = http.patch(path, json=change).json()
        assert changed["llm_config"]["put_inner_thoughts_in_kwargs"] is False
        assert http.get(path).json()["llm_config"] == changed["llm_config"]
        model.asked.clear()
        answer = http.post(f"{path}/messages", json={"input": "hi"}).json()
        assert [each["message_type"] for each in answer["messages"]] == ["assistant_message"]
        assert "thinking" not in json.dumps(model.asked[-1])  # neither in the schemas nor in the calls of the history


def test_the_old_configuration_switches_thoughts_of_an_agent_but_not_of_a_new_one(
    http: httpx.Client, model: WireModel
) -> None:
    config = create(http, "memgpt_agent", PLAIN)["llm_config"] | {"put_inner_thoughts_in_kwargs": False}
    agent = create(http, "memgpt_agent", PLAIN, model=None, llm_config=config)
    path = f"/v1/agents/{agent['id']}"
    assert agent["llm_config"]["put_inner_thoughts_in_kwargs"] is True
    for wanted in (False, True):
        changed = http.patch(path, json={"llm_config": config | {"put_inner_thoughts_in_kwargs": wanted}}).json()
        assert changed["llm_config"]["put_inner_thoughts_in_kwargs"] is wanted
        model.asked.clear()
        answer = http.post(f"{path}/messages", json={"input": "hi"}).json()
        assert [each["message_type"] for each in answer["messages"]] == ["reasoning_message"] * wanted + [
            "assistant_message"
        ]
        assert all(("thinking" in schema["properties"]) is wanted for schema in schemas(model.asked[-1]).values())
    claude = create(http, "letta_v1_agent", CLAUDE)
    still = claude["llm_config"] | {"enable_reasoner": False}
    assert shown(http.patch(f"/v1/agents/{claude['id']}", json={"llm_config": still}).json())[1:] == (
        False,
        0,
        "disabled",
    )


def test_the_budget_for_thoughts_needs_room_in_the_reply(http: httpx.Client, model: WireModel) -> None:
    body = {"model": CLAUDE, "max_reasoning_tokens": 2000}
    for limit in ({}, {"max_tokens": 1500}):
        refused = http.post("/v1/agents/", json=body | limit)
        assert refused.status_code == 400 and "max_reasoning_tokens" in refused.json()["detail"]
    assert http.post("/v1/agents/", json={**body, "max_reasoning_tokens": 10, "max_tokens": 99}).status_code == 400
    agent = create(http, "letta_v1_agent", CLAUDE, max_reasoning_tokens=2000, max_tokens=4000)
    assert shown(agent) == (False, True, 2000, "enabled")
    thoughts = {"type": "enabled", "budget_tokens": 2000}
    assert seen(http, model, agent) == ({"reasoning_message"}, False, thoughts)
    assert model.asked[0]["max_tokens"] == 4000
    plain = create(http, "letta_v1_agent", PLAIN, max_reasoning_tokens=2000, max_tokens=4000)
    assert shown(plain) == (False, False, 0, None)


def test_thinking_disabled_in_the_settings_of_a_new_agent_stays_disabled(http: httpx.Client, model: WireModel) -> None:
    settings = {"provider_type": "anthropic", "thinking": {"type": "disabled"}}
    agent = create(http, "letta_v1_agent", CLAUDE, model_settings=settings)
    assert shown(agent) == (False, False, 0, "disabled")
    assert seen(http, model, agent) == (set(), False, None)


def test_a_companion_is_asked_for_no_thoughts(http: httpx.Client) -> None:
    for kind in ("letta_v1_agent", "memgpt_v2_agent"):
        agent = create(http, kind, PLAIN, enable_sleeptime=True)
        (member,) = agent["managed_group"]["agent_ids"]
        companion = http.get(f"/v1/agents/{member}").json()
        assert companion["agent_type"] == "sleeptime_agent"
        assert shown(companion) == (False, False, 0, None)
