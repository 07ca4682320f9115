"""What a conversation of an agent goes by, as last committed: settings, blocks, tools, and what was said in it."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice

from kelpie.agent.history import healed, weight
from kelpie.agent.prompt import prepare
from kelpie.agent.types import TypeSpec, spec_for
from kelpie.core.agents import Agent
from kelpie.core.approvals import Pending
from kelpie.core.blocks import Block
from kelpie.core.conversations import Conversation
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId
from kelpie.core.messages import Message, Role
from kelpie.core.tools import Tool
from kelpie.llm.port import Prepared
from kelpie.storage import agents, approvals, blocks, conversations, messages, tools
from kelpie.world.database import Tx

CONTEXT_ROWS_MAX = 5_000  # of one conversation in memory


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything about an agent that can change under a running turn, read in one transaction.

    The blocks are those that the conversation sees; `hidden` are the agent's own that it sees a copy of. The agent is
    as its row has it: what the conversation sets for itself is in its record, and its `Lane` puts it over.
    """

    agent: Agent
    blocks: tuple[Block, ...]
    tools: tuple[Tool, ...]
    conversation: Conversation | None = None  # None is the one that every agent has
    hidden: tuple[Block, ...] = ()

    def is_current(self, tx: Tx) -> bool:
        """Whether the database still holds these versions: one small read, part of every journal commit; in a
        conversation two."""
        held, found = {b.id: b.version for b in (*self.blocks, *self.hidden)}, agents.versions(tx, self.agent.id)
        if self.conversation is None or found is None:
            return found == (self.agent.version, held)
        own = conversations.versions(tx, self.conversation.id)
        return own is not None and (found[0], own[0], {**found[1], **own[1]}) == (
            self.agent.version,
            self.conversation.version,
            held,
        )


def load(tx: Tx, agent: Agent, conversation: Conversation | None = None) -> Loaded:
    """What the agent's conversation goes by."""
    carried = tuple(tools.of_agent(tx, agent.id))
    if conversation is None:
        return Loaded(agent, tuple(blocks.of_agent(tx, agent.id)), carried)
    shown, hidden = blocks.seen(tx, agent.id, conversation.id)
    return Loaded(agent, tuple(shown), carried, conversation, tuple(hidden))


def load_thread(tx: Tx, agent_id: AgentId, conversation: str) -> Loaded:
    """The same by the name of the lane. Raises NotFound for an agent or a conversation that is not there any more."""
    agent = agents.get(tx, agent_id)
    if not conversation:
        return load(tx, agent)
    found = conversations.get(tx, agent.organization_id, conversation)
    if found.agent_id != agent_id:
        raise NotFound("Conversation", conversation)
    return load(tx, agent, found)


def refresh(tx: Tx, known: Loaded) -> Loaded:
    """What is known, or what the database has by now if that is newer; of a deleted conversation what was known."""
    if known.is_current(tx):
        return known
    thread = "" if known.conversation is None else known.conversation.id
    if thread and not conversations.is_live(tx, thread):
        return known
    return load_thread(tx, known.agent.id, thread)


class Context:
    """What the model sees of one conversation: the history, encoded once and weighed once; and what it waits for."""

    __slots__ = ("_weights", "entries", "pending")

    def __init__(self, entries: Sequence[Prepared], pending: Pending | None = None) -> None:
        self.pending = pending
        self.entries: list[Prepared] = []
        self._weights: list[int] = []  # roughly what the entries up to and with each take, in characters
        self._add(entries)

    def extend(self, new: Sequence[Message], spec: TypeSpec) -> None:
        self._add([prepare(message, spec) for message in new if not message.answers])

    def _add(self, entries: Sequence[Prepared]) -> None:
        self.entries += entries
        sums = accumulate((weight(entry.message) for entry in entries), initial=self.chars)
        self._weights += islice(sums, 1, None)

    @property
    def chars(self) -> int:
        """Roughly what the entries take together."""
        return self._weights[-1] if self._weights else 0

    def within(self, chars_max: int) -> list[Prepared]:
        """The entries, or the newest of them that fit, beginning with something the user said.

        However little fits, the user's last message and what followed it are there.
        """
        if self.chars <= chars_max:
            return self.entries[:]
        first = bisect_left(self._weights, self.chars - chars_max) + 1
        later, earlier = range(first, len(self.entries)), range(first - 1, -1, -1)
        start = next((i for i in chain(later, earlier) if self.entries[i].message.role is Role.user), 0)
        return self.entries[start:]


def load_context(tx: Tx, agent: Agent, conversation: str) -> Context:
    """Reads the newest part of a context; what stands before it would not fit into a prompt anyway."""
    spec = spec_for(agent)
    found = messages.context_messages(tx, agent.id, conversation, CONTEXT_ROWS_MAX)
    said = found[1:] if found and found[0].role is Role.system else found
    pending = approvals.get(tx, agent.id, conversation)
    return Context([prepare(m, spec) for m in healed(said, pending.request if pending else None)], pending)
