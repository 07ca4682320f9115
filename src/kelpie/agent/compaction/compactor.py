"""Compaction: what no longer fits a model's window leaves the context, and a summary stands in for it.

A plan is carried out by one commit of the turn, so a crash leaves the old context or the new one. The history keeps
everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kelpie.agent.compaction.plan import CompactionPlan, Occasion
from kelpie.agent.events.event_recorder import EventRecord, keep
from kelpie.agent.events.turn_events import MessageCommitted
from kelpie.agent.journal import commits as journal
from kelpie.agent.journal import run_endings
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.journal.message_rows import named_after, step_record
from kelpie.agent.live.live_agent import LiveConversation
from kelpie.agent.prompt.context import Context
from kelpie.agent.prompt.rendering import prepare
from kelpie.agent.prompt.summary import summary_row, summary_weight
from kelpie.agent.prompt.wellformed_history import weight
from kelpie.core.agents.compaction_settings import CompactionStats, Trigger
from kelpie.core.conversations.messages import Message, Role
from kelpie.core.conversations.runs import Run, Step, StepStatus
from kelpie.core.errors import KelpieError
from kelpie.core.ids import MessageId, StepId
from kelpie.core.time import Micros
from kelpie.observe import logs
from kelpie.storage.conversations import contexts, messages
from kelpie.storage.runs import steps
from kelpie.world.database import Tx
from kelpie.world.world import World

_log = logs.get("agent")


@dataclass(frozen=True, slots=True)
class CompactionResult:
    row: Message
    summary: str
    stats: CompactionStats
    before: int  # messages in the context, with the system message
    after: int
    step: Step | None = None  # the record of the model call for the summary


class Compactor:
    """Compacts the context of one conversation."""

    def __init__(self, world: World, conversation: LiveConversation) -> None:
        self._world = world
        self._conversation = conversation

    async def carry_out(
        self,
        position: JournalPosition,
        context: Context,
        occasion: Occasion,
        plan: CompactionPlan,
        record: EventRecord | None = None,
    ) -> CompactionResult | None:
        """One commit of the turn: the summary and the new context, and what a background run keeps of its stream.

        None, and no commit, when the context was changed meanwhile. Raises StorageError.
        """
        world, conversation, now = self._world, self._conversation, self._world.clock.now()
        in_turn = occasion.trigger is not Trigger.asked_for
        stats = self._stats(context, occasion, plan)
        row_id, otid = world.ids.new(MessageId), world.ids.uuid() if in_turn else None
        row = summary_row(position.run, row_id, plan.text, stats if in_turn else None, now, otid)
        row = replace(row, step_id=occasion.step_id)
        step = self._summing_up(position.run, plan, now)
        organization = conversation.agent.organization_id
        horizon, kept = context.entries[-1].message.id, list(dict.fromkeys(m.id for m in plan.cut.kept))

        def body(tx: Tx) -> tuple[int, int]:
            counts = _replace(tx, row, position.conversation, horizon, kept)
            if step is not None and in_turn:
                steps.add(tx, step, organization)
            elif step is not None:
                run_endings.write_outside_turn(
                    tx, run_endings.outside_turn(position.run, [step], now), [step], organization
                )
            if record is not None:
                keep(tx, position.run, record, [MessageCommitted(row)], now)
            return counts

        def recall(tx: Tx) -> tuple[int, int]:
            return stats.messages_count_before, stats.messages_count_after

        try:
            counts = await journal.commit(world.database, position, "compact", now, body, recall)
        except _Changed:
            conversation.reread()
            return None
        if conversation.context is context:
            conversation.context = context.compacted(prepare(row, conversation.spec), plan.cut.kept)
        by = plan.told.handle if plan.told else None
        _log.info("context_compacted", "Context compacted", agent_id=conversation.agent.id, by=by, **stats.to_json())
        return CompactionResult(row, plan.text, stats, *counts, step)

    def _summing_up(self, run: Run, plan: CompactionPlan, at: Micros) -> Step | None:
        """The record of what the summary took, with the attempts before it: it is spent like any other step, though
        the turn does not count it."""
        if plan.told is None and not plan.spent.total_tokens:
            return None
        step = step_record(run, self._conversation.agent, self._world.ids.new(StepId), StepStatus.success, at)
        return replace(named_after(step, plan.handle), usage=plan.spent)

    def unchanged(self, context: Context) -> CompactionStats:
        """Statistics of a compaction that removes nothing."""
        tokens = context.tokens(self._conversation.frame(self._world.clock.now()).weight + context.weight)
        window, count = self._conversation.agent.model.context_window, 1 + len(context.entries)
        return CompactionStats(Trigger.asked_for.value, tokens, tokens, window, count, count)

    def _stats(self, context: Context, occasion: Occasion, plan: CompactionPlan) -> CompactionStats:
        conversation = self._conversation
        frame = conversation.frame(self._world.clock.now()).weight + occasion.waiting
        after = sum(map(weight, plan.cut.kept)) + summary_weight(plan.text)
        return CompactionStats(
            trigger=occasion.trigger.value,
            context_tokens_before=occasion.tokens or context.tokens(frame + context.weight),
            context_tokens_after=context.tokens(frame + after),
            context_window=conversation.agent.model.context_window,
            messages_count_before=1 + len(context.entries),
            messages_count_after=2 + len(plan.cut.kept),
        )


class _Changed(KelpieError):
    """The context is no longer the one that was planned with."""


def _replace(tx: Tx, row: Message, conversation: str, horizon: MessageId, kept: Sequence[MessageId]) -> tuple[int, int]:
    """Writes the summary and the new context: instructions, summary, what stays, what came since. Raises _Changed."""
    ids = contexts.ids(tx, row.agent_id, conversation)
    if horizon not in ids or not set(kept) <= set(ids):
        raise _Changed
    first = [m.id for m in messages.get_many(tx, ids[:1]) if m.role is Role.system]
    after = [*first, row.id, *kept, *ids[ids.index(horizon) + 1 :]]
    messages.append(tx, [row])
    contexts.replace(tx, row.agent_id, after, conversation)
    return len(ids), len(after)
