"""Planted bugs that the tests and the simulation once missed, in two kinds: what a scenario notices, by its seed, and
what a test function notices.

`tests/sim/mutations.py` has the others, and describes how they are used.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from sqlalchemy import Update, bindparam, case, select, update

from kelpie.actors import actor
from kelpie.agent.compaction import window_guard
from kelpie.agent.compaction.summarizer import Summarizer
from kelpie.agent.companions import transcript_lines
from kelpie.agent.events import event_recorder
from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.inbox import cancel
from kelpie.agent.inbox.run_queue import RunQueue
from kelpie.agent.live import reload, spending
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.maintenance import approval_expiry
from kelpie.agent.maintenance.run_callbacks import RunCallbacks
from kelpie.agent.multi_agent import messaging_tools
from kelpie.agent.multi_agent.group_chat import GroupChat
from kelpie.agent.prompt import default_instructions
from kelpie.agent.resources.checkpoints import Checkpoints
from kelpie.agent.turn import duplicate_sends, recovery, step_committer, tool_phase, turn_state
from kelpie.agent.turn.activation import Activation
from kelpie.core.agents.compaction_settings import Trigger
from kelpie.core.conversations.runs import RunStatus, StopReason
from kelpie.core.errors import KelpieError
from kelpie.core.permissions import budgets
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.memory.block_history import BlockHistory
from kelpie.storage.agents import ownership_fence
from kelpie.storage.blocks import attachments
from kelpie.storage.conversations import approvals
from kelpie.storage.runs import callbacks, runs, unfinished
from kelpie.storage.runs import events as run_events
from kelpie.storage.tables import agent_head, conversations
from kelpie.storage.tables import run_events as run_events_table
from kelpie.storage.tables import runs as runs_table
from kelpie.world.sqlite import group_commit
from kelpie.world.statements import Prepared
from tests.agent import test_compaction, test_event_buffer
from tests.sim.mutations import Mutation
from tests.world import test_commit_group


def a_turn_told_as_failed_goes_on(patch: pytest.MonkeyPatch) -> None:
    original = recovery.settle

    async def settle(stored_runs: Any, live: Any, left: Any) -> None:
        here = left.node == live.claim.node and not left.run.background and left.run.step_count
        if here and not live.agent.stopped and left.run.status is not RunStatus.created:
            stored_runs.keep(left)
        else:
            await original(stored_runs, live, left)

    patch.setattr(recovery, "settle", settle)


def a_claim_by_its_owner_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    row = agent_head.c
    same = (row.owner == bindparam("node_id")) & (row.owner_incarnation == bindparam("node_incarnation"))
    statement = ownership_fence._CLAIM.values(epoch=case((same, row.epoch), else_=row.epoch + 1))
    patch.setattr(ownership_fence, "_CLAIM", statement)


def an_approval_can_be_taken_twice(patch: pytest.MonkeyPatch) -> None:
    original = approvals.move
    patch.setattr(approvals, "move", lambda tx, before, after: original(tx, before, after) or True)


class _LikeAnything:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


def calls_answered_in_part_meanwhile_are_denied(patch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(due=approvals.due, get=lambda *_: _LikeAnything())
    patch.setattr(approval_expiry, "approvals", found)


def a_run_that_has_ended_is_ended_again(patch: pytest.MonkeyPatch) -> None:
    statement = update(runs_table).where(runs_table.c.id == bindparam("of_run"))
    finished = cast("Update", runs._FINISH._statement)
    patch.setattr(runs, "_FINISH", Prepared(statement.values(finished._values or {})))


def what_a_cancelled_call_cost_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    original = step_committer.StepCommitter.end

    async def end(self: Any, reason: StopReason, step: Any = None, error: Any = None) -> None:
        dropped = reason is StopReason.cancelled and step is not None and step.usage.total_tokens
        await original(self, reason, None if dropped else step, error)

    patch.setattr(step_committer.StepCommitter, "end", end)
    patch.setattr(turn_state.TurnState, "charged", lambda *_: None)


def previews_written_again_lack_one(patch: pytest.MonkeyPatch) -> None:
    original = run_events.append

    def append(tx: Any, run_id: Any, segment: str, first: int, events: Any, at: int, closing: Any = ()) -> None:
        last = tx.execute(run_events._LAST, {"of_run": run_id}).first()
        known = last.upto if last is not None and last.segment == segment else 0
        if 0 < known - first < len(events):
            events = [*events[: known - first], *events[known - first + 1 :]]
        original(tx, run_id, segment, first, events, at, closing)

    patch.setattr(run_events, "append", append)


def a_follower_skips_a_batch_at_the_end_of_a_page(patch: pytest.MonkeyPatch) -> None:
    original = run_events.after

    def after(tx: Any, run_id: Any, number: int, most: int) -> Any:
        return original(tx, run_id, number + 1 if number and number % most == 0 else number, most)

    patch.setattr(run_events, "after", after)


def previews_that_could_not_be_written_are_dropped(patch: pytest.MonkeyPatch) -> None:
    original = event_recorder.StoredTurnStream._flush

    async def flush(self: Any) -> bool:
        count = len(self._events)
        done = await original(self)
        if not done:
            self._first += count
            del self._events[:count]
        return done

    patch.setattr(event_recorder.StoredTurnStream, "_flush", flush)


def a_callback_comes_again_after_it_was_taken(patch: pytest.MonkeyPatch) -> None:
    original = callbacks.record_attempt

    def record_attempt(tx: Any, run_id: Any, now: int, status: Any, error: Any, again_at: Any) -> None:
        original(tx, run_id, now, status, error, again_at or now + MICROS_PER_SECOND)

    patch.setattr(callbacks, "record_attempt", record_attempt)


def a_run_is_queued_while_it_is_played(patch: pytest.MonkeyPatch) -> None:
    original = RunQueue.submit

    def submit(self: Any, waiting: Any) -> None:
        self._held.clear()
        original(self, waiting)

    patch.setattr(RunQueue, "submit", submit)


def refusals_of_a_prompt_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(window_guard, "REFUSALS_MAX", 10**9)


def what_a_summary_costs_is_not_booked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(window_guard, "record_usage", lambda *_: None)


def permissions_read_while_they_change_are_trusted(patch: pytest.MonkeyPatch) -> None:
    original = reload.current_permissions

    async def current_permissions(database: Any, server: Any, live: Any, conversation: Any, now: int) -> Any:
        class Unchanging:
            touches = 0

            def __getattr__(self, name: str) -> Any:
                return getattr(live, name)

            def __setattr__(self, name: str, value: Any) -> None:
                setattr(live, name, value)

        return await original(database, server, Unchanging(), conversation, now)  # type: ignore[arg-type]

    patch.setattr(tool_phase, "current_permissions", current_permissions)


def the_same_otid_in_another_conversation_is_swallowed(patch: pytest.MonkeyPatch) -> None:
    def find(tx: Any, agent_id: Any, conversation: str, given: Any) -> Any:
        lanes = tx.execute(select(conversations.c.id).where(conversations.c.agent_id == agent_id)).scalars()
        return next((run for lane in ("", *lanes) if (run := original(tx, agent_id, lane, given))), None)

    original = duplicate_sends.find
    patch.setattr(duplicate_sends, "find", find)


def a_resend_is_sought_in_the_newest_run_of_its_id(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(duplicate_sends, "SAME_ID_MAX", 1)


def only_the_first_message_of_a_resend_is_compared(patch: pytest.MonkeyPatch) -> None:
    original = unfinished.given

    def find(tx: Any, agent_id: Any, conversation: str, given: Any) -> Any:
        def first(tx: Any, run_id: Any) -> Any:
            stored = original(tx, run_id)
            same = stored.messages[:1] == given.messages[:1]
            return given if same else stored

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(duplicate_sends, "unfinished", SimpleNamespace(given=first))
            return real(tx, agent_id, conversation, given)

    real = duplicate_sends.find
    patch.setattr(duplicate_sends, "find", find)


def spending_read_beside_a_commit_is_kept(patch: pytest.MonkeyPatch) -> None:
    async def spent(database: Any, live: Any, since: int) -> Any:
        if since not in live.spent:
            agent_id = live.claim.agent_id
            found = await database.read(_reads_spending(agent_id, since))
            if len(live.spent) >= spending.PERIODS_MAX:
                live.spent.clear()
            live.spent[since] = found
        return live.spent[since]

    patch.setattr(spending, "_spent", spent)


def _reads_spending(agent_id: Any, since: int) -> Callable[[Any], Any]:
    def read(tx: Any) -> Any:
        return spending.steps.spent_by(tx, agent_id, since)

    read.__module__, read.__qualname__ = spending.__name__, "_spent.<locals>.<lambda>"
    return read


class _DeafToRestores:
    def __init__(self, live_agents: LiveAgents) -> None:
        self.reload = live_agents.reload

    def forget_context(self, _agent_ids: Any) -> None:
        return


def a_live_agent_does_not_hear_of_a_restore(patch: pytest.MonkeyPatch) -> None:
    original = Checkpoints.restore

    async def restore(self: Any, *arguments: Any, **options: Any) -> Any:
        self._live_agents = _DeafToRestores(self._live_agents)
        return await original(self, *arguments, **options)

    patch.setattr(Checkpoints, "restore", restore)


def a_turn_that_began_during_a_cancel_is_not_told(patch: pytest.MonkeyPatch) -> None:
    original = cancel.Cancellations._end_live

    async def end_live(self: Any, agent_id: Any, wanted: Any) -> Any:
        closes = "closed" in wanted.__code__.co_freevars
        return [] if closes else await original(self, agent_id, wanted)

    patch.setattr(cancel.Cancellations, "_end_live", end_live)


def a_companion_is_not_told_of_a_block_it_shares(patch: pytest.MonkeyPatch) -> None:
    original = attachments.share
    patch.setattr(attachments, "share", lambda *given: original(*given) and ())


def an_abandoned_turn_keeps_its_claim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Activation, "end", lambda _self: None)


def a_change_by_its_own_turn_makes_a_stale_conversation_current(patch: pytest.MonkeyPatch) -> None:
    def touch(self: Any, knows: Any = None) -> None:
        self.touches += 1
        for each in self.conversations():
            each.stale = each is not knows

    patch.setattr(LiveAgent, "touch", touch)


def a_context_read_before_it_was_emptied_comes_back(patch: pytest.MonkeyPatch) -> None:
    def forget(self: Any) -> None:
        self.stale, self.context = True, None

    patch.setattr(LiveConversation, "forget", forget)


def what_learning_costs_is_not_told_to_a_live_agent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LiveAgents, "invalidate_spending", lambda *_: None)


def an_edit_during_a_load_is_dropped(patch: pytest.MonkeyPatch) -> None:
    original = actor.Actor.notify
    patch.setattr(actor.Actor, "notify", lambda self, note: self.activation is not None and original(self, note))


def a_rollback_is_told_to_no_live_agent(patch: pytest.MonkeyPatch) -> None:
    original = BlockHistory.rollback

    async def rollback(self: Any, *arguments: Any) -> Any:
        self._reload_agents = lambda _agent_ids: None
        return await original(self, *arguments)

    patch.setattr(BlockHistory, "rollback", rollback)


def a_stream_goes_by_the_age_of_its_events_alone(patch: pytest.MonkeyPatch) -> None:
    row = run_events_table.c
    old = select(row.run_id, row.number).where(row.created_at < bindparam("before")).limit(bindparam("most"))
    patch.setattr(run_events, "_EXPIRED", old)


def a_month_has_thirty_days(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(budgets, "_LONGEST_MONTH", 30 * 24 * 3600 * MICROS_PER_SECOND)


def the_question_of_a_cancelled_turn_is_delivered(patch: pytest.MonkeyPatch) -> None:
    class Letter(messaging_tools._Letter):
        __slots__ = ()

        def __setattr__(self, name: str, value: object) -> None:
            if name != "withdrawn" or not value:
                super().__setattr__(name, value)

    patch.setattr(messaging_tools, "_Letter", Letter)


def only_the_last_piece_of_a_summary_is_counted(patch: pytest.MonkeyPatch) -> None:
    def keep_last(self: Any, name: str, value: Any) -> None:
        before = self.__dict__.get("spent", value)
        last = replace(value, prompt_tokens=value.prompt_tokens - before.prompt_tokens) if name == "spent" else value
        self.__dict__[name] = last

    patch.setattr(Summarizer, "__setattr__", keep_last, raising=False)


def a_summary_forgets_the_pieces_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(default_instructions, "SUMMARY_SO_FAR", "")


def a_compaction_in_the_middle_of_a_turn_may_take_its_question(patch: pytest.MonkeyPatch) -> None:
    original = window_guard.Occasion
    patch.setattr(
        window_guard,
        "Occasion",
        lambda trigger, pinned=False, *rest, **more: original(
            trigger, pinned and trigger is not Trigger.after_step, *rest, **more
        ),
    )


def a_callback_that_met_a_failing_disk_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    async def send_in_turn(self: Any, owed: Any) -> None:
        with contextlib.suppress(KelpieError):
            async with self._slots.slot(owed.consumer):
                transport = self._world.http.transport(public=self._public)
                async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
                    await self._send(client, owed)
            self._known.discard(owed.of)

    patch.setattr(RunCallbacks, "_send_in_turn", send_in_turn)


def a_companion_does_not_hear_what_its_agent_says(patch: pytest.MonkeyPatch) -> None:
    original = transcript_lines.lines
    patch.setattr(transcript_lines, "lines", lambda rows: [row for row in original(rows) if row[:10] != "assistant:"])


def the_members_of_a_group_hear_only_its_client(patch: pytest.MonkeyPatch) -> None:
    def new_messages_for(self: Any, member: Any) -> Any:
        since = self._said[self._heard.get(member.id, 0) :]
        return tuple(message for said in since if said.speaker is None for message in said.messages)

    patch.setattr(GroupChat, "new_messages_for", new_messages_for)


_BEHIND = "background-runs-and-readers"
_GROUPS = "agents-write-to-each-other"
_TURNS = "api-model-of-turns"
_CANCELS = "cancel-races-everything"
_EXPIRING = "waits-that-expire"
_STORAGE = "conversations-under-storage-faults"
_USAGE = "usage-adds-up"
_SAID_ONCE = "a message that comes again is said once"
_PIECES = "what was shown in pieces is what was committed"
_LIVE_BUDGET = "a live budget is what the steps have used"

# As in tests/sim/mutations.py. The letters are those of the report that told of the missing test.
SURVIVORS = (
    Mutation(a_turn_told_as_failed_goes_on, _STORAGE, 0, 10, "told as failed is over"),  # R1
    Mutation(a_claim_by_its_owner_keeps_the_epoch, _STORAGE, 0, 5, "every claim raises the epoch"),  # D2
    Mutation(an_approval_can_be_taken_twice, _EXPIRING, 8, 20, "answered once|a live chat"),  # A1
    Mutation(calls_answered_in_part_meanwhile_are_denied, _EXPIRING, 2, 20, "only what waits is denied"),  # A3
    Mutation(a_run_that_has_ended_is_ended_again, _CANCELS, 2, 20, "a run ends once"),  # C1
    Mutation(what_a_cancelled_call_cost_is_not_recorded, _USAGE, 10, 20, "what the provider charged is recorded"),  # C2
    Mutation(
        a_turn_that_began_during_a_cancel_is_not_told, _CANCELS, 3, 60, "a cancelled run has ended|a live chat"
    ),  # C3
    Mutation(previews_written_again_lack_one, _BEHIND, 0, 20, _PIECES),  # S1
    Mutation(a_follower_skips_a_batch_at_the_end_of_a_page, _BEHIND, 0, 20, "a frame keeps its number|in order"),  # S3
    Mutation(previews_that_could_not_be_written_are_dropped, _BEHIND, 0, 20, _PIECES),  # S4
    Mutation(a_callback_comes_again_after_it_was_taken, _BEHIND, 0, 5, "callback"),  # B2
    Mutation(a_run_is_queued_while_it_is_played, _BEHIND, 4, 20, "a run is queued once"),  # B1
    Mutation(what_a_summary_costs_is_not_booked, _USAGE, 0, 20, _LIVE_BUDGET),  # K4
    Mutation(spending_read_beside_a_commit_is_kept, _USAGE, 0, 20, _LIVE_BUDGET),  # G2
    Mutation(
        permissions_read_while_they_change_are_trusted, "permissions-race-calls", 7, 30, "what is forbidden is not run"
    ),  # P2
    Mutation(the_same_otid_in_another_conversation_is_swallowed, _BEHIND, 0, 5, _SAID_ONCE),  # O1
    Mutation(only_the_first_message_of_a_resend_is_compared, _BEHIND, 0, 5, _SAID_ONCE),  # O2
    Mutation(a_resend_is_sought_in_the_newest_run_of_its_id, _BEHIND, 3, 5, _SAID_ONCE),
    Mutation(a_live_agent_does_not_hear_of_a_restore, "working-memory-and-checkpoints", 0, 20, "a live chat"),  # X2
    Mutation(an_edit_during_a_load_is_dropped, "shared-block-edits", 0, 20, "not older than the last edit"),  # D3
    Mutation(
        a_rollback_is_told_to_no_live_agent,
        "block-history",
        0,
        30,
        "not older than the last edit|a live agent has what is stored",
    ),  # H1
    Mutation(what_learning_costs_is_not_told_to_a_live_agent, "facts-under-faults", 0, 10, _LIVE_BUDGET),
    Mutation(
        a_change_by_its_own_turn_makes_a_stale_conversation_current, "shared-block-edits", 54, 120, "has what is stored"
    ),
    Mutation(a_context_read_before_it_was_emptied_comes_back, "delete-and-reset", 6, 40, "emptied history|a live chat"),
    Mutation(a_companion_is_not_told_of_a_block_it_shares, "agents-write-to-each-other", 1, 10, "has what is stored"),
    Mutation(an_abandoned_turn_keeps_its_claim, "abandoned-jobs", 0, 20, "told as failed is over"),
    Mutation(a_stream_goes_by_the_age_of_its_events_alone, _TURNS, 0, 20, "a stream is kept for its time"),
    Mutation(a_month_has_thirty_days, "api-model-of-limits", 4, 30, "told why|shown as it is held"),
    Mutation(the_question_of_a_cancelled_turn_is_delivered, _GROUPS, 3, 20, "a cancelled turn is not heard"),
    Mutation(only_the_last_piece_of_a_summary_is_counted, _USAGE, 2, 20, "provider charged is recorded|has used what"),
    Mutation(a_summary_forgets_the_pieces_before, _USAGE, 5, 20, "a summary has what left the context"),
    Mutation(
        a_compaction_in_the_middle_of_a_turn_may_take_its_question, "small-context-windows", 9, 40, "answer|question"
    ),
    Mutation(a_callback_that_met_a_failing_disk_is_forgotten, _BEHIND, 9, 30, "a callback comes at least once"),
    Mutation(a_companion_does_not_hear_what_its_agent_says, _GROUPS, 1, 10, "hears everything once"),
    Mutation(the_members_of_a_group_hear_only_its_client, _GROUPS, 1, 10, "hear each other"),
)


def a_function_that_failed_leaves_its_work_in_the_group(patch: pytest.MonkeyPatch) -> None:
    original = group_commit._Group._undo_one

    def undo_one(self: Any, error: Exception, kept: int, *, savepoint: bool) -> None:
        with contextlib.suppress(group_commit._FunctionFailed):
            original(self, error, kept, savepoint=savepoint)

    patch.setattr(group_commit._Group, "_undo_one", undo_one)


@dataclass(frozen=True)
class UnitMutation:
    """A planted bug that `test`, a test function without fixtures, notices and no scenario does."""

    apply: Callable[[pytest.MonkeyPatch], None]
    test: Callable[[], None]


def answers_that_are_stored_may_be_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TurnStream, "sealed", lambda *_, **__: None)


TESTED = (
    # A scenario would need a database that fails right after the answers are stored and before the reply.
    UnitMutation(
        answers_that_are_stored_may_be_sent_again,
        test_event_buffer.test_the_end_of_a_turn_that_broke_off_says_whether_its_input_is_stored,
    ),
    # Few functions refuse after they wrote, and rarely behind others in a group.
    UnitMutation(
        a_function_that_failed_leaves_its_work_in_the_group,
        test_commit_group.test_a_function_that_refuses_leaves_nothing_of_its_work,
    ),
    # Other bounds end such a turn as well, later.
    UnitMutation(
        refusals_of_a_prompt_are_not_counted,
        test_compaction.test_a_prompt_that_is_refused_again_and_again_ends_the_turn,
    ),  # K2
)
