"""`kelpie approvals`, `messages` and `passages` against a live server."""

import json
from typing import Any

from kelpie.world.http.cli_client import Client
from tests.cli.live import Live
from tests.cli.pseudo_terminal import at_terminal
from tests.cli.test_chat_terminal import human, insert, make, script


def waits(running: Live, name: str, *calls: dict[str, Any]) -> str:
    """An agent whose calls wait."""
    agent_id = make(running, name, asks=True)
    sent = running.kelpie("chat", name, "-m", script({"calls": list(calls)}, {"text": "Decided."}))
    assert sent.returncode == 1, sent.stderr
    return agent_id


def test_waiting_calls_are_listed_approved_and_denied(running: Live) -> None:
    agent_id = waits(running, "asked", insert("green tea"))
    listed = running.kelpie("approvals", "list", "--agent", "asked")
    assert "asked" in listed.stdout and "green tea" in listed.stdout and "memory_insert" in listed.stdout
    assert agent_id in [each["agent_id"] for each in running.json("approvals", "list")]
    with at_terminal(["approvals", "list"], running.env, columns=70) as terminal:
        code, shown = terminal.ends()
    assert code == 0 and all(len(line) <= 70 for line in shown.splitlines()[:2]) and "asked" in shown
    approved = running.kelpie("approvals", "approve", "asked", "--arguments", json.dumps(insert("tea")["arguments"]))
    assert (approved.returncode, approved.stdout) == (0, "Decided.\n")
    assert human(running, agent_id) == "Ada\ntea"
    assert running.json("approvals", "list", "--agent", "asked") == []
    again = running.kelpie("approvals", "approve", "asked")
    assert again.returncode == 4 and "no tool call of asked waits" in again.stderr


def test_one_of_several_calls_is_answered_and_the_turn_waits_for_the_other(running: Live) -> None:
    agent_id = waits(running, "several", insert("tea"), insert("milk"))
    calls = running.json("approvals", "list", "--agent", "several")[0]["tool_calls"]
    both = running.kelpie("approvals", "approve", "several", "--arguments", "{}")
    assert both.returncode == 1 and "--call" in both.stderr
    first = running.kelpie("approvals", "approve", "several", "--call", calls[0]["tool_call_id"])
    assert first.returncode == 1 and "kelpie approvals approve several" in first.stderr and "milk" in first.stderr
    assert human(running, agent_id) == "Ada", "nothing runs before all calls are answered"
    denied = running.kelpie("approvals", "deny", "several", "--reason", "no milk", "--json")
    turn = json.loads(denied.stdout)
    assert denied.returncode == 0 and turn["stop_reason"] == "end_turn"
    results = [each for each in turn["messages"] if each["message_type"] == "tool_return_message"]
    assert "no milk" in json.dumps(results) and human(running, agent_id) == "Ada\ntea"


def test_wrong_arguments_are_told_and_the_call_still_waits(running: Live) -> None:
    waits(running, "wrong", insert("tea"))
    for given, told in (("{", "not JSON"), ("[]", "JSON object"), ('{"label": 5}', "label")):
        refused = running.kelpie("approvals", "approve", "wrong", "--arguments", given)
        assert refused.returncode == 1 and told in refused.stderr and "{'" not in refused.stderr, refused.stderr
    assert len(running.json("approvals", "list", "--agent", "wrong")) == 1


def test_a_call_of_a_client_side_tool_can_only_be_denied(running: Live) -> None:
    agent_id = make(running, "offered")
    call = script({"calls": [{"name": "local", "arguments": {}}]}, {"text": "Then not."})
    body = {"input": call, "client_tools": [{"name": "local", "parameters": {"type": "object", "properties": {}}}]}
    Client(running.url).post(f"/v1/agents/{agent_id}/messages", body)
    refused = running.kelpie("approvals", "approve", "offered")
    assert refused.returncode == 1 and "only be denied" in refused.stderr
    assert running.kelpie("approvals", "deny", "offered").stdout == "Then not.\n"


def test_passages_are_added_and_found(running: Live) -> None:
    make(running, "reader")
    added = running.kelpie("passages", "add", "reader", "Ada likes green tea.", "--tag", "taste")
    assert added.returncode == 0 and "Added passage passage-" in added.stdout
    found = running.json("passages", "search", "reader", "green tea", "--tag", "taste")
    assert found["results"][0]["content"] == "Ada likes green tea."
    assert "green tea" in running.kelpie("passages", "search", "reader", "tea").stdout
    assert running.json("passages", "search", "reader", "tea", "--tag", "other")["results"] == []
    assert running.kelpie("passages", "add", "reader", " ").returncode == 1


def test_messages_are_listed_for_people_and_for_programs(running: Live) -> None:
    make(running, "listed")
    running.kelpie("chat", "listed", "-m", script({"calls": [insert("x" * 300)]}, {"text": "Done."}))
    lines = running.kelpie("messages", "list", "listed").stdout.splitlines()
    assert [line.split("  ")[1].strip() for line in lines[1:]] == ["system", "you", "call", "result", "agent"]
    assert "x" * 300 in lines[3] and lines[5].split()[-1].startswith("message-")
    with at_terminal(["messages", "list", "listed", "-n", "2"], running.env, columns=60) as terminal:
        code, shown = terminal.ends()
    assert code == 0 and len(shown.splitlines()) == 3 and all(len(line) <= 60 for line in shown.splitlines())
