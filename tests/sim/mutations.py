"""Ways to break Kelpie on purpose: each cuts one propagation of an error, or puts a bug back that was found and fixed.

A mutation changes the real code for the length of a test; a scenario must turn red with the seed written down beside
it. Where that seed no longer does, the stated range is searched and the test says which seed to write down instead.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from sqlalchemy import Update, update

from kelpie.accounts import authentication
from kelpie.accounts.identities import Identities
from kelpie.accounts.passports import Passports
from kelpie.accounts.quotas import organization_database
from kelpie.accounts.quotas.organization_database import MemoryGate
from kelpie.actors import actor, mailbox, slots
from kelpie.agent.client_histories import lookup
from kelpie.agent.compaction.summarizer import Summarizer
from kelpie.agent.compaction.summary_limit import SummaryLimit
from kelpie.agent.companions import schedule as companion_schedule
from kelpie.agent.events import event_recorder
from kelpie.agent.events.cancellation import Cancellation
from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.events.turn_events import TurnEnded
from kelpie.agent.inbox import cancel
from kelpie.agent.inbox import send as sending
from kelpie.agent.inbox.wait_graph import WaitGraph
from kelpie.agent.journal import commits as journal
from kelpie.agent.journal import message_rows as journal_rows
from kelpie.agent.journal import run_endings, step_commit
from kelpie.agent.journal.entries import CommitResult
from kelpie.agent.live import live_agent, spending
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.maintenance import approval_expiry
from kelpie.agent.maintenance.cleanup import Cleanup
from kelpie.agent.maintenance.memory_changes import MemoryChanges
from kelpie.agent.maintenance.recovery import Recovery
from kelpie.agent.maintenance.worker import MaintenanceWorker
from kelpie.agent.prompt import context
from kelpie.agent.resources import agents, manual_tool_call
from kelpie.agent.resources.conversations.conversations import Conversations
from kelpie.agent.resources.manual_tool_runs import ManualToolRuns
from kelpie.agent.templates.migration import Migration
from kelpie.agent.tool_calls.execution import run_inside
from kelpie.agent.turn import activation, duplicate_sends, model_call, step_committer, tool_phase, turn_state
from kelpie.batches import runner as batch_runner
from kelpie.core.agents.agent import EVERYTHING, AgentView, ToolRule
from kelpie.core.agents.templates import NewVersion, Template
from kelpie.core.conversations import client_histories
from kelpie.core.conversations.batches import ItemStatus
from kelpie.core.conversations.messages import Text, Usage
from kelpie.core.errors import CommitUnknown, InvalidInput, ModelError, StorageError, ToolError
from kelpie.core.ids import MessageId, StepId
from kelpie.core.permissions.budgets import SpentAmount
from kelpie.core.permissions.quotas import NOTHING_USED, Quota
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.encryption import rotation
from kelpie.encryption.rotation import KeyRotation
from kelpie.fairness import fair_queue, fair_slots
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.files.processing import FileProcessing
from kelpie.llm.openai.chat_reply import Assembly
from kelpie.llm.provider.interface import Reply
from kelpie.llm.routing import models
from kelpie.llm.routing.discovered_servers import DiscoveredServers
from kelpie.llm.routing.models import Models
from kelpie.llm.routing.own_providers import OwnProviders
from kelpie.memory import embedding_backlog
from kelpie.memory.archives import Archives
from kelpie.memory.blocks import Blocks
from kelpie.memory.embeddings import Embeddings
from kelpie.sandbox.port import SandboxJob
from kelpie.sandbox.process import ProcessSandbox
from kelpie.search import scope_removal, vector_rows
from kelpie.server.edge import cell_listener, cell_refusals
from kelpie.server.edge.cell_listener import CellApi
from kelpie.server.mcp import turn_tasks
from kelpie.sim.ports import database
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.agents import ownership_fence, removal, staging
from kelpie.storage.archives import passages
from kelpie.storage.archives import removal as archive_removal
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from kelpie.storage.blocks import history as block_history
from kelpie.storage.conversations import approvals, client_turns, conversations, message_rows, messages
from kelpie.storage.encryption import columns, sealing
from kelpie.storage.files import opening, views
from kelpie.storage.rows.checksums import checksum
from kelpie.storage.runs import journal_keys
from kelpie.storage.tables import removed_agents, template_versions
from kelpie.storage.templates import templates as template_rows
from kelpie.storage.tools import tools as tool_rows
from kelpie.storage.views import agents as agent_views
from kelpie.tools.custom import result_cache
from kelpie.tools.custom import runner as custom_runner
from kelpie.tools.custom.environments import Environments
from kelpie.tools.registry import writes as tool_writes
from kelpie.tools.registry.registry import Tools
from kelpie.tools.schema.source_reader import SourceReader
from kelpie.tools.web import fetch_webpage, web_search
from kelpie.world.cells.port import Cell
from kelpie.world.database import Tx
from kelpie.world.keyring import Keyring
from kelpie.world.sqlite import group_commit
from kelpie.world.statements import Prepared


@dataclass(frozen=True)
class Mutation:
    """`scenario` turns red with `seed`, which was found by search, or at least within the first `seeds` seeds.

    `broken` is a pattern of the invariants that may say so.
    """

    apply: Callable[[pytest.MonkeyPatch], None]
    scenario: str
    seed: int
    seeds: int
    broken: str = ""


def imported_agents_are_seen_before_they_are_whole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(staging, "stage", lambda tx, agent, now: agent_rows.create(tx, agent))
    patch.setattr(staging, "publish", lambda tx, agent_id, organization: None)


def a_rollback_forgets_the_versions_after_it(patch: pytest.MonkeyPatch) -> None:
    original = template_rows.roll_back

    def roll_back(tx: Tx, template: Template, number: int, now: int, user: str) -> Template:
        return original(tx, replace(template, latest=number), number, now, user)

    patch.setattr(template_rows, "roll_back", roll_back)


def an_update_changes_a_saved_version(patch: pytest.MonkeyPatch) -> None:
    def put(tx: Tx, organization: str, template: Template, new: NewVersion, *_: Any) -> Template:
        changed = {"document": new.document, "checksum": checksum(new.document)}
        rows = template_versions.c
        tx.execute(
            update(template_versions)
            .where(rows.template_id == template.id, rows.number == template.base)
            .values(changed)
        )
        return template

    patch.setattr(template_rows, "put", put)


def a_migration_forgets_the_blocks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Migration, "_blocks", lambda *_: [])


def those_who_ask_each_other_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitGraph, "_reaches", lambda self, start, goal: False)


def the_work_of_a_companion_is_counted_and_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(companion_schedule, "_begin", lambda *arguments: ())


def an_open_commit_that_failed_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    original = journal.open_turn

    async def open_turn(*arguments: Any) -> None:
        try:
            await original(*arguments)
        except StorageError:
            return

    patch.setattr(journal, "open_turn", open_turn)


def a_step_commit_that_failed_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    original = step_commit.write_step

    async def write_step(database: Any, position: Any, loaded: Any, entry: Any) -> CommitResult:
        try:
            return await original(database, position, loaded, entry)
        except StorageError:
            decision = step_commit._decide(loaded, entry, entry.rows)
            run = run_endings.ended(position.run, decision.stop, entry.frame.at) if decision.stop else position.run
            events = step_commit._events(entry.rows, entry, loaded)
            return CommitResult(entry.rows, run, loaded, decision.stop, events)

    patch.setattr(step_commit, "write_step", write_step)


def an_unknown_commit_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal_keys, "has", lambda *_: True)


def an_unknown_commit_is_taken_for_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal_keys, "has", lambda *_: False)


def an_unknown_commit_that_cannot_be_looked_up_is_told_as_lost(patch: pytest.MonkeyPatch) -> None:
    original = journal.commit

    async def commit(*arguments: Any) -> Any:
        try:
            return await original(*arguments)
        except CommitUnknown as unknown:
            if isinstance(unknown.__cause__, StorageError):
                raise unknown.__cause__ from None
            raise

    patch.setattr(journal, "commit", commit)


def a_write_in_doubt_is_told_to_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "reread_everything", lambda *_: None)


def a_write_whose_caller_is_gone_is_told_to_nobody(patch: pytest.MonkeyPatch) -> None:
    original = group_commit.in_doubt
    patch.setattr(database, "in_doubt", lambda outcome, awaited: original(outcome, awaited=True))


def a_turn_that_is_cut_off_may_be_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(activation, "CommitUnknown", StorageError)


def a_turn_goes_on_without_its_history(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "has_run", lambda *_: True)


def an_emptied_history_stays_in_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LiveConversation, "forget", lambda self: setattr(self, "stale", True))


def edits_are_told_to_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LiveAgents, "reload", lambda *_: None)


def an_old_key_is_removed_while_secrets_use_it(patch: pytest.MonkeyPatch) -> None:
    async def none(self: KeyRotation) -> rotation._Pass:
        return rotation._Pass(0, 0, ())

    async def unused(self: KeyRotation) -> set[str]:
        return set()

    patch.setattr(KeyRotation, "_encrypt_all", none)
    patch.setattr(KeyRotation, "_used_keys", unused)


def stored_providers_are_read_once(patch: pytest.MonkeyPatch) -> None:
    load = OwnProviders.load

    async def once(self: OwnProviders) -> None:
        if not self.opened:
            await load(self)

    patch.setattr(OwnProviders, "load", once)


def a_deleted_provider_stays(patch: pytest.MonkeyPatch) -> None:
    async def keep(self: OwnProviders, name: str) -> None:
        return

    patch.setattr(OwnProviders, "_drop", keep)


def organizations_share_their_own_providers(patch: pytest.MonkeyPatch) -> None:
    of = Models.of

    def first(self: Models, organization: str) -> Models:
        return next(iter(self._organizations.values()), None) or of(self, organization)

    patch.setattr(Models, "of", first)


def a_rotation_leaves_out_the_keys_of_providers(patch: pytest.MonkeyPatch) -> None:
    kept = [each for each in columns.ENCRYPTED if each.table.name != "providers"]
    patch.setattr(columns, "ENCRYPTED", kept)


def a_key_is_used_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    async def add(self: Keyring, key: Any) -> None:
        self._stored.insert(0, key)
        self._known[key.id] = key

    patch.setattr(Keyring, "add", add)


def a_secret_is_encrypted_with_the_key_of_the_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sealing.Sealing, "key", lambda self, tx: self.keyring.find(min(self.keyring._known)))


def a_rotation_is_not_taken_up_again(patch: pytest.MonkeyPatch) -> None:
    original = KeyRotation.open

    async def opened(self: KeyRotation, lost: str | None) -> bool:
        plain = await original(self, lost)
        self._wanted.clear()
        return plain

    patch.setattr(KeyRotation, "open", opened)


def a_history_is_continued_more_than_once(patch: pytest.MonkeyPatch) -> None:
    """A client regenerates an answer, and the same conversation goes on instead of a copy."""
    patch.setattr(lookup, "is_head", lambda tx, known: True)
    patch.setattr(client_turns, "continue_once", lambda tx, turn_id: True)


def words_that_a_client_sent_are_the_answer(patch: pytest.MonkeyPatch) -> None:
    """What a client says that the assistant has said counts as said by the model."""
    patch.setattr(client_histories, "replies_of", lambda rows: [row for row in rows if row.is_reply])


def an_id_of_a_message_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A client that repeats its call to /mcp under the same message id is heard twice."""
    original = turn_tasks.begin

    async def begin(peer: Any, agent_id: Any, text: str, message_id: str | None, conversation: str) -> Any:
        return await original(peer, agent_id, text, None, conversation)

    patch.setattr(turn_tasks, "begin", begin)


def an_edit_is_made_in_two_steps(patch: pytest.MonkeyPatch) -> None:
    """A block is read in one transaction and written in another."""

    async def edit_by_label(self: Blocks, agent_id: Any, label: str, edit: Any) -> Any:
        before = await self.of_agent_by_label(agent_id, label)
        return await self.update_by_label(agent_id, label, {"value": edit(before.value)})

    patch.setattr(Blocks, "edit_by_label", edit_by_label)


def a_search_has_no_limit(patch: pytest.MonkeyPatch) -> None:
    """A web search waits for its provider for as long as the provider likes."""
    patient = SimpleNamespace(**vars(asyncio))
    patient.timeout = lambda _: asyncio.timeout(100.0)
    patch.setattr(web_search, "asyncio", patient)


def a_rate_limit_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    """A search provider that wants to be left alone is asked again at once."""
    patch.setattr(web_search.RateLimit, "rest", lambda self, seconds: None)


def a_page_that_breaks_off_is_taken(patch: pytest.MonkeyPatch) -> None:
    """A page whose connection broke is read as far as it came."""

    async def read(response: httpx.Response, bytes_max: int) -> bytes:
        data = b""
        with contextlib.suppress(httpx.HTTPError):
            async for chunk in response.stream:  # pyright: ignore[reportGeneralTypeIssues]
                data += chunk
        return data

    patch.setattr(fetch_webpage, "read_body", read)


def the_fence_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ownership_fence, "advance", lambda *_: None)


def lanes_share_one_context(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LiveAgent, "find", lambda self, _conversation: self.main)


def a_conversation_writes_to_the_agents_block(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(block_attachments, "own_by_label", lambda *_: None)


def what_nobody_works_on_is_told_cancelled_and_stays(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_arguments: Any) -> Any:
        return cancel._Closed((), said=False)

    patch.setattr(cancel.Cancellations, "_close_rest", nothing)


def a_cancelled_turn_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cancellation, "request", lambda self: None)
    patch.setattr(cancel, "WAIT_S", 0.0)
    patch.setattr(cancel, "NOT_ENDED", cancel.ENDED)


def what_waits_is_forgotten_with_the_process(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(context, "approvals", SimpleNamespace(get=lambda *_: None))


def calls_after_a_pause_are_made(patch: pytest.MonkeyPatch) -> None:
    def forget(tx: Any, planned: Any, context: Any) -> Any:
        given_back, outcome = run_inside(tx, planned, context)
        return given_back, outcome and replace(outcome, ends_turn=None)

    patch.setattr(step_commit, "run_inside", forget)


def permissions_are_asked_once_a_reply(patch: pytest.MonkeyPatch) -> None:
    async def as_before(_self: Any, batch: Any, _of_step: Any) -> Any:
        return list(batch)

    patch.setattr(tool_phase.ToolPhase, "_still_permitted", as_before)


def calls_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step_committer, "record_usage", lambda *_: None)


def usage_read_during_a_commit_counts_it_twice(patch: pytest.MonkeyPatch) -> None:
    original = step_committer.record_usage

    def record(live: Any, _reads: int, *recorded: Any) -> None:
        original(live, live.usage_reads, *recorded)

    patch.setattr(step_committer, "record_usage", record)


def results_of_a_crash_are_not_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run_endings, "orphan_records", lambda *_: [])
    patch.setattr(step_commit, "orphan_records", lambda *_: [])
    patch.setattr(step_commit, "call_records", _without_interrupted)


def _without_interrupted(*arguments: Any) -> Any:
    found = journal_rows.call_records(*arguments)
    return tuple(record for record in found if record.outcome.value != "interrupted")


def nothing_is_recovered(patch: pytest.MonkeyPatch) -> None:
    async def nothing(_worker: MaintenanceWorker) -> None:
        return

    patch.setattr(MaintenanceWorker, "run", nothing)


def recovery_is_tried_once(patch: pytest.MonkeyPatch) -> None:
    async def once(self: MaintenanceWorker) -> None:
        with contextlib.suppress(StorageError):
            await self._recovery.recover_all()
        await asyncio.Event().wait()

    patch.setattr(MaintenanceWorker, "run", once)


def a_context_keeps_the_results_that_healed_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LiveConversation, "reread", lambda self: None)


def an_interrupted_outside_call_is_run_again(patch: pytest.MonkeyPatch) -> None:
    async def answer_interrupted(self: tool_phase.ToolPhase, reply: Any, left: Any) -> bool:
        earlier = [row for row in self._state.rows if row.step_id != reply.step_id]
        planned = await self.plan(reply.tool_calls, earlier, reply.step_id, self._decisions(reply))
        again = [each for each in planned.calls if each.parsed.call in left]
        return await self._answer_one_by_one(reply.step_id, again)

    patch.setattr(tool_phase.ToolPhase, "answer_interrupted", answer_interrupted)


def the_listener_is_not_told_of_a_failure(patch: pytest.MonkeyPatch) -> None:
    original = TurnStream.emit

    def tell(self: TurnStream, event: Any) -> None:
        if not (isinstance(event, TurnEnded) and event.error):
            original(self, event)

    patch.setattr(TurnStream, "emit", tell)


def a_client_that_leaves_takes_its_turn_with_it(patch: pytest.MonkeyPatch) -> None:
    events, commit = TurnStream.events, step_committer.StepCommitter.commit
    left: set[TurnStream] = set()

    async def listened(self: TurnStream) -> Any:
        ended = False
        try:
            async for event in events(self):
                ended = isinstance(event, TurnEnded)
                yield event
        finally:
            if not ended:
                left.add(self)

    async def committed(self: step_committer.StepCommitter, entry: Any) -> bool:
        if self._state.sink in left:
            raise asyncio.CancelledError
        return await commit(self, entry)

    patch.setattr(TurnStream, "events", listened)
    patch.setattr(step_committer.StepCommitter, "commit", committed)


def a_turn_that_goes_on_forgets_its_calls(patch: pytest.MonkeyPatch) -> None:
    original = turn_state.TurnState.__init__

    def begin(self: turn_state.TurnState, *arguments: Any) -> None:
        original(self, *arguments)
        self.rows = []

    patch.setattr(turn_state.TurnState, "__init__", begin)


def a_call_that_was_turned_away_counts(patch: pytest.MonkeyPatch) -> None:
    original = message_rows._return_from_json
    patch.setattr(message_rows, "_return_from_json", lambda data: replace(original(data), untried=False))


def a_commit_that_failed_is_acknowledged(patch: pytest.MonkeyPatch) -> None:
    original = group_commit._Group._commit

    def commit(self: Any, outcomes: list[Any]) -> list[Any]:
        try:
            told = original(self, outcomes)
        except group_commit._GroupLost:
            return outcomes
        return outcomes if any(isinstance(each, group_commit.JobFailure) for each in told) else told

    patch.setattr(group_commit._Group, "_commit", commit)


def a_lost_group_is_not_replayed(patch: pytest.MonkeyPatch) -> None:
    original = group_commit._Group._undo_one

    def undo_one(self: Any, error: Exception, kept: int, *, savepoint: bool) -> None:
        try:
            original(self, error, kept, savepoint=savepoint)
        except group_commit._GroupLost:
            self.roll_back()
            self._begin()

    patch.setattr(group_commit._Group, "_undo_one", undo_one)


def a_failure_of_the_model_is_taken_for_an_answer(patch: pytest.MonkeyPatch) -> None:
    original = model_call.ModelCall._stream

    async def stream(self: model_call.ModelCall, *arguments: Any) -> model_call.ModelCallResult:
        world = self._world
        try:
            return await original(self, *arguments)
        except ModelError:
            agent, reply = arguments[0].agent, Reply((Text("I do not know."),), (), "stop", Usage())
            known = self._state.dependencies.models.of(agent.organization_id).known(agent.model.handle)
            ids, now = (world.ids.new(MessageId), world.ids.new(StepId)), world.clock.now()
            return model_call.ModelCallResult(arguments[0], reply, *ids, False, 0, 0, now, known)

    patch.setattr(model_call.ModelCall, "_stream", stream)


def an_absent_provider_hides_the_models_of_all(patch: pytest.MonkeyPatch) -> None:
    original = models.report_on

    async def report_on(listing: Any, **given: Any) -> Any:
        await listing.models()
        return await original(listing, **given)

    patch.setattr(models, "report_on", report_on)


def a_switch_of_reasoning_reaches_no_loaded_agent(patch: pytest.MonkeyPatch) -> None:
    original, first = live_agent.spec_for, dict[str, Any]()
    patch.setattr(live_agent, "spec_for", lambda agent: first.setdefault(agent.id, original(agent)))


def a_long_summary_is_not_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SummaryLimit, "fitted", lambda self, text: text)


def a_summary_is_asked_for_without_a_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Summarizer, "_output_tokens", lambda self, choice, *_, **__: choice.max_tokens)


def a_search_for_model_servers_is_the_last_one(patch: pytest.MonkeyPatch) -> None:
    look = DiscoveredServers.new

    async def once(self: DiscoveredServers) -> list[Any]:
        self._retry_s = float("inf")
        return await look(self)

    patch.setattr(DiscoveredServers, "new", once)


def a_stream_that_was_cut_is_taken_for_whole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Assembly, "finished", property(lambda self: True))


def the_mailbox_has_no_bound(patch: pytest.MonkeyPatch) -> None:
    original = mailbox.Mailbox.put
    patch.setattr(mailbox.Mailbox, "put", lambda self, job, size, retry: original(self, job, 10**9, retry))


def a_cell_that_ran_out_of_memory_keeps_its_place(patch: pytest.MonkeyPatch) -> None:
    original = ProcessSandbox._tear_down

    async def tear_down(self: ProcessSandbox, number: int, cell: Cell, job: SandboxJob) -> None:
        await original(self, number, cell, job)
        self.slots._level(job.level)._running += cell.output().out_of_memory

    patch.setattr(ProcessSandbox, "_tear_down", tear_down)


def whoever_came_first_is_served_until_nothing_of_it_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fair_queue._Round, "put_last", lambda *_: None)
    patch.setattr(fair_queue.FairQueue, "record_turn", lambda *_: None)


def one_organization_may_hold_all_slots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OrganizationShare, "allows", lambda *_: True)


def who_leaves_keeps_its_place_in_the_queue(patch: pytest.MonkeyPatch) -> None:
    """Its turn comes, and the slot that it is given is never given back."""
    original = fair_queue.FairQueue.remove

    def remove(self: Any, consumer: Any, item: Any) -> None:
        if not isinstance(item, fair_slots._Waiter) or not item.future.cancelled():
            original(self, consumer, item)

    patch.setattr(fair_queue.FairQueue, "remove", remove)


def what_a_step_has_spent_is_not_booked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step_committer, "record_usage", lambda *_: None)


def what_waits_is_forgotten_when_an_agent_is_put_away(patch: pytest.MonkeyPatch) -> None:
    original = actor.Actor._finish_unload

    def finish_unload(self: Any) -> None:
        self._mailbox.clear()
        original(self)

    patch.setattr(actor.Actor, "_finish_unload", finish_unload)


def the_size_of_an_agent_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slots.ActorSlots, "_measured", lambda *_: None)


def history_is_ordered_by_the_clock(patch: pytest.MonkeyPatch) -> None:
    original = messages.select_of_agent
    by_time = lambda *arguments: sorted(original(*arguments), key=lambda row: row.created_at)  # noqa: E731
    patch.setattr(messages, "select_of_agent", by_time)
    versions = messages.select_versions

    def versions_by_time(tx: Any, agent_id: Any, query: Any, _size_of: Any) -> list[Any]:
        found = versions(tx, agent_id, query, lambda _version: None)
        return sorted(found, key=lambda pair: pair[1].created_at if pair[1] else 0)

    patch.setattr(messages, "select_versions", versions_by_time)


def a_stop_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> None:
        return

    patch.setattr(agents.Agents, "_set_stopped", nothing)


def an_archive_leaves_its_search_entries_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(archive_removal.items, "remove_many", lambda tx, kind, item_ids: None)


def a_removed_archive_is_never_swept_up(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> None:
        return

    patch.setattr(Cleanup, "clean_up", nothing)


def what_was_stored_is_looked_up_before_it_is_told(patch: pytest.MonkeyPatch) -> None:
    original = Archives.remember

    async def remember(self: Archives, *arguments: Any) -> Any:
        archive, made = await original(self, *arguments)
        return (await self.get(archive.id))[0], made

    patch.setattr(Archives, "remember", remember)


def a_rule_is_added_to_what_was_read_before(patch: pytest.MonkeyPatch) -> None:
    async def set_approval(self: Tools, agent_id: Any, tool_name: str, on: bool) -> AgentView:
        before = await self._world.database.read(lambda tx: agent_rows.get(tx, agent_id).tool_rules)
        rules = {"tool_rules": (*before, ToolRule("requires_approval", tool_name))}
        return await self._change(agent_id, lambda tx: agent_rows.update_agent(tx, agent_id, rules, 0))

    patch.setattr(Tools, "set_approval", set_approval)


def an_agent_is_looked_at_again_after_a_block_was_hung_on_it(patch: pytest.MonkeyPatch) -> None:
    async def change(self: Blocks, agent_id: Any, change: Callable[[Any], object]) -> AgentView:
        await self._world.database.transact(change)
        return await self._world.database.read(
            lambda tx: agent_views.one(tx, agent_id, EVERYTHING, self._world.keyring)
        )

    patch.setattr(Blocks, "_change", change)


def an_identity_is_told_removed_and_stays(patch: pytest.MonkeyPatch) -> None:
    async def delete(self: Identities, identity_id: Any) -> None:
        return

    patch.setattr(Identities, "delete", delete)


def a_batch_of_blocks_is_made_one_by_one(patch: pytest.MonkeyPatch) -> None:
    async def create_many(self: Blocks, new: Any) -> list[Any]:
        return [await self.create(one) for one in new]

    patch.setattr(Blocks, "create_many", create_many)


def a_change_of_a_block_is_not_put_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(block_history, "record", lambda *_: None)


def a_rollback_does_not_look_at_the_version(patch: pytest.MonkeyPatch) -> None:
    original = blocks.update
    patch.setattr(blocks, "update", lambda *given, expected=None: original(*given))


def the_newest_version_is_swept_too(patch: pytest.MonkeyPatch) -> None:
    original = block_history.record
    patch.setattr(
        block_history, "record", lambda tx, block, fields, change: original(tx, block, fields, replace(change, kept=0))
    )


def a_revoked_key_is_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(authentication.Authenticator, "forget", lambda self: None)


def a_right_key_waits_for_wrong_ones(patch: pytest.MonkeyPatch) -> None:
    original = authentication.Authenticator._looked_up

    async def looked_up(self: Any, mark: bytes, text: str, address: str) -> Any:
        authentication._must_not_wait(self._failures, address)
        return await original(self, mark, text, address)

    patch.setattr(authentication.Authenticator, "_looked_up", looked_up)


def an_expired_token_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    original = authentication.authorization_of_token
    patch.setattr(authentication, "authorization_of_token", lambda token: replace(original(token), expires_at=None))


def a_closed_conversation_leaves_its_context_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conversations, "remove", lambda tx, found, at: conversations.change(tx, found.id, {"deleted_at": at}))


def a_conversation_that_could_not_be_closed_is_told_closed(patch: pytest.MonkeyPatch) -> None:
    original = Conversations.delete

    async def delete(self: Conversations, conversation_id: Any) -> None:
        with contextlib.suppress(StorageError):
            await original(self, conversation_id)

    patch.setattr(Conversations, "delete", delete)


def a_message_that_comes_again_is_not_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(duplicate_sends, "find", lambda *_: None)


def a_message_that_others_followed_is_taken_for_a_repeat(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(duplicate_sends.runs, "has_newer", lambda *_: False)


def a_history_stays_in_the_form_of_other_settings(patch: pytest.MonkeyPatch) -> None:
    def renew(self: Any, loaded: Any) -> None:
        self.loaded = loaded

    patch.setattr(LiveConversation, "renew", renew)


def a_turn_does_not_move_the_time_of_its_agent(patch: pytest.MonkeyPatch) -> None:
    stays = {"updated_at": agent_rows.agents.c.updated_at}
    recorded = cast("Update", agent_rows._RECORD_RUN._statement)
    patch.setattr(agent_rows, "_RECORD_RUN", Prepared(recorded.values(stays)))


def what_was_shown_and_lost_is_not_called_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(event_recorder, "call_off", lambda *_: None)


def calls_are_denied_in_half_their_time(patch: pytest.MonkeyPatch) -> None:
    original = approvals.due
    patch.setattr(approvals, "due", lambda tx, before, most: original(tx, before + 10 * MICROS_PER_SECOND, most))


def calls_of_other_conversations_are_not_listed(patch: pytest.MonkeyPatch) -> None:
    original = approvals.pending

    def pending(*given: Any) -> Any:
        return [each for each in original(*given) if not each.conversation]

    patch.setattr(approvals, "pending", pending)


def a_denial_that_came_to_nothing_is_not_made_up_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(approval_expiry, "withdraw", lambda *_: False)


def the_items_of_a_batch_are_queued_together(patch: pytest.MonkeyPatch) -> None:
    """All of an agent's items were queued at once, and one that recovery took up came after those behind it."""
    real = batch_runner._Places.__init__

    def init(self: Any, *, parallel: bool) -> None:
        real(self, parallel=parallel)
        self._each = batch_runner.PARALLEL_MAX

    patch.setattr(batch_runner._Places, "__init__", init)


def a_failed_item_of_a_batch_is_left(patch: pytest.MonkeyPatch) -> None:
    """The end of a failed run was not taken for an outcome."""
    real = batch_runner.items.settle

    def settle(tx: Any, item: Any, runs: Any, now: int) -> Any:
        after = real(tx, item, runs, now)
        return None if after is not None and after.status is ItemStatus.failed else after

    patch.setattr(batch_runner, "items", SimpleNamespace(**{**vars(batch_runner.items), "settle": settle}))


_STORAGE = "conversations-under-storage-faults"
_CRASH = "crash-at-every-journal-point"
_POINTS = 45  # of that scenario: one run for each
_WAITING = "calls-that-wait"
_EXPIRING = "waits-that-expire"
_AGENTS = "agents-write-to-each-other"
_ALLOWED = "limits-and-kept-results"
_ONE_SLOT = "one-slot-for-two-organizations"
_ROTATION = "secrets-under-rotation"
_OWN_PROVIDERS = "providers-of-organizations"
_DOORS = "code-that-calls-back"
_WEB = "web-searches-at-once"
_MCP_CLIENTS = "mcp-clients-and-power-cuts"
_OPENAI = "openai-clients-that-resend"
_RULES = "tool-rules-and-crashes"
_RULED = 57  # as many
_FULL = "disk-full-in-a-commit-group"
_SHARED = "shared-block-edits"
_HISTORY = "block-history"
_LANES = "lanes-of-one-agent"
_BEHIND = "background-runs-and-readers"
_DOUBTS = "edits-in-doubt"
_STALE = "a prompt is not older than the last edit|a live agent sees what is stored"
_CUT_OFF = "turns-cut-off"
_LONG = "long-changes-of-memory"
_AGENT_FILES = "agent-files"
_FILES = "file-uploads"
_TEMPLATES = "templates"
_REMOVALS = "delete-and-reset"
_RECORDS = "records-under-storage-faults"
_THREADS = "threads-under-storage-faults"
_TOOLBOXES = "toolboxes-under-storage-faults"
_CRUD = "crud-under-storage-faults"

_PASSAGES = "passages-under-storage-faults"


def nobody_is_told_of_a_new_file(patch: pytest.MonkeyPatch) -> None:
    begin = opening.begin

    def quietly(*given: Any) -> tuple[()]:
        begin(*given)
        return ()

    patch.setattr(opening, "begin", quietly)


def no_file_is_closed_for_another(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(views, "evict", lambda tx, agent, kept=(): [])


def an_interrupted_reading_is_not_begun_again(patch: pytest.MonkeyPatch) -> None:
    async def fail(self: FileProcessing, file: Any) -> None:
        if not file.attempts:
            await read(self, file)
        await asyncio.sleep(30.0)

    read = FileProcessing._read  # pyright: ignore[reportPrivateUsage]
    patch.setattr(FileProcessing, "_read", fail)


def what_is_damaged_is_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(passages, "checksum", lambda *_: 1)


def a_removed_passage_leaves_its_vectors_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(vector_rows, "remove_many", lambda tx, kind, item_ids: None)


def what_a_cell_has_asked_for_goes_on_behind_its_call(patch: pytest.MonkeyPatch) -> None:
    async def end(self: CellApi) -> None:
        return

    patch.setattr(CellApi, "end", end)


def a_passport_of_another_call_opens_the_door(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cell_listener, "hmac", SimpleNamespace(compare_digest=lambda given, shown: True))


def a_passport_is_not_taken_back(patch: pytest.MonkeyPatch) -> None:
    original = Passports.issued
    kept: list[Any] = []

    @contextlib.contextmanager
    def issued(self: Passports, passport: Any) -> Any:
        kept.append(original(self, passport))
        yield kept[-1].__enter__()

    patch.setattr(Passports, "issued", issued)


def code_may_ask_whom_it_works_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sending, "on_behalf", lambda send, other, passport: send)
    patch.setattr(WaitGraph, "_reaches", lambda self, start, goal: False)


def a_refusal_to_code_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    async def turned_away(
        self: ManualToolRuns, note: manual_tool_call.Note, error: ToolError, ended: Any = None
    ) -> Any:
        return manual_tool_call.failed(note.tool, error)

    patch.setattr(ManualToolRuns, "_turned_away", turned_away)


def what_code_is_refused_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    async def record(*_: Any) -> None:
        return

    patch.setattr(cell_refusals, "_record", record)


def a_source_that_could_not_be_read_is_stored(patch: pytest.MonkeyPatch) -> None:
    original = SourceReader._read

    async def read(self: SourceReader, task: str, text: str, arguments: Any = None) -> Any:
        try:
            return await original(self, task, text, arguments)
        except InvalidInput as error:
            if "process" not in error.remedy and "memory" not in error.remedy:
                raise
            return {"name": text.split()[1].partition("(")[0], "description": "", "parameters": {}}

    patch.setattr(SourceReader, "_read", read)


def everybody_installs_the_same_packages(patch: pytest.MonkeyPatch) -> None:
    original = Environments._installed

    async def installed(self: Environments, *arguments: Any) -> str:
        self._under_way.clear()
        return await original(self, *arguments)

    patch.setattr(Environments, "_installed", installed)


def a_new_version_of_a_tool_is_told_to_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tool_writes, "upsert", lambda tx, tool: (tool_rows.upsert(tx, tool)[0], ()))


def a_kept_result_takes_again_what_it_took(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(result_cache, "replace", lambda outcome, **zeros: outcome)


def results_are_kept_for_an_hour(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(result_cache, "KEPT_US", 3600 * MICROS_PER_SECOND)


def a_result_is_kept_for_everybody(patch: pytest.MonkeyPatch) -> None:
    original: Any = custom_runner.result_key
    patch.setattr(custom_runner, "result_key", lambda tool, agent_id, *others: original(tool, "", *others))


def a_result_is_kept_for_every_version(patch: pytest.MonkeyPatch) -> None:
    original: Any = custom_runner.result_key
    patch.setattr(custom_runner, "result_key", lambda tool, *others: original(replace(tool, version=1), *others))


def a_restart_forgets_what_was_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spending.tool_calls, "used_by", lambda tx, agent_id, since: NOTHING_USED)


def a_restart_forgets_the_tokens_of_the_hour(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spending.steps, "spent_by", lambda tx, agent_id, since: SpentAmount())


def an_agents_limits_do_not_reach_its_cells(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Quota, "confined", lambda self, confinement: confinement)


def a_search_by_meaning_fails_in_silence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Embeddings, "failed", lambda self, error: None)


def what_could_not_be_embedded_counts_as_embedded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(embedding_backlog, "_lacks", lambda made, model: False)


def vectors_of_earlier_models_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(vector_rows, "_DROP_OF_OTHERS", ())


# What is broken, in which scenario it is found, by which known seed, within how many seeds, by which invariant.
def the_rows_of_a_deleted_agent_stay_counted(patch: pytest.MonkeyPatch) -> None:
    original, forget = removal.remove, update(removed_agents).values(organization_id="")

    def remove(tx: Any, *arguments: Any) -> None:
        original(tx, *arguments)
        tx.execute(forget)

    patch.setattr(removal, "remove", remove)


def what_is_half_restored_is_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryGate, "hold", lambda self, organization, agent_id: None)


def a_restore_that_was_cut_off_is_left_as_it_is(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: MemoryChanges) -> None:
        return

    patch.setattr(MemoryChanges, "complete_all", nothing)


def a_restore_is_dropped_after_it_was_decided(patch: pytest.MonkeyPatch) -> None:
    async def drop(self: Any, change: Any) -> None:
        return

    patch.setattr(MemoryChanges, "_insist", drop)


def a_quota_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(organization_database, "check_growth", lambda limits, before, after: None)


def the_rows_of_a_deleted_agent_are_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(removal, "needs_cleanup", lambda tx: False)


def the_rows_of_a_deleted_archive_are_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(archive_removal, "needs_cleanup", lambda tx: False)


def a_large_archive_leaves_its_search_entries_behind(patch: pytest.MonkeyPatch) -> None:
    original = scope_removal.remove_piece

    def remove_piece(tx: Any, kind: Any, *arguments: Any) -> bool:
        return kind == "passage" or original(tx, kind, *arguments)

    patch.setattr(scope_removal, "remove_piece", remove_piece)


MUTATIONS = (
    Mutation(the_rows_of_a_deleted_agent_stay_counted, _LONG, 0, 5, "usage is what the rows say"),
    Mutation(the_rows_of_a_deleted_agent_are_left, _LONG, 0, 5, "long writes come to an end|nothing is half there"),
    Mutation(the_rows_of_a_deleted_archive_are_left, _LONG, 0, 5, "long writes come to an end|what was acknowledged"),
    Mutation(a_large_archive_leaves_its_search_entries_behind, _LONG, 0, 5, "nothing is half there"),
    Mutation(what_is_half_restored_is_shown, _LONG, 1, 20, "a memory is seen as a whole|a restore is whole"),
    Mutation(a_restore_that_was_cut_off_is_left_as_it_is, _LONG, 1, 20, "long writes come to an end|recovers|bricked"),
    Mutation(a_restore_is_dropped_after_it_was_decided, _LONG, 1, 20, "a memory is seen as a whole|a restore is whole"),
    Mutation(a_quota_is_not_looked_at, _LONG, 1, 10, "a quota is never passed"),
    Mutation(what_is_damaged_is_told, "storage-corruption", 0, 5, "what is damaged is never told as truth"),
    Mutation(a_removed_passage_leaves_its_vectors_behind, _PASSAGES, 1, 20, "what can be searched is whole"),
    Mutation(a_search_by_meaning_fails_in_silence, "vector-search-fails", 0, 5, "a search without meaning says so"),
    Mutation(vectors_of_earlier_models_stay, "embedding-faults", 2, 5, "vectors of another model in a scope of one"),
    Mutation(
        what_could_not_be_embedded_counts_as_embedded,
        "embedding-process-crashes",
        0,
        10,
        "what can be searched is whole|everything ends embedded",
    ),
    Mutation(an_archive_leaves_its_search_entries_behind, _RECORDS, 0, 10, "nothing is half there"),
    Mutation(a_removed_archive_is_never_swept_up, _RECORDS, 3, 10, "nothing is half there"),
    Mutation(what_was_stored_is_looked_up_before_it_is_told, _RECORDS, 5, 20, "a passage is as its client was told"),
    Mutation(a_closed_conversation_leaves_its_context_behind, _THREADS, 0, 10, "nothing is half there"),
    Mutation(
        a_conversation_that_could_not_be_closed_is_told_closed,
        _THREADS,
        0,
        20,
        "a conversation is as its client was told",
    ),
    Mutation(
        a_change_of_a_block_is_not_put_down,
        _HISTORY,
        0,
        1,
        "the end of a history is the block|the newest versions are kept",
    ),
    Mutation(a_rollback_does_not_look_at_the_version, _HISTORY, 2, 10, "on the version that was expected"),
    Mutation(the_newest_version_is_swept_too, _HISTORY, 0, 5, "the newest versions are kept"),
    Mutation(a_message_that_comes_again_is_not_known, _BEHIND, 1, 10),
    Mutation(a_message_that_others_followed_is_taken_for_a_repeat, _BEHIND, 0, 10, "comes again is said once"),
    Mutation(a_turn_does_not_move_the_time_of_its_agent, _BEHIND, 0, 3, "updated_at"),
    Mutation(what_was_shown_and_lost_is_not_called_off, _BEHIND, 0, 40, "a stream has the committed steps in order"),
    Mutation(lanes_share_one_context, _LANES, 0, 5),
    Mutation(a_history_stays_in_the_form_of_other_settings, _LANES, 7, 60, "a live chat is what is stored"),
    Mutation(a_conversation_writes_to_the_agents_block, _LANES, 0, 10),
    Mutation(a_rule_is_added_to_what_was_read_before, _TOOLBOXES, 50, 60, "no change of the rules is lost"),
    Mutation(
        an_agent_is_looked_at_again_after_a_block_was_hung_on_it, _CRUD, 2, 10, "a link is as its client was told"
    ),
    Mutation(
        an_identity_is_told_removed_and_stays, _CRUD, 0, 10, "what was removed is gone, and what was not is there"
    ),
    Mutation(a_batch_of_blocks_is_made_one_by_one, _TOOLBOXES, 0, 20, "a batch is stored as a whole"),
    Mutation(an_open_commit_that_failed_is_taken_for_done, _STORAGE, 1, 15),
    Mutation(a_step_commit_that_failed_is_taken_for_done, _STORAGE, 1, 10),
    Mutation(an_unknown_commit_is_taken_for_done, _STORAGE, 29, 40),
    Mutation(an_unknown_commit_is_taken_for_lost, _STORAGE, 2, 15),
    Mutation(
        an_unknown_commit_that_cannot_be_looked_up_is_told_as_lost,
        _STORAGE,
        5,
        60,
        "what an SDK repeats is not in the history",
    ),
    Mutation(the_listener_is_not_told_of_a_failure, _STORAGE, 0, 10),
    Mutation(recovery_is_tried_once, _STORAGE, 1, 10, "every run ends"),
    Mutation(what_nobody_works_on_is_told_cancelled_and_stays, "cancel-races-everything", 0, 10),
    Mutation(a_cancelled_turn_goes_on, "cancel-races-everything", 0, 10, "cancelled"),
    Mutation(what_waits_is_forgotten_with_the_process, _WAITING, 1, 5),
    Mutation(calls_of_other_conversations_are_not_listed, _WAITING, 0, 5, "what waits is listed"),
    Mutation(calls_are_denied_in_half_their_time, _EXPIRING, 0, 3, "nothing is denied before its time"),
    Mutation(a_denial_that_came_to_nothing_is_not_made_up_for, _EXPIRING, 3, 20, "nothing waits for ever"),
    Mutation(calls_after_a_pause_are_made, "pauses-and-clocks", 0, 5, "a pause ends the turn at once"),
    Mutation(nothing_is_recovered, _CRASH, 5, _POINTS, "every run ends"),
    Mutation(
        a_context_keeps_the_results_that_healed_it,
        _CRASH,
        15,
        _POINTS,
        "a prompt is a sound chat|a live chat is what is stored",
    ),
    Mutation(an_interrupted_outside_call_is_run_again, _CRASH, 18, _POINTS, "an outside tool never runs twice"),
    Mutation(imported_agents_are_seen_before_they_are_whole, _AGENT_FILES, 0, 5, "an import is whole"),
    Mutation(imported_agents_are_seen_before_they_are_whole, _TEMPLATES, 0, 5, "of one version|is whole|rows agree"),
    Mutation(a_rollback_forgets_the_versions_after_it, _TEMPLATES, 0, 5, "versions have no gaps"),
    Mutation(an_update_changes_a_saved_version, _TEMPLATES, 1, 10, "a saved version never changes"),
    Mutation(a_migration_forgets_the_blocks, _TEMPLATES, 2, 10, "an agent is of one version"),
    Mutation(those_who_ask_each_other_wait, _AGENTS, 0, 5, "nobody waits for the time-out"),
    Mutation(
        the_work_of_a_companion_is_counted_and_not_written, _AGENTS, 0, 5, "a companion works after every nth turn"
    ),
    Mutation(a_turn_that_goes_on_forgets_its_calls, _RULES, 7, _RULED, "every step is offered what the rules allow"),
    Mutation(a_call_that_was_turned_away_counts, _RULES, 11, _RULED),
    Mutation(a_commit_that_failed_is_acknowledged, _FULL, 1, 15),
    Mutation(a_lost_group_is_not_replayed, _FULL, 0, 15),
    Mutation(a_failure_of_the_model_is_taken_for_an_answer, "llm-faults", 0, 15),
    Mutation(
        a_search_for_model_servers_is_the_last_one,
        "model-server-on-this-machine",
        1,
        10,
        "the server recovers|no agent is bricked",
    ),
    Mutation(
        an_absent_provider_hides_the_models_of_all,
        "model-server-that-goes-away",
        0,
        3,
        "models can always be listed|the server recovers",
    ),
    Mutation(a_switch_of_reasoning_reaches_no_loaded_agent, _LANES, 5, 20, _STALE),
    Mutation(
        a_long_summary_is_not_cut, "small-context-windows", 13, 40, "a summary takes at most its share of the window"
    ),
    Mutation(
        a_summary_is_asked_for_without_a_limit,
        "small-context-windows",
        1,
        5,
        "a summary is asked for within its limit",
    ),
    Mutation(a_stream_that_was_cut_is_taken_for_whole, "llm-faults", 2, 60, "an acknowledged message has its answer"),
    Mutation(the_mailbox_has_no_bound, "many-messages-one-agent", 0, 5, "the mailbox is bounded"),
    Mutation(
        a_cell_that_ran_out_of_memory_keeps_its_place,
        "tools-in-cells",
        3,
        6,
        "no place of the sandbox is lost|nothing is held",
    ),
    Mutation(whoever_came_first_is_served_until_nothing_of_it_waits, _ONE_SLOT, 0, 3, "a neighbour's .* has its turn"),
    Mutation(one_organization_may_hold_all_slots, "one-organization-floods", 0, 3, "a neighbour's job has its turn"),
    Mutation(who_leaves_keeps_its_place_in_the_queue, _ONE_SLOT, 2, 6),
    Mutation(what_a_cell_has_asked_for_goes_on_behind_its_call, _DOORS, 2, 30, "what code asks for ends with its call"),
    Mutation(a_passport_of_another_call_opens_the_door, _DOORS, 0, 5, "a passport is for its own call"),
    Mutation(a_passport_is_not_taken_back, _DOORS, 0, 5, "no passport outlives its call|nothing is held"),
    Mutation(code_may_ask_whom_it_works_for, _DOORS, 2, 5, "a ring is refused|nobody waits for the time-out"),
    Mutation(
        a_source_that_could_not_be_read_is_stored,
        _TOOLBOXES,
        0,
        20,
        "what does not compile is not stored",
    ),
    Mutation(everybody_installs_the_same_packages, "tools-made-anew", 0, 5, "a set is installed once"),
    Mutation(
        a_new_version_of_a_tool_is_told_to_nobody,
        "tools-made-anew",
        0,
        10,
        "the next call sees the new code|a live agent has what is stored",
    ),
    Mutation(a_refusal_to_code_is_not_recorded, _DOORS, 1, 10, "what code uses is recorded"),
    Mutation(what_code_is_refused_is_not_recorded, _DOORS, 0, 5, "what code uses is recorded"),
    Mutation(what_a_step_has_spent_is_not_booked, "budgets-under-crashes", 0, 10, "a budget is held|a live budget"),
    Mutation(what_waits_is_forgotten_when_an_agent_is_put_away, "many-agents", 23, 60, "every request is answered"),
    Mutation(the_size_of_an_agent_is_not_counted, "large-agents", 3, 20, "agents are put away and loaded again"),
    Mutation(a_client_that_leaves_takes_its_turn_with_it, "clients-slow-or-vanishing", 1, 10),
    Mutation(history_is_ordered_by_the_clock, "clock-jumps", 0, 15, "the history is read as it was written"),
    Mutation(edits_are_told_to_nobody, _SHARED, 0, 10, _STALE + "|a live agent has what is stored"),
    Mutation(a_write_in_doubt_is_told_to_nobody, _DOUBTS, 3, 60, _STALE + "|a live agent has what is stored"),
    Mutation(
        a_write_whose_caller_is_gone_is_told_to_nobody,
        _CUT_OFF,
        3,
        20,
        "a live agent sees what is stored|a live agent has what is stored",
    ),
    Mutation(a_turn_that_is_cut_off_may_be_sent_again, _CUT_OFF, 1, 20, "what an SDK repeats is not in the history"),
    Mutation(a_turn_goes_on_without_its_history, _REMOVALS, 0, 30),
    Mutation(
        an_emptied_history_stays_in_memory,
        _REMOVALS,
        2,
        20,
        "an emptied history is out of sight|a live chat is what is stored",
    ),
    Mutation(permissions_are_asked_once_a_reply, "permissions-race-calls", 16, 40, "what is forbidden is not run"),
    Mutation(calls_are_not_counted, "permissions-race-calls", 1, 10, "a limit of calls is held|a live limit"),
    Mutation(results_of_a_crash_are_not_recorded, "permissions-race-calls", 2, 10, "every call is recorded once"),
    Mutation(
        usage_read_during_a_commit_counts_it_twice,
        _ALLOWED,
        13,
        20,
        "a live limit is what the calls have used|a live budget is what the steps have used",
    ),
    Mutation(a_kept_result_takes_again_what_it_took, _ALLOWED, 0, 2, "what is used is counted once"),
    Mutation(results_are_kept_for_an_hour, _ALLOWED, 0, 2, "a result is kept for its time"),
    Mutation(a_result_is_kept_for_everybody, _ALLOWED, 0, 2, "a result is its agent's own"),
    Mutation(a_result_is_kept_for_every_version, _ALLOWED, 1, 5, "a result is of the code as it is"),
    Mutation(an_agents_limits_do_not_reach_its_cells, _ALLOWED, 0, 1, "a limit of memory is held"),
    Mutation(
        a_restart_forgets_what_was_used,
        _ALLOWED,
        0,
        10,
        "a limit of calls is held|a live limit is what the calls have used",
    ),
    Mutation(
        a_restart_forgets_the_tokens_of_the_hour,
        _ALLOWED,
        0,
        10,
        "a limit of tokens is held|a live budget is what the steps have used",
    ),
    Mutation(a_stop_is_not_stored, "stop-start-restart", 0, 10, "a stopped agent answers 409"),
    Mutation(a_revoked_key_is_remembered, "keys-under-storage-faults", 0, 10, "what has ended lets nobody in"),
    Mutation(
        a_right_key_waits_for_wrong_ones, "keys-under-storage-faults", 0, 10, "wrong keys do not make a right one wait"
    ),
    Mutation(an_expired_token_is_not_looked_at, "keys-under-storage-faults", 0, 10, "what has ended lets nobody in"),
    Mutation(
        an_old_key_is_removed_while_secrets_use_it,
        _ROTATION,
        3,
        10,
        "a secret reads as it was written|every secret uses the key that is left",
    ),
    Mutation(stored_providers_are_read_once, _OWN_PROVIDERS, 0, 10, "a change counts for the next call"),
    Mutation(a_deleted_provider_stays, _OWN_PROVIDERS, 0, 20, "a change counts for the next call"),
    Mutation(organizations_share_their_own_providers, _OWN_PROVIDERS, 0, 10, "an organization calls with its own key"),
    Mutation(
        a_rotation_leaves_out_the_keys_of_providers,
        _OWN_PROVIDERS,
        20,
        40,
        "every secret uses the key that is left|a stored key reads as it was written",
    ),
    Mutation(a_key_is_used_before_it_is_stored, _ROTATION, 0, 10, "the node comes up"),
    Mutation(a_secret_is_encrypted_with_the_key_of_the_start, _ROTATION, 4, 10, "one key is left"),
    Mutation(a_rotation_is_not_taken_up_again, _ROTATION, 0, 10, "a rotation ends"),
    Mutation(the_fence_is_not_looked_at, "two-servers-one-disk", 0, 10),
    Mutation(a_search_has_no_limit, _WEB, 0, 6, "a web tool ends in its time"),
    Mutation(a_rate_limit_is_not_remembered, _WEB, 6, 10, "a rate limit is kept by all"),
    Mutation(an_id_of_a_message_is_ignored, _MCP_CLIENTS, 0, 20, "lost or doubled|a prompt is a sound chat"),
    Mutation(an_edit_is_made_in_two_steps, _MCP_CLIENTS, 0, 10, "an edit that was acknowledged is there once"),
    Mutation(the_items_of_a_batch_are_queued_together, "batches", 0, 10, "heard in their order|at most as many"),
    Mutation(a_failed_item_of_a_batch_is_left, "batches", 3, 10, "a batch ends|a batch tells every outcome"),
    Mutation(nobody_is_told_of_a_new_file, _FILES, 0, 10, "a live agent has what is stored|a prompt is not older"),
    Mutation(no_file_is_closed_for_another, _FILES, 0, 10, "no agent has more files open"),
    Mutation(an_interrupted_reading_is_not_begun_again, _FILES, 1, 20, "left half processed|server recovers"),
    Mutation(a_page_that_breaks_off_is_taken, _WEB, 4, 10, "a page comes whole"),
    Mutation(
        a_history_is_continued_more_than_once,
        _OPENAI,
        0,
        10,
        "a conversation is the history of one client|a prompt is a sound chat",
    ),
    Mutation(words_that_a_client_sent_are_the_answer, _OPENAI, 0, 10, "an answer is one to the last message"),
)
