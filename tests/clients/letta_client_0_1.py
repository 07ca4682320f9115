"""What users of `letta-client` 0.1.307 do, as a program: `letta_client_0_1.py ADDRESS MODEL`.

It runs with that version on its path, so it imports the package by name only. What is not as it should be is raised.
The model plays the script that test_python_clients.py gives it.
"""

import sys
from importlib import import_module, metadata
from typing import Any

HELLO = "Hello from the model"


def kinds(messages: Any) -> list[str]:
    return [each.message_type for each in messages if each.message_type != "ping"]


def text(events: list[Any]) -> str:
    return "".join(each.content for each in events if each.message_type == "assistant_message")


def streams(client: Any, agent: Any, user: Any) -> None:
    assert kinds(client.agents.messages.create(agent.id, messages=[user]).messages) == ["assistant_message"]
    for tokens in (False, True):
        events = list(client.agents.messages.create_stream(agent.id, messages=[user], stream_tokens=tokens))
        assert kinds(events)[-2:] == ["stop_reason", "usage_statistics"], kinds(events)
        assert text(events) == HELLO and (kinds(events).count("assistant_message") > 1) == tokens


def approves(client: Any, agent: Any, user: Any) -> None:
    client.agents.tools.modify_approval(agent.id, "core_memory_append", requires_approval=True)
    asked = client.agents.messages.create(agent.id, messages=[user])
    assert (kinds(asked.messages), asked.stop_reason.stop_reason) == (["approval_request_message"], "requires_approval")
    [request] = asked.messages
    assert request.tool_call.name == "core_memory_append"
    approval = {"type": "approval", "approve": True, "approval_request_id": request.id}
    done = client.agents.messages.create(agent.id, messages=[approval])
    assert kinds(done.messages) == ["tool_return_message", "assistant_message"], kinds(done.messages)
    assert "Sails" in client.agents.blocks.retrieve(agent.id, "human").value


def runs_here(client: Any, agent: Any, user: Any) -> None:
    """The client calls the tool itself, and sends what it returned in the place of an approval."""
    asked = client.agents.messages.create(agent.id, messages=[user])
    call = asked.messages[-1].tool_call
    returned = {"type": "tool", "tool_call_id": call.tool_call_id, "tool_return": "kept here", "status": "success"}
    approval = {"type": "approval", "approvals": [returned]}
    done = client.agents.messages.create(agent.id, messages=[approval])
    assert [each.tool_return for each in done.messages if each.message_type == "tool_return_message"] == ["kept here"]
    assert "Skis" not in client.agents.blocks.retrieve(agent.id, "human").value


def resumes(client: Any, agent: Any, user: Any) -> None:
    stream = client.agents.messages.create_stream(agent.id, messages=[user], stream_tokens=True, background=True)
    first = next(event for event in stream if event.message_type == "assistant_message")
    stream.close()
    rest = list(client.runs.stream(first.run_id, starting_after=first.seq_id))
    assert text([first, *rest]) == HELLO, kinds(rest)
    assert client.runs.retrieve(first.run_id).status == "completed"


def main(url: str, model: str) -> None:
    assert metadata.version("letta-client") == "0.1.307"
    client: Any = import_module("letta_client").Letta(base_url=url, token="none")
    blocks = [{"label": "human", "value": "Name: Ada"}]
    agent = client.agents.create(
        name="old", model=model, memory_blocks=blocks, tools=["core_memory_append"], include_base_tools=False
    )
    assert client.agents.retrieve(agent.id).name == "old"
    user = {"role": "user", "content": "hello"}
    streams(client, agent, user)
    approves(client, agent, user)
    runs_here(client, agent, user)
    resumes(client, agent, user)
    messages = client.agents.messages.list(agent.id, limit=100)
    assert {"system_message", "user_message", "assistant_message"} <= set(kinds(messages))


if __name__ == "__main__":
    main(*sys.argv[1:])
    print("done")
