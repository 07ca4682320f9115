"""Followers of a background run: nothing that is told while they read is missed, and they never wait for nothing."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kelpie.agent.events import event_json
from kelpie.agent.events.event_notifier import RunNotifier
from kelpie.agent.events.turn_events import AnswerDelta, ToolProgress, TurnEnded, TurnEvent
from kelpie.agent.inbox import background_runs
from kelpie.agent.inbox.background_runs import BackgroundRuns
from kelpie.agent.turn import tool_phase
from kelpie.agent.turn.tool_phase import ToolPhase
from kelpie.core.conversations.messages import ToolCall
from kelpie.core.conversations.runs import RunStatus
from kelpie.core.errors import NotFound, StorageError
from kelpie.core.ids import MessageId, StepId
from kelpie.storage.runs.events import Batch
from tests.agent.test_stored_events import ENDED, RUN, STEP

PIECE = AnswerDelta(MessageId("message-1"), StepId("step-1"), 5, 0, "hel")


class Reads:
    """Answers each read of the stream with the next of `batches`; `beside` happens while it is under way."""

    def __init__(self, batches: list[list[TurnEvent | dict[str, Any]]], status: RunStatus = RunStatus.running) -> None:
        self.batches = batches
        self.status = status
        self.beside = lambda: None
        self.count = 0

    async def read(self, _look: object) -> tuple[list[Batch], RunStatus]:
        self.count += 1
        events = self.batches.pop(0) if self.batches else []
        await asyncio.sleep(0)
        self.beside()
        told = [each if isinstance(each, dict) else event_json.to_json(each) for each in events]
        return [Batch(self.count, tuple(told))] if told else [], self.status


def following(reads: Reads, notifier: RunNotifier, monkeypatch: pytest.MonkeyPatch) -> BackgroundRuns:
    monkeypatch.setattr(background_runs, "LOOK_S", 3600.0)
    made = BackgroundRuns.__new__(BackgroundRuns)
    made._world = cast(Any, SimpleNamespace(database=reads))  # pyright: ignore[reportPrivateUsage]
    made._notifier = notifier  # pyright: ignore[reportPrivateUsage]
    return made


async def heard(runs: BackgroundRuns, events: list[TurnEvent]) -> None:
    async with asyncio.timeout(10):
        async for event in runs.follow(RUN):
            events.append(event)


async def test_what_is_told_during_a_read_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    notifier, reads = RunNotifier(), Reads([[], [PIECE], [], [event_json.ended_to_json(ENDED, None, ())]])
    reads.beside = lambda: notifier.news(RUN)
    events: list[TurnEvent] = []
    await heard(following(reads, notifier, monkeypatch), events)
    piece, end = events
    assert piece == PIECE and isinstance(end, TurnEnded) and reads.count == 4


async def test_the_trouble_of_a_run_is_told_after_all_that_it_has_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    notifier, reads = RunNotifier(), Reads([[PIECE], [PIECE]])
    reads.beside = lambda: notifier.trouble(RUN, StorageError("The disk fails."))
    events: list[TurnEvent] = []
    with pytest.raises(StorageError, match="The disk fails"):
        await heard(following(reads, notifier, monkeypatch), events)
    assert events == [PIECE, PIECE]


async def test_a_stream_that_was_deleted_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads([[PIECE]], RunStatus.completed)
    with pytest.raises(NotFound):
        await heard(following(reads, RunNotifier(), monkeypatch), [])


def test_clients_are_told_of_progress_up_to_a_number_of_times_and_not_after_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tool_phase, "PROGRESS_MAX", 3)
    told: list[ToolProgress] = []
    sink = SimpleNamespace(is_open=True, emit=told.append)
    phase = ToolPhase.__new__(ToolPhase)
    phase._state = cast(Any, SimpleNamespace(sink=sink, run=ENDED))  # pyright: ignore[reportPrivateUsage]
    clock = SimpleNamespace(now=lambda: 7)
    phase._world = cast(Any, SimpleNamespace(clock=clock))  # pyright: ignore[reportPrivateUsage]
    one, other = (phase._progress(ToolCall(call, "look", "{}"), STEP) for call in ("call_1", "call_2"))  # pyright: ignore[reportPrivateUsage]
    for done in range(5):
        one(done, 5.0, f"{done} of 5")
    other(1.0, None, None)
    assert [(each.call_id, each.done, each.total, each.message) for each in told] == [
        ("call_1", 0, 5.0, "0 of 5"),
        ("call_1", 1, 5.0, "1 of 5"),
        ("call_1", 2, 5.0, "2 of 5"),
        ("call_2", 1.0, None, None),
    ]
    sink.is_open = False
    other(2.0, None, None)
    assert len(told) == 4
