"""Opening of a conversation: its row, its own copies of blocks, its instructions, and the messages it starts with.

Everything that must be drawn is drawn before the transaction; what is written here is all or nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kelpie.agent.definition.loaded_agent import directories
from kelpie.agent.prompt.rendering import system_text
from kelpie.agent.prompt.wellformed_history import left_open
from kelpie.core.access.callers import Caller
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.conversations import Conversation
from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.errors import InvalidInput, NotFound
from kelpie.core.ids import AgentId, BlockId, ConversationId, MessageId
from kelpie.core.memory.block_history import author_of
from kelpie.core.memory.blocks import Block
from kelpie.core.time import Micros
from kelpie.storage.agents import agents
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from kelpie.storage.conversations import contexts, conversations, messages
from kelpie.world.database import Tx
from kelpie.world.world import World

ISOLATED_MAX = 100  # blocks of which a conversation has its own copy


@dataclass(frozen=True, slots=True)
class ConversationOpening:
    """Everything a new conversation needs that must be drawn before the transaction."""

    id: ConversationId
    system_id: MessageId
    block_ids: tuple[BlockId, ...]
    at: Micros
    caller: Caller

    @classmethod
    def draw(cls, world: World, caller: Caller, blocks_max: int) -> "ConversationOpening":
        """Draws the ids, also of as many blocks as the conversation may have of its own."""
        own = tuple(world.ids.new(BlockId) for _ in range(blocks_max))
        return cls(world.ids.new(ConversationId), world.ids.new(MessageId), own, world.clock.now(), caller)

    def record(self, agent_id: AgentId) -> Conversation:
        """The conversation with nothing set yet."""
        by = self.caller.user_id
        return Conversation(self.id, agent_id, self.at, self.at, created_by_id=by, last_updated_by_id=by)

    def write(
        self, tx: Tx, agent: Agent, made: Conversation, originals: Sequence[Block], shared: Sequence[MessageId]
    ) -> Conversation:
        """Writes a conversation with its own blocks, its instructions and the messages it starts with."""
        copies = [
            replace(block, id=block_id, created_at=self.at, updated_at=self.at, version=1)
            for block, block_id in zip(originals, self.block_ids, strict=False)
        ]
        blocks.insert(tx, copies, author_of(self.caller))
        conversations.add(tx, made, self.caller.organization_id, {block.label: block.id for block in copies})
        shown, read = block_attachments.seen(tx, agent.id, made.id)[0], directories(tx, agent)
        text = system_text(agent, shown, self.at, made.id, read)
        system = Message(self.system_id, agent.id, Role.system, self.at, (Text(text),), conversation_id=made.id)
        messages.append(tx, [system])
        contexts.replace(tx, agent.id, [system.id, *shared], made.id)
        conversations.share(tx, made.id, shared)
        return replace(made, isolated_block_ids=tuple(b.id for b in sorted(copies, key=lambda b: b.label)))


def labelled(tx: Tx, agent_id: AgentId, label: str) -> Block:
    """The block of which a conversation is to have its own copy. Raises InvalidInput."""
    block = block_attachments.by_label(tx, agent_id, label)
    if block is None:
        raise InvalidInput("isolated_block_labels", f"{agent_id} has no block labelled '{label[:80]}'")
    return block


def write_fork(
    tx: Tx,
    opening: ConversationOpening,
    origin: ConversationId | AgentId,
    *,
    up_to: MessageId | None = None,
    hidden: bool = False,
) -> Conversation:
    """Writes a conversation that begins with what the model sees of another, which is that of an agent by default.

    Raises NotFound.
    """
    organization = opening.caller.organization_id
    if isinstance(origin, AgentId):
        agent, source, thread = agents.owned(tx, organization, origin), None, ""
    else:
        source = conversations.get(tx, organization, origin)
        agent, thread = agents.get(tx, source.agent_id), source.id
    shared = _taken_over(tx, agent.id, thread, up_to)
    made = opening.record(agent.id)
    originals: list[Block] = []
    if source is not None:
        made = replace(
            made,
            model=source.model,
            model_settings=source.model_settings,
            context_window_limit=source.context_window_limit,
        )
        originals = [blocks.get(tx, block_id) for block_id in source.isolated_block_ids]
    return opening.write(tx, agent, replace(made, hidden=hidden), originals, shared)


def _taken_over(tx: Tx, agent_id: AgentId, thread: str, last: MessageId | None) -> list[MessageId]:
    """Ids of the first messages of a fork: the context of its origin, up to `last` if it is given. Raises NotFound."""
    return [message.id for message in _finished(_up_to(_visible_messages(tx, agent_id, thread), last))]


def _visible_messages(tx: Tx, agent_id: AgentId, thread: str) -> Sequence[Message]:
    """Messages of a thread that the model sees, without its instructions."""
    seen = messages.get_many(tx, contexts.ids(tx, agent_id, thread))
    return seen[1:] if seen and seen[0].role is Role.system else seen


def _up_to(said: Sequence[Message], last: MessageId | None) -> Sequence[Message]:
    """Everything up to a message; a call comes with its results."""
    if last is None:
        return said
    end = next((i + 1 for i, message in enumerate(said) if message.id == last), None)
    if end is None:
        raise NotFound("Message", last)
    while end < len(said) and said[end].role is Role.tool:
        end += 1
    return said[:end]


def _finished(said: Sequence[Message]) -> Sequence[Message]:
    """Without a reply whose calls are not all answered: the origin answers them, perhaps just now."""
    left = left_open(said)
    return said if left is None else said[: said.index(left[0])]
