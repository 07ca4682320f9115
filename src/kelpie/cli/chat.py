"""`kelpie chat`: a conversation with an agent over HTTP.

Answers go to standard output as they are written by the model; tool calls, thoughts and troubles go to standard error,
so that a script reading the output gets the answers alone.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, TextIO

from kelpie.cli import agents
from kelpie.cli.exit_codes import ERROR, OK
from kelpie.core.errors import KelpieError
from kelpie.world.client import Client

with suppress(ImportError):  # not every Python has it
    import readline  # noqa: F401 - input() gets editing and a history from it

SILENCE_S = 120.0  # the server pings a quiet stream far more often
_SHOWN_MAX = 300  # characters of a tool's arguments and result
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def chat(client: Client, who: str, said: str | None = None) -> int:
    """Talks with the agent: one message if given, else line by line until the input ends. Returns the exit code."""
    agent = agents.find(client, who)
    turns = Turns(client, agent, Screen(agent["name"]))
    if said is not None:
        return OK if turns.take(said) else ERROR
    if not sys.stdin.isatty():
        failed = [line for line in sys.stdin if line.strip() and not turns.take(line.strip())]
        return ERROR if failed else OK
    print(f"You are talking to {agent['name']} ({agent['id']}). Ctrl-D or /quit ends.", file=sys.stderr)
    for line in _typed():
        turns.take(line)
    return OK


def _typed() -> Iterator[str]:
    while True:
        try:
            line = input("you> ").strip()
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return
        if line in ("/quit", "/exit"):
            return
        if line:
            yield line


class Turns:
    """Sends messages and shows what comes back, one turn after the other."""

    def __init__(self, client: Client, agent: dict[str, Any], screen: "Screen") -> None:
        self._client = client
        self._path = f"/v1/agents/{agent['id']}/messages/stream"
        self._screen = screen

    def take(self, said: str) -> bool:
        """Has the agent answer; False, and a line that says why, when the turn failed."""
        body = {"messages": [{"role": "user", "content": said}], "stream_tokens": True}
        try:
            return self._screen.show(self._client.events(self._path, body, SILENCE_S))
        except KeyboardInterrupt:
            self._screen.trouble("no longer listening; the agent finishes its turn")
            return False
        except KelpieError as error:
            self._screen.trouble(str(error))
            return False


class Screen:
    """Lays out the events of a turn. Control characters a model might send never reach the terminal."""

    def __init__(self, name: str, out: TextIO | None = None, notes: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._notes = notes or sys.stderr
        self._label = f"{name}> " if self._out.isatty() else ""
        self._open = ""  # the id of the message whose line is not finished yet
        self._calls: dict[str, list[str]] = {}

    def show(self, events: Iterable[tuple[str, Any]]) -> bool:
        """Shows a whole turn; False if it ended in an error."""
        went_well = True
        for name, event in events:
            kind = event.get("message_type")
            if name == "error" or kind == "error_message":
                self.trouble(event.get("detail") or event.get("message") or "the turn failed")
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

    def trouble(self, message: str) -> None:
        """Says that something went wrong."""
        self._end_line()
        self._note(f"kelpie: {message}")

    def _answer(self, message_id: str, text: str) -> None:
        if message_id != self._open:
            self._end_line()
            self._out.write(self._label)
            self._open = message_id
        self._out.write(_CONTROL.sub("", text))
        self._out.flush()

    def _end_line(self) -> None:
        if self._open:
            self._out.write("\n")
            self._out.flush()
            self._open = ""

    def _call(self, call: dict[str, Any]) -> None:
        """Collects the pieces of a call; it is shown when its result is there."""
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
        print(_CONTROL.sub("", text), file=self._notes, flush=True)


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
