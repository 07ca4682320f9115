"""The `memory_apply_patch` tool: several edits of one or more blocks, all of them or none."""

from collections.abc import Mapping
from typing import Any

from kelpie.core.ids import AgentId
from kelpie.memory.patch import Add, Change, Delete, apply, parse
from kelpie.tools.builtin import own_blocks
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.world.database import Tx


def memory_apply_patch(tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
    """Applies the patch; a patch of one block answers with its new value, a larger one with a list of the changes."""
    changes = parse(arguments["patch"], arguments["label"])
    done = [_apply(tx, call, change) for change in changes]
    touched = dict.fromkeys(agent_id for outcome in done for agent_id in outcome.touched)
    return Outcome("\n".join(outcome.text for outcome in done), touched=tuple(touched))


def _apply(tx: Tx, call: CallContext, change: Change) -> Outcome:
    if isinstance(change, Add):
        block = own_blocks.create(tx, call, change.label, change.value, change.description)
        return Outcome(f"Created the block '{block.label}'.", touched=(call.agent.id,))
    if isinstance(change, Delete):
        return own_blocks.remove(tx, call, change.label)
    block = own_blocks.editable(tx, call, change.label)
    touched: tuple[AgentId, ...] = ()
    text = f"Renamed the block '{block.label}' to '{change.new_label}'." if change.new_label else block.value
    if change.new_label is not None or change.description is not None:
        touched += own_blocks.relabel(tx, call, block, change.new_label, change.description)
    if change.hunks:
        written = own_blocks.write(tx, call, block, apply(block.value.expandtabs(), change.hunks))
        text, touched = written.text, touched + written.touched
    return Outcome(text, touched=touched)
