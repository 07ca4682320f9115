"""Agents with a real language model on this machine: SmolLM2-135M-Instruct on llama.cpp.

What it says is of no use, so nothing here depends on that: only on what any model does. `make test-live` runs two agent
types, `make soak` all of them.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from kelpie.agent.prompt.agent_types import spec_of
from kelpie.core.agents.agent import AgentType
from tests.cli.live import Live, kept_port, live
from tests.live.llama_server import HANDLE, LlamaServer

SHORT = (AgentType.letta_v1_agent, AgentType.memgpt_v2_agent)
ANSWER_S = 600.0
WINDOW = 900  # tokens: a few messages fill it
OUTPUT = 300
MESSAGES_MAX = 10
FORCED = [{"type": "run_first", "tool_name": "send_message"}]

pytestmark = pytest.mark.needs("language-model")
both = [pytest.mark.live, pytest.mark.soak]


def _both(test: Any) -> Any:
    return pytest.mark.live(pytest.mark.soak(test))


TYPES = [pytest.param(each, marks=both if each in SHORT else pytest.mark.soak) for each in AgentType]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    with kept_port() as port:
        server = LlamaServer(port, tmp_path_factory.mktemp("model") / "log")
        server.start()
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="module")
def place(model: LlamaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    settings = {"LLAMACPP_BASE_URL": model.url, "KELPIE_MODEL_BACKOFF_SECONDS": "0.05"}
    with live(tmp_path_factory.mktemp("kelpie") / "data", settings) as found:
        started = found.kelpie("server", "start")
        assert started.returncode == 0, started.stderr
        yield found


@pytest.fixture
def client(place: Live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{place.url}/v1", timeout=ANSWER_S) as made:
        yield made


def agent(client: httpx.Client, name: str, kind: AgentType = AgentType.letta_v1_agent, **fields: Any) -> str:
    """An agent with a short prompt, because every token of it costs time here."""
    body = {
        "name": name,
        "agent_type": kind,
        "system": "You are brief.",
        "include_base_tools": False,
        "enable_sleeptime": spec_of(kind).needs_companion or None,
        "tools": ["send_message"],
        "model_settings": {"provider_type": "llamacpp", "max_output_tokens": OUTPUT, "frequency_penalty": 1.0},
        **fields,
    }
    answer = client.post("/agents/", json={field: value for field, value in body.items() if value is not None})
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == HANDLE, "the default is the one model there is, by its name and not by its path"
    return answer.json()["id"]


def say(client: httpx.Client, agent_id: str, text: str) -> dict[str, Any]:
    answer = client.post(f"/agents/{agent_id}/messages", json={"input": text, "max_steps": 1})
    assert answer.status_code == 200, answer.text
    return answer.json()


def spoken(messages: list[dict[str, Any]]) -> str:
    return "".join(each["content"] for each in messages if each["message_type"] == "assistant_message")


def streamed(client: httpx.Client, agent_id: str, text: str, cancel: bool = False) -> list[dict[str, Any]]:
    """The events of a turn; with `cancel` it is cancelled when the first of the answer arrives."""
    heard: list[dict[str, Any]] = []
    body = {"input": text, "stream_tokens": True, "max_steps": 1}
    with client.stream("POST", f"/agents/{agent_id}/messages/stream", json=body) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            heard.append(json.loads(line.removeprefix("data: ")))
            if cancel and heard[-1]["message_type"] not in ("ping", "user_message"):
                assert client.post(f"/agents/{agent_id}/messages/cancel", json={}).status_code == 200
                cancel = False
    return heard


@pytest.mark.parametrize("kind", TYPES)
def test_an_agent_talks_streams_and_is_cancelled_in_the_middle(client: httpx.Client, kind: AgentType) -> None:
    one = agent(client, f"{kind} talks", kind)
    told = say(client, one, "What is tea?")
    assert spoken(told["messages"]) and told["usage"]["completion_tokens"] > 0, told
    heard = streamed(client, one, "And coffee?")
    assert spoken([event for event in heard if event["message_type"] == "assistant_message"]), heard
    stopped = streamed(client, one, "Write a long story about a king.", cancel=True)
    assert [event["stop_reason"] for event in stopped if "stop_reason" in event] == ["cancelled"], stopped
    assert spoken(say(client, one, "Are you there?")["messages"]), "it goes on after it was cancelled"


@pytest.mark.parametrize("kind", TYPES)
def test_an_agent_calls_a_tool_when_it_must(client: httpx.Client, kind: AgentType) -> None:
    forced = agent(client, f"{kind} calls", kind, tool_rules=FORCED)
    told = say(client, forced, "Greet me.")
    (step,) = client.get("/steps/", params={"agent_id": forced}).json()
    assert step["completion_tokens"] == told["usage"]["completion_tokens"] > 0
    assert spoken(told["messages"]), "the tool that it calls is the one it speaks with"


@pytest.mark.parametrize("kind", TYPES)
def test_an_agent_fills_its_window_and_is_compacted(client: httpx.Client, kind: AgentType) -> None:
    small = agent(client, f"{kind} fills up", kind, context_window_limit=WINDOW)
    before = 0
    for number in range(MESSAGES_MAX):
        told = say(client, small, f"{number}: " + "The king has a red house and a blue boat. " * 12)
        assert spoken(told["messages"]), told
        shown = client.get(f"/agents/{small}/context").json()
        assert shown["context_window_size_current"] <= WINDOW, shown
        if shown["num_messages"] < before:
            return
        before = shown["num_messages"]
    assert spec_of(kind).one_turn_memory, "it forgets after each turn, so it is never compacted"


@_both
def test_usage_is_the_count_of_the_server_with_several_agents_at_once(client: httpx.Client, model: LlamaServer) -> None:
    agents = [agent(client, f"at once {number}") for number in range(4)]
    before = model.counts()
    with ThreadPoolExecutor(len(agents)) as pool:
        told = list(pool.map(lambda one: say(client, one, "Count to three."), agents))
    after = model.counts()
    assert all(spoken(each["messages"]) for each in told)
    assert sum(each["usage"]["prompt_tokens"] for each in told) == after[0] - before[0]
    assert sum(each["usage"]["completion_tokens"] for each in told) == after[1] - before[1]


@_both
def test_a_model_server_that_is_killed_and_started_again(client: httpx.Client, model: LlamaServer) -> None:
    one = agent(client, "survivor")
    say(client, one, "Hello.")
    model.kill()
    try:
        refused = client.post(f"/agents/{one}/messages", json={"input": "Are you there?"})
        listed = client.get("/models/")
    finally:
        model.start()
    assert refused.status_code == 503, refused.text
    assert refused.json()["error"]["detail"] == "connection refused"
    assert "LLAMACPP_BASE_URL" in refused.json()["error"]["hint"]
    assert listed.status_code == 200
    assert spoken(say(client, one, "Are you there now?")["messages"])
