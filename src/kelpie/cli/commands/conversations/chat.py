"""`kelpie chat`: a conversation with an agent over HTTP.

Answers go to standard output as the model writes them; tool calls, reasoning and errors go to standard error, so that
a script that reads the output gets only the answers.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from kelpie.cli import agent_lookup, chat_input
from kelpie.cli.exit_codes import ERROR, OK
from kelpie.cli.output import cell, say
from kelpie.core.errors import KelpieError
from kelpie.core.printable_text import without_unsafe
from kelpie.world.files.line_history import line_history
from kelpie.world.http.cli_client import Client

TYPED = "chat_history"  # in the data directory
SILENCE_S = 120.0  # the server pings a quiet stream far more often
HISTORY, HISTORY_MAX = 20, 1000  # messages
ENDS = ("/exit", "/quit")
HELP = """/history [N]  show the last messages of this conversation
/help         show this help
/exit         leave the chat (also Ctrl-D)
Ctrl-C clears the input; press it twice to leave. During an answer it stops waiting for the agent.
End a line with \\ to continue on the next line. Put \"\"\" before and after a message of several lines."""
_WHO = {
    "user_message": "you",
    "assistant_message": "agent",
    "reasoning_message": "(thought)",
    "tool_call_message": "(call)",
    "tool_return_message": "(result)",
}
_SHOWN_MAX = 300  # characters of a tool's arguments and result


def chat(client: Client, who: str, said: str | None = None, keep_in: Path | None = None) -> int:
    """Chats with the agent: one message if given, else until the input ends. Returns the exit code.

    At a terminal the typed lines are saved in the directory, if there is one.
    """
    agent = agent_lookup.find(client, who)
    turns = Turns(client, agent, Screen(agent["name"]))
    if said is not None:
        return OK if turns.take(said) else ERROR
    if not sys.stdin.isatty():
        went_well = [turns.take(text) for text in chat_input.messages(chat_input.from_stream(sys.stdin))]
        return OK if all(went_well) else ERROR
    say(f"Chatting with {agent['name']} ({agent['id']}). Type /help for commands.", file=sys.stderr)
    with line_history(keep_in / TYPED if keep_in else None):
        _converse(turns)
    return OK


def _converse(turns: "Turns") -> None:
    for text in chat_input.messages(_prompted):
        if text in ENDS:
            return
        if text.startswith("/"):
            _command(turns, text)
        else:
            turns.take(text)
    say(file=sys.stderr)


def _prompted(prompt: str) -> str:
    if not sys.stdout.isatty():  # a script that keeps the answers wants no prompts among them
        say(prompt, end="", file=sys.stderr, flush=True)
        prompt = ""
    try:
        return input(prompt)
    except KeyboardInterrupt:
        say(file=sys.stderr)  # the next prompt gets a line of its own
        raise


def _command(turns: "Turns", text: str) -> None:
    name, _, argument = text.partition(" ")
    if name == "/history" and (not argument or argument.isdecimal()):
        turns.history(min(int(argument or HISTORY), HISTORY_MAX))
    else:
        say(HELP, file=sys.stderr)


class Turns:
    """Sends messages and shows the answers, one turn after the other."""

    def __init__(self, client: Client, agent: dict[str, Any], screen: "Screen") -> None:
        self._client = client
        self._name = agent["name"]
        self._path = f"/v1/agents/{agent['id']}/messages/stream"
        self._screen = screen

    def take(self, said: str) -> bool:
        """Runs one turn; returns False, and prints the reason, when the turn failed."""
        body = {"messages": [{"role": "user", "content": said}], "stream_tokens": True}
        try:
            return self._screen.show(self._client.events(self._path, body, SILENCE_S))
        except KeyboardInterrupt:
            self._screen.print_error(
                f"Stopped waiting. The agent is still working; `kelpie agents cancel {self._name}` stops it."
            )
            return False
        except KelpieError as error:
            self._screen.print_error(str(error))
            return False

    def history(self, count: int) -> None:
        """Shows the last messages of the conversation, the oldest first."""
        try:
            found = self._client.get(self._path.removesuffix("/stream"), limit=count, order="desc")
        except KelpieError as error:
            self._screen.print_error(str(error))
            return
        for message in found[-count:]:  # the newest, but oldest first: so does Letta's API list an agent's messages
            self._screen.show_past(message)


class Screen:
    """Lays out the events of a turn. Control characters a model might send never reach the terminal."""

    def __init__(self, name: str, out: TextIO | None = None, notes: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._notes = notes or sys.stderr
        self._label = f"{cell(name)}> " if self._out.isatty() else ""
        self._open = ""  # the id of the message whose line is not finished yet
        self._calls: dict[str, list[str]] = {}

    def show(self, events: Iterable[tuple[str, Any]]) -> bool:
        """Shows a whole turn; False if it ended in an error."""
        went_well = True
        for name, event in events:
            kind = event.get("message_type")
            if name == "error" or kind == "error_message":
                self.print_error(event.get("detail") or event.get("message") or "the turn failed")
                went_well = False
            elif kind == "assistant_message":
                self._answer(event["id"], _text(event["content"]))
            elif kind in ("tool_call_message", "approval_request_message"):
                self._call(event["tool_call"])
            elif kind == "tool_return_message":
                self._returned(event)
            elif kind == "stop_reason" and event["stop_reason"] != "end_turn" and went_well:
                self._note(f"(stopped: {event['stop_reason']})")
        self._end_line()
        return went_well

    def print_error(self, message: str) -> None:
        """Prints an error."""
        self._end_line()
        self._note(f"kelpie: {message}")

    def show_past(self, message: dict[str, Any]) -> None:
        """Prints an earlier message on a line of its own; system messages are left out."""
        who = _WHO.get(message["message_type"])
        if who is not None:
            self._note(f"{message['date'][:19]} {who}: {_cut(_past(message))}")

    def _answer(self, message_id: str, text: str) -> None:
        if message_id != self._open:
            self._end_line()
            self._out.write(self._label)
            self._open = message_id
        self._out.write(without_unsafe(text))
        self._out.flush()

    def _end_line(self) -> None:
        if self._open:
            self._out.write("\n")
            self._out.flush()
            self._open = ""

    def _call(self, call: dict[str, Any]) -> None:
        """Collects the pieces of a call; it is shown when its result arrives."""
        pieces = self._calls.setdefault(call["tool_call_id"], [])
        pieces += [call["name"] + " "] if call.get("name") and not pieces else []
        pieces += [call.get("arguments") or ""]

    def _returned(self, event: dict[str, Any]) -> None:
        self._end_line()
        for result in event.get("tool_returns") or [event]:
            call = "".join(self._calls.pop(result["tool_call_id"], [str(event.get("name") or "tool")]))
            outcome = _text(result["tool_return"]) if result.get("status") == "success" else _failure(result)
            self._note(f"[{_cut(call)} -> {_cut(outcome)}]")

    def _note(self, text: str) -> None:
        say(without_unsafe(text), file=self._notes, flush=True)


def _past(message: dict[str, Any]) -> str:
    if message["message_type"] == "tool_call_message":
        call = message["tool_call"]
        return f"{call['name']} {call['arguments']}"
    if message["message_type"] == "tool_return_message":
        return _text(message["tool_return"])
    return _text(message.get("content") or message.get("reasoning") or "")


def _failure(result: dict[str, Any]) -> str:
    return f"failed: {_text(result['tool_return'])}"


def _text(content: Any) -> str:
    """The text of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN_MAX else f"{flat[:_SHOWN_MAX]}…"
