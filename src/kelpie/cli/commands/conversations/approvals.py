"""`kelpie approvals`: tool calls that wait for a person, and the answers to them."""

from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.chat.approval_answers import approval, denial, waiting_calls
from kelpie.cli.exit_codes import ERROR
from kelpie.cli.id_lookup import UnknownId
from kelpie.cli.options import Agent, AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import print_json, print_list
from kelpie.cli.typed_text import json_object
from kelpie.core.errors import InvalidInput
from kelpie.world.http.cli_client import Client

commands = group(
    "List, approve and deny tool calls that wait.",
    "approvals list",
    "approvals approve demo",
    "approvals deny demo --reason 'not now'",
)

Call = Annotated[
    str | None, typer.Option(help="Only this call, by its id or the first characters. Defaults to all that wait.")
]
InConversation = Annotated[
    str | None, typer.Option(help="Conversation of the call, if calls wait in several: an id or `default`.")
]


@commands.command("list", epilog=examples("approvals list", "approvals list --agent demo --json"))
def list_approvals(
    agent: Annotated[str | None, typer.Option(help="Show only calls of this agent (name or id).")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the tool calls that wait, newest first."""
    server = client(url)
    place = path("agents", find(server, agent)["id"], "approvals") if agent else path("kelpie", "approvals")
    found = server.get(place, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["agent_name"], call["name"], call["arguments"], each["requested_at"], each["conversation_id"],
         call["tool_call_id"], call["waits_for"])
        for each in found
        for call in waiting_calls(each)
    ]  # fmt: skip
    columns = ("agent", "tool", "arguments", "requested", "conversation", "call", "waits for")
    print_list(columns, rows, "No tool call waits.", spare=("waits for", "call", "conversation"))


@commands.command(epilog=examples("approvals approve demo", "approvals approve demo --arguments '{\"sides\": 6}'"))
def approve(
    agent: Agent,
    call: Call = None,
    arguments: Annotated[
        str | None, typer.Option(help="Run the call with these arguments instead: a JSON object.")
    ] = None,
    conversation: InConversation = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Let waiting tool calls run, and show how the agent continues."""
    changed = None if arguments is None else json_object(arguments, "--arguments")
    server = client(url)
    request = _request(server, agent, conversation)
    chosen = _chosen(request, call)
    if changed is not None and len(chosen) > 1:
        raise InvalidInput("--arguments", f"{len(chosen)} calls wait; name one with --call")
    for each in chosen:
        if each["waits_for"] == "client":
            raise InvalidInput("--call", f"{each['name']} runs in the program that offered it; it can only be denied")
    _answer(server, request, [approval(each["tool_call_id"], changed) for each in chosen], as_json)


@commands.command(epilog=examples("approvals deny demo", "approvals deny demo --reason 'not now'"))
def deny(
    agent: Agent,
    reason: Annotated[str | None, typer.Option(help="Reason, which the model reads.")] = None,
    call: Call = None,
    conversation: InConversation = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Deny waiting tool calls, and show how the agent continues."""
    server = client(url)
    request = _request(server, agent, conversation)
    _answer(server, request, [denial(each["tool_call_id"], reason) for each in _chosen(request, call)], as_json)


def _request(server: Client, agent: str, conversation: str | None) -> dict[str, Any]:
    """The request that waits in the conversation. Raises UnknownId, InvalidInput."""
    found = find(server, agent)
    waiting = server.get(path("agents", found["id"], "approvals"))
    named = [each for each in waiting if conversation is None or _is_named(each["conversation_id"], conversation)]
    if not named:
        raise UnknownId(
            f"no tool call of {found['name']} waits{' there' if waiting else ''}; see `kelpie approvals list`"
        )
    if len(named) > 1:
        places = ", ".join(each["conversation_id"] for each in named)
        raise InvalidInput("--conversation", f"calls wait in several conversations; name one of {places}")
    return named[0]


def _is_named(conversation_id: str, typed: str) -> bool:
    return conversation_id.startswith(typed) or conversation_id.removeprefix("conv-").startswith(typed)


def _chosen(request: dict[str, Any], call: str | None) -> list[dict[str, Any]]:
    waiting = waiting_calls(request)
    chosen = [each for each in waiting if call is None or each["tool_call_id"].startswith(call)]
    if not chosen or (call is not None and len(chosen) > 1):
        ids = ", ".join(each["tool_call_id"] for each in chosen or waiting)
        raise UnknownId(f"'{(call or '')[:80]}' is not one waiting call. Waiting calls: {ids}")
    return chosen


def _answer(server: Client, request: dict[str, Any], answers: list[dict[str, Any]], as_json: bool) -> None:
    from kelpie.cli.chat.conversation import Conversation
    from kelpie.cli.chat.json_turns import print_turn
    from kelpie.cli.chat.screen import Screen
    from kelpie.cli.chat.session import Session

    agent = {"id": request["agent_id"], "name": request["agent_name"]}
    conversation = Conversation(server, agent, request["conversation_id"], tokens=not as_json)
    turn = conversation.answers(answers, partial=len(answers) < len(waiting_calls(request)))
    if as_json:
        went_well = print_turn(conversation, turn)
    else:
        went_well = Session(conversation, Screen(agent["name"])).play(turn)
    raise typer.Exit(0 if went_well else ERROR)
