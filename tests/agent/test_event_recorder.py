"""How a background run's events get into the database: in batches, each once, with a commit that overtakes them, and
what a broken or closed stream leaves behind."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kelpie.agent.events import event_json, event_recorder
from kelpie.agent.events.event_notifier import RunNotifier, Subscription
from kelpie.agent.events.event_recorder import EventRecord, StoredTurnStream
from kelpie.agent.events.turn_events import AnswerDelta, CallDelta, TurnEvent
from kelpie.core.errors import Fenced, StorageError
from kelpie.storage.agents import ownership_fence
from kelpie.storage.agents.ownership_fence import Claim, Node
from kelpie.storage.runs import events as run_events
from kelpie.world.database import Tx
from tests.agent.test_stored_events import AGENT, MESSAGE, RUN, STEP

Batch = tuple[str, int, list[str]]  # its segment, its place there, and its texts


class Database:
    """Takes batches; `outcomes` are raised by the next writes, and a write waits for `gate`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[Batch] = []
        self.writes = 0
        self.outcomes: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        monkeypatch.setattr(event_recorder, "FLUSH_S", 0.0)
        monkeypatch.setattr(ownership_fence, "advance", lambda _tx, _claim: None)
        monkeypatch.setattr(run_events, "append", self._append)

    def _append(
        self, _tx: Tx, _run: str, segment: str, first: int, events: tuple[dict[str, Any], ...], _at: int
    ) -> None:
        self.batches.append((segment, first, [event["text"] for event in events]))

    async def transact(self, fn: Callable[[Tx], Any]) -> None:
        self.writes += 1
        await self.gate.wait()
        if self.outcomes:
            raise self.outcomes.pop(0)
        fn(cast(Tx, None))


class Rig:
    """A stream, its database, and a reader that is woken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.database = Database(monkeypatch)
        clock = SimpleNamespace(now=lambda: 7)
        self.notifier = RunNotifier()
        world = cast(Any, SimpleNamespace(database=self.database, clock=clock))
        self.stream = StoredTurnStream(world, Claim(AGENT, 1, Node("here", 1)), RUN, 2, self.notifier)

    def says(self, *texts: str) -> None:
        for text in texts:
            self.stream.emit(AnswerDelta(MESSAGE, STEP, 5, 0, text))

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not true():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)

    async def wrote(self, number: int) -> None:
        await self.until(lambda: self.database.writes == number)

    @property
    def is_woken(self) -> Callable[[Subscription], bool]:
        return lambda subscription: subscription._news.is_set()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def texts(record: EventRecord) -> tuple[str, int, list[str]]:
    return record.segment, record.first, [event["text"] for event in record.events]


async def test_batches_follow_each_other_and_what_comes_during_a_write_goes_with_the_next(rig: Rig) -> None:
    rig.database.gate.clear()
    with rig.notifier.listen(RUN) as reader:
        rig.says("a", "b")
        await rig.wrote(1)
        rig.says("c")
        assert not rig.is_woken(reader), "nothing is stored yet"
        rig.database.gate.set()
        await rig.until(lambda: len(rig.database.batches) == 2)
        assert rig.database.batches == [("2.0", 0, ["a", "b"]), ("2.0", 2, ["c"])]
        await rig.until(lambda: rig.is_woken(reader))
    for _ in range(5):
        await asyncio.sleep(0)
    rig.says("d")
    await rig.until(lambda: len(rig.database.batches) == 3)
    assert rig.database.batches[-1] == ("2.0", 3, ["d"])
    assert texts(await rig.stream.enclose(None)) == ("2.0", 4, [])
    rig.stream.sealed(ended=False)
    rig.says("e")
    await rig.until(lambda: len(rig.database.batches) == 4)
    assert rig.database.batches[-1] == ("2.1", 0, ["e"])
    rig.stream.close()


async def test_a_commit_waits_for_a_batch_that_is_written_and_takes_the_rest(rig: Rig) -> None:
    rig.database.gate.clear()
    rig.says("a")
    await rig.wrote(1)
    rig.says("b")
    enclosing = asyncio.ensure_future(rig.stream.enclose(5))
    await asyncio.sleep(0)
    assert not enclosing.done()
    rig.database.gate.set()
    segment, first, taken = texts(await enclosing)
    stored = [text for _, _, batch in rig.database.batches for text in batch]
    assert stored[:1] == ["a"], "it is not broken off"
    assert (segment, first, [*stored, *taken]) == ("2.0", len(stored), ["a", "b"])
    rig.stream.close()


@pytest.mark.parametrize("error", [StorageError("The disk fails."), Fenced("another node has it")])
async def test_a_batch_that_was_not_stored_goes_with_the_next_one(rig: Rig, error: Exception) -> None:
    rig.database.outcomes = [error]
    with rig.notifier.listen(RUN) as reader:
        rig.says("a")
        await rig.wrote(1)
        await asyncio.sleep(0)
        assert not rig.is_woken(reader) and rig.database.batches == []
    for _ in range(5):
        await asyncio.sleep(0)
    assert rig.database.writes == 1, "it is not tried without end"
    rig.says("b")
    await rig.until(lambda: rig.database.batches)
    assert rig.database.batches == [("2.0", 0, ["a", "b"])]
    rig.stream.close()


async def test_after_a_commit_that_took_all_of_it_the_next_step_is_shown_as_it_comes(rig: Rig) -> None:
    rig.says("a")
    assert texts(await rig.stream.enclose(None)) == ("2.0", 0, ["a"])
    rig.stream.sealed(ended=False)
    rig.says("b")
    await rig.until(lambda: rig.database.batches)
    assert rig.database.batches == [("2.1", 0, ["b"])]
    rig.stream.close()


async def test_what_was_not_stored_is_taken_by_the_commit(rig: Rig) -> None:
    rig.database.outcomes = [StorageError("The disk fails.")]
    rig.says("a")
    await rig.wrote(1)
    rig.says("b")
    assert texts(await rig.stream.enclose(None)) == ("2.0", 0, ["a", "b"])
    rig.stream.sealed(ended=True)
    for _ in range(5):
        await asyncio.sleep(0)
    assert rig.database.batches == [], "and not stored once more"
    rig.stream.close()


async def test_a_batch_that_is_being_written_when_the_stream_is_closed_gets_to_its_end(rig: Rig) -> None:
    rig.database.gate.clear()
    rig.says("a")
    await rig.wrote(1)
    rig.stream.close()
    rig.says("b")
    rig.database.gate.set()
    await rig.until(lambda: rig.database.batches)
    for _ in range(5):
        await asyncio.sleep(0)
    assert rig.database.batches == [("2.0", 0, ["a"])] and rig.database.writes == 1


async def test_a_batch_that_was_only_intended_goes_with_a_closed_stream(rig: Rig) -> None:
    rig.says("a")
    rig.stream.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert rig.database.writes == 0


@pytest.mark.parametrize(
    "event",
    [
        AnswerDelta(MESSAGE, STEP, 5, 0, "x" * 300),
        CallDelta(MESSAGE, STEP, 5, 0, "call-1", None, "x" * 300),
    ],
    ids=["answer", "call"],
)
async def test_long_pieces_count_towards_the_limit_by_their_length(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, event: TurnEvent
) -> None:
    monkeypatch.setattr(event_recorder, "FLUSH_S", 3600.0)
    monkeypatch.setattr(event_recorder, "CHARS_MAX", 1000)
    for _ in range(3):
        rig.stream.emit(event)
    record = await rig.stream.enclose(None)
    assert [data["kind"] for data in record.events] == [event_json.to_json(event)["kind"]] * 2 + ["cut"]
    rig.stream.close()
