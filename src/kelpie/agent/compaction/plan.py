"""Plan of a compaction: the messages that leave a context, and the summary that replaces them.

A plan only ever shrinks the context, and its summary fits beside what stays, whatever the model wrote. When no model
can sum up, or the summary is no shorter, the oldest is simply left out. Nothing is written here: a plan may be broken
off at any time.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kelpie.agent.compaction.cut_points import Cut, Cuttable
from kelpie.agent.compaction.summarizer import Summarizer, SummaryResult
from kelpie.agent.compaction.summary_limit import CHARS_MIN, SummaryLimit, summary_limit
from kelpie.agent.definition import compaction_settings
from kelpie.agent.live.live_agent import LiveConversation
from kelpie.agent.prompt.context import Context
from kelpie.agent.prompt.summary import NOTHING_TOLD, read_summary, summary_weight
from kelpie.agent.prompt.wellformed_history import weight
from kelpie.core.agents.compaction_settings import CompactionSettings, Mode, Trigger
from kelpie.core.conversations.messages import Message, Role, Usage
from kelpie.core.errors import InvalidInput, ModelError
from kelpie.core.ids import StepId
from kelpie.core.token_estimates import BYTES_PER_TOKEN
from kelpie.llm.routing.models import Models
from kelpie.observe import logs
from kelpie.world.world import World

FULL = 0.9  # of the window: with more than this a context is compacted
SUMMING_UP_S = 300.0  # for all attempts together; the turn waits
_GOAL_MAX = 0.8  # of the window: less would be reached again at once
_SUMMARY_SHARE = 0.25  # of the window
_FALLBACKS = {
    Mode.sliding_window: (Mode.sliding_window, Mode.all),
    Mode.all: (Mode.all,),
    Mode.self_compact_sliding_window: (Mode.self_compact_sliding_window, Mode.all),
    Mode.self_compact_all: (Mode.self_compact_all, Mode.self_compact_sliding_window, Mode.all),
}

_log = logs.get("agent")


@dataclass(frozen=True, slots=True)
class Occasion:
    """Occasion of a compaction: its trigger, and the facts that the planner needs."""

    trigger: Trigger
    pinned: bool = False  # a turn goes on, and what it was asked stands in the history
    waiting: int = 0  # bytes of input that will stand beside the history
    tokens: int | None = None  # what the provider counted
    step_id: StepId | None = None
    given: Mapping[str, Any] | None = None  # settings for this time only


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    cut: Cut
    text: str
    told: SummaryResult | None = None  # the model's summary; None when no model could write one
    spent: Usage = Usage()  # by all attempts to have something summed up, also those that came to nothing
    handle: str = ""  # of the last model that replied to one

    @property
    def grows(self) -> bool:
        """True if the summary is no shorter than the messages it replaces."""
        return summary_weight(self.text) >= sum(map(weight, self.cut.evicted))


class CompactionPlanner:
    """Plans for the context of one conversation."""

    def __init__(self, world: World, models: Models, conversation: LiveConversation) -> None:
        self._world = world
        self._models = models
        self._conversation = conversation
        self._failure: ModelError | None = None  # of the last attempt to have something summed up
        self._summarizers: list[Summarizer] = []  # of all attempts

    def can(self, context: Context, occasion: Occasion) -> bool:
        """True if anything can leave the context."""
        return _cuttable(context, occasion).newest(0) is not None

    def would_shorten(self, context: Context, occasion: Occasion) -> bool:
        """True if fewer messages would be left, counting the summary. Raises InvalidInput."""
        settings, cuttable = self._settings(occasion.given), _cuttable(context, occasion)
        room = self._room(context, settings, occasion.waiting)
        cuts = (_cut(cuttable, mode, settings.share, room) for mode in _FALLBACKS[settings.mode])
        first = next(filter(None, cuts), None)
        return first is not None and len(first.evicted) > 1

    async def plan(self, context: Context, occasion: Occasion) -> CompactionPlan | None:
        """Decides what leaves and what stands in for it; None when nothing can leave. It may be broken off.

        On request, a summary or nothing: raises InvalidInput for settings that were given wrongly, and ModelError.
        """
        settings, cuttable = self._settings(occasion.given), _cuttable(context, occasion)
        room = self._room(context, settings, occasion.waiting)
        shorter = occasion.trigger is not Trigger.asked_for
        try:
            async with asyncio.timeout(SUMMING_UP_S):
                for mode in _FALLBACKS[settings.mode]:
                    plan = await self._summed_up(cuttable, context, settings, mode, room, occasion.waiting)
                    if plan is not None and not (shorter and plan.grows):
                        return self._with_costs(plan)
        except TimeoutError:
            _log.warning(
                "summary_timeout", "Summary took too long", agent_id=self._conversation.agent.id, seconds=SUMMING_UP_S
            )
        if not shorter and self._failure is not None:
            raise self._failure
        cut = cuttable.newest(room)
        if cut is None:
            return None
        _log.warning(
            "summary_missing",
            "Oldest messages left the context without a summary",
            agent_id=self._conversation.agent.id,
        )
        limit = self._limit(context, settings, cut, occasion.waiting)
        return self._with_costs(CompactionPlan(cut, limit.fitted(_handed_on(cut.evicted))))

    def _with_costs(self, plan: CompactionPlan) -> CompactionPlan:
        spent = sum((each.spent for each in self._summarizers), Usage())
        handles = [each.handle for each in self._summarizers if each.handle]
        return replace(plan, spent=spent, handle=handles[-1] if handles else "")

    async def _summed_up(
        self, cuttable: Cuttable, context: Context, settings: CompactionSettings, mode: Mode, room: int, waiting: int
    ) -> CompactionPlan | None:
        cut = _cut(cuttable, mode, settings.share, room)
        if cut is None:
            return None
        agent, limit = self._conversation.agent, self._limit(context, settings, cut, waiting)
        summarizer = Summarizer(self._world, self._models, agent, settings, limit)
        self._summarizers.append(summarizer)
        try:
            if mode.by_itself:
                frame = self._conversation.frame(self._world.clock.now())
                entries = context.entries_of(cut.evicted)
                told = await summarizer.by_itself(entries, mode, frame)
            else:
                told = await summarizer.of_transcript(cut.evicted, mode)
        except ModelError as error:
            self._failure = error
            facts = {"agent_id": agent.id, "mode": mode.value, "kind": error.kind.value, "error": error.message}
            _log.warning("summary_attempt_failed", "Summary failed in one mode; trying the next", **facts)
            return None
        return CompactionPlan(cut, limit.fitted(told.text), told)

    def _settings(self, given: Mapping[str, Any] | None) -> CompactionSettings:
        agent = self._conversation.agent
        try:
            return compaction_settings.asked_for(agent, given)
        except InvalidInput as error:
            if given:
                raise
            _log.warning(
                "compaction_settings_invalid",
                "Stored compaction settings are invalid; using the defaults",
                agent_id=agent.id,
                error=str(error),
            )
            return CompactionSettings()

    def _room(self, context: Context, settings: CompactionSettings, waiting: int) -> int:
        """Number of bytes that may stay beside instructions, tools, a summary and waiting input."""
        window = self._conversation.agent.model.context_window
        goal = context.bytes_in(min(1 - settings.share, _GOAL_MAX) * window)
        beside_shortest = context.bytes_in(FULL * window) - summary_weight("") - CHARS_MIN
        return min(goal, beside_shortest) - self._frame_weight() - waiting

    def _limit(self, context: Context, settings: CompactionSettings, cut: Cut, waiting: int) -> SummaryLimit:
        """The limit on the summary: a share of the window, and no more than what stays leaves of it."""
        window = self._conversation.agent.model.context_window
        tokens = int(window * _SUMMARY_SHARE)
        chars = max(CHARS_MIN, min(tokens * BYTES_PER_TOKEN, settings.clip_chars or window * BYTES_PER_TOKEN))
        left = context.bytes_in(FULL * window) - self._frame_weight() - waiting - sum(map(weight, cut.kept))
        if left <= summary_weight(""):  # what must stay does not fit either; the prompt shows the newest part of it
            left = summary_weight("") + CHARS_MIN
        return summary_limit(chars, left, tokens, context.scale)

    def _frame_weight(self) -> int:
        return self._conversation.frame(self._world.clock.now()).weight


def _handed_on(evicted: Sequence[Message]) -> str:
    """Text that needs no model: the earlier summaries among the evicted messages."""
    earlier = [
        read_summary(message).text.removesuffix(NOTHING_TOLD) for message in evicted if message.role is Role.summary
    ]
    return "\n\n".join((*filter(None, map(str.strip, earlier)), NOTHING_TOLD))


def _cut(cuttable: Cuttable, mode: Mode, share: float, room: int) -> Cut | None:
    return cuttable.sliding(share, room) if mode.slides else cuttable.whole(room)


def _cuttable(context: Context, occasion: Occasion) -> Cuttable:
    return Cuttable([entry.message for entry in context.entries], pinned=occasion.pinned)
