"""`kelpie messages`: the messages of an agent or of one conversation."""

from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.chat.message_text import message_text
from kelpie.cli.id_lookup import whole_id
from kelpie.cli.options import Agent, AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import print_json, print_list
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import DEFAULT_CONVERSATION

commands = group("List messages.", "messages list demo", "messages list demo --conversation default --limit 100")

_WHO = {
    "user_message": "you",
    "assistant_message": "agent",
    "reasoning_message": "thought",
    "hidden_reasoning_message": "thought",
    "tool_call_message": "call",
    "approval_request_message": "call (waited)",
    "approval_response_message": "decision",
    "tool_return_message": "result",
    "system_message": "system",
    "summary_message": "summary",
}


@commands.command("list", epilog=examples("messages list demo", "messages list demo --conversation conv-1f3b --json"))
def list_messages(
    agent: Agent,
    conversation: Annotated[
        str | None,
        typer.Option(help="Only this conversation: an id, its first characters, or `default`. Defaults to all."),
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the last messages of an agent, oldest first."""
    server = client(url)
    found = find(server, agent)
    query: dict[str, Any] = {"limit": limit, "order": "desc"}
    if conversation is not None and conversation != DEFAULT_CONVERSATION:
        chosen = whole_id(server, "conv", conversation, "conversation", "`kelpie chat --new` starts one.")
        if server.get(path("conversations", chosen))["agent_id"] != found["id"]:
            raise InvalidInput("--conversation", f"{chosen} is a conversation of another agent")
        messages = server.get(path("conversations", chosen, "messages"), **query)[::-1]
    else:
        query |= {"conversation_id": DEFAULT_CONVERSATION} if conversation else {}
        messages = server.get(path("agents", found["id"], "messages"), **query)
    messages = messages[-limit:]
    if as_json:
        print_json(messages)
        return
    rows = [
        (each["date"], _WHO.get(each["message_type"], each["message_type"]), message_text(each), each["id"])
        for each in messages
    ]
    print_list(("created", "from", "text", "id"), rows, "No messages.", spare=("id",))
