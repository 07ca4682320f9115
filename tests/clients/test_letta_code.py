"""Letta Code against a live server: an old version on the machine's Node.js, and the newest on a current one."""

import json
from pathlib import Path
from typing import Any

import pytest
from letta_client import Letta

from tests.acceptance.served import Served, served
from tests.acceptance.wire_model import ANTHROPIC, Call, WireModel
from tests.clients.letta_code import NEW, OLD, VERSIONS, Event, Session, ran, session
from tests.cutting_proxy import CuttingProxy
from tests.turns import in_turns

HELLO = "Hello from the model"
QUESTIONS, ANSWERS = ("first", "second", "third"), ("one", "two", "three")
WORDS = {*QUESTIONS, *ANSWERS}
BASH: Call = ("Bash", {"command": "echo kelpie > made.txt; cat made.txt", "description": "Make a file"})


def _messages(events: list[Event], kind: str) -> list[Event]:
    return [each for each in events if each.get("message_type") == kind]


def _result(events: list[Event]) -> tuple[str, str]:
    return events[-1]["subtype"], events[-1]["result"]


def _told(model: WireModel) -> str:
    return json.dumps(model.asked[-1])


@pytest.mark.parametrize("version", VERSIONS)
def test_letta_code_works_unmodified(version: str, tmp_path: Path, model: WireModel, proxy: CuttingProxy) -> None:
    """As few processes as possible, as a start costs over a second."""
    home, careful = tmp_path / "home", ("--permission-mode", "default")
    with session(version, home, proxy.url, "--new-agent", "-m", ANTHROPIC, *careful) as letta:
        agent, conversation = _a_new_agent_streams(letta, model)
        assert {"web_search", "fetch_webpage"} <= _tools(proxy.url, agent)
        _a_tool_runs_here_when_it_is_approved(letta, model)
        _a_tool_does_not_run_when_it_is_denied(letta, model)
        _a_stream_that_was_cut_is_resumed(letta, model, proxy)
        _it_is_killed_while_it_asks(letta, model)
    with session(version, home, proxy.url, "--conversation", conversation, *careful) as letta:
        _the_next_session_closes_what_was_left_open(letta, model)
        assert letta.end() == 0
    assert {seen.path for seen in proxy.seen if seen.status >= 500} == set()


def _a_new_agent_streams(letta: Session, model: WireModel) -> tuple[str, str]:
    model.will(HELLO)
    events = letta.turn("hello")
    assert events[0]["subtype"] == "init" and _result(events) == ("success", HELLO)
    pieces = _messages(events, "assistant_message")
    assert len(pieces) > 1 and "".join(each["content"] for each in pieces) == HELLO
    return events[0]["agent_id"], events[0]["conversation_id"]


def _tools(url: str, agent: str) -> set[str | None]:
    with Letta(base_url=url, api_key="none") as client:
        return {tool.name for tool in client.agents.tools.list(agent)}


def _a_tool_runs_here_when_it_is_approved(letta: Session, model: WireModel) -> None:
    model.will([BASH], "Made it")
    letta.answer = {"behavior": "allow"}
    events = letta.turn("make a file")
    asked = [each["request"] for each in events if each["type"] == "control_request"]
    assert [(each["tool_name"], each["input"]) for each in asked] == [BASH]
    assert (letta.folder / "made.txt").read_text() == "kelpie\n"
    assert [(each["status"], each["tool_return"]) for each in _returned(events)] == [("success", "kelpie\n")]
    assert _result(events) == ("success", "Made it")
    assert "kelpie" in _told(model)


def _a_tool_does_not_run_when_it_is_denied(letta: Session, model: WireModel) -> None:
    (letta.folder / "made.txt").unlink()
    model.will([BASH], "Very well")
    letta.answer = {"behavior": "deny", "message": "not today"}
    events = letta.turn("make it again")
    assert not (letta.folder / "made.txt").exists()
    [returned] = _returned(events)
    assert returned["status"] == "error" and "request to call tool denied" in returned["tool_return"]
    assert _result(events) == ("success", "Very well")
    assert "not today" in _told(model)


def _returned(events: list[Event]) -> list[Event]:
    """Results of tools as the server sent them: the new version announces its own beside them, without a run."""
    return [each for each in _messages(events, "tool_return_message") if each.get("run_id")]


def _a_stream_that_was_cut_is_resumed(letta: Session, model: WireModel, proxy: CuttingProxy) -> None:
    model.will(HELLO)
    proxy.cut_after = b'"assistant_message"'
    events = letta.turn("hello again")
    assert proxy.cut_after is None, "no stream was cut"
    assert _result(events) == ("success", HELLO)
    [resumed] = [seen for seen in proxy.asked("POST", "/stream") if seen.path.startswith("/v1/runs/")]
    assert resumed.status == 200 and resumed.json()["starting_after"] >= 1
    assert len(model.asked) == 1, "the turn was not started again"


def _it_is_killed_while_it_asks(letta: Session, model: WireModel) -> None:
    model.will([BASH])
    letta.answer = None
    assert letta.turn("make it after all")[-1]["type"] == "control_request"


def _the_next_session_closes_what_was_left_open(letta: Session, model: WireModel) -> None:
    """It sends a message, reads in the refusal that a call waits for approval, denies that call and sends again."""
    model.will("Closed", "Where were we?")
    events = letta.turn("hello once more")
    assert [each["recovery_type"] for each in events if each["type"] == "recovery"] == ["approval_pending"]
    assert _result(events) == ("success", "Where were we?")
    assert "hello once more" in _told(model)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transcript_has_every_message_once(
    version: str, tmp_path: Path, server: Served, model: WireModel, proxy: CuttingProxy
) -> None:
    """The versions page differently: the old one sends `before` with the oldest message it has, the new one `after`."""
    model.will(*ANSWERS)
    with Letta(base_url=server.url, api_key="none") as client:
        agent = client.agents.create(model=ANTHROPIC, include_base_tools=False)
        conversation = client.conversations.create(agent_id=agent.id)
        for text in QUESTIONS:
            list(client.conversations.messages.create(conversation.id, messages=[{"role": "user", "content": text}]))
        said = client.conversations.messages.list(conversation.id, order="asc", limit=50).items
    out = tmp_path / "transcript.txt"
    command = ("messages", "transcript", "--conversation", conversation.id, "--limit", "3", "--out", str(out))
    told: dict[str, Any] = json.loads(ran(version, tmp_path / "home", proxy.url, *command))
    assert (told["message_count"], told.get("truncated", False)) == (len(said), False)
    lines = out.read_text().splitlines()
    assert sorted(set(lines) & WORDS) == sorted(word for word in lines if word in WORDS) == sorted(WORDS)
    assert len(proxy.asked("GET", "/messages")) == -(-len(said) // 3)


@pytest.mark.parametrize("version", in_turns("commands of Letta Code", {each: each for each in VERSIONS}, 2))
def test_the_commands_for_agents_and_messages(version: str, tmp_path: Path, server: Served, model: WireModel) -> None:
    """They print what the server answers, as JSON."""
    home = tmp_path / "home"

    def told(*arguments: str) -> Any:
        return json.loads(ran(version, home, server.url, *arguments))

    model.will("In the green tin.")
    name = f"clerk {version}"
    with Letta(base_url=server.url, api_key="none") as client:
        agent = client.agents.create(name=name, model=ANTHROPIC, tags=["shop", version], include_base_tools=False)
        client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "where is the oolong?"}])
        listed = told("agents", "list", "--query", name, "--tags", f"shop,{version}", "--match-all-tags")
        assert [each["id"] for each in listed["body"]] == [agent.id]
        made = told("agents", "create", "--name", f"made {version}", "--model", ANTHROPIC)
        found = client.agents.retrieve(made["id"])
        assert (found.name, found.model) == (f"made {version}", ANTHROPIC)
    said = told("messages", "list", "--agent", agent.id, "--order", "asc")
    assert [each["content"] for each in said if each["message_type"] != "system_message"] == [
        "where is the oolong?",
        "In the green tin.",
    ]
    for place in (("--agent", agent.id), ("--all-agents",)):
        first = told("messages", "search", "--query", "oolong", *place)[0]
        assert "oolong" in first["content"]


def test_letta_code_makes_an_agent_from_a_file(tmp_path: Path, server: Served, model: WireModel) -> None:
    """Only the old version imports files. It leaves the messages out."""
    file = tmp_path / "clerk.af"
    with Letta(base_url=server.url, api_key="none") as client:
        block = {"label": "human", "value": "Name: Bob"}
        agent = client.agents.create(name="filed", model=ANTHROPIC, memory_blocks=[block], include_base_tools=False)
        model.will("Noted.")
        client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "a secret word"}])
        file.write_text(client.agents.export_file(agent.id))
        model.will(HELLO)
        command = ("-p", "--import", str(file), "--no-memfs", "--output-format", "json", "hello")
        result = json.loads(ran(OLD, tmp_path / "home", server.url, *command))
        assert (result["subtype"], result["result"]) == ("success", HELLO)
        copy = client.agents.retrieve(result["agent_id"], include=["agent.blocks"])
    assert copy.id != agent.id
    assert "Name: Bob" in [each.value for each in copy.blocks]
    assert "Name: Bob" in _told(model) and "a secret word" not in _told(model)


def test_letta_code_connects_a_provider(tmp_path: Path, model: WireModel) -> None:
    """The old version cannot do this without a terminal, with any server."""
    command = ("connect", "openai-compatible", "--base-url", f"{model.url}/v1", "--api-key", "sk-own")
    with (
        served(tmp_path / "data", KELPIE_PROVIDER_PRIVATE="true") as server,
        Letta(base_url=server.url, api_key="none") as client,
    ):
        assert "lc-openai-compatible" in ran(NEW, tmp_path / "home", server.url, *command)
        handles = [each.handle for each in client.models.list()]
        own = next(each for each in handles if each is not None and each.startswith("lc-openai-compatible/"))
        agent = client.agents.create(model=own, include_base_tools=False)
        model.will(HELLO)
        answer = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "hello"}])
        assert [each.content for each in answer.messages if each.message_type == "assistant_message"] == [HELLO]
