"""An agent's own blocks as its tools may change them.

Every edit reads the row inside the transaction it writes in, so two agents that share a block cannot lose each other's
words. `read_only`, the limit and the budget of all blocks together are enforced here, and only here: they bind the
agent, not the operator.
"""

import re

from kelpie.core.errors import ToolError
from kelpie.core.ids import AgentId, BlockId
from kelpie.core.memory.blocks import Block, NewBlock
from kelpie.core.token_estimates import byte_length
from kelpie.memory import text_edits
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.tools.calls.stable_ids import stable_uuid
from kelpie.world.database import Tx
from kelpie.world.lazy_imports import lazily

with lazily:
    from kelpie.memory import blocks as _memory_blocks

_LABEL = re.compile(r"[\w./-]{1,100}")


def find(tx: Tx, call: CallContext, label: str) -> Block | None:
    """The agent's block of this label, locked until the transaction ends. Raises ToolError if it may not be changed."""
    block = _labelled(tx, call, label)
    if block is not None and block.lost:
        raise ToolError(f"The block '{label}' is damaged on the disk, so you cannot change it. Tell the user about it.")
    if block is not None and block.read_only:
        raise ToolError(f"The block '{label}' is read-only, so you cannot change it.")
    return block


def _labelled(tx: Tx, call: CallContext, label: str) -> Block | None:
    """The block of this label that the call sees: a conversation's own copy goes before the agent's block."""
    own = block_attachments.own_by_label(tx, call.conversation_id, label) if call.conversation_id else None
    return own or block_attachments.by_label(tx, call.agent.id, label, lock=True)


def editable(tx: Tx, call: CallContext, label: str) -> Block:
    """The same, for a block that must exist. Raises ToolError naming the existing blocks."""
    block = find(tx, call, label)
    if block is None:
        shown = block_attachments.shown(tx, call.agent.id, call.conversation_id)
        labels = ", ".join(sorted(b.label for b in shown)) or "none"
        raise ToolError(f"You have no memory block '{label}'. Your blocks: {labels}.")
    return block


def write(tx: Tx, call: CallContext, block: Block, value: str) -> Outcome:
    """Gives the block a new value and returns that value. Raises ToolError when it is too long."""
    _check_size(tx, call, block.label, block.value, value, block.limit)
    after, _, touched = blocks.update(tx, block.id, {"value": text_edits.cleaned(value)}, call.change)
    return Outcome(after.value, touched=touched)


def create(tx: Tx, call: CallContext, label: str, value: str, description: str | None = None) -> Block:
    """Creates a block and attaches it to the agent. Raises ToolError for a label that is taken or invalid."""
    _check_free(tx, call, label)
    new = NewBlock(label, text_edits.cleaned(value), call.block_rules.limit, description)
    _check_size(tx, call, label, "", new.value, call.block_rules.limit)
    # One call may make several blocks from its one fresh uuid, but only one of each label.
    block_id = BlockId(f"block-{stable_uuid(call.fresh_uuid, label)}")
    block = _memory_blocks.make(new, block_id, call.now, call.agent.id, call.agent.organization_id)
    blocks.insert(tx, (block,), call.author)
    block_attachments.attach(tx, call.agent.id, block.id)
    return block


def remove(tx: Tx, call: CallContext, label: str) -> Outcome:
    """Detaches a block from the agent: other agents may have it, and clients can attach it again. Raises ToolError."""
    block = editable(tx, call, label)
    _check_shared(tx, call, label)
    block_attachments.detach(tx, call.agent.id, block.id)
    return Outcome(f"Removed the block '{label}' from your memory.", touched=(call.agent.id,))


def relabel(tx: Tx, call: CallContext, block: Block, label: str | None, description: str | None) -> tuple[AgentId, ...]:
    """Changes label and description, where given; returns every agent that must see it.

    Raises ToolError, and Conflict when another agent that has the block has the label already.
    """
    changes: dict[str, str] = {}
    if label is not None and label != block.label:
        _check_shared(tx, call, block.label)
        _check_free(tx, call, label)
        changes["label"] = label
    if description is not None:
        changes["description"] = text_edits.cleaned(description)
    _, _, touched = blocks.update(tx, block.id, changes, call.change)
    return touched


def _check_shared(tx: Tx, call: CallContext, label: str) -> None:
    """A copy hides the agent's block of its label, which would show again under it if the copy gave it up."""
    if call.conversation_id and block_attachments.own_by_label(tx, call.conversation_id, label) is not None:
        raise ToolError(
            f"The block '{label}' belongs to this conversation only. You can change its text, but not its label."
        )


def _check_size(tx: Tx, call: CallContext, label: str, before: str, after: str, limit: int) -> None:
    """Checks the limit of the block and the limit of all blocks of the prompt. Raises ToolError."""
    text_edits.check_limit(label, before, after, limit)
    if (grows_by := byte_length(after) - byte_length(before)) > 0:
        shown = block_attachments.shown(tx, call.agent.id, call.conversation_id)
        budget = call.block_rules.budget(call.agent.model.context_window)
        text_edits.check_budget(label, grows_by, [block.value for block in shown], budget)


def _check_free(tx: Tx, call: CallContext, label: str) -> None:
    if not _LABEL.fullmatch(label):
        raise ToolError(f"'{label[:100]}' is not a valid label: use up to 100 letters, digits, '_', '-', '.' and '/'.")
    if _labelled(tx, call, label) is not None:
        raise ToolError(f"You already have a memory block '{label}'. Edit it, or choose another label.")
