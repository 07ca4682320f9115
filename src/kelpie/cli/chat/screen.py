"""The screen of a chat: lays out the events of a turn as they arrive.

Answers go to standard output; reasoning, tool calls and errors go to standard error, so that a script that reads the
output gets only the answers. Control characters that a model might send never reach the terminal.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from kelpie.cli.chat.message_text import past_text, text_of
from kelpie.cli.chat.tool_text import call_lines, parsed_arguments, result_lines
from kelpie.cli.chat.turn import RECONNECTING
from kelpie.cli.chat.waiting_line import WaitingLine
from kelpie.cli.display.age import age, parsed
from kelpie.cli.display.style import Style
from kelpie.cli.display.table import text_width, wrapped
from kelpie.cli.display.word_wrap import WordWrap
from kelpie.cli.output import cell
from kelpie.core.printable_text import without_unsafe
from kelpie.core.time import as_datetime
from kelpie.world import terminal
from kelpie.world.clock import SystemClock
from kelpie.world.http.cli_client import error_sentence

THOUGHT = "thought> "
WIDTH_IN_PIPE = 10_000  # lines in a pipe are not wrapped
_WHO = {
    "user_message": "you",
    "assistant_message": "agent",
    "reasoning_message": "(thought)",
    "tool_call_message": "(call)",
    "approval_request_message": "(call)",
    "tool_return_message": "(result)",
}
_ROLES = {"you": "you", "agent": "agent", "(thought)": "reasoning", "(call)": "tool", "(result)": "tool"}
_STOPPED = {
    "cancelled": "Cancelled.",
    "max_steps": "Stopped after the maximum number of steps. Send a message to continue.",
    "insufficient_credits": "Stopped: the budget of the agent is used up; see `kelpie agents budget`.",
    "no_tool_call": "Stopped: the model called no tool, although its agent type requires one.",
}


@dataclass(frozen=True)
class Outcome:
    """The end of a turn."""

    went_well: bool
    stop_reason: str | None = None
    refused: bool = False  # the server answered with an error; what waited may still wait

    @property
    def awaits_approval(self) -> bool:
        return self.stop_reason == "requires_approval"


class Screen:
    """Writes one chat to two streams, which are usually the same terminal."""

    def __init__(self, name: str, out: TextIO | None = None, notes: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._notes = notes or sys.stderr
        self._out_style, self.style = Style(self._out), Style(self._notes)
        self._waiting = WaitingLine(self._notes)
        self._open: tuple[str, str] | None = None  # kind and id of the message whose line is not finished yet
        self._wrap: WordWrap | None = None  # of that message, if it goes to a terminal
        self._calls: dict[str, list[str]] = {}  # name and arguments of calls whose arguments still arrive
        self.name = name

    @property
    def width(self) -> int:
        return terminal.width(self._notes) if self._notes.isatty() else WIDTH_IN_PIPE

    def show(self, events: Iterable[tuple[str, Any]]) -> Outcome:
        """Shows a whole turn and returns how it ended."""
        stop: str | None = None
        error: str | None = None
        self._waiting.what = "thinking"
        try:
            for name, event in self._waiting.over(events):
                if name == RECONNECTING:
                    self.note("Connection lost. Reconnecting ...")
                elif name == "error" or event.get("message_type") == "error_message":
                    error = error_sentence(event)
                elif event.get("message_type") == "stop_reason":
                    stop = event["stop_reason"]
                else:
                    self._show_message(event)
                self._waiting.quiet = self._open is not None
        finally:
            self.end_line()
            self._calls.clear()
        if error is not None:
            self.print_error(error)
            return Outcome(False, stop, refused=True)
        if stop not in (None, "end_turn", "requires_approval", "tool_rule"):
            self.note(_STOPPED.get(stop, f"Stopped: {stop}."))
        return Outcome(stop != "cancelled", stop)

    def print_error(self, message: str) -> None:
        """Prints an error on a line of its own."""
        self._remark("error", f"kelpie: {without_unsafe(message)}")

    def note(self, text: str) -> None:
        """Prints a remark on a line of its own."""
        self._remark("quiet", without_unsafe(text))

    def lines(self, label: str, lines: Sequence[str], role: str) -> None:
        """Prints lines of which the first has a label, and the others stand under it."""
        self._break_line()
        rest = " " * len(label)
        for place, line in enumerate(lines):
            text = without_unsafe(line)
            self._write(self.style(role, label) + text if place == 0 else rest + text)

    def show_call(self, name: str, arguments: str) -> None:
        """Prints a tool call with its arguments, one per line."""
        self.lines("tool> ", call_lines(name, arguments, self.width - len("tool> ")), "tool")

    def show_past(self, message: dict[str, Any]) -> None:
        """Prints an earlier message on a line of its own; system messages are left out."""
        who = _WHO.get(message["message_type"])
        if who is not None:
            text = f"{self._moment(message['date'])}  {who}: {without_unsafe(past_text(message))}"
            first, *rest = wrapped(text, self.width)
            head, label, said = first.partition(f"{who}:")
            self._write(f"{head}{self.style(_ROLES[who], label)}{said}")
            for line in rest:
                self._write(line)

    def _moment(self, date: str) -> str:
        """The time of a message, at a terminal as its age."""
        at = parsed(date) if self._notes.isatty() else None
        return age(at, as_datetime(SystemClock().now())) if at is not None else date[:19]

    def end_line(self) -> None:
        """Ends the line of an unfinished message."""
        if self._open is None:
            return
        stream, style = (self._out, self._out_style) if self._open[0] == "answer" else (self._notes, self.style)
        rest = self._wrap.rest() if self._wrap else ""
        stream.write(f"{rest}{style.end if self._open[0] == 'reasoning' else ''}\n")
        stream.flush()
        self._open = self._wrap = None

    def _break_line(self) -> None:
        """Makes room for a note. An answer that goes into a pipe stays one line, whatever happens beside it."""
        if self._open is not None and (self._open[0] == "reasoning" or self._out.isatty()):
            self.end_line()

    def _show_message(self, event: dict[str, Any]) -> None:
        match event.get("message_type"):
            case "assistant_message":
                self._answer(event["id"], text_of(event["content"]))
            case "reasoning_message":
                self._reasoning(event["id"], event.get("reasoning") or "")
            case "tool_call_message":
                for call in calls_of(event):
                    self._call(call)
            case "tool_return_message":
                self._returned(event)
            case "ping" if event.get("kelpie_abandoned"):
                self.note("The server restarted and begins this answer again.")
            case _:
                pass

    def _answer(self, message_id: str, text: str) -> None:
        if not text:
            return
        if self._open != ("answer", message_id):
            self.end_line()
            if self._out.isatty():
                label = f"{cell(self.name)}> "
                self._out.write(self._out_style("agent", label))
                self._wrap = WordWrap(terminal.width(self._out), text_width(label))
            self._open = ("answer", message_id)
        safe = without_unsafe(text)
        self._out.write(self._wrap.add(safe) if self._wrap else safe)
        self._out.flush()

    def _reasoning(self, message_id: str, text: str) -> None:
        """Shows reasoning to people only."""
        if not text or not self._notes.isatty():
            return
        if self._open != ("reasoning", message_id):
            self.end_line()
            self._notes.write(f"{self.style.start('reasoning')}{THOUGHT}")
            self._wrap = WordWrap(self.width, len(THOUGHT))
            self._open = ("reasoning", message_id)
        safe = without_unsafe(text)
        self._notes.write(self._wrap.add(safe) if self._wrap else safe)
        self._notes.flush()

    def _call(self, piece: dict[str, Any]) -> None:
        """Collects the pieces of a call and shows it as soon as its arguments are complete."""
        self._break_line()
        call = self._calls.setdefault(piece["tool_call_id"], ["", ""])
        call[0] = call[0] or piece.get("name") or ""
        call[1] += piece.get("arguments") or ""
        self._waiting.what = f"calling {cell(call[0])}"
        if parsed_arguments(call[1]) is not None:
            self._calls.pop(piece["tool_call_id"])
            self.show_call(*call)

    def _returned(self, event: dict[str, Any]) -> None:
        self._waiting.what = "thinking"
        for result in event.get("tool_returns") or [event]:
            if (unfinished := self._calls.pop(result["tool_call_id"], None)) is not None:
                self.show_call(*unfinished)
            went_well = result.get("status") == "success"
            label = "result> " if went_well else "failed> "
            lines = result_lines(text_of(result["tool_return"]), self.width - len(label))
            self.lines(label, lines, "tool" if went_well else "error")

    def _remark(self, role: str, text: str) -> None:
        """Prints a text on lines of its own, broken between words at a terminal."""
        self._break_line()
        for part in text.split("\n"):
            for line in wrapped(part, self.width) if self._notes.isatty() else [part]:
                self._write(self.style(role, line))

    def _write(self, line: str) -> None:
        self._notes.write(f"{line}\n")
        self._notes.flush()


def calls_of(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a message; a piece of a stream has one, and not in a list."""
    several = event.get("tool_calls")
    return several if isinstance(several, list) and several else [event["tool_call"]]
