"""Agents with a real language model on this machine: SmolLM2-135M-Instruct on llama.cpp.

What it says is of no use, so nothing here depends on that: only on what any model does. It may answer with no words,
write until its limit, or be done before it can be cancelled; then it is asked again, at most `TRIES` times.
`make test-live` runs two agent types, `make soak` all of them.
"""

import json
from collections.abc import Callable, Iterator
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
TRIES = 10
UNFINISHED = "its reply reached the limit on output tokens"
ANSWERS = {"assistant_message", "reasoning_message", "tool_call_message"}
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
    """The answer to a message, with at least one message of the assistant in it."""
    for _ in range(TRIES):
        answer = client.post(f"/agents/{agent_id}/messages", json={"input": text, "max_steps": 1})
        if answer.status_code == 200:
            told = answer.json()
            assert kinds(told["messages"]) & {"assistant_message"}, told
            assert told["usage"]["completion_tokens"] > 0, told
            return told
        assert UNFINISHED in answer.text, answer.text
    raise AssertionError(f"no call was complete in {TRIES} turns")


def kinds(messages: list[dict[str, Any]]) -> set[str]:
    return {each["message_type"] for each in messages}


def streamed(client: httpx.Client, agent_id: str, text: str, act: Callable[[], None]) -> list[dict[str, Any]]:
    """The events of a turn. `act` is called once, when the first of the answer arrives."""
    heard: list[dict[str, Any]] = []
    body = {"input": text, "stream_tokens": True, "max_steps": 1}
    with client.stream("POST", f"/agents/{agent_id}/messages/stream", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            heard.append(json.loads(line.removeprefix("data: ")))
            if heard[-1]["message_type"] in ANSWERS:
                act()
                act = _nothing
    return heard


def _nothing() -> None:
    return


def ending(heard: list[dict[str, Any]]) -> str:
    """The reason why a streamed turn ended; "error" if the model did not finish a call."""
    (reason,) = [event["stop_reason"] for event in heard if event["message_type"] == "stop_reason"]
    if reason not in ("end_turn", "tool_rule", "max_steps", "max_tokens_exceeded", "cancelled"):
        assert UNFINISHED in json.dumps(heard), heard
        return "error"
    return reason


def cancel(client: httpx.Client, agent_id: str, model: LlamaServer) -> str:
    """Cancels a turn in the middle of its answer, while the model is stopped, and returns how the turn ended."""
    answers: list[int] = []

    def act() -> None:
        model.pause()
        answers.append(client.post(f"/agents/{agent_id}/messages/cancel", json={}).status_code)

    try:
        heard = streamed(client, agent_id, "Write a long story about a king.", act)
    finally:
        model.go_on()
    reason = ending(heard)
    assert answers == [200] if reason == "cancelled" else answers in ([], [200], [409]), (answers, heard)
    return reason


@pytest.mark.parametrize("kind", TYPES)
def test_an_agent_talks_streams_and_is_cancelled_in_the_middle(
    client: httpx.Client, model: LlamaServer, kind: AgentType
) -> None:
    one = agent(client, f"{kind} talks", kind)
    say(client, one, "What is tea?")
    heard = (streamed(client, one, "And coffee?", _nothing) for _ in range(TRIES))
    complete = next((each for each in heard if ending(each) != "error" and kinds(each) & ANSWERS), None)
    assert complete is not None, f"no answer was streamed in {TRIES} turns"
    (usage,) = [event for event in complete if event["message_type"] == "usage_statistics"]
    assert usage["completion_tokens"] > 0, usage
    assert "cancelled" in (cancel(client, one, model) for _ in range(TRIES))
    say(client, one, "Are you there?")


@pytest.mark.parametrize("kind", TYPES)
def test_an_agent_calls_a_tool_when_it_must(client: httpx.Client, kind: AgentType) -> None:
    forced = agent(client, f"{kind} calls", kind, tool_rules=FORCED)
    told = say(client, forced, "Greet me.")
    steps = client.get("/steps/", params={"agent_id": forced}).json()
    assert told["usage"]["completion_tokens"] in [step["completion_tokens"] for step in steps], (told, steps)


@pytest.mark.parametrize("kind", TYPES)
def test_an_agent_fills_its_window_and_is_compacted(client: httpx.Client, kind: AgentType) -> None:
    small = agent(client, f"{kind} fills up", kind, context_window_limit=WINDOW)
    before = 0
    for number in range(MESSAGES_MAX):
        say(client, small, f"{number}: " + "The king has a red house and a blue boat. " * 12)
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
    say(client, one, "Are you there now?")
