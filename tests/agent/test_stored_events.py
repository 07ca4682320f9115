"""Stored events of background runs: each comes back as it was, a stream is cut at its limit, and only what was never
committed is called off."""

from collections.abc import Iterator
from dataclasses import replace

import orjson
import pytest
from sqlalchemy import text

from kelpie.agent.events import event_json, event_recorder
from kelpie.agent.events.event_notifier import RunNotifier
from kelpie.agent.events.event_recorder import EventRecord, StoredTurnStream, call_off, keep, keep_end
from kelpie.agent.events.turn_events import (
    AnswerDelta,
    CallDelta,
    Compacting,
    Lagged,
    MessageCommitted,
    StepAbandoned,
    StreamCut,
    ThoughtDelta,
    ToolProgress,
    TurnEnded,
    TurnEvent,
    TurnOpened,
)
from kelpie.core.conversations.messages import Message, Role, Text, ToolCall, ToolReturn, Usage
from kelpie.core.conversations.runs import Run, RunStatus, StopReason
from kelpie.core.errors import InvariantBroken, ModelError, ModelFault, StorageError, TurnBroken
from kelpie.core.ids import AgentId, MessageId, RunId, StepId
from kelpie.storage.agents.ownership_fence import Claim, Node
from kelpie.storage.runs import events as run_events
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from kelpie.world.world import World
from tests.new_database import create_schema

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
RUN = RunId("run-00000000-0000-4000-8000-000000000001")
OTHER_RUN = RunId("run-00000000-0000-4000-8000-000000000002")
STEP = StepId("step-00000000-0000-4000-8000-000000000001")
MESSAGE = MessageId("message-00000000-0000-4000-8000-000000000001")
ROW = Message(
    MESSAGE,
    AGENT,
    Role.assistant,
    7,
    (Text("hello"),),
    run_id=RUN,
    step_id=STEP,
    tool_calls=(ToolCall("call_1", "look", '{"at": 1}'),),
)
RESULT = Message(MESSAGE, AGENT, Role.tool, 8, (), tool_returns=(ToolReturn("call_1", "look", False, "gone", ("o",)),))
STORED: tuple[TurnEvent, ...] = (
    AnswerDelta(MESSAGE, STEP, 5, 2, "wor"),
    ThoughtDelta(MESSAGE, STEP, 6, 1, "hm", native=True),
    ThoughtDelta(MESSAGE, STEP, 6, 1, "opaque", native=False, hidden=True),
    CallDelta(MESSAGE, STEP, 7, 3, "call_1", "look", None, awaits=True),
    CallDelta(MESSAGE, STEP, 7, 3, "call_1", None, '{"at"'),
    MessageCommitted(ROW, previewed=True),
    MessageCommitted(RESULT),
    StepAbandoned(MESSAGE, STEP, 9),
    Compacting(RUN, "event-1", 10, STEP, "post_step_context_check", 900, 1000),
    Compacting(RUN, "event-2", 10, None, "asked", 1, 2),
    ToolProgress(RUN, STEP, 11, "call_1", "look", 0.5, 2.0, "half"),
    StreamCut(RUN),
)
ENDED = Run(
    RUN,
    AGENT,
    RunStatus.failed,
    1,
    completed_at=99,
    stop_reason=StopReason.insufficient_credits,
    stop_detail="budget",
    metadata={"kelpie_budget": {"tokens": 5}},
    usage=Usage(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
    step_count=4,
)


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        connection.execute(text("PRAGMA foreign_keys = OFF"))
        create_schema(connection)
        yield connection


def stored(tx: Tx, run_id: RunId = RUN) -> list[TurnEvent]:
    return [event_json.from_json(data) for batch in run_events.after(tx, run_id, 0, 100) for data in batch.events]


@pytest.mark.parametrize("event", STORED, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_as_it_was(event: TurnEvent) -> None:
    assert event_json.from_json(orjson.loads(orjson.dumps(event_json.to_json(event)))) == event


def test_what_only_live_clients_get_is_not_stored() -> None:
    for event in (TurnOpened(RUN, 1), Lagged(RUN)):
        with pytest.raises(InvariantBroken):
            event_json.to_json(event)
    with pytest.raises(InvariantBroken):
        event_json.from_json({"kind": "news"})


def test_the_end_of_a_run_is_told_as_it_is_recorded() -> None:
    data = orjson.loads(orjson.dumps(event_json.ended_to_json(ENDED, 55, (OTHER_RUN,))))
    told = event_json.from_json(data)
    reason, usage = StopReason.insufficient_credits, ENDED.usage
    assert told == TurnEnded(RUN, reason, usage, 4, 55, None, "budget", (OTHER_RUN,), {"tokens": 5})


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"type": "llm_rate_limit", "message": "Wait.", "detail": "d", "hint": "h"}, ModelError),
        ({"type": "storage", "message": "Disk."}, StorageError),
        ({"type": "internal_error", "message": "Bug."}, InvariantBroken),
        ({"type": "interrupted", "message": "Cut."}, TurnBroken),
    ],
)
def test_a_recorded_failure_is_the_error_that_it_was(told: dict[str, str], kind: type[Exception]) -> None:
    error = event_json.recorded_error(told)
    assert type(error) is kind and told["message"] in str(error)
    if isinstance(error, ModelError):
        assert (error.kind, error.detail, error.hint) == (ModelFault.rate_limit, "d", "h")
    data = event_json.ended_to_json(replace(ENDED, metadata={"error": told}), None)
    ended = event_json.from_json(data)
    assert isinstance(ended, TurnEnded) and type(ended.error) is kind


def test_only_pieces_of_messages_are_previews() -> None:
    found = [type(event) for event in STORED if event_json.is_preview(event_json.to_json(event))]
    assert found == [AnswerDelta, ThoughtDelta, ThoughtDelta, CallDelta, CallDelta]


PREVIEW = AnswerDelta(MESSAGE, STEP, 5, 0, "hel")


def test_a_message_that_was_committed_with_its_previews_is_not_called_off(tx: Tx) -> None:
    record = EventRecord("0.0", 0, (event_json.to_json(PREVIEW),))
    keep(tx, ENDED, record, [MessageCommitted(ROW, previewed=True)], 6)
    call_off(tx, RUN, 1, 20)
    assert stored(tx) == [PREVIEW, MessageCommitted(ROW, previewed=True)]


def test_what_was_shown_after_the_last_commit_is_called_off_once(tx: Tx) -> None:
    keep(tx, ENDED, EventRecord("0.0", 0, ()), [MessageCommitted(RESULT)], 6)
    later = replace(PREVIEW, message_id=MessageId("message-00000000-0000-4000-8000-000000000009"))
    run_events.append(tx, RUN, "0.1", 0, [event_json.to_json(PREVIEW), event_json.to_json(later)], 7)
    for life in (1, 2):
        call_off(tx, RUN, life, 20)
    assert stored(tx) == [MessageCommitted(RESULT), PREVIEW, later, StepAbandoned(later.message_id, STEP, 20)]
    call_off(tx, OTHER_RUN, 1, 20)
    assert stored(tx, OTHER_RUN) == []


def test_every_stream_gets_its_end_unless_it_was_cut(tx: Tx) -> None:
    keep_end(tx, ENDED, None, [MessageCommitted(RESULT)])
    keep_end(tx, ENDED, None, [])  # a commit whose outcome was unknown is made again
    assert [type(event) for event in stored(tx)] == [MessageCommitted, TurnEnded]
    other = replace(ENDED, id=OTHER_RUN)
    keep(tx, other, EventRecord("0.0", 0, (event_json.to_json(PREVIEW),), cut=True), [MessageCommitted(ROW)], 1)
    keep_end(tx, other, EventRecord("0.0", 0, (), cut=True), [])
    assert stored(tx, OTHER_RUN) == []


async def recorder() -> StoredTurnStream:
    world: World = None  # type: ignore[assignment]  # nothing is written here: the commits take what was emitted
    return StoredTurnStream(world, Claim(AGENT, 1, Node("here", 1)), RUN, 3, RunNotifier())


async def test_a_commit_takes_the_previews_that_were_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "FLUSH_S", 3600.0)
    stream = await recorder()
    stream.emit(TurnOpened(RUN, 1))
    for event in (PREVIEW, STORED[1], MessageCommitted(ROW)):  # what is committed is stored by its commit
        stream.emit(event)
    record = await stream.enclose(77)
    previews = (event_json.to_json(PREVIEW), event_json.to_json(STORED[1]))
    assert record == EventRecord("3.0", 0, previews, 77)
    stream.sealed(ended=False)
    assert stream.is_open and await stream.enclose(None) == EventRecord("3.1", 0, ())
    stream.sealed(ended=True)
    assert not stream.is_open
    stream.close()


async def test_a_stream_over_its_limit_ends_with_a_note_and_takes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "FLUSH_S", 3600.0)
    monkeypatch.setattr(event_recorder, "EVENTS_MAX", 2)
    stream = await recorder()
    for _ in range(5):
        stream.emit(PREVIEW)
    record = await stream.enclose(None)
    assert [data["kind"] for data in record.events] == ["answer", "answer", "cut"] and not record.cut
    stream.sealed(ended=False)
    stream.emit(PREVIEW)
    assert (await stream.enclose(None)).cut
    stream.close()


async def test_a_reader_hears_of_its_own_run_only_and_of_its_trouble() -> None:
    notifier = RunNotifier()
    with notifier.listen(RUN) as mine, notifier.listen(RUN) as also, notifier.listen(OTHER_RUN) as other:
        notifier.news(RUN)
        await mine.wait(60.0)
        await also.wait(60.0)
        mine.clear()
        error = StorageError("The disk fails.")
        notifier.trouble(RUN, error)
        await mine.wait(60.0)
        assert (mine.trouble, also.trouble, other.trouble) == (error, error, None)
        await other.wait(0.0)  # nothing was told to it
        assert not other._news.is_set()  # pyright: ignore[reportPrivateUsage]
    assert not notifier._subscriptions  # pyright: ignore[reportPrivateUsage]
    notifier.news(RUN)
