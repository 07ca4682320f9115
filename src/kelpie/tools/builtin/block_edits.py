"""The tools that edit one block by its label. All of them answer with the block's new value."""

from collections.abc import Mapping
from typing import Any

from kelpie.memory import text_edits
from kelpie.tools.builtin import own_blocks
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.world.database import Tx

ABOUT_PERSON = "human"  # the label of the block about the person the agent talks with


def core_memory_append(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Adds a line to a block, or creates the block with that line: one step, so no other write can come in between."""
    label, content = arguments["label"], arguments["content"]
    block = own_blocks.find(tx, call, label)
    if block is None:
        return Outcome(own_blocks.create(tx, call, label, content).value, touched=(call.agent.id,))
    return own_blocks.write(tx, call, block, text_edits.append(block.value, content))


def core_memory_replace(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    block = own_blocks.editable(tx, call, arguments["label"])
    value = text_edits.replace_all(block.value, arguments["old_content"], arguments["new_content"])
    return own_blocks.write(tx, call, block, value)


def memory_replace(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    block = own_blocks.editable(tx, call, arguments["label"])
    old, new = (text_edits.plain(arguments[name], name) for name in ("old_string", "new_string"))
    return own_blocks.write(tx, call, block, text_edits.replace_once(block.value.expandtabs(), old, new))


def memory_insert(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    block = own_blocks.editable(tx, call, arguments["label"])
    text = text_edits.plain(arguments["new_string"], "new_string")
    value = text_edits.insert(block.value.expandtabs(), text, arguments.get("insert_line", text_edits.END))
    return own_blocks.write(tx, call, block, value)


def memory_rethink(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Replaces the value of a block, or creates it."""
    return _rethink(tx, call, arguments["label"], arguments["new_memory"])


def rethink_memory(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """The same under the names that older agents know."""
    return _rethink(tx, call, arguments["target_block_label"], arguments["new_memory"])


def rethink_user_memory(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """The same for the block about the user."""
    return _rethink(tx, call, ABOUT_PERSON, arguments["new_memory"])


def _rethink(tx: Tx, call: CallContext, label: str, new_memory: str) -> Outcome:
    text = text_edits.plain(new_memory, "new_memory")
    block = own_blocks.find(tx, call, label)
    if block is None:
        return Outcome(own_blocks.create(tx, call, label, text).value, touched=(call.agent.id,))
    return own_blocks.write(tx, call, block, text)


def finished(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Only returns a text; the loop ends the turn."""
    return Outcome("None")
