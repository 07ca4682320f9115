"""What an activation holds in memory: a lane for each conversation that it was lately spoken to in.

A lane is the agent as one conversation sees it: with the conversation's own model and its own copies of blocks. Lanes
share nothing that a turn may change. The default conversation's is always there; of the others only those that are in
use and a few more are kept, because everything they hold can be read again.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import orjson

from kelpie.agent.definition import changes as agent_changes
from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.prompt.agent_types import TypeSpec, spec_for, spec_of
from kelpie.agent.prompt.context import Context
from kelpie.agent.prompt.rendering import system_text, tool_schemas, with_skills
from kelpie.agent.tool_calls import tool_rules
from kelpie.agent.tool_calls.approval_matching import with_client
from kelpie.agent.tool_calls.call_plan import barred_names
from kelpie.agent.tool_calls.tool_rules import AllowedTools
from kelpie.agent.tool_calls.turn_end import exits_of
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.turn_overrides import TurnOverrides
from kelpie.core.conversations.approvals import ClientTool
from kelpie.core.conversations.conversations import Conversation
from kelpie.core.conversations.messages import Message
from kelpie.core.permissions.budgets import SpentAmount
from kelpie.core.permissions.policies import OPEN, EffectivePermissions, Policy, warrant
from kelpie.core.permissions.quotas import QuotaUse
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.core.token_estimates import weigh
from kelpie.llm.provider.interface import ToolSchema
from kelpie.llm.routing.models import Models
from kelpie.storage.agents.ownership_fence import Claim

_DAY = 24 * 3600 * MICROS_PER_SECOND
IDLE_LANES_MAX = 8  # that are kept without being in use, beside the default one

Choose = Callable[[Agent, Conversation], Agent]


@dataclass(slots=True, eq=False)
class LiveConversation:
    """The live memory of one conversation. `stale` is set by whoever changed something outside its turn."""

    conversation: str  # its id; empty for the one that every agent has
    loaded: AgentSnapshot
    choose: Choose
    context: Context | None = None  # None until it is read
    stale: bool = False
    forgotten: int = 0  # how often the context was given up; one read before that must not come back after it
    users: int = 0  # turns that run on it now; it is not put away under them
    override: TurnOverrides | None = None  # what the turn that runs on it sets for itself
    _agent: tuple[AgentSnapshot, Agent] | None = None
    _system: tuple[AgentSnapshot, Micros, str] | None = None
    _schemas: tuple[AgentSnapshot, tuple[ToolSchema, ...]] | None = None
    _frame: tuple[str, tuple[ToolSchema, ...], int] | None = None

    def forget(self) -> None:
        """What is held may no longer be what is stored, the history included: all of it is read again."""
        self.stale = True
        self.forgotten += 1
        self.context = None

    def reread(self) -> None:
        """What was said is read again before the model is next asked."""
        self.context = None

    @property
    def agent(self) -> Agent:
        """The agent with what the conversation sets for itself."""
        own, model = self.loaded.conversation, self.override.model if self.override else None
        if own is None and model is None:
            return self.loaded.agent
        if self._agent is None or self._agent[0] is not self.loaded:
            agent = self.loaded.agent if own is None else self.choose(self.loaded.agent, own)
            self._agent = (self.loaded, agent if model is None else replace(agent, model=model))
        return self._agent[1]

    @contextmanager
    def wearing(self, override: TurnOverrides | None) -> Generator[None]:
        """Goes by what a turn sets for itself, for as long as it runs."""
        if override is None:
            yield
            return
        self._wear(override)
        try:
            yield
        finally:
            self._wear(None)

    def _wear(self, override: TurnOverrides | None) -> None:
        before = self.spec
        self.override = override
        self._agent = self._system = self._schemas = None
        if self.spec is not before:  # what was said is shown to another kind of model in another form
            self.reread()

    @property
    def spec(self) -> TypeSpec:
        return spec_for(self.agent)

    @property
    def speaks_in_calls(self) -> bool:
        """Whether thoughts and answers are looked for in tool calls: a matter of its type, whoever thinks."""
        return spec_of(self.loaded.agent.agent_type).inner_thoughts

    @property
    def exits(self) -> frozenset[str]:
        """The tools that end a turn."""
        return exits_of(self.spec, self.agent.tool_rules)

    def bounds(self, server: Policy) -> EffectivePermissions:
        """What the agent may do, as far as is known without asking how much it has used."""
        agent = self.loaded.agent
        return warrant(server, self.loaded.policy, agent.permits, agent.quota)

    def verdict(
        self, said: Sequence[Message], client: Sequence[ClientTool] = (), bounds: EffectivePermissions = OPEN
    ) -> AllowedTools:
        """What the tool rules allow now in a turn, by the rows that it has written; nothing that it may not use."""
        tools = with_client(self.loaded.tools, client)
        barred = barred_names(tools, bounds)
        exits, names = self.exits, [tool.name for tool in tools if tool.name not in barred]
        ending = tool_rules.wants_end(said, exits)
        return tool_rules.verdict(self.agent.tool_rules, names, tool_rules.made_in(said), exits, ending=ending)

    def system(self, now: Micros) -> str:
        """The compiled instructions, built anew only when memory, settings or the day changed."""
        if self._system is None or self._system[0] is not self.loaded or self._system[1] != now // _DAY:
            text = self._instructions(now)
            self._system = (self.loaded, now // _DAY, text)
        return self._system[2]

    def _instructions(self, now: Micros) -> str:
        own = self.override
        if own is None:
            return system_text(self.agent, self.loaded.blocks, now)
        text = system_text(self.agent, self.loaded.blocks, now) if own.system is None else own.system
        return with_skills(text, own.skills)

    def frame_weight(self, now: Micros) -> int:
        """What instructions and tools take of every prompt, in bytes; weighed anew only when they changed."""
        system, tools = self.system(now), self.schemas()
        if self._frame is None or self._frame[0] is not system or self._frame[1] is not tools:
            told = sum(len(t.name) + weigh(t.description) + len(orjson.dumps(t.parameters)) for t in tools)
            self._frame = (system, tools, weigh(system) + told)
        return self._frame[2]

    def schemas(self, client: Sequence[ClientTool] = ()) -> tuple[ToolSchema, ...]:
        if client:
            return tool_schemas(with_client(self.loaded.tools, client), self.spec, self.exits)
        if self._schemas is None or self._schemas[0] is not self.loaded:
            self._schemas = (self.loaded, tool_schemas(self.loaded.tools, self.spec, self.exits))
        return self._schemas[1]


@dataclass(slots=True, eq=False)
class LiveAgent:
    """The live memory of one activation."""

    claim: Claim
    main: LiveConversation  # of the default conversation
    touches: int = 0  # how often somebody changed something; a lane read before that is stale after it
    purse: dict[Micros, SpentAmount] = field(
        default_factory=dict[Micros, SpentAmount]
    )  # since when what was spent; if budgeted
    meter: tuple[Micros, QuotaUse] | None = None  # what calls have used since then; if they are limited
    booked: int = 0  # how often steps and calls were committed, so that a reading before that is known to be old
    _others: OrderedDict[str, LiveConversation] = field(
        default_factory=OrderedDict[str, LiveConversation]
    )  # the longest unused first

    @property
    def agent(self) -> Agent:
        return self.main.loaded.agent

    def lanes(self) -> Iterator[LiveConversation]:
        yield self.main
        yield from self._others.values()

    def find(self, conversation: str) -> LiveConversation | None:
        """The lane of a conversation, if it is held."""
        return self._others.get(conversation) if conversation else self.main

    def touch(self, knows: LiveConversation | None = None) -> None:
        """Somebody changed settings, tools or blocks: every lane reads them again, but for one that knows already."""
        self.touches += 1
        for lane in self.lanes():
            lane.stale = lane.stale or lane is not knows

    def forget_contexts(self) -> None:
        """What is held may no longer be what is stored, the history included: all of it is read again."""
        self.touches += 1
        self.uncount()
        for lane in self.lanes():
            lane.forget()

    def uncount(self) -> None:
        """What was spent and used is no longer known."""
        self.booked += 1
        self.purse.clear()
        self.meter = None

    def add(self, lane: LiveConversation) -> None:
        """Takes in the lane of a conversation that is not held."""
        self._others[lane.conversation] = lane

    @contextmanager
    def using(self, lane: LiveConversation) -> Generator[None]:
        """Keeps a lane for as long as a turn runs on it."""
        lane.users += 1
        try:
            yield
        finally:
            lane.users -= 1
            if lane.conversation:
                self._put_away(lane)

    def _put_away(self, used: LiveConversation) -> None:
        self._others.move_to_end(used.conversation)
        idle = [lane for lane in self._others.values() if not lane.users]
        for lane in idle[: max(0, len(idle) - IDLE_LANES_MAX)]:
            del self._others[lane.conversation]


def chooser(models: Models, window_max: int) -> Choose:
    """Gives an agent the model that a conversation sets for itself."""

    def choose(agent: Agent, conversation: Conversation) -> Agent:
        given = {
            "model": conversation.model,
            "model_settings": conversation.model_settings,
            "context_window_limit": conversation.context_window_limit,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        if not changes:
            return agent
        handle = conversation.model or agent.model.handle
        info = models.known(handle)
        if info is None:  # its provider is gone; whoever asks it is told so
            return replace(agent, model=replace(agent.model, handle=handle))
        return replace(agent, model=agent_changes.new_model(agent, info, changes, window_max))

    return choose
