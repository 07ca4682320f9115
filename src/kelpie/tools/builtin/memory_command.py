"""The `memory` tool: blocks as files under /memories, with one command for each kind of edit."""

from collections.abc import Callable, Mapping
from typing import Any

from kelpie.core.errors import ToolError
from kelpie.memory import text_edits
from kelpie.tools.builtin import own_blocks
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.world.database import Tx

_Arguments = Mapping[str, Any]


def memory(tx: Tx, call: CallContext, arguments: _Arguments) -> Outcome:
    """Runs the requested command. Raises ToolError naming a missing argument."""
    command = _COMMANDS.get(arguments["command"])
    if command is None:
        raise ToolError(f"'{arguments['command']}' is not a command; use one of {', '.join(_COMMANDS)}.")
    return command(tx, call, arguments)


def _needed(arguments: _Arguments, *names: str) -> list[Any]:
    missing = [name for name in names if arguments.get(name) is None]
    if missing:
        raise ToolError(f"The command '{arguments['command']}' also needs {' and '.join(missing)}.")
    return [arguments[name] for name in names]


def _create(tx: Tx, call: CallContext, arguments: _Arguments) -> Outcome:
    path, description = _needed(arguments, "path", "description")
    text = text_edits.plain(arguments.get("file_text") or "", "file_text")
    block = own_blocks.create(tx, call, text_edits.label_of(path), text, description)
    return Outcome(f"Created the memory block '{block.label}'.", touched=(call.agent.id,))


def _str_replace(tx: Tx, call: CallContext, arguments: _Arguments) -> Outcome:
    path, old, new = _needed(arguments, "path", "old_string", "new_string")
    block = own_blocks.editable(tx, call, text_edits.label_of(path))
    old, new = text_edits.plain(old, "old_string"), text_edits.plain(new, "new_string")
    return own_blocks.write(tx, call, block, text_edits.replace_once(block.value.expandtabs(), old, new))


def _insert(tx: Tx, call: CallContext, arguments: _Arguments) -> Outcome:
    path, text = _needed(arguments, "path", "insert_text")
    block = own_blocks.editable(tx, call, text_edits.label_of(path))
    line = arguments.get("insert_line")
    value = text_edits.insert(
        block.value.expandtabs(), text_edits.plain(text, "insert_text"), text_edits.END if line is None else line
    )
    return own_blocks.write(tx, call, block, value)


def _delete(tx: Tx, call: CallContext, arguments: _Arguments) -> Outcome:
    (path,) = _needed(arguments, "path")
    return own_blocks.remove(tx, call, text_edits.label_of(path))


def _rename(tx: Tx, call: CallContext, arguments: _Arguments) -> Outcome:
    """Two forms: old_path and new_path change the label, path and description change the description."""
    if arguments.get("old_path") is None and arguments.get("new_path") is None:
        path, description = _needed(arguments, "path", "description")
        block = own_blocks.editable(tx, call, text_edits.label_of(path))
        touched = own_blocks.relabel(tx, call, block, None, description)
        return Outcome(f"Changed the description of the block '{block.label}'.", touched=touched)
    old, new = _needed(arguments, "old_path", "new_path")
    block, label = own_blocks.editable(tx, call, text_edits.label_of(old)), text_edits.label_of(new)
    touched = own_blocks.relabel(tx, call, block, label, arguments.get("description"))
    return Outcome(f"Renamed the block '{block.label}' to '{label}'.", touched=touched)


_COMMANDS: dict[str, Callable[[Tx, CallContext, _Arguments], Outcome]] = {
    "create": _create,
    "str_replace": _str_replace,
    "insert": _insert,
    "delete": _delete,
    "rename": _rename,
}
