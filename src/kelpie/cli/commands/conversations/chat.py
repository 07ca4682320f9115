"""`kelpie chat`: a conversation with an agent over HTTP, at a prompt, from a pipe, or for one message."""

import sys
from collections.abc import Iterable
from pathlib import Path

from kelpie.cli import agent_lookup
from kelpie.cli.chat import typed_input
from kelpie.cli.chat.conversation import Conversation
from kelpie.cli.chat.json_turns import print_turn
from kelpie.cli.chat.screen import Screen
from kelpie.cli.chat.session import LeaveChat, Session
from kelpie.cli.chat.slash_commands import ENDS, SlashCommands
from kelpie.cli.chat.typed_input import TypedInput
from kelpie.cli.display.style import Style
from kelpie.cli.exit_codes import ERROR, OK, USAGE
from kelpie.cli.id_lookup import whole_id
from kelpie.cli.options import path
from kelpie.cli.output import cell, say
from kelpie.core.ids import DEFAULT_CONVERSATION
from kelpie.world.files.line_history import colored_prompt, line_history
from kelpie.world.http.cli_client import Client
from kelpie.world.terminal import typed_line

TYPED = "chat_history"  # in the data directory


def chat(
    client: Client,
    who: str | None,
    said: str | None = None,
    keep_in: Path | None = None,
    *,
    new: bool = False,
    conversation_id: str | None = None,
    as_json: bool = False,
) -> int:
    """Chats with an agent: one message if given, else until the input ends. Returns the exit code.

    At a terminal the typed lines are saved in the directory, if there is one. Raises UnknownId, Unreachable,
    ErrorResponse.
    """
    at_prompt = said is None and sys.stdin.isatty()
    if as_json and at_prompt:
        say("kelpie: --json needs a message (-m) or messages from a pipe.", file=sys.stderr)
        return USAGE
    conversation = find_conversation(client, who, new=new, conversation_id=conversation_id, tokens=not as_json)
    if at_prompt:
        return _at_prompt(conversation, keep_in)
    given = [said] if said is not None else TypedInput(typed_input.from_stream(sys.stdin)).messages()
    return _without_prompt(conversation, given, as_json)


def find_conversation(
    client: Client, who: str | None, *, new: bool = False, conversation_id: str | None = None, tokens: bool = True
) -> Conversation:
    """The conversation that the options name; without a name it is with the newest agent.

    Raises UnknownId, Unreachable, ErrorResponse.
    """
    if conversation_id is not None and conversation_id != DEFAULT_CONVERSATION:
        remedy = "`kelpie chat --new` starts one."
        chosen = client.get(path("conversations", whole_id(client, "conv", conversation_id, "conversation", remedy)))
        agent = agent_lookup.find(client, who or chosen["agent_id"])
        if agent["id"] != chosen["agent_id"]:
            raise agent_lookup.UnknownAgent(f"{chosen['id']} is a conversation of another agent than {agent['name']}")
        return Conversation(client, agent, chosen["id"], tokens=tokens)
    agent = agent_lookup.find(client, who) if who else agent_lookup.newest(client)
    if who is None:
        say(f"No agent named; taking the newest, {cell(agent['name'])} ({agent['id']}).", file=sys.stderr)
    conversation = Conversation(client, agent, tokens=tokens)
    if new:
        conversation.start_new()
        say(f"New conversation {conversation.id}.", file=sys.stderr)
    return conversation


def _without_prompt(conversation: Conversation, messages: Iterable[str], as_json: bool) -> int:
    session = Session(conversation, Screen(conversation.agent_name))
    went_well = True
    try:
        for text in messages:
            done = print_turn(conversation, conversation.message(text)) if as_json else session.send(text)
            went_well = went_well and done
            if session.interrupted:
                break
    except (KeyboardInterrupt, LeaveChat):
        return ERROR
    return OK if went_well else ERROR


def _at_prompt(conversation: Conversation, keep_in: Path | None) -> int:
    screen = Screen(conversation.agent_name)
    session = Session(conversation, screen, _prompted)
    where = "" if conversation.is_default else f" in {conversation.id}"
    screen.note(f"Chatting with {cell(conversation.agent_name)}{where}. Type /help for commands.")
    with line_history(keep_in / TYPED if keep_in else None):
        try:
            _converse(session)
        except (KeyboardInterrupt, LeaveChat):
            return ERROR
    return OK


def _converse(session: Session) -> None:
    session.decide()  # what still waits from before
    typed = TypedInput(_prompted)
    commands = SlashCommands(session, _prompted)
    for text in typed.messages():
        if text in ENDS:
            return
        if text.startswith("/"):
            commands.run(text)
        else:
            session.send(text)
            typed.interrupted = session.interrupted
    say(file=sys.stderr)


def _prompted(prompt: str) -> str:
    style = Style(sys.stdout)
    if not sys.stdout.isatty():  # a script that keeps the answers wants no prompts among them
        say(prompt, end="", file=sys.stderr, flush=True)
        prompt = ""
    try:
        return typed_line(colored_prompt(prompt, style.start("you"), style.end) if prompt else "")
    except KeyboardInterrupt:
        say(file=sys.stderr)  # the next prompt gets a line of its own
        raise
