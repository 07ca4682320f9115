"""The events of a turn in memory: their order and limits, who joins, and what the end of a turn that broke off says."""

import asyncio
from dataclasses import replace

import pytest

from kelpie.agent.events import event_buffer
from kelpie.agent.events.event_buffer import TurnStream, emit_failure
from kelpie.agent.events.turn_events import AnswerDelta, Lagged, MessageCommitted, TurnEnded, TurnEvent, TurnOpened
from kelpie.core.conversations.messages import Message, NewMessage, Role, Text, ToolReturn, Usage
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import InvariantBroken, Overloaded, StorageError
from kelpie.core.ids import AgentId, MessageId, RunId, StepId

RUN = RunId("run-00000000-0000-4000-8000-000000000001")


def test_the_end_of_a_turn_that_broke_off_says_whether_its_input_is_stored() -> None:
    """A client that is told otherwise sends answers a second time."""

    async def ends() -> list[bool]:
        found: list[bool] = []
        for stored in (False, True):
            stream = TurnStream(RUN)
            if stored:
                stream.sealed(ended=False)
            stream.break_off(StorageError("The database failed."))
            found += [event.input_stored for event in stream._events if isinstance(event, TurnEnded)]
        return found

    assert asyncio.run(ends()) == [False, True]


def _row(text: str) -> MessageCommitted:
    message = MessageId("message-00000000-0000-4000-8000-000000000001")
    agent = AgentId("agent-00000000-0000-4000-8000-000000000001")
    return MessageCommitted(Message(message, agent, Role.assistant, 1, (Text(text),)))


END = TurnEnded(RUN, StopReason.end_turn, Usage(), 1, None)
ASKED = (NewMessage(Role.user, (Text("hi"),), otid="one"),)


async def _heard(stream: TurnStream) -> list[TurnEvent]:
    async with asyncio.timeout(20):
        return [event async for event in stream.events()]


async def test_events_come_in_order_and_nothing_after_the_end() -> None:
    stream = TurnStream(RUN)
    assert not stream.has_opened and stream.is_open and not stream.has_more
    opened = TurnOpened(RUN, 1)
    for event in (opened, _row("a"), END, _row("late")):
        stream.emit(event)
    assert stream.has_opened and stream.has_ended and not stream.is_open and stream.has_more
    assert await _heard(stream) == [opened, _row("a"), END]


@pytest.mark.parametrize(("name", "most", "kept"), [("EVENTS_MAX", 3, 3), ("CHARS_MAX", 700, 3)])
async def test_who_lags_is_told_so_and_gets_nothing_more(
    monkeypatch: pytest.MonkeyPatch, name: str, most: int, kept: int
) -> None:
    monkeypatch.setattr(event_buffer, name, most)
    stream = TurnStream(RUN)
    for _ in range(kept):
        stream.emit(_row(""))
    assert stream._events[-1] == _row("")
    stream.emit(_row(""))
    stream.emit(END)
    assert stream.has_ended, "the turn is over, though its client does not hear it"
    assert await _heard(stream) == [Lagged(RUN)]


def _piece(text: str) -> AnswerDelta:
    return AnswerDelta(MessageId("message-1"), StepId("step-1"), 5, 0, text)


@pytest.mark.parametrize("event", [_row("a" * 300), _piece("a")])
@pytest.mark.parametrize("joins", [False, True])
async def test_what_was_read_no_longer_counts_towards_the_limit(
    monkeypatch: pytest.MonkeyPatch, event: TurnEvent, joins: bool
) -> None:
    monkeypatch.setattr(event_buffer, "CHARS_MAX", 700)
    stream, events = TurnStream(RUN, ASKED), list[TurnEvent]()
    reading = (stream.join() if joins else stream).events()
    for _ in range(9):
        stream.emit(event)
        events.append(await anext(reading))
    stream.emit(event)
    stream.emit(END)
    rest = [each async for each in reading]
    assert events + rest == [event] * 10 + [END]


async def test_who_joins_hears_everything_and_can_cancel() -> None:
    stream = TurnStream(RUN, ASKED)
    stream.emit(_row("a"))
    first = stream.join()
    stream.emit(_row("b"))
    second = stream.join()
    stream.emit(END)
    third = stream.join()
    assert [await _heard(each) for each in (first, second, third)] == [[_row("a"), _row("b"), END]] * 3
    first.cancellation.request()
    assert stream.cancellation.requested


@pytest.mark.parametrize(("name", "most"), [("EVENTS_MAX", 3), ("CHARS_MAX", 700)])
async def test_one_who_lags_does_not_cut_off_those_who_join(
    monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(event_buffer, name, most)
    stream = TurnStream(RUN, ASKED)
    joined, slow, heard = stream.join(), stream.join(), list[TurnEvent]()
    reading = joined.events()
    async with asyncio.timeout(20):
        for text in "abcde":  # its own client reads nothing
            stream.emit(_row(text))
            heard.append(await anext(reading))
        stream.emit(END)
        heard.append(await anext(reading))
    await reading.aclose()
    assert heard == [*(_row(text) for text in "abcde"), END]
    assert await _heard(stream) == [Lagged(RUN)] == await _heard(slow)
    late = stream.join()  # more than is kept
    assert (await _heard(late))[0] == Lagged(RUN)


async def test_the_first_may_leave_a_turn_longer_than_its_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_buffer, "EVENTS_MAX", 3)
    stream = TurnStream(RUN, ASKED)
    joined, heard = stream.join(), list[TurnEvent]()
    stream.emit(_row("a"))
    own, reading = stream.events(), joined.events()
    await anext(own)
    await own.aclose()
    async with asyncio.timeout(20):
        heard.append(await anext(reading))
        for event in (*map(_row, "bcdefg"), END):
            stream.emit(event)
            heard.append(await anext(reading))
    await reading.aclose()
    assert heard == [*map(_row, "abcdefg"), END]


async def test_who_joins_and_lags_cuts_off_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_buffer, "EVENTS_MAX", 3)
    stream = TurnStream(RUN, ASKED)
    slow, heard = stream.join(), []
    reading = stream.events()
    for text in "abcde":
        stream.emit(_row(text))
        heard.append(await anext(reading))
    stream.emit(END)
    assert [*heard, await anext(reading)] == [*(_row(text) for text in "abcde"), END]
    await reading.aclose()
    assert slow.has_ended and await _heard(slow) == [Lagged(RUN)]


async def test_a_turn_that_broke_off_ends_for_all_who_follow_it_and_who_joins_then() -> None:
    stream = TurnStream(RUN, ASKED)
    joined = stream.join()
    stream.emit(TurnOpened(RUN, 1))
    stream.sealed(ended=False)
    stream.sealed(ended=False, input_stored=False)  # a commit without the input does not take it out again
    error = StorageError("The disk fails.")
    stream.break_off(error)
    end = TurnEnded(RUN, StopReason.error, Usage(), 0, None, error, input_stored=True)
    assert [await _heard(each) for each in (stream, joined, stream.join())] == [[TurnOpened(RUN, 1), end]] * 3
    assert joined.has_opened


@pytest.mark.parametrize("many", [1, 3])
async def test_results_of_tools_count_towards_the_limit(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(event_buffer, "CHARS_MAX", 700)
    results = tuple(ToolReturn(f"call_{number}", "look", True, "x" * 200) for number in range(many))
    event = MessageCommitted(replace(_row("").message, role=Role.tool, tool_returns=results))
    stream = TurnStream(RUN, ASKED)
    stream.emit(event)
    stream.emit(END)
    heard = [event, END] if many == 1 else [Lagged(RUN)]
    assert [await _heard(each) for each in (stream, stream.join())] == [heard] * 2


async def test_only_so_many_join_and_who_leaves_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_buffer, "JOINED_MAX", 2)
    stream = TurnStream(RUN, ASKED)
    stream.emit(_row("a"))
    one = stream.join()
    stream.join()
    with pytest.raises(Overloaded):
        stream.join()
    reading = one.events()
    await anext(reading)
    await reading.aclose()
    stream.emit(END)
    assert END not in one._events, "who has left is told nothing more"
    assert await _heard(stream.join()) == [_row("a"), END]


async def test_a_job_that_failed_before_its_turn_ends_the_stream() -> None:
    loop, error = asyncio.get_running_loop(), StorageError("The disk fails.")
    told: list[object] = []
    for outcome in (None, error, ValueError("a bug"), asyncio.CancelledError()):
        stream, done = TurnStream(RUN), loop.create_future()
        if outcome is None:
            done.set_result(None)
        elif isinstance(outcome, asyncio.CancelledError):
            done.cancel()
        else:
            done.set_exception(outcome)
        emit_failure(stream, done)
        told.append([(event.stop_reason, event.error) for event in stream._events if isinstance(event, TurnEnded)])
    nothing, failed, bug, cancelled = told
    assert nothing == [] and failed == [(StopReason.error, error)]
    ((_, strange),), ((_, cut),) = bug, cancelled
    assert isinstance(strange, InvariantBroken) and "a bug" in str(strange) and isinstance(cut, InvariantBroken)
