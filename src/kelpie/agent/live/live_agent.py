"""A live agent in memory, with its recently used conversations.

A live conversation is the agent as that conversation sees it: with the conversation's own model and its own copies of
blocks. Live conversations share nothing that a turn may change. The default one is always there; of the others only
those in use and a few more are kept, because everything they hold can be read again.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import orjson

from kelpie.agent.definition import changes as agent_changes
from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.prompt.agent_types import Thoughts, TypeSpec, spec_for, thoughts_of
from kelpie.agent.prompt.context import Context
from kelpie.agent.prompt.rendering import system_text, tool_schemas, with_instructions, with_skills
from kelpie.agent.tool_calls import tool_rules
from kelpie.agent.tool_calls.approval_matching import with_client
from kelpie.agent.tool_calls.call_plan import denied_names
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
from kelpie.core.token_estimates import byte_length
from kelpie.llm.provider.interface import ToolSchema
from kelpie.llm.routing.models import Models
from kelpie.storage.agents.ownership_fence import Claim

_DAY = 24 * 3600 * MICROS_PER_SECOND
_SNAPSHOT_BYTES = 32 * 1024  # of settings, tools and prompt
IDLE_LANES_MAX = 8  # conversations that are kept without being in use, beside the default one

Choose = Callable[[Agent, Conversation], Agent]


@dataclass(frozen=True, slots=True)
class PromptFrame:
    """The parts of every prompt beside the history, and the agent they were made for."""

    agent: Agent
    spec: TypeSpec
    exits: frozenset[str]  # the tools that end a turn
    system: str  # the compiled instructions
    tools: tuple[ToolSchema, ...]
    weight: int  # of instructions and tools, in bytes


def _overridden(agent: Agent, override: TurnOverrides) -> Agent:
    """The agent with the model and the response format of one turn."""
    model, form = override.model or agent.model, override.response_format
    if form is None:
        return replace(agent, model=model)
    settings = {name: value for name, value in model.settings.items() if name != "response_format"}
    return replace(agent, model=replace(model, settings=settings), response_format=form)


@dataclass(slots=True, eq=False)
class LiveConversation:
    """One conversation in memory. `stale` is set when something changed outside its turn."""

    conversation: str  # its id; empty for the one that every agent has
    loaded: AgentSnapshot
    choose: Choose
    context: Context | None = None  # None until it is read
    stale: bool = False
    forgotten: int = 0  # how often the context was invalidated; one read before that must not come back after it
    users: int = 0  # turns that run on it now; it is not unloaded under them
    override: TurnOverrides | None = None  # of the turn that runs on it
    _agent: tuple[AgentSnapshot, Agent] | None = None
    _frame: tuple[AgentSnapshot, Micros, PromptFrame] | None = None
    _permissions: tuple[AgentSnapshot, Policy, EffectivePermissions] | None = None

    @property
    def bytes(self) -> int:
        """Approximate memory that it takes."""
        blocks = sum(len(block.value) for block in (*self.loaded.blocks, *self.loaded.hidden))
        shown = sum(len(view.visible or "") for each in self.loaded.directories for view in each.files)
        return _SNAPSHOT_BYTES + 2 * (blocks + shown) + (self.context.bytes if self.context else 0)

    def forget(self) -> None:
        """Invalidates everything, the history included: it is read again."""
        self.stale = True
        self.forgotten += 1
        self.context = None

    def renew(self, loaded: AgentSnapshot) -> None:
        """Takes in what was read of the agent; the context is read again if its model is shown it in another form."""
        before = self.spec
        self.loaded = loaded
        if self.spec is not before:
            self.reread()

    def reread(self) -> None:
        """Invalidates the context: it is read again before the model is next asked."""
        self.context = None

    @property
    def agent(self) -> Agent:
        """The agent with the settings of the conversation and of the turn."""
        own, override = self.loaded.conversation, self.override
        if own is None and (override is None or (override.model is None and override.response_format is None)):
            return self.loaded.agent
        if self._agent is None or self._agent[0] is not self.loaded:
            agent = self.loaded.agent if own is None else self.choose(self.loaded.agent, own)
            self._agent = (self.loaded, agent if override is None else _overridden(agent, override))
        return self._agent[1]

    @contextmanager
    def overridden(self, override: TurnOverrides | None) -> Generator[None]:
        """Uses the settings of a turn for as long as it runs."""
        if override is None:
            yield
            return
        self._override(override)
        try:
            yield
        finally:
            self._override(None)

    def _override(self, override: TurnOverrides | None) -> None:
        before = self.spec
        self.override = override
        self._agent = self._frame = None
        if self.spec is not before:  # as in `renew`
            self.reread()

    @property
    def spec(self) -> TypeSpec:
        return spec_for(self.agent)

    @property
    def thoughts(self) -> Thoughts:
        return thoughts_of(self.agent)

    @property
    def exits(self) -> frozenset[str]:
        """The tools that end a turn."""
        return exits_of(self.spec, self.agent.tool_rules)

    def permissions(self, server: Policy) -> EffectivePermissions:
        """The agent's permissions and limits, without its usage; computed anew only when settings changed."""
        known, loaded = self._permissions, self.loaded
        if known is None or known[0] is not loaded or known[1] is not server:
            agent = loaded.agent
            known = (loaded, server, warrant(server, loaded.policy, agent.permits, agent.quota))
            self._permissions = known
        return known[2]

    def allowed_tools(
        self,
        frame: PromptFrame,
        rows: Sequence[Message],
        client: Sequence[ClientTool] = (),
        permissions: EffectivePermissions = OPEN,
    ) -> AllowedTools:
        """The tools that may be called next in a turn with these rows, by its tool rules and permissions."""
        tools, rules, exits = with_client(self.loaded.tools, client), frame.agent.tool_rules, frame.exits
        denied = denied_names(tools, permissions)
        names = [tool.name for tool in tools if tool.name not in denied]
        ending = tool_rules.wants_end(rows, exits)
        return tool_rules.allowed_tools(rules, names, tool_rules.made_in(rows), exits, ending=ending)

    def frame(self, now: Micros) -> PromptFrame:
        """The prompt beside the history; built anew only when memory, settings or the day changed."""
        if self._frame is None or self._frame[0] is not self.loaded or self._frame[1] != now // _DAY:
            self._frame = (self.loaded, now // _DAY, self._new_frame(now))
        return self._frame[2]

    def _new_frame(self, now: Micros) -> PromptFrame:
        agent, own = self.agent, self.override
        spec = spec_for(agent)
        if own is None:
            system = system_text(agent, self.loaded.blocks, now, self.conversation, self.loaded.directories)
        else:
            text = own.system
            if text is None:
                text = system_text(agent, self.loaded.blocks, now, self.conversation, self.loaded.directories)
            system = with_instructions(with_skills(text, own.skills), own.instructions)
        exits = exits_of(spec, agent.tool_rules)
        tools = tool_schemas(self.loaded.tools, spec, exits)
        weight = sum(len(t.name) + byte_length(t.description) + len(orjson.dumps(t.parameters)) for t in tools)
        return PromptFrame(agent, spec, exits, system, tools, byte_length(system) + weight)

    def schemas(self, frame: PromptFrame, client: Sequence[ClientTool]) -> tuple[ToolSchema, ...]:
        """The tools as the model is offered them, the client's included."""
        return tool_schemas(with_client(self.loaded.tools, client), frame.spec, frame.exits) if client else frame.tools


@dataclass(slots=True, eq=False)
class LiveAgent:
    """One agent in memory."""

    claim: Claim
    main: LiveConversation  # of the default conversation
    touches: int = 0  # how often its settings changed; a conversation read before that is stale after it
    spent: dict[Micros, SpentAmount] = field(
        default_factory=dict[Micros, SpentAmount]
    )  # by the time since when; if it has a budget
    calls_used: tuple[Micros, QuotaUse] | None = None  # by its tool calls since then; if they are limited
    recorded: int = 0  # how often steps and calls were committed, so that a reading before that is known to be old
    usage_reads: int = 0  # how often spending or usage was read, so that a commit knows of a reading meanwhile
    _others: OrderedDict[str, LiveConversation] = field(
        default_factory=OrderedDict[str, LiveConversation]
    )  # the longest unused first

    @property
    def agent(self) -> Agent:
        return self.main.loaded.agent

    @property
    def bytes(self) -> int:
        """Approximate memory: mostly that of the contexts."""
        return sum(each.bytes for each in self.conversations())

    def conversations(self) -> Iterator[LiveConversation]:
        yield self.main
        yield from self._others.values()

    def find(self, conversation: str) -> LiveConversation | None:
        """A conversation, if it is in memory."""
        return self._others.get(conversation) if conversation else self.main

    def touch(self, knows: LiveConversation | None = None) -> None:
        """Invalidates settings, tools and blocks in every conversation but the one that has read them already."""
        self.touches += 1
        for each in self.conversations():
            each.stale = each.stale or each is not knows

    def forget_contexts(self) -> None:
        """Invalidates everything, the histories included: it is read again."""
        self.touches += 1
        self.invalidate_usage()
        for each in self.conversations():
            each.forget()

    def invalidate_usage(self) -> None:
        """Discards the known spending and usage: they are read again."""
        self.recorded += 1
        self.spent.clear()
        self.calls_used = None

    def add(self, conversation: LiveConversation) -> None:
        """Adds a conversation that is not in memory."""
        self._others[conversation.conversation] = conversation

    @contextmanager
    def using(self, conversation: LiveConversation) -> Generator[None]:
        """Keeps a conversation in memory for as long as a turn runs on it."""
        conversation.users += 1
        try:
            yield
        finally:
            conversation.users -= 1
            if conversation.conversation:
                self._unload(conversation)

    def _unload(self, used: LiveConversation) -> None:
        self._others.move_to_end(used.conversation)
        idle = [each for each in self._others.values() if not each.users]
        for each in idle[: max(0, len(idle) - IDLE_LANES_MAX)]:
            del self._others[each.conversation]


def chooser(models: Models, window_max: int) -> Choose:
    """A function that gives an agent the model of a conversation."""

    def choose(agent: Agent, conversation: Conversation) -> Agent:
        own = {
            "model": conversation.model,
            "model_settings": conversation.model_settings,
            "context_window_limit": conversation.context_window_limit,
        }
        changes = {name: value for name, value in own.items() if value is not None}
        if not changes:
            return agent
        handle = conversation.model or agent.model.handle
        info = models.of(agent.organization_id).known(handle)
        if info is None:  # its provider is gone; a turn says so
            return replace(agent, model=replace(agent.model, handle=handle))
        return replace(agent, model=agent_changes.new_model(agent, info, changes, window_max))

    return choose
