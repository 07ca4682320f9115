"""Planted bugs in what a turn records of itself and keeps in memory: steps, errors, times, conversations.

`tests/sim/mutations.py` has the others, and describes how they are used.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kelpie.agent.journal import message_rows
from kelpie.agent.journal import step_commit as journal_steps
from kelpie.agent.live.live_agent import LiveAgent
from kelpie.agent.turn import loop as turn_loop
from kelpie.agent.turn.loop import Turn
from kelpie.agent.turn.step_committer import StepCommitter
from kelpie.agent.turn.tool_phase import ToolPhase
from kelpie.agent.turn.turn_state import TurnState
from kelpie.core.conversations.runs import StopReason
from kelpie.storage.agents import agents
from kelpie.storage.conversations import conversations
from tests.sim.mutations import Mutation


def the_input_of_a_turn_belongs_to_no_step(patch: pytest.MonkeyPatch) -> None:
    original = ToolPhase.answer

    async def answer(phase: Any, planned: Any, step_id: Any, rows: Any, *more: Any) -> bool:
        alone = tuple(replace(row, step_id=None) for row in rows[:-1])
        return await original(phase, planned, step_id, (*alone, rows[-1]), *more)

    patch.setattr(ToolPhase, "answer", answer)


def a_step_does_not_say_how_long_it_took(patch: pytest.MonkeyPatch) -> None:
    original = Turn._step_of
    patch.setattr(Turn, "_step_of", lambda turn, *more: replace(original(turn, *more), step_ns=None))


def a_step_names_the_provider_of_the_agent_and_the_model_that_stood_in(patch: pytest.MonkeyPatch) -> None:
    def answered_by(step: Any, reply: Any) -> Any:
        return step if reply.answered_by is None else replace(step, model_handle=reply.answered_by)

    patch.setattr(turn_loop, "answered_by", answered_by)


def a_run_that_failed_does_not_say_why(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TurnState, "failed", lambda *_: None)


def a_step_that_failed_does_not_say_why(patch: pytest.MonkeyPatch) -> None:
    original = StepCommitter.end

    async def end(committer: Any, reason: Any, step: Any = None, error: Any = None) -> None:
        await original(committer, reason, None if step is None else replace(step, error=None), error)

    patch.setattr(StepCommitter, "end", end)


def a_refused_call_counts(patch: pytest.MonkeyPatch) -> None:
    original = message_rows.call_records

    def call_records(*given: Any) -> Any:
        return tuple(replace(record, counted=True) for record in original(*given))

    patch.setattr(journal_steps, "call_records", call_records)


def a_refusal_is_recorded_without_its_reason(patch: pytest.MonkeyPatch) -> None:
    original = message_rows.call_records

    def call_records(*given: Any) -> Any:
        return tuple(replace(record, reason=None) for record in original(*given))

    patch.setattr(journal_steps, "call_records", call_records)


def an_agent_knows_of_completed_runs_only(patch: pytest.MonkeyPatch) -> None:
    original = agents.record_run

    def record_run(tx: Any, agent_id: Any, at: Any, duration_ms: Any, reason: Any) -> None:
        if reason is StopReason.end_turn:
            original(tx, agent_id, at, duration_ms, reason)

    patch.setattr(agents, "record_run", record_run)


def an_agent_knows_its_last_run_in_seconds(patch: pytest.MonkeyPatch) -> None:
    original = agents.record_run

    def record_run(tx: Any, agent_id: Any, at: Any, duration_ms: Any, reason: Any) -> None:
        original(tx, agent_id, at, duration_ms // 1000, reason)

    patch.setattr(agents, "record_run", record_run)


def a_conversation_knows_its_first_run(patch: pytest.MonkeyPatch) -> None:
    first = conversations._RECORD_RUN.where(conversations._C.last_run_completion.is_(None))
    patch.setattr(conversations, "_RECORD_RUN", first)


def a_turn_that_ends_keeps_its_conversation_in_use(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def using(live: Any, conversation: Any) -> Generator[None]:
        conversation.users += 1
        yield
        conversation.users -= 1
        if conversation.conversation:
            live._unload(conversation)

    patch.setattr(LiveAgent, "using", using)


TURNS = (
    Mutation(the_input_of_a_turn_belongs_to_no_step, "many-agents", 0, 5, "the first step of its run"),
    Mutation(a_step_does_not_say_how_long_it_took, "many-agents", 0, 5, "how long it took"),
    Mutation(
        a_step_names_the_provider_of_the_agent_and_the_model_that_stood_in,
        "another-model-answers",
        0,
        10,
        "which model answered",
    ),
    Mutation(a_run_that_failed_does_not_say_why, "llm-faults", 0, 10, "a run that failed says why"),
    Mutation(a_step_that_failed_does_not_say_why, "llm-faults", 0, 10, "a step that failed says why"),
    Mutation(a_refused_call_counts, "permissions-race-calls", 0, 10, "only if it has run"),
    Mutation(a_refusal_is_recorded_without_its_reason, "permissions-race-calls", 0, 10, "refused says why"),
    Mutation(an_agent_knows_of_completed_runs_only, "llm-faults", 0, 20, "an agent knows its newest run"),
    Mutation(an_agent_knows_its_last_run_in_seconds, "many-agents", 0, 5, "how long its last run took"),
    Mutation(a_conversation_knows_its_first_run, "lanes-of-one-agent", 0, 10, "a conversation knows its newest run"),
    Mutation(a_turn_that_ends_keeps_its_conversation_in_use, "cancel-races-everything", 3, 20, "nothing is held"),
)
