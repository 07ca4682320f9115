"""Traces that are not stored yet: those of the newest steps are written a few seconds after them, many at once.

A prompt has many times the bytes of the rows of its step. Written with each step, it would cost a turn more than all of
these; a few seconds later, most of a busy server's traces are no longer among the newest and are never written. A crash
loses the traces of the last seconds, never their steps. Nothing else may depend on a trace.
"""

from kelpie.actors.periodic import PeriodicWorker
from kelpie.core.conversations.runs import Trace
from kelpie.core.errors import KelpieError, StorageError
from kelpie.core.ids import StepId
from kelpie.observe import logs
from kelpie.storage.runs import traces
from kelpie.storage.runs.traces import Tracing
from kelpie.world.world import World

WRITE_AFTER_S = 5.0
BYTES_MAX = 8 * 1024 * 1024  # of all that wait; what does not fit is written with its step
WRITE_EARLY_BYTES = BYTES_MAX // 2
PIECE_BYTES = 1024 * 1024  # of one transaction, so that no turn waits for long
OVERHEAD_BYTES = 512  # of each trace beside its texts, so that the number of small ones is bounded too
IDLE_S = 3600.0

_log = logs.get("agent")


class TraceBuffer:
    """The traces of a server's newest steps."""

    def __init__(self, world: World, tracing: Tracing) -> None:
        self.tracing = tracing
        self._world = world
        self._waiting: dict[StepId, Trace] = {}  # the oldest first
        self._bytes = 0
        self._due_ns = 0  # when the oldest was to be written at the latest
        self._worker = PeriodicWorker(self._round, failed=_report, retry_s=WRITE_AFTER_S)

    def has_room(self, trace: Trace) -> bool:
        return self._bytes + _size(trace) <= BYTES_MAX

    def put(self, trace: Trace) -> None:
        """Takes the trace of a step that is stored. One that newer traces have replaced is dropped."""
        if not self._waiting:
            self._due_ns = self._world.clock.monotonic_ns() + int(WRITE_AFTER_S * 1e9)
            self._worker.wake()
        self._waiting[trace.step_id] = trace
        self._bytes += _size(trace)
        if len(self._waiting) > self.tracing.kept:
            self._forget(next(iter(self._waiting.values())))
        if self._bytes > WRITE_EARLY_BYTES:
            self._worker.wake()

    def find(self, step_id: StepId) -> Trace | None:
        """The trace of a step, if it waits to be written. Ask here first: what is not here any more is stored."""
        return self._waiting.get(step_id)

    async def run(self) -> None:
        """Never returns."""
        await self._worker.run()

    async def write(self) -> None:
        """Stores all that wait. Raises StorageError; then they still wait."""
        while self._waiting:
            piece = self._oldest()
            await self._world.database.transact(lambda tx, piece=piece: traces.add(tx, piece, self.tracing.kept))
            for trace in piece:
                self._forget(trace)

    async def close(self) -> None:
        """Stores all that wait, if the database can."""
        try:
            await self.write()
        except StorageError as error:
            _report(error)

    async def _round(self) -> float:
        if not self._waiting:
            return IDLE_S
        left_s = (self._due_ns - self._world.clock.monotonic_ns()) / 1e9
        if left_s > 0 and self._bytes <= WRITE_EARLY_BYTES:
            return left_s
        await self.write()
        return IDLE_S

    def _oldest(self) -> list[Trace]:
        """As many as one transaction writes, at least one."""
        piece, size = list[Trace](), 0
        for trace in self._waiting.values():
            size += _size(trace)
            if piece and size > PIECE_BYTES:
                break
            piece.append(trace)
        return piece

    def _forget(self, trace: Trace) -> None:
        if self._waiting.pop(trace.step_id, None) is not None:
            self._bytes -= _size(trace)


def _size(trace: Trace) -> int:
    return OVERHEAD_BYTES + len(trace.request) + len(trace.response or b"")


def _report(error: KelpieError) -> None:
    _log.warning("traces_not_written", "Prompts of steps could not be stored; trying again", error=str(error))
