"""What an activation holds in memory: settings, blocks, tools and context of one agent, as last committed."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice

from kelpie.agent import rules
from kelpie.agent.history import healed, weight
from kelpie.agent.prompt import prepare, system_text, tool_schemas
from kelpie.agent.rules import Verdict
from kelpie.agent.stop import exits_of
from kelpie.agent.types import TypeSpec, spec_for, spec_of
from kelpie.core.agents import Agent
from kelpie.core.blocks import Block
from kelpie.core.messages import Message, Role
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.core.tools import Tool
from kelpie.llm.port import Prepared, ToolSchema
from kelpie.storage import agents, blocks, messages, tools
from kelpie.storage.heads import Claim
from kelpie.world.database import Tx

_DAY = 24 * 3600 * MICROS_PER_SECOND
_CHARS_PER_TOKEN = 3  # on the safe side: English has about four
_CHARS_MIN = 4_000
CONTEXT_ROWS_MAX = 5_000  # of one conversation in memory


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything about an agent that can change under a running turn, read in one transaction."""

    agent: Agent
    blocks: tuple[Block, ...]
    tools: tuple[Tool, ...]

    def is_current(self, tx: Tx) -> bool:
        """Whether the database still holds these versions: one small read, part of every journal commit."""
        held = (self.agent.version, {b.id: b.version for b in self.blocks})
        return agents.versions(tx, self.agent.id) == held


def load(tx: Tx, agent: Agent) -> Loaded:
    return Loaded(agent, tuple(blocks.of_agent(tx, agent.id)), tuple(tools.of_agent(tx, agent.id)))


def refresh(tx: Tx, known: Loaded) -> Loaded:
    """What is known, or what the database has by now if that is newer."""
    return known if known.is_current(tx) else load(tx, agents.get(tx, known.agent.id))


class Context:
    """What the model sees of one conversation: the history, encoded once and weighed once."""

    __slots__ = ("_weights", "entries")

    def __init__(self, entries: Sequence[Prepared]) -> None:
        self.entries: list[Prepared] = []
        self._weights: list[int] = []  # roughly what the entries up to and with each take, in characters
        self._add(entries)

    def extend(self, new: Sequence[Message], spec: TypeSpec) -> None:
        self._add([prepare(message, spec) for message in new])

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
    return Context([prepare(m, spec) for m in healed(said)])


@dataclass(slots=True)
class Hot:
    """The live memory of one activation. `stale` is set by whoever changed something outside a turn."""

    claim: Claim
    loaded: Loaded
    contexts: dict[str, Context] = field(default_factory=dict[str, Context])
    stale: bool = False
    forgotten: int = 0  # how often the contexts were given up; one read before that must not come back after it
    _system: tuple[Loaded, Micros, str] | None = None
    _schemas: tuple[Loaded, tuple[ToolSchema, ...]] | None = None

    def forget_contexts(self) -> None:
        """What is held may no longer be what is stored, the history included: all of it is read again."""
        self.stale = True
        self.forgotten += 1
        self.contexts.clear()

    @property
    def agent(self) -> Agent:
        return self.loaded.agent

    @property
    def spec(self) -> TypeSpec:
        return spec_for(self.loaded.agent)

    @property
    def speaks_in_calls(self) -> bool:
        """Whether thoughts and answers are looked for in tool calls: a matter of its type, whoever thinks."""
        return spec_of(self.loaded.agent.agent_type).inner_thoughts

    @property
    def exits(self) -> frozenset[str]:
        """The tools that end a turn."""
        return exits_of(self.spec, self.agent.tool_rules)

    def verdict(self, said: Sequence[Message]) -> Verdict:
        """What the tool rules allow now in a turn, by the rows that it has written."""
        exits, names = self.exits, [tool.name for tool in self.loaded.tools]
        ending = rules.wants_end(said, exits)
        return rules.verdict(self.agent.tool_rules, names, rules.made_in(said), exits, ending=ending)

    def system(self, now: Micros) -> str:
        """The compiled instructions, built anew only when memory, settings or the day changed."""
        if self._system is None or self._system[0] is not self.loaded or self._system[1] != now // _DAY:
            text = system_text(self.agent, self.loaded.blocks, now)
            self._system = (self.loaded, now // _DAY, text)
        return self._system[2]

    def history_chars(self, now: Micros) -> int:
        """How much history fits beside instructions and answer. Until compaction exists the oldest is left out."""
        choice = self.agent.model
        tokens = choice.context_window - min(choice.max_tokens or 0, choice.context_window // 2)
        return max(tokens * _CHARS_PER_TOKEN - len(self.system(now)), _CHARS_MIN)

    def schemas(self) -> tuple[ToolSchema, ...]:
        if self._schemas is None or self._schemas[0] is not self.loaded:
            self._schemas = (self.loaded, tool_schemas(self.loaded.tools, self.spec, self.exits))
        return self._schemas[1]
