"""The waiting jobs of one key: a bounded queue with a lane per conversation, first in, first out in each lane."""

from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kelpie.actors.reply import Reply
from kelpie.core.errors import MailboxFull

H = TypeVar("H")


@dataclass(slots=True, eq=False)
class Job(Generic[H]):
    """A piece of work for a handler. `context` is its submitter's: logs and traces stay with the request."""

    lane: str
    work: Callable[[H], Awaitable[Any]]
    reply: Reply[Any]
    context: Context
    token: object = None  # identifies the job to callers that ask what occupies the lane


class Mailbox(Generic[H]):
    __slots__ = ("_lanes", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self._lanes: dict[str, deque[Job[H]]] = {}

    def put(self, job: Job[H], size: int, retry_after_s: float) -> None:
        """Adds a job to its lane. Raises MailboxFull when `size` jobs wait already."""
        if self.waiting >= size:
            raise MailboxFull(
                f"{size} messages are already waiting for this agent. Send it again later.", retry_after_s
            )
        self._lanes.setdefault(job.lane, deque()).append(job)
        self.waiting += 1

    def take(self, busy: Container[str]) -> Job[H] | None:
        """The next job of the lane that waited longest for its turn, skipping the busy lanes."""
        lane = next((lane for lane in self._lanes if lane not in busy), None)
        if lane is None:
            return None
        queue = self._lanes.pop(lane)
        job = queue.popleft()
        self.waiting -= 1
        if queue:
            self._lanes[lane] = queue  # at the end: the other lanes have their turn first
        return job

    def of_lane(self, lane: str) -> Iterable[Job[H]]:
        """The waiting jobs of a lane, the next one first."""
        return self._lanes.get(lane, ())

    def clear(self) -> list[Job[H]]:
        """Removes and returns all jobs."""
        jobs = [job for queue in self._lanes.values() for job in queue]
        self._lanes.clear()
        self.waiting = 0
        return jobs
