"""Planted bugs that break what the API says, found by the scenarios that compare it with a model.

`tests/sim/mutations.py` has the others, and describes how they are used.
"""

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from kelpie.accounts import authentication
from kelpie.actors.mailbox import Mailbox
from kelpie.agent.inbox import background_runs
from kelpie.agent.maintenance import run_callbacks
from kelpie.agent.resources import checkpoints as checkpoint_resource
from kelpie.agent.resources.conversations import conversation_opening, histories
from kelpie.agent.tool_calls import approval_matching
from kelpie.agent.turn import duplicate_sends, tool_phase
from kelpie.core.conversations.messages import MessageQuery
from kelpie.core.files.files import FileStatus
from kelpie.core.ids import MessageId
from kelpie.core.permissions.budgets import Budget, SpentAmount
from kelpie.core.permissions.policies import EffectivePermissions
from kelpie.core.permissions.tool_permissions import ToolPatterns
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.memory import working_memory as entries
from kelpie.storage.accounts import row_ownership
from kelpie.storage.blocks import blocks, history
from kelpie.storage.conversations import message_search, messages
from kelpie.storage.files import files
from kelpie.storage.memory import facts, working_memory
from kelpie.storage.runs import runs
from kelpie.storage.tables import files as files_table
from kelpie.storage.tables import working_memory as working_memory_table
from tests.sim.mutations import Mutation


def the_oldest_kept_version_cannot_be_read(patch: pytest.MonkeyPatch) -> None:
    original = history.get
    patch.setattr(history, "get", lambda tx, block, version, kept: original(tx, block, version, kept - 1))


def an_entry_is_there_after_its_end(patch: pytest.MonkeyPatch) -> None:
    row = working_memory_table.c
    late = sa.and_(row.agent_id == sa.bindparam("of_agent"), row.expires_at < sa.bindparam("now") - MICROS_PER_SECOND)
    patch.setattr(working_memory, "_HAS_LAPSED", sa.select(sa.literal(1)).where(late).limit(1))
    patch.setattr(working_memory, "_DROP_LAPSED", sa.delete(working_memory_table).where(late))


def working_memory_takes_one_entry_too_many(patch: pytest.MonkeyPatch) -> None:
    original = entries._check_room

    def check_room(tx: Any, place: Any, key: str, text: str) -> None:
        more = replace(place.limits, entries=place.limits.entries + 1)
        original(tx, replace(place, limits=more), key, text)

    patch.setattr(entries, "_check_room", check_room)


def a_checkpoint_of_another_agent_is_restored(patch: pytest.MonkeyPatch) -> None:
    original = checkpoint_resource.sections
    patch.setattr(checkpoint_resource, "sections", lambda document, _: original(document, document["agent_id"]))


def a_run_of_another_organization_can_be_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(row_ownership, "run", lambda *_: None)


def a_page_of_messages_ends_one_too_early(patch: pytest.MonkeyPatch) -> None:
    original = messages.select_of_agent

    def select_of_agent(tx: Any, agent_id: Any, query: MessageQuery) -> Any:
        found = original(tx, agent_id, query)
        return found[1:] if query.descending and query.before is not None else found

    patch.setattr(messages, "select_of_agent", select_of_agent)


def an_emptied_conversation_lacks_its_instructions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(histories, "begin_conversations", lambda *_: None)


def a_fork_lacks_its_last_message(patch: pytest.MonkeyPatch) -> None:
    original = conversation_opening._up_to
    patch.setattr(conversation_opening, "_up_to", lambda said, last: original(said, last)[: -1 if last else None])


def a_message_that_comes_again_after_another_is_said_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(duplicate_sends, "find", lambda *_: None)


def a_redirect_is_taken_for_the_callback(patch: pytest.MonkeyPatch) -> None:
    original = run_callbacks._post

    async def post(*arguments: Any) -> Any:
        status, error = await original(*arguments)
        return status, None if status is not None and 300 <= status < 400 else error

    patch.setattr(run_callbacks, "_post", post)


def a_queue_holds_one_message_too_many(patch: pytest.MonkeyPatch) -> None:
    original = Mailbox.put
    patch.setattr(Mailbox, "put", lambda self, job, size, retry_after_s: original(self, job, size + 1, retry_after_s))
    patch.setattr(background_runs, "runs", _OneFewer())


class _OneFewer:
    def __getattr__(self, name: str) -> Any:
        return getattr(runs, name)

    def count_created(self, tx: Any, agent_id: Any) -> int:
        return runs.count_created(tx, agent_id) - 1


def one_more_call_runs_than_the_limit_permits(patch: pytest.MonkeyPatch) -> None:
    original = EffectivePermissions._exhausted
    patch.setattr(EffectivePermissions, "_exhausted", lambda self, before: original(self, before - 1))


def a_budget_that_is_just_used_up_pays_one_more_step(patch: pytest.MonkeyPatch) -> None:
    def exceeds(self: SpentAmount, budget: Budget) -> bool:
        return budget.tokens is not None and self.tokens > budget.tokens

    patch.setattr(SpentAmount, "exceeds", exceeds)


def a_list_that_allows_nothing_allows_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ToolPatterns, "open", property(lambda self: not self.allow and not self.deny))


class _Behind:
    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.monotonic_ns = clock.monotonic_ns

    def now(self) -> int:
        return self._clock.now() - MICROS_PER_SECOND


def a_credential_works_after_its_end(patch: pytest.MonkeyPatch) -> None:
    original = authentication.Authenticator.__init__

    def late(self: Any, world: Any, *arguments: Any, **options: Any) -> None:
        original(self, replace(world, clock=_Behind(world.clock)), *arguments, **options)

    patch.setattr(authentication.Authenticator, "__init__", late)


def an_answer_to_a_waiting_call_can_be_changed(patch: pytest.MonkeyPatch) -> None:
    original = approval_matching.fitting

    def fitting(pending: Any, request: Any, answers: Any, *, partial: bool) -> Any:
        given = {answer.call_id for answer in answers}
        kept = tuple(answer for answer in pending.answers if answer.call_id not in given)
        return original(replace(pending, answers=kept), request, answers, partial=partial)

    patch.setattr(approval_matching, "fitting", fitting)


def a_part_of_the_answers_that_comes_again_is_a_message(patch: pytest.MonkeyPatch) -> None:
    original, take = tool_phase.partial_answers_entry, tool_phase.ToolPhase.take_answers
    taking: list[Any] = []

    async def take_answers(self: Any, waited: Any) -> bool:
        taking.append(self)
        return await take(self, waited)

    def entry(frame: Any, rows: Any, waited: Any, waits: Any) -> Any:
        phase = taking[-1]
        empty = tool_phase.answer_row(phase._state.run, phase._world.ids.new(MessageId), (), frame.at)
        return original(frame, rows or (empty,), waited, waits)

    patch.setattr(tool_phase.ToolPhase, "take_answers", take_answers)
    patch.setattr(tool_phase, "partial_answers_entry", entry)


def a_write_to_an_entry_that_is_over_is_lost(patch: pytest.MonkeyPatch) -> None:
    original = entries._begin

    def begin(tx: Any, place: Any, key: str, if_version: int | None) -> Any:
        before = working_memory.get(tx, place.agent_id, key)
        present, version = original(tx, place, key, if_version)
        return present or before, version

    patch.setattr(entries, "_begin", begin)


def the_nearest_of_an_agent_are_cut_before_they_are_filtered(patch: pytest.MonkeyPatch) -> None:
    original = message_search.nearest

    def nearest(tx: Any, finder: Any, organization: Any, scopes: Any, wanted: Any, meanings: Any) -> Any:
        if wanted.agent_id is not None:
            wanted = replace(wanted, conversation_id=None, roles=(), created_from=None, created_to=None)
        return original(tx, finder, organization, scopes, wanted, meanings)

    patch.setattr(message_search, "nearest", nearest)


def a_deleted_fact_makes_the_one_before_true_for_ever(patch: pytest.MonkeyPatch) -> None:
    original = facts.after_deletion

    def after_deletion(timeline: Any, gone: Any) -> Any:
        return tuple(
            replace(one, valid_until=None) if one.id == gone.supersedes else one for one in original(timeline, gone)
        )

    patch.setattr(facts, "after_deletion", after_deletion)


def a_damaged_block_stays_damaged_with_a_new_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(blocks, "SUMMED", ())


def the_files_of_an_import_are_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    row = files_table.c
    named = row.id.in_(sa.bindparam("ids", expanding=True))
    patch.setattr(files, "_UNREAD", sa.select(row.id).where(named, row.status == FileStatus.parsing.value))


_MEMORY, _TURNS, _LIMITS, _ACCESS = (f"api-model-of-{what}" for what in ("memory", "turns", "limits", "access"))
_SHOWN = "the API shows what was done"

# As in tests/sim/mutations.py.
MODELLED = (
    Mutation(the_oldest_kept_version_cannot_be_read, _MEMORY, 2, 8),
    Mutation(an_entry_is_there_after_its_end, _MEMORY, 1, 20, "gone from its end on"),
    Mutation(working_memory_takes_one_entry_too_many, _MEMORY, 3, 20, "a wrong request is refused"),
    Mutation(a_write_to_an_entry_that_is_over_is_lost, _MEMORY, 5, 20, f"{_SHOWN}|a sound request"),
    Mutation(the_nearest_of_an_agent_are_cut_before_they_are_filtered, _TURNS, 0, 20, "the nearest that pass"),
    Mutation(a_deleted_fact_makes_the_one_before_true_for_ever, "facts-under-faults", 0, 20, "leaves its time"),
    Mutation(a_damaged_block_stays_damaged_with_a_new_value, "storage-corruption", 0, 10, "is mended by a new value"),
    Mutation(the_files_of_an_import_are_forgotten_at_a_restart, "agent-files", 4, 20, "read in the end|whole or not"),
    Mutation(a_checkpoint_of_another_agent_is_restored, _MEMORY, 1, 20, "sound request|wrong request"),
    Mutation(a_run_of_another_organization_can_be_read, _TURNS, 0, 8, "what is another's does not exist"),
    Mutation(a_page_of_messages_ends_one_too_early, _TURNS, 0, 8, "the pages of a list are the list"),
    Mutation(an_emptied_conversation_lacks_its_instructions, _TURNS, 43, 120, "does not begin with the instructions"),
    Mutation(a_fork_lacks_its_last_message, _TURNS, 3, 20, _SHOWN),
    Mutation(a_message_that_comes_again_after_another_is_said_again, _TURNS, 0, 20, f"{_SHOWN}|again is said once"),
    Mutation(a_redirect_is_taken_for_the_callback, _TURNS, 2, 30, "until it is taken|what became of a callback"),
    Mutation(a_queue_holds_one_message_too_many, _TURNS, 6, 20, "a queue holds"),
    Mutation(one_more_call_runs_than_the_limit_permits, _LIMITS, 2, 8),
    Mutation(a_budget_that_is_just_used_up_pays_one_more_step, _LIMITS, 0, 8, "what is used up|where its budget does"),
    Mutation(a_list_that_allows_nothing_allows_everything, _LIMITS, 4, 20),
    Mutation(a_credential_works_after_its_end, _ACCESS, 3, 20, "a credential opens what it is for"),
    Mutation(an_answer_to_a_waiting_call_can_be_changed, _ACCESS, 1, 20, "a wrong request is refused"),
    Mutation(a_part_of_the_answers_that_comes_again_is_a_message, _ACCESS, 2, 20),
)
