"""Interface of tools to the turn.

A *transactional* tool is a synchronous function over the journal's own transaction: its effect and its recorded result
are one commit, so a crash can neither lose nor repeat it. Everything else is *external*: it runs between two commits,
and when a crash leaves one unfinished the model gets the result that it was interrupted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.agent_chain import UNCHAINED, AgentChain
from kelpie.core.conversations.messages import Message, Part
from kelpie.core.conversations.questions import ToolQuestions
from kelpie.core.conversations.runs import Run
from kelpie.core.ids import AgentId, RunId, StepId
from kelpie.core.memory.block_history import Author, AuthorKind, Change
from kelpie.core.memory.blocks import DEFAULT_RULES, BlockRules
from kelpie.core.memory.working_memory import WorkingMemoryLimits
from kelpie.core.permissions.quotas import UNBOUNDED, Quota
from kelpie.core.time import Micros
from kelpie.core.tools.tools import Tool
from kelpie.sandbox.port import UsageMeter
from kelpie.search.queries import NOTHING_NEAR, NearItems
from kelpie.search.vector_rows import Vector
from kelpie.world.database import Tx

Progress = Callable[[float, float | None, str | None], None]  # done so far, of how much, and a message


@dataclass(frozen=True, slots=True)
class Precomputed:
    """Results found for a call before its commit: vectors of its text, and the items nearest to it."""

    vectors: tuple[Vector, ...] = ()
    passages: NearItems = NOTHING_NEAR
    messages: NearItems = NOTHING_NEAR
    facts: NearItems = NOTHING_NEAR
    by_vectors: bool = False  # whether a search can use vectors
    lacking: str | None = None  # why it cannot


NOTHING = Precomputed()


@dataclass(frozen=True, slots=True)
class CallContext:
    """Context of one tool call. `fresh_uuid` was drawn before the transaction, so that it stays pure."""

    agent: Agent
    now: Micros
    fresh_uuid: str  # a uuid4 for at most one new row
    conversation_id: str | None = None
    unwritten: tuple[Message, ...] = ()  # what enters the history with the commit the tool runs in
    block_rules: BlockRules = DEFAULT_RULES
    chain: AgentChain = UNCHAINED  # of agents behind the turn that makes the call
    precomputed: Precomputed = NOTHING  # what was found out for it beforehand
    run_id: RunId | None = None
    step_id: StepId | None = None
    tool: str | None = None  # the name it was called by
    working_memory: WorkingMemoryLimits = WorkingMemoryLimits()  # how much of it an agent may have
    code_egress: tuple[str, ...] | None = None  # hosts that the code behind the call may reach; None: no code is
    quota: Quota = UNBOUNDED  # what a sandbox must hold it to beside its own confinement: `quota.confined`
    meter: UsageMeter = field(
        default_factory=UsageMeter, compare=False
    )  # what a job of it had taken that was broken off
    answered: ToolQuestions | None = None  # questions of an earlier call, with a person's answers
    progress: Progress | None = field(default=None, compare=False)  # tells the clients how far the call has come

    @property
    def author(self) -> Author:
        """The agent in this call, as the author of a change of memory."""
        return Author(AuthorKind.agent, self.agent.id, None, self.run_id, self.step_id, self.tool)

    @property
    def change(self) -> Change:
        """Record of a change that the call makes."""
        return Change(self.author, self.now, self.block_rules.versions_kept)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a tool for the model. `touched` are agents whose memory or settings changed."""

    text: str
    ok: bool = True
    stdout: tuple[str, ...] | None = None
    stderr: tuple[str, ...] | None = None
    touched: tuple[AgentId, ...] = ()
    content: tuple[Part, ...] = ()  # text and images in their order, for a result that is more than `text`
    ends_turn: str | None = None  # Kelpie's own reason for which the turn ends at once, inside the same commit
    value: Any = None  # what a custom tool returned, as JSON; `text` is how the model reads it
    begun: tuple[Run, ...] = ()  # stored runs of other agents, which they play next
    cpu_us: int = 0  # what a sandbox spent on it, also on one that failed
    memory_peak_bytes: int = 0
    asks: ToolQuestions | None = None  # it is not finished: a person must answer these first


class TransactionalTool(Protocol):
    def __call__(self, tx: Tx, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Raises ToolError, in which case nothing it wrote is kept."""
        ...


class ExternalTool(Protocol):
    """Runs a tool outside the transaction."""

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Raises ToolError."""
        ...
