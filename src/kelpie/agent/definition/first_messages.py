"""The beginning of a history: what a new or emptied agent starts with, in each of its conversations."""

from collections.abc import Sequence
from dataclasses import replace

from kelpie.agent.definition.loaded_agent import AgentSnapshot, directories
from kelpie.agent.prompt.rendering import system_text
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.ids import ConversationId, MessageId
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.conversations import contexts, messages
from kelpie.tools.calls.stable_ids import stable_uuid
from kelpie.world.database import Tx


def write(tx: Tx, loaded: AgentSnapshot, first: tuple[Message, ...]) -> None:
    """Writes the first messages of an agent that has none, the system message with its current text."""
    system = system_text(loaded.agent, loaded.blocks, first[0].created_at, directories=loaded.directories)
    messages.begin(tx, (replace(first[0], content=(Text(system),)), *first[1:]))


def write_instructions(tx: Tx, agent: Agent, emptied: Sequence[ConversationId], first: Message) -> None:
    """Makes its instructions the whole context of each emptied conversation. `first` is the new system message of the
    agent: the ids of the others depend on it, so that nothing is drawn in the transaction."""
    read = directories(tx, agent) if emptied else ()
    for conversation in emptied:
        shown, _ = block_attachments.seen(tx, agent.id, conversation)
        text = system_text(agent, shown, first.created_at, conversation, read)
        message_id = MessageId(f"{MessageId.prefix}-{stable_uuid(first.id, conversation)}")
        parts = (Text(text),)
        system = Message(message_id, agent.id, Role.system, first.created_at, parts, conversation_id=conversation)
        messages.append(tx, [system])
        contexts.replace(tx, agent.id, [system.id], conversation)
