"""Which turns are under way: what a cancel finds, what a deleted conversation ends, and who keeps one busy."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.events.turn_events import TurnEnded
from kelpie.agent.inbox.busy_check import require_free
from kelpie.agent.turn import duplicate_sends
from kelpie.agent.turn.active_turns import ActiveTurns
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.conversations.messages import NewMessage, Role, Text, Usage
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import ConversationBusy
from kelpie.core.ids import AgentId, RunId
from kelpie.storage.runs import unfinished
from kelpie.world.database import Tx

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
ONE, TWO, THREE = (RunId(f"run-{number}") for number in (1, 2, 3))
SAID = SendRequest((NewMessage(Role.user, (Text("hi"),), otid="o-1"),))


def end(stream: TurnStream) -> None:
    stream.emit(TurnEnded(stream.run_id, StopReason.end_turn, Usage(), 0, None))


def test_a_turn_that_has_begun_stands_for_what_was_accepted_until_it_is_over() -> None:
    turns, stream = ActiveTurns(), TurnStream(ONE)
    accepted = turns.add(AGENT, "", stream, SAID)
    with turns.working(AGENT, "", stream):
        (begun,) = turns.of(AGENT)
        assert begun is not accepted and begun.send is None
        turns.remove(accepted)  # its job ended before the turn did
        assert accepted.over.is_set() and turns.of(AGENT) == [begun] and not begun.over.is_set()
    assert begun.over.is_set() and turns.of(AGENT) == [] and not turns.has_any()
    turns.remove(begun)
    assert not turns.has_any()


def test_one_turn_that_is_over_leaves_the_others() -> None:
    turns = ActiveTurns()
    first, second = turns.add(AGENT, "", TurnStream(ONE)), turns.add(AGENT, "conv-1", TurnStream(TWO))
    turns.remove(first)
    assert turns.of(AGENT) == [second] and turns.has_any() and not second.over.is_set()


def test_a_deleted_conversation_ends_its_own_turns_that_have_begun() -> None:
    turns, streams = ActiveTurns(), [TurnStream(run_id) for run_id in (ONE, TWO, THREE)]
    for stream, conversation in zip(streams, ("conv-1", "conv-1", "conv-2"), strict=True):
        turns.add(AGENT, conversation, stream)
    streams[0].cancellation.begin()
    streams[2].cancellation.begin()
    turns.leave(AGENT, "conv-1")
    assert [stream.cancellation.requested for stream in streams] == [True, False, False]


async def free(tokens: list[object], open_runs: set[RunId], beside: Callable[[], None] = lambda: None) -> list[RunId]:
    """The runs that were looked up until the conversation was free. Raises ConversationBusy."""
    asked: list[RunId] = []

    async def read(fn: Callable[[Tx], Any]) -> Any:
        found = fn(cast(Tx, None))
        beside()
        return found

    def look(_tx: Tx, run_id: RunId) -> object:
        asked.append(run_id)
        return run_id if run_id in open_runs else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unfinished, "find_unfinished", look)
        dispatcher = SimpleNamespace(kept_by=lambda _key, _lane: tokens)
        async with asyncio.timeout(10):
            await require_free(cast(Any, SimpleNamespace(read=read)), cast(Any, dispatcher), AGENT, "conv-1")
    return asked


async def test_a_conversation_is_free_when_all_that_keeps_it_is_over() -> None:
    over = TurnStream(ONE)
    end(over)
    assert await free([], set()) == []
    assert await free([over, TWO, None, THREE], set()) == [TWO, THREE]


async def test_a_conversation_is_busy_with_the_first_that_is_not_over() -> None:
    for tokens, open_runs, busy in (
        ([TWO, THREE], {TWO, THREE}, TWO),
        ([TWO, THREE], {THREE}, THREE),
        ([TWO, TurnStream(ONE)], {TWO}, ONE),
    ):
        with pytest.raises(ConversationBusy, match=busy):
            await free(list[object](tokens), open_runs)


async def test_who_takes_the_conversation_while_it_is_looked_at_keeps_it() -> None:
    tokens: list[object] = [TWO]
    with pytest.raises(ConversationBusy, match=ONE):
        await free(tokens, set(), lambda: tokens.append(TurnStream(ONE)))


def test_a_turn_that_has_ended_is_no_longer_the_one_that_answers_a_message() -> None:
    over, other, running = (TurnStream(ONE, SAID.messages), TurnStream(TWO, ()), TurnStream(THREE, SAID.messages))
    end(over)
    assert duplicate_sends.running([TWO, over, other], SAID) is None
    assert duplicate_sends.running([TWO, over, other, running], SAID) is running
