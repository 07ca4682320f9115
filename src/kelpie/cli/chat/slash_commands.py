"""Commands at the prompt of a chat, such as /model. Unknown ones are answered with the nearest."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kelpie.cli.chat.approval_prompt import Ask
from kelpie.cli.chat.session import Session
from kelpie.cli.chat.tool_text import bounded_lines
from kelpie.cli.display.table import cut
from kelpie.cli.options import path
from kelpie.cli.output import cell
from kelpie.core.errors import KelpieError
from kelpie.world.files.line_history import one_answer

HISTORY, HISTORY_MAX = 20, 1000  # messages
VALUE_LINES = 6  # of a block in an overview
VALUE_LINES_MAX = 500  # of one block
ENDS = ("/exit", "/quit")
CLOSE = 0.7  # how similar an unknown command must be to one that is suggested
KEYS = """Ctrl-C clears the input; twice leaves the chat. During an answer it cancels the agent; again leaves the chat.
End a line with \\ to continue on the next line. Put \"\"\" before and after a message of several lines."""


@dataclass(frozen=True)
class SlashCommand:
    """A command with what follows its name, and its purpose."""

    usage: str
    purpose: str
    run: "Callable[[SlashCommands, str], None]"


class SlashCommands:
    """The commands of one chat."""

    def __init__(self, session: Session, ask: Ask) -> None:
        self._session = session
        self._screen = session.screen
        self._ask = ask

    def run(self, text: str) -> None:
        """Runs a command; an error of the server is shown. Raises LeaveChat."""
        name, _, argument = text.partition(" ")
        command = COMMANDS.get(name)
        if command is None:
            self._unknown(name)
            return
        try:
            command.run(self, argument.strip())
        except KelpieError as error:
            self._screen.print_error(str(error))

    def help(self, _: str) -> None:
        width = max(len(f"{name} {command.usage}") for name, command in COMMANDS.items())
        for name, command in COMMANDS.items():
            self._tell(f"{f'{name} {command.usage}':<{width}}  {command.purpose}")
        self._tell(f"{'/exit':<{width}}  leave the chat (also Ctrl-D)")
        for line in KEYS.splitlines():
            self._tell(line)

    def history(self, argument: str) -> None:
        if argument and not argument.isdecimal():
            self._screen.print_error(f"'{argument[:40]}' is not a number of messages; try /history 50")
            return
        for message in self._session.conversation.history(min(int(argument or HISTORY), HISTORY_MAX)):
            self._screen.show_past(message)

    def model(self, argument: str) -> None:
        where = self._session.conversation
        agent = path("agents", where.agent_id)
        if argument and where.is_default:
            where.client.patch(agent, {"model": argument})
        elif argument:
            where.client.patch(path("conversations", where.id), {"model": argument})
        own = None if where.is_default else where.client.get(path("conversations", where.id)).get("model")
        self._tell(f"Model: {own or where.client.get(agent)['model']}{' (of this conversation)' if own else ''}")
        if not argument:
            self._tell("/model HANDLE changes it; `kelpie models list` lists the models.")

    def memory(self, argument: str) -> None:
        where = self._session.conversation
        blocks = where.client.get(path("agents", where.agent_id, "core-memory", "blocks"))
        chosen = [block for block in blocks if argument in ("", block["label"])]
        if not chosen:
            labels = ", ".join(sorted(block["label"] for block in blocks)) or "none"
            self._screen.print_error(f"there is no block '{argument[:80]}'. Blocks: {labels}")
        for block in chosen:
            label = f"{cell(block['label'])} ({len(block['value'])} of {block['limit']} characters)"
            room = self._screen.width - 2
            lines = bounded_lines(block["value"] or "(empty)", room, VALUE_LINES_MAX if argument else VALUE_LINES)
            self._screen.lines("", [label, *(f"  {line}" for line in lines)], "tool")
        if chosen and not argument:
            self._tell("/memory LABEL shows a whole block; `kelpie blocks` changes them.")

    def tools(self, _: str) -> None:
        where = self._session.conversation
        rules = where.client.get(path("agents", where.agent_id))["tool_rules"]
        asking = {rule["tool_name"] for rule in rules if rule["type"] == "requires_approval"}
        tools: list[dict[str, Any]] = where.client.get(path("agents", where.agent_id, "tools"))
        asks = " (asks before it runs)"
        labels = [f"{cell(tool['name'])}{asks if tool['name'] in asking else ''}" for tool in tools]
        column = max(map(len, labels), default=0)
        for label, tool in sorted(zip(labels, tools, strict=True), key=lambda each: each[0]):
            about = (tool.get("description") or "").strip().partition("\n")[0]
            room = max(20, self._screen.width - column - 2)
            self._screen.lines(f"{label:<{column}}  ", [cut(cell(about), room)], "tool")
        if not tools:
            self._tell("This agent has no tools.")

    def new(self, _: str) -> None:
        where = self._session.conversation
        where.start_new()
        self._tell(f"New conversation {where.id}. The agent keeps its memory, and this starts empty.")

    def clear(self, _: str) -> None:
        where = self._session.conversation
        question = f"Delete all messages of {cell(where.agent_name)}, in all its conversations? Memory is kept. [y/N]> "
        try:
            sure = one_answer(self._ask, question).strip().lower() in ("y", "yes")
        except (EOFError, KeyboardInterrupt):
            sure = False
        if not sure:
            self._tell("Nothing was deleted.")
            return
        where.client.patch(path("agents", where.agent_id, "reset-messages"), {})
        self._tell("Deleted the messages.")

    def approve(self, _: str) -> None:
        if self._session.conversation.pending() is None:
            self._tell("No tool call waits for an approval here.")
        else:
            self._session.decide()

    def _tell(self, text: str) -> None:
        self._screen.note(text)

    def _unknown(self, name: str) -> None:
        from difflib import get_close_matches

        near = get_close_matches(name, (*COMMANDS, *ENDS), 1, CLOSE)
        meant = f" Did you mean {near[0]}?" if near else ""
        self._screen.print_error(f"there is no command {name[:40]}.{meant} /help lists the commands.")


COMMANDS = {
    "/model": SlashCommand("[HANDLE]", "show or change the model", SlashCommands.model),
    "/memory": SlashCommand("[LABEL]", "show the memory blocks, or one of them in full", SlashCommands.memory),
    "/tools": SlashCommand("", "list the tools", SlashCommands.tools),
    "/history": SlashCommand("[N]", "show the last messages of this conversation", SlashCommands.history),
    "/new": SlashCommand("", "start a new conversation", SlashCommands.new),
    "/clear": SlashCommand("", "delete all messages of the agent", SlashCommands.clear),
    "/approve": SlashCommand("", "decide about tool calls that wait", SlashCommands.approve),
    "/help": SlashCommand("", "show this help", SlashCommands.help),
}
