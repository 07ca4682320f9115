"""Room in the window of a turn's model: what the next prompt shows, and compaction when it would not fit.

Before a step the estimate decides, after it the provider's count, and a provider that refuses a prompt as too long is
believed. Every attempt is counted: when nothing can leave the context, the turn goes on with what fits, or fails with
the provider's words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kelpie.agent.compaction.compactor import CompactionResult, Compactor
from kelpie.agent.compaction.plan import CompactionPlanner, Occasion
from kelpie.agent.events.turn_events import Compacting, MessageCommitted
from kelpie.agent.events.turn_sink import TurnSink
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.live.spending import book
from kelpie.agent.prompt.context import Context
from kelpie.agent.prompt.rendering import prepare
from kelpie.agent.prompt.wellformed_history import weight
from kelpie.core.agents.compaction_settings import Trigger
from kelpie.core.conversations.messages import Message, Usage
from kelpie.core.errors import ModelError, ModelFault
from kelpie.core.ids import StepId
from kelpie.core.token_estimates import weigh
from kelpie.llm.provider.interface import Prepared
from kelpie.llm.routing.models import Models
from kelpie.world.world import World

FULL = 0.9  # of the window
REFUSALS_MAX = 3  # by the provider, of one step's prompt
_SHOWN_MIN = 4_000  # bytes of history, however little the estimate leaves for it


class WindowOverflow(ModelError):
    """The next prompt would be too long, as far as can be estimated. Never leaves the turn."""

    def __init__(self) -> None:
        super().__init__(ModelFault.context_overflow, "The conversation is too long for the model.")


@dataclass(frozen=True, slots=True)
class Ended:
    """A step as it was counted."""

    step_id: StepId
    usage: Usage
    goes_on: bool  # the turn


class WindowGuard:
    """Of one turn."""

    def __init__(self, world: World, models: Models, hot: LiveAgent, lane: LiveConversation, turn: TurnSink) -> None:
        self._world = world
        self._hot = hot
        self._lane = lane
        self._turn = turn
        self._planner = CompactionPlanner(world, models, lane)
        self._compactor = Compactor(world, lane)
        self._tried = False  # to make room before this step
        self._refusals = 0  # of this step's prompt
        self._shown = 0  # bytes of the last prompt

    def show(self, context: Context, waiting: Sequence[Message]) -> list[Prepared]:
        """The messages of the next prompt. Raises ModelError when the instructions alone are too long, or Overfull."""
        lane, now = self._lane, self._world.clock.now()
        window = lane.agent.model.context_window
        new = [prepare(message, lane.spec) for message in waiting]
        beside = lane.frame_weight(now) + sum(weight(entry.message) for entry in new)
        if not self._tried and context.tokens(beside + context.weight) > FULL * window:
            if context.tokens(weigh(lane.system(now))) > window:
                raise _instructions_too_long(lane)
            if context.entries:
                raise WindowOverflow
        most = fitting(lane, context, beside)
        self._shown = beside + min(context.weight, most)
        return [*context.within(most), *new]

    def counted(self, usage: Usage) -> None:
        """A step was answered: what its prompt really took is known."""
        if self._lane.context is not None:
            self._lane.context.counted(self._shown, usage.prompt_tokens)
        self._tried, self._refusals = False, 0

    async def make(
        self, position: JournalPosition, error: ModelError, waiting: Sequence[Message]
    ) -> JournalPosition | None:
        """Makes room for a prompt that is too long; None when the turn cannot go on. Raises Cancelled, StorageError."""
        lane, context = self._lane, self._lane.context
        if error.kind is not ModelFault.context_overflow:
            return None
        estimated = isinstance(error, WindowOverflow)
        self._tried = True
        self._refusals += not estimated
        if self._refusals > REFUSALS_MAX:
            return None
        if context is None:  # somebody changed the history; it is read again
            return position
        if not estimated:
            context.refused(self._shown, lane.agent.model.context_window)
        pinned = not waiting or any(entry.message.run_id == position.run.id for entry in context.entries)
        beside = sum(weight(message) for message in waiting)
        compacted = await self._compact(position, context, Occasion(Trigger.before_step, pinned, beside))
        if compacted is not None:
            return position.after(position.run)
        shows_less = context.weight > fitting(lane, context, beside + lane.frame_weight(self._world.clock.now()))
        return position if estimated or shows_less else None

    async def after_step(self, position: JournalPosition, step: Ended) -> tuple[JournalPosition, int | None]:
        """Compacts a context that a step has filled; tells how many tokens are left of it. Raises StorageError."""
        lane, context = self._lane, self._lane.context
        if context is None:
            return position, None
        frame = lane.frame_weight(self._world.clock.now())
        tokens = step.usage.total_tokens or context.tokens(frame + context.weight)
        if tokens <= FULL * lane.agent.model.context_window:
            return position, None
        occasion = Occasion(Trigger.after_step, step.goes_on, tokens=tokens, step_id=step.step_id)
        compacted = await self._compact(position, context, occasion)
        if compacted is None:
            return position, None
        return position.after(position.run), compacted.stats.context_tokens_after

    async def _compact(
        self, position: JournalPosition, context: Context, occasion: Occasion
    ) -> CompactionResult | None:
        planner, turn = self._planner, self._turn
        told = turn.is_open
        if not planner.can(context, occasion):
            return None
        if told:
            self._tell_begun(position, context, occasion)
        with turn.cancellation.abortable(asks=True):
            plan = await planner.plan(context, occasion)
        if plan is None:
            return None
        record = await turn.enclose(None) if told else None
        compacted = await self._compactor.carry_out(position, context, occasion, plan, record)
        if compacted is not None:
            book(self._hot, compacted.step)
        if compacted is not None and told:
            turn.sealed(ended=False)
            turn.emit(MessageCommitted(compacted.row))
        return compacted

    def _tell_begun(self, position: JournalPosition, context: Context, occasion: Occasion) -> None:
        world, lane = self._world, self._lane
        now = world.clock.now()
        tokens = occasion.tokens or context.tokens(lane.frame_weight(now) + context.weight + occasion.waiting)
        window, trigger = lane.agent.model.context_window, occasion.trigger.value
        uuid = world.ids.uuid()
        self._turn.emit(Compacting(position.run.id, uuid, now, occasion.step_id, trigger, tokens, window))


def fitting(lane: LiveConversation, context: Context, beside: int) -> int:
    """How many bytes of history fit into the window beside so many others; some are shown in any case."""
    return max(context.bytes_in(lane.agent.model.context_window) - beside, _SHOWN_MIN)


def _instructions_too_long(lane: LiveConversation) -> ModelError:
    window = lane.agent.model.context_window
    return ModelError(
        ModelFault.instructions_overflow,
        f"The system prompt and memory blocks of {lane.agent.id} exceed its context window of {window} tokens.",
        hint="Shorten its system prompt or its memory blocks, or raise its context_window_limit.",
    )
