"""Snapshot of an agent in one conversation, as last committed: settings, blocks, tools, files and the conversation."""

from dataclasses import dataclass

from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.conversations import Conversation
from kelpie.core.errors import NotFound
from kelpie.core.files.files import Directory
from kelpie.core.ids import AgentId
from kelpie.core.memory.blocks import Block
from kelpie.core.permissions.policies import NO_POLICY, Policy
from kelpie.core.tools.tools import Tool
from kelpie.storage.agents import agents, policies
from kelpie.storage.agents.agents import Versions
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.conversations import conversations
from kelpie.storage.files import attachments, views
from kelpie.storage.tools import tools
from kelpie.world.database import Tx


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """Everything about an agent that can change under a running turn, read in one transaction.

    The blocks are those that the conversation sees; `hidden` are the agent's own that it sees a copy of. The agent is
    as its row has it: what the conversation sets for itself is in its record, and its `Lane` puts it over.
    """

    agent: Agent
    blocks: tuple[Block, ...]
    tools: tuple[Tool, ...]
    conversation: Conversation | None = None  # None is the one that every agent has
    hidden: tuple[Block, ...] = ()
    policy: Policy = NO_POLICY  # of its organization
    directories: tuple[Directory, ...] = ()  # its folders; a change of them changes the version of its settings

    def is_current(self, tx: Tx, found: Versions | None) -> bool:
        """True if the database still holds these versions; `found` are those of the agent, just read."""
        held = {b.id: b.version for b in (*self.blocks, *self.hidden)}
        if self.conversation is None or found is None:
            return found == (self.agent.version, held, self.policy.version)
        own = conversations.versions(tx, self.conversation.id)
        return own is not None and (found.settings, own[0], {**found.blocks, **own[1]}, found.policy) == (
            self.agent.version,
            self.conversation.version,
            held,
            self.policy.version,
        )


def load(tx: Tx, agent: Agent, conversation: Conversation | None = None, policy: Policy | None = None) -> AgentSnapshot:
    """Reads the snapshot of a conversation. The policy is read unless it is known."""
    carried = tuple(tools.of_agent(tx, agent.id))
    policy = policy or policies.policy_of(tx, agent.organization_id)
    read = directories(tx, agent)
    if conversation is None:
        own = tuple(block_attachments.of_agent(tx, agent.id))
        return AgentSnapshot(agent, own, carried, policy=policy, directories=read)
    shown, hidden = block_attachments.seen(tx, agent.id, conversation.id)
    return AgentSnapshot(agent, tuple(shown), carried, conversation, tuple(hidden), policy, read)


def directories(tx: Tx, agent: Agent) -> tuple[Directory, ...]:
    """The folders of an agent with the text of its open files."""
    return views.directories(tx, agent, attachments.of_agent(tx, agent.id))


def load_thread(tx: Tx, agent_id: AgentId, conversation: str, policy: Policy | None = None) -> AgentSnapshot:
    """Reads the snapshot by the name of the lane. Raises NotFound for a deleted agent or conversation."""
    agent = agents.get(tx, agent_id)
    if not conversation:
        return load(tx, agent, policy=policy)
    found = conversations.get(tx, agent.organization_id, conversation)
    if found.agent_id != agent_id:
        raise NotFound("Conversation", conversation)
    return load(tx, agent, found, policy)


def refresh(tx: Tx, known: AgentSnapshot) -> AgentSnapshot:
    """The known snapshot, or that of the database if it is newer; of a deleted conversation the known one.

    One small read as long as nothing changed, part of every journal commit; in a conversation two.
    """
    found = agents.versions(tx, known.agent.id)
    if known.is_current(tx, found):
        return known
    thread = "" if known.conversation is None else known.conversation.id
    if thread and not conversations.is_live(tx, thread):
        return known
    policy = known.policy if found and found.policy == known.policy.version else None
    return load_thread(tx, known.agent.id, thread, policy)
