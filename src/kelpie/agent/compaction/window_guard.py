"""Context window of a turn's model: the messages of the next prompt, and compaction when they would not fit.

Before a step the estimate decides, after it the provider's count, and a provider that refuses a prompt as too long is
believed. Every attempt is counted: when nothing can leave the context, the turn continues with what fits, or fails
with the provider's error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from kelpie.agent.compaction.compactor import CompactionResult, Compactor
from kelpie.agent.compaction.plan import FULL, CompactionPlanner, Occasion
from kelpie.agent.events.turn_events import Compacting, MessageCommitted
from kelpie.agent.events.turn_sink import TurnSink
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation, PromptFrame
from kelpie.agent.live.spending import record_usage
from kelpie.agent.prompt.context import Context
from kelpie.agent.prompt.rendering import prepare
from kelpie.agent.prompt.wellformed_history import weight
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.compaction_settings import Trigger
from kelpie.core.conversations.messages import Message, Usage
from kelpie.core.errors import ModelError, ModelFault
from kelpie.core.ids import StepId
from kelpie.core.token_estimates import byte_length
from kelpie.llm.provider.interface import PreparedMessage
from kelpie.llm.routing.models import Models
from kelpie.world.world import World

REFUSALS_MAX = 3  # by the provider, of one step's prompt
_SHOWN_MIN = 4_000  # bytes of history, however little the estimate leaves for it


class WindowOverflow(ModelError):
    """The next prompt would be too long, as far as can be estimated. Never leaves the turn."""

    def __init__(self) -> None:
        super().__init__(ModelFault.context_overflow, "The conversation is too long for the model.")


@dataclass(frozen=True, slots=True)
class EndedStep:
    """A step with its usage."""

    step_id: StepId
    usage: Usage
    continues: bool  # the turn


class Room(Enum):
    """Outcome of an attempt to make room for a prompt."""

    none = auto()  # the turn cannot continue
    retry = auto()  # nothing was committed, and the next prompt may fit
    compacted = auto()  # one commit of the turn has compacted the context


class WindowGuard:
    """Keeps the prompts of one turn within the context window."""

    def __init__(
        self, world: World, models: Models, live: LiveAgent, conversation: LiveConversation, sink: TurnSink
    ) -> None:
        self._world = world
        self._live = live
        self._conversation = conversation
        self._sink = sink
        self._models = models
        self._tried = False  # to make room before this step
        self._refusals = 0  # of this step's prompt
        self._shown = 0  # bytes of the last prompt

    def show(self, context: Context, frame: PromptFrame, new_rows: Sequence[Message]) -> list[PreparedMessage]:
        """The messages of the next prompt. Raises WindowOverflow; ModelError when the instructions alone are too
        long."""
        window = frame.agent.model.context_window
        new = [prepare(message, frame.spec) for message in new_rows]
        beside = frame.weight + sum(weight(entry.message) for entry in new)
        if not self._tried and context.tokens(beside + context.weight) > FULL * window:
            if context.tokens(byte_length(frame.system)) > window:
                raise _instructions_too_long(frame.agent)
            if context.entries:
                raise WindowOverflow
        most = fitting(window, context, beside)
        self._shown = beside + min(context.weight, most)
        shown = context.within(most)
        shown += new
        return shown

    def counted(self, usage: Usage) -> None:
        """A step got its reply: the real size of its prompt is known."""
        if self._conversation.context is not None:
            self._conversation.context.counted(self._shown, usage.prompt_tokens)
        self._tried, self._refusals = False, 0

    async def make_room(self, position: JournalPosition, error: ModelError, new_rows: Sequence[Message]) -> Room:
        """Makes room for a prompt that is too long. Raises Cancelled, StorageError."""
        conversation, context = self._conversation, self._conversation.context
        if error.kind is not ModelFault.context_overflow:
            return Room.none
        estimated = isinstance(error, WindowOverflow)
        self._tried = True
        self._refusals += not estimated
        if self._refusals > REFUSALS_MAX:
            return Room.none
        if context is None:  # the history was changed meanwhile; it is read again
            return Room.retry
        window = conversation.agent.model.context_window
        if not estimated:
            context.refused(self._shown, window)
        pinned = not new_rows or any(entry.message.run_id == position.run.id for entry in context.entries)
        beside = sum(weight(message) for message in new_rows)
        compacted = await self._compact(position, context, Occasion(Trigger.before_step, pinned, beside))
        if compacted is not None:
            return Room.compacted
        frame = conversation.frame(self._world.clock.now())
        shows_less = context.weight > fitting(window, context, beside + frame.weight)
        return Room.retry if estimated or shows_less else Room.none

    async def after_step(self, position: JournalPosition, step: EndedStep) -> CompactionResult | None:
        """Compacts a context that a step has filled, in one commit. Raises Cancelled, StorageError."""
        conversation, context = self._conversation, self._conversation.context
        if context is None:
            return None
        frame = conversation.frame(self._world.clock.now())
        tokens = step.usage.total_tokens or context.tokens(frame.weight + context.weight)
        if tokens <= FULL * frame.agent.model.context_window:
            return None
        occasion = Occasion(Trigger.after_step, step.continues, tokens=tokens, step_id=step.step_id)
        return await self._compact(position, context, occasion)

    async def _compact(
        self, position: JournalPosition, context: Context, occasion: Occasion
    ) -> CompactionResult | None:
        planner, sink = CompactionPlanner(self._world, self._models, self._conversation), self._sink
        emits = sink.is_open  # not after the stored end of a background run
        if not planner.can(context, occasion):
            return None
        sink.cancellation.check()  # no client hears of what is not even begun
        if emits:
            self._emit_begun(position, context, occasion)
        with sink.cancellation.abortable(asks=True):
            plan = await planner.plan(context, occasion)
        if plan is None:
            return None
        record = await sink.enclose(None) if emits else None
        reads = self._live.usage_reads
        compacted = await Compactor(self._world, self._conversation).carry_out(
            position, context, occasion, plan, record
        )
        if compacted is not None:
            record_usage(self._live, reads, compacted.step)
        if compacted is not None and emits:
            sink.sealed(ended=False, input_stored=False)
            sink.emit(MessageCommitted(compacted.row))
        return compacted

    def _emit_begun(self, position: JournalPosition, context: Context, occasion: Occasion) -> None:
        now = self._world.clock.now()
        frame = self._conversation.frame(now)
        tokens = occasion.tokens or context.tokens(frame.weight + context.weight + occasion.waiting)
        window, trigger = frame.agent.model.context_window, occasion.trigger.value
        uuid = self._world.ids.uuid()
        self._sink.emit(Compacting(position.run.id, uuid, now, occasion.step_id, trigger, tokens, window))


def fitting(window: int, context: Context, beside: int) -> int:
    """Number of bytes of history that fit into the window beside `beside` others; never below a minimum."""
    return max(context.bytes_in(window) - beside, _SHOWN_MIN)


def _instructions_too_long(agent: Agent) -> ModelError:
    window = agent.model.context_window
    return ModelError(
        ModelFault.instructions_overflow,
        f"The system prompt and memory blocks of {agent.id} exceed its context window of {window} tokens.",
        hint="Shorten its system prompt or its memory blocks, or raise its context_window_limit.",
    )
