"""The beginning of a history: what a new or emptied agent starts with."""

from dataclasses import replace

from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.prompt.rendering import system_text
from kelpie.core.conversations.messages import Message, Text
from kelpie.storage.conversations import messages
from kelpie.world.database import Tx


def write(tx: Tx, loaded: AgentSnapshot, first: tuple[Message, ...]) -> None:
    """Writes the first messages of an agent that has none, the system message with its current text."""
    system = system_text(loaded.agent, loaded.blocks, first[0].created_at)
    messages.begin(tx, (replace(first[0], content=(Text(system),)), *first[1:]))
