"""The queue of background runs: each is handed to its lane once, and what kept it from there is no end of it."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.events.turn_events import TurnEnded
from kelpie.agent.inbox.run_queue import RunQueue
from kelpie.core.conversations.messages import Usage
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import AgentStopped, KelpieError, MailboxFull, NotFound, StorageError
from kelpie.core.ids import AgentId, ConversationId, RunId
from kelpie.storage.runs.unfinished import StoredRun

AGENT, LANE = AgentId("agent-1"), ConversationId("conv-1")
FIRST, SECOND = (StoredRun(RunId(f"run-{number}"), AGENT, LANE) for number in (1, 2))


class Lanes:
    """Instead of a dispatcher: keeps what it was handed, and does nothing with it."""

    def __init__(self) -> None:
        self.handed: list[tuple[str, str, object]] = []
        self.replies: list[asyncio.Future[None]] = []
        self.refusal: KelpieError | None = None
        self.tokens: list[object] = []

    def submit(self, key: str, lane: str, _job: Callable[[Any], Any], token: object) -> asyncio.Future[None]:
        if self.refusal is not None:
            raise self.refusal
        self.handed.append((key, lane, token))
        self.replies.append(asyncio.get_running_loop().create_future())
        return self.replies[-1]

    def kept_by(self, _key: str, _lane: str) -> list[object]:
        return self.tokens


class Ends:
    """Counts what a queue tells."""

    def __init__(self) -> None:
        self.ended = 0
        self.recovered = 0

    def end(self) -> None:
        self.ended += 1

    def recover(self) -> None:
        self.recovered += 1


def queue(lanes: Lanes, ends: Ends) -> RunQueue:
    made = RunQueue(cast(Any, lanes), ends.end)
    made.when_stopped(ends.recover)
    return made


async def test_a_run_is_handed_to_its_lane_once_until_it_was_played() -> None:
    lanes, ends = Lanes(), Ends()
    runs = queue(lanes, ends)
    for stored in (FIRST, FIRST, SECOND, StoredRun(RunId("run-3"), AGENT, None)):
        runs.submit(stored)
    assert lanes.handed == [(AGENT, LANE, "run-1"), (AGENT, LANE, "run-2"), (AGENT, "", "run-3")]
    lanes.replies[0].set_result(None)
    await asyncio.sleep(0)
    assert (ends.ended, ends.recovered) == (1, 0)
    runs.submit(FIRST)
    runs.submit(SECOND)
    assert [token for *_, token in lanes.handed] == ["run-1", "run-2", "run-3", "run-1"]


async def test_a_run_that_was_refused_can_be_handed_over_again() -> None:
    lanes = Lanes()
    runs = queue(lanes, Ends())
    lanes.refusal = MailboxFull("full", 1.0)
    runs.submit(FIRST)
    lanes.refusal = None
    runs.submit(FIRST)
    assert lanes.handed == [(AGENT, LANE, "run-1")]


@pytest.mark.parametrize(
    ("error", "recovered"),
    [(AgentStopped("stopped"), 1), (StorageError("The disk fails."), 0), (NotFound("Agent", AGENT), 0)],
)
async def test_a_run_that_could_not_be_played_is_told_and_can_come_again(error: KelpieError, recovered: int) -> None:
    lanes, ends = Lanes(), Ends()
    runs = queue(lanes, ends)
    runs.submit(FIRST)
    lanes.replies[0].set_exception(error)
    await asyncio.sleep(0)
    assert (ends.ended, ends.recovered) == (1, recovered)
    runs.submit(FIRST)
    assert len(lanes.handed) == 2


async def test_a_run_whose_job_was_cancelled_can_come_again() -> None:
    lanes, ends = Lanes(), Ends()
    runs = queue(lanes, ends)
    runs.submit(FIRST)
    lanes.replies[0].cancel()
    await asyncio.sleep(0)
    assert (ends.ended, ends.recovered) == (1, 0)
    runs.submit(FIRST)
    assert len(lanes.handed) == 2


async def test_a_lane_is_kept_by_the_first_turn_that_has_not_ended() -> None:
    lanes = Lanes()
    runs, over, open_one = queue(lanes, Ends()), TurnStream(RunId("run-8")), TurnStream(RunId("run-9"))
    over.emit(TurnEnded(over.run_id, StopReason.end_turn, Usage(), 0, None))
    lanes.tokens = [RunId("run-7"), over]
    assert runs.keeper(AGENT, LANE) is None
    lanes.tokens.append(open_one)
    assert runs.keeper(AGENT, LANE) == "run-9"
