"""Planted bugs that were written without a look at the tests, and that the tests or the simulation missed at first.

`tests/sim/mutations.py` has the others, and describes how they are used.
"""

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import bindparam, select, tuple_, update

from kelpie.accounts.authentication import Authenticator
from kelpie.accounts.quotas.organization_database import OrganizationDatabase
from kelpie.accounts.quotas.quotas import Quotas
from kelpie.agent.events import event_json, event_recorder
from kelpie.agent.inbox import cancel
from kelpie.agent.journal import history_repair
from kelpie.agent.live.live_agent import LiveConversation
from kelpie.agent.maintenance.run_callbacks import RunCallbacks
from kelpie.agent.maintenance.staged_agents import StagedAgents
from kelpie.agent.resources import agent_file_exports, agent_file_imports
from kelpie.agent.resources.conversations import conversation_opening
from kelpie.agent.templates import migration
from kelpie.agent.tool_calls import approval_withdrawal
from kelpie.agent.turn import activation, approval_answers, duplicate_sends, recovery, tool_phase, turn_state
from kelpie.agent.turn import loop as turn_loop
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.conversations.messages import ApprovalDecision
from kelpie.core.conversations.runs import UNFINISHED, RunStatus
from kelpie.core.errors import Conflict, KelpieError
from kelpie.storage.blocks import attachments
from kelpie.storage.conversations import approvals, conversations, message_search, messages
from kelpie.storage.runs import filters as run_filters
from kelpie.storage.runs import input as run_input
from kelpie.storage.runs import runs
from kelpie.storage.tables import conversations as conversations_table
from kelpie.storage.tables import runs as runs_table
from tests.sim.mutations import Mutation


def answers_committed_before_a_crash_count_for_nothing(patch: pytest.MonkeyPatch) -> None:
    async def begun(*_: Any) -> bool:
        return False

    patch.setattr(recovery, "_has_begun", begun)


def a_run_that_is_resumed_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    unfinished = runs_table.c.status.in_([status.value for status in UNFINISHED])
    node = {"owner": bindparam("node_id"), "owner_incarnation": bindparam("node_incarnation")}
    statement = update(runs_table).where(runs_table.c.id == bindparam("of_run"), unfinished)
    patch.setattr(runs, "_TAKE_UP", statement.values(status=RunStatus.running.value, **node))


def a_committed_step_is_called_off(patch: pytest.MonkeyPatch) -> None:
    """Where the last batch begins with its previews."""
    original = event_recorder.call_off

    def call_off(tx: Any, run_id: Any, life: int, at: int) -> None:
        last = event_recorder.run_events.newest(tx, run_id)
        if last and event_json.is_preview(last[0]):
            known = SimpleNamespace(newest=lambda *_: last[:1], append=event_recorder.run_events.append)
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(event_recorder, "run_events", known)
                original(tx, run_id, life, at)

    patch.setattr(event_recorder, "call_off", call_off)


def answers_count_in_every_conversation_of_the_agent(patch: pytest.MonkeyPatch) -> None:
    original = approval_answers._again

    def again(tx: Any, conversation: Any, sent: Any) -> Any:
        def answering(tx: Any, agent_id: Any, most: int) -> Any:
            found = messages.answering(tx, agent_id, most)
            return [replace(row, conversation_id=conversation.conversation or None) for row in found]

        with pytest.MonkeyPatch.context() as inner:
            everywhere = SimpleNamespace(
                answering=answering, get_many=messages.get_many, of_run=messages.of_run, of_runs=messages.of_runs
            )
            inner.setattr(approval_answers, "messages", everywhere)
            return original(tx, conversation, sent)

    patch.setattr(approval_answers, "_again", again)


def an_answer_with_other_arguments_is_the_same_again(patch: pytest.MonkeyPatch) -> None:
    original = approval_answers._same

    def same(one: Any, other: Any) -> bool:
        if isinstance(one, ApprovalDecision) and isinstance(other, ApprovalDecision):
            one = replace(one, arguments=other.arguments)
        return original(one, other)

    patch.setattr(approval_answers, "_same", same)


def a_quota_of_messages_alone_is_not_held(patch: pytest.MonkeyPatch) -> None:
    original = OrganizationDatabase.transact

    async def transact(self: Any, fn: Any) -> Any:
        limits = self._quotas.limits(self._organization)
        if limits.agents or limits.stored_mb:
            return await original(self, fn)
        await self._gate.passed(self._organization)
        return await self._database.transact(fn)

    patch.setattr(OrganizationDatabase, "transact", transact)


def a_quota_of_requests_permits_one_more(patch: pytest.MonkeyPatch) -> None:
    original = Quotas.count_request

    def count_request(self: Any, organization: Any) -> None:
        limit = self.limits(organization).requests_per_minute
        if limit and self.requests(organization) == limit:
            self._requests[organization] += 1
        else:
            original(self, organization)

    patch.setattr(Quotas, "count_request", count_request)


def a_deleted_user_is_known_for_a_while(patch: pytest.MonkeyPatch) -> None:
    def forget(self: Any) -> None:
        self._passes.forget()
        self._unknown.forget()

    patch.setattr(Authenticator, "forget", forget)


def the_cleanup_takes_agents_that_are_being_imported(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StagedAgents, "held", lambda *_: nullcontext())


def an_imported_context_of_one_message_is_lost(patch: pytest.MonkeyPatch) -> None:
    original = agent_file_imports._show

    def show(tx: Any, agent_id: Any, some: tuple[Any, ...], first: int) -> None:
        if len(some) > 1 or first:
            original(tx, agent_id, some, first)

    patch.setattr(agent_file_imports, "_show", show)


def a_migration_replaces_what_is_preserved(patch: pytest.MonkeyPatch) -> None:
    original = migration._update

    def change(tx: Any, there: Any, *given: Any) -> Any:
        return original(tx, replace(there, preserve_on_migration=False), *given)

    patch.setattr(migration, "_update", change)


def a_migration_deletes_a_block_that_others_have(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(migration, "_remove", lambda tx, _agent_id, block: migration.blocks.delete(tx, block.id))


def a_rewritten_message_is_listed_as_it_was(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "_VERSION", tuple(name for name in messages._VERSION if name != "checksum"))
    patch.setattr(messages, "_selecting", messages._selecting.__wrapped__)


def a_callback_that_could_not_be_recorded_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    original = RunCallbacks._send

    async def send(self: Any, client: Any, owed: Any) -> None:
        try:
            await original(self, client, owed)
        except KelpieError:
            await asyncio.Event().wait()  # and is known for ever

    patch.setattr(RunCallbacks, "_send", send)


def new_settings_of_a_conversation_have_no_version(patch: pytest.MonkeyPatch) -> None:
    row = conversations.conversations.c

    def statement(names: tuple[str, ...]) -> Any:
        new = {name: bindparam(f"new_{name}", type_=row[name].type) for name in names}
        return update(conversations.conversations).where(row.id == bindparam("of_conversation")).values(new)

    patch.setattr(conversations, "_update", statement)


def who_sees_a_conversations_copy_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attachments, "agents_seeing", attachments.agents_with)


def a_conversation_forgets_when_its_last_run_ended(patch: pytest.MonkeyPatch) -> None:
    statement = update(conversations_table).where(conversations_table.c.id == bindparam("of_conversation"))
    patch.setattr(
        conversations, "_RECORD_RUN", statement.values(last_message_at=bindparam("at"), updated_at=bindparam("at"))
    )


def the_runs_of_the_default_conversation_are_all_runs(patch: pytest.MonkeyPatch) -> None:
    original = run_filters._given

    def given(query: Any) -> dict[str, Any]:
        return {name: value for name, value in original(query).items() if name != "default_conversation"}

    patch.setattr(run_filters, "_given", given)


def the_instructions_of_one_turn_stay(patch: pytest.MonkeyPatch) -> None:
    original = LiveConversation._override

    def override(self: LiveConversation, new: Any) -> None:
        kept = (self._agent, self._frame)
        original(self, new)
        if new is None:
            self._agent, self._frame = kept

    patch.setattr(LiveConversation, "_override", override)


def a_search_of_messages_has_no_end(patch: pytest.MonkeyPatch) -> None:
    original = message_search._given

    def given(wanted: Any) -> dict[str, Any]:
        return {name: value for name, value in original(wanted).items() if name != "created_to"}

    patch.setattr(message_search, "_given", given)


def the_name_of_a_sender_is_lost(patch: pytest.MonkeyPatch) -> None:
    original = turn_loop.input_row
    patch.setattr(turn_loop, "input_row", lambda run, message, ids: replace(original(run, message, ids), name=None))


_ACCESS, _MEMORY = "api-model-of-access", "api-model-of-memory"
_BEHIND, _FILES, _LANES, _TEMPLATES, _WAITING = (
    *("background-runs-and-readers", "agent-files", "lanes-of-one-agent", "templates"),
    "calls-that-wait",
)


def a_row_with_two_results_answers_one_call(patch: pytest.MonkeyPatch) -> None:
    """When a history is repaired."""
    original = history_repair._Repair.take  # pyright: ignore[reportPrivateUsage]

    def take(repairs: Any, row: Any) -> None:
        later = [result.call_id for result in row.tool_returns[1:]]
        left = {call_id: repairs.open[call_id] for call_id in later if call_id in repairs.open}
        original(repairs, row)
        repairs.open.update(left)

    patch.setattr(history_repair._Repair, "take", take)  # pyright: ignore[reportPrivateUsage]


def a_cancel_by_id_looks_for_the_first_run_of_a_turn(patch: pytest.MonkeyPatch) -> None:
    """Where the turn asks for approval a second time, in a later run."""

    def of_agent(tx: Any, agent_id: Any) -> list[Any]:
        return [replace(pending, runs=pending.runs[:1]) for pending in approvals.of_agent(tx, agent_id)]

    patch.setattr(cancel, "approvals", SimpleNamespace(of_agent=of_agent))


def a_retry_in_its_lane_is_said_again(patch: pytest.MonkeyPatch) -> None:
    """Where its first run was not known to this process when it came."""
    original = duplicate_sends.find_replay

    async def find_replay(database: Any, agent_id: Any, send: Any) -> Any:
        return await original(database, agent_id, send) if send.once else None

    named = SimpleNamespace(find_replay=find_replay, refuse_halfway=duplicate_sends.refuse_halfway)
    patch.setattr(activation, "duplicate_sends", named)


def a_run_of_another_conversation_counts_as_one_that_followed(patch: pytest.MonkeyPatch) -> None:
    newer = tuple_(runs_table.c.created_at, runs_table.c.id) > tuple_(bindparam("since"), bindparam("of_run"))
    statement = select(runs_table.c.id).where(runs_table.c.agent_id == bindparam("of_agent"), newer)
    patch.setattr(runs, "_NEWER", statement.limit(1))


def a_chain_of_agents_is_stored_only_where_one_waits(patch: pytest.MonkeyPatch) -> None:
    original = run_input._optional_to_json

    def to_json(given: Any) -> Any:
        found = original(given)
        return {name: value for name, value in found.items() if name != "chain" or given.chain.waiting}

    patch.setattr(run_input, "_optional_to_json", to_json)


def a_withdrawal_forgets_what_was_answered(patch: pytest.MonkeyPatch) -> None:
    original = approval_withdrawal._result

    def result(call: Any, answer: Any, why: str) -> Any:
        ours = isinstance(answer, ApprovalDecision) and answer.reason == why
        return original(call, answer if ours else None, why)

    patch.setattr(approval_withdrawal, "_result", result)


def a_second_request_of_a_turn_knows_its_own_run_only(patch: pytest.MonkeyPatch) -> None:
    original = tool_phase.approval_matching.pending_of

    def pending_of(request: Any, _earlier: Any, conversation: Any) -> Any:
        return original(request, (), conversation)

    patch.setattr(tool_phase.approval_matching, "pending_of", pending_of)


def a_cancel_of_a_conversation_is_of_the_whole_agent(patch: pytest.MonkeyPatch) -> None:
    async def of_thread(self: Any, agent_id: Any, _conversation: Any, nothing: str) -> Any:
        if not (ended := await self._cancel(agent_id, lambda _run_id, _its: True)):
            raise Conflict(nothing)
        return ended

    patch.setattr(cancel.Cancellations, "_of_thread", of_thread)


def a_turn_does_not_say_how_it_was_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SendRequest, "metadata", property(lambda _: {}))


def a_run_counts_its_time_to_the_first_word_from_its_last_step(patch: pytest.MonkeyPatch) -> None:
    original = turn_state.TurnState.counted

    def counted(self: Any, usage: Any, first_ns: int) -> None:
        original(self, usage, first_ns)
        self._change(replace(self.run, ttft_ns=None if self.run.step_count > 1 else self.run.ttft_ns))

    patch.setattr(turn_state.TurnState, "counted", counted)


def answers_are_stored_without_their_request(patch: pytest.MonkeyPatch) -> None:
    """Where the run that brings them waited in the background."""

    def replace_input(*_: Any) -> None:
        return

    patch.setattr(runs, "replace_input", replace_input)


def a_callback_that_is_being_sent_is_not_known(patch: pytest.MonkeyPatch) -> None:
    original = RunCallbacks._send  # pyright: ignore[reportPrivateUsage]

    async def send(self: Any, client: Any, owed: Any) -> None:
        self._known.discard(owed.of)
        await original(self, client, owed)

    patch.setattr(RunCallbacks, "_send", send)


def an_exported_conversation_has_the_blocks_of_its_agent(patch: pytest.MonkeyPatch) -> None:
    def seen(tx: Any, agent_id: Any, _conversation: Any) -> Any:
        return original(tx, agent_id, None)

    original = attachments.seen
    patch.setattr(agent_file_exports, "block_attachments", SimpleNamespace(seen=seen))


def a_fork_begins_with_a_call_that_nobody_can_answer(patch: pytest.MonkeyPatch) -> None:
    def finished(said: Any) -> Any:
        whole = original(said)
        return said[: len(whole) + 1]

    original = conversation_opening._finished  # pyright: ignore[reportPrivateUsage]
    patch.setattr(conversation_opening, "_finished", finished)


UNSEEN = (
    Mutation(
        a_row_with_two_results_answers_one_call, "cancel-races-everything", 70013, 200, "a sound message is accepted"
    ),
    Mutation(
        a_cancel_by_id_looks_for_the_first_run_of_a_turn, "calls-that-wait", 39, 100, "a cancelled run waits no longer"
    ),
    Mutation(answers_committed_before_a_crash_count_for_nothing, _WAITING, 0, 10, "with nothing saved"),
    Mutation(a_run_that_is_resumed_is_not_counted, _BEHIND, 0, 10, "of one life|has one end"),
    Mutation(a_fork_begins_with_a_call_that_nobody_can_answer, _WAITING, 0, 5, "shows a call"),
    Mutation(a_callback_that_is_being_sent_is_not_known, _BEHIND, 0, 100, "once at a time"),
    Mutation(an_exported_conversation_has_the_blocks_of_its_agent, _LANES, 0, 20, "an agent file has what is stored"),
    Mutation(a_committed_step_is_called_off, _BEHIND, 0, 40, "called off|in order|one end"),
    Mutation(answers_count_in_every_conversation_of_the_agent, _WAITING, 0, 80, "in their conversation|unknown error"),
    Mutation(an_answer_with_other_arguments_is_the_same_again, _WAITING, 19, 60, "no acknowledged answer is lost"),
    Mutation(a_quota_of_messages_alone_is_not_held, _MEMORY, 4, 20, "a wrong request is refused"),
    Mutation(a_quota_of_requests_permits_one_more, _MEMORY, 0, 10, "a quota of requests is held"),
    Mutation(a_deleted_user_is_known_for_a_while, _ACCESS, 2, 10, "users that exist"),
    Mutation(the_cleanup_takes_agents_that_are_being_imported, _FILES, 19, 40),
    Mutation(an_imported_context_of_one_message_is_lost, _FILES, 1, 5, "an import is whole"),
    Mutation(a_migration_replaces_what_is_preserved, _TEMPLATES, 2, 10, "a preserved block"),
    Mutation(
        a_migration_deletes_a_block_that_others_have, _TEMPLATES, 4, 10, "a preserved block|a deployment is whole"
    ),
    Mutation(a_rewritten_message_is_listed_as_it_was, "api-model-of-turns", 1, 20, "what is rewritten is listed"),
    Mutation(a_callback_that_could_not_be_recorded_is_forgotten, _BEHIND, 4, 20, "a callback comes at least once"),
    Mutation(
        new_settings_of_a_conversation_have_no_version,
        _LANES,
        0,
        40,
        "not older than the last edit|has what is stored",
    ),
    Mutation(who_sees_a_conversations_copy_is_not_told, _LANES, 6, 20, "has what is stored|not older than the last"),
    Mutation(a_conversation_forgets_when_its_last_run_ended, "api-model-of-fields", 0, 10, "rows agree"),
    Mutation(the_runs_of_the_default_conversation_are_all_runs, "api-model-of-fields", 0, 10, "a list is what is"),
    Mutation(the_instructions_of_one_turn_stay, "api-model-of-turns", 0, 20, "has what is stored|has the memory"),
    Mutation(a_search_of_messages_has_no_end, "api-model-of-turns", 0, 20, "passes its filters"),
    Mutation(a_retry_in_its_lane_is_said_again, "api-model-of-turns", 2, 10, "that comes again"),
    Mutation(
        a_run_of_another_conversation_counts_as_one_that_followed, _BEHIND, 1, 10, "that comes again is said once"
    ),
    Mutation(
        a_chain_of_agents_is_stored_only_where_one_waits, "agents-write-to-each-other", 1, 5, "how far it is from"
    ),
    Mutation(a_withdrawal_forgets_what_was_answered, _WAITING, 1, 5, "a result is what was said"),
    Mutation(a_second_request_of_a_turn_knows_its_own_run_only, _WAITING, 1, 20, "knows the runs of its turn"),
    Mutation(a_cancel_of_a_conversation_is_of_the_whole_agent, _WAITING, 2, 5, "a cancel is of one conversation"),
    Mutation(a_turn_does_not_say_how_it_was_asked_for, "api-model-of-turns", 2, 10, "kept as it was asked for"),
    Mutation(
        a_run_counts_its_time_to_the_first_word_from_its_last_step, "many-agents", 1, 5, "when its first word came"
    ),
    Mutation(
        answers_are_stored_without_their_request, _WAITING, 9, 20, "knows its request|knows the runs|a sound chat"
    ),
    Mutation(the_name_of_a_sender_is_lost, "api-model-of-turns", 0, 20, "kept as it was given"),
)
