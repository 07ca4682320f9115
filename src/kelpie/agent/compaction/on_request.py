"""Compaction at a client's request: of a context that need not be full, to a summary or not at all."""

from collections.abc import Mapping
from typing import Any

from kelpie.agent.compaction.compactor import CompactionResult, Compactor
from kelpie.agent.compaction.plan import CompactionPlanner, Occasion
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.live.reload import catch_up
from kelpie.agent.live.spending import BudgetExhausted, check_budget, record_usage
from kelpie.agent.prompt.context import Context
from kelpie.agent.prompt.summary import read_summary
from kelpie.core.agents.compaction_settings import Trigger
from kelpie.core.conversations.messages import Role
from kelpie.core.errors import CallerError, StorageBusy
from kelpie.core.permissions.policies import EffectivePermissions
from kelpie.llm.routing.models import Models
from kelpie.world.world import World

RUN_TYPE = "kelpie_compaction"
CHANGES_MAX = 3  # of the history, while it is summed up


async def on_request(
    world: World,
    models: Models,
    live: LiveAgent,
    conversation: LiveConversation,
    position: JournalPosition,
    bounds: EffectivePermissions,
    given: Mapping[str, Any] | None,
) -> CompactionResult:
    """Raises CallerError when the context would not become shorter or there is nothing left to spend on it,
    InvalidInput, ModelError, StorageError."""
    planner, compactor = CompactionPlanner(world, models, conversation), Compactor(world, conversation)
    occasion = Occasion(Trigger.asked_for, given=given)
    for _ in range(CHANGES_MAX):
        context = await catch_up(world.database, conversation, position)
        if _is_summary(context):
            row = context.entries[0].message
            return CompactionResult(row, read_summary(row).text, compactor.unchanged(context), 2, 2)
        if not planner.would_shorten(context, occasion):
            raise CallerError(
                "Summarization failed to reduce the number of messages: this context has too few of them. Send more "
                "messages first, or use another mode in compaction_settings, such as 'all'."
            )
        try:
            await check_budget(world.database, models, live, conversation.agent, bounds, world.clock.now())
        except BudgetExhausted as error:
            raise CallerError(str(error)) from error
        plan = await planner.plan(context, occasion)
        reads = live.usage_reads
        compacted = plan and await compactor.carry_out(position, context, occasion, plan)
        if compacted:
            record_usage(live, reads, compacted.step)
            return compacted
    raise StorageBusy("The messages changed during compaction, several times in a row. Try again.")


def _is_summary(context: Context) -> bool:
    """True if the context has no message since the last compaction."""
    return [entry.message.role for entry in context.entries] == [Role.summary]
