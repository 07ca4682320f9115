"""The deterministic event loop: one thread, virtual time, and one ready callback at a time, picked by a seeded policy.

When nothing is ready the clock jumps to the next timer; when there is no timer either, that is a Deadlock. Every
callback costs a little virtual time, so a busy loop cannot stop the clock.
"""

import asyncio
import heapq
import itertools
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context
from contextvars import copy_context as _copy_context
from typing import Any, TypeVar

from kelpie.sim.loop.errors import Deadlock, NotSimulated, OutOfBounds, SimError
from kelpie.sim.loop.node import Node, current_node
from kelpie.sim.loop.offline import OfflineLoop
from kelpie.sim.loop.schedules import Policy, draw
from kelpie.sim.loop.tape import Tape, Trace
from kelpie.sim.loop.tasks import SimFuture, SimHandle, SimTask, SimTimer, coroutine_name, position_of

T = TypeVar("T")

CALLBACK_COST_S = 2e-6
PASSED_OVER_MAX = 300
PICKS_MAX = 2_000_000
VIRTUAL_S_MAX = 7 * 24 * 3600.0
_SWEEP_EVERY = 512


class SimLoop(OfflineLoop):
    """The event loop of a simulation. `policy` defaults to one drawn from the seed."""

    # Of BaseEventLoop, and private; tests/sim/test_canary.py notices when Python changes them.
    _check_closed: Callable[[], None]
    _stopping: bool

    def __init__(
        self,
        seed: int = 0,
        policy: Policy | None = None,
        *,
        picks_max: int = PICKS_MAX,
        virtual_s_max: float = VIRTUAL_S_MAX,
    ) -> None:
        super().__init__()
        self.set_debug(False)
        self.seed = seed
        self.policy: Policy = policy or draw(self.rng("schedule"))
        self.tape = Tape()
        self.trace = Trace()
        self.picks = 0
        self.unhandled: list[str] = []
        self._now = 0.0
        self._numbers = itertools.count(1)
        self._runnable: list[SimHandle | SimTimer] = []
        self._timers: list[tuple[float, int, SimTimer]] = []
        self._cancelled_timers = 0
        self._tasks: dict[int, SimTask[Any]] = {}
        self._dead_handles: list[object] = []  # what dead nodes left behind; letting go of it would run their `finally`
        self._generator_nodes: dict[int, Node | None] = {}
        self._fatal: SimError | None = None
        self._picks_max = picks_max
        self._virtual_s_max = virtual_s_max
        self._stall_at = 0
        self._stall: Callable[[], tuple[float, int]] | None = None
        self._look: Callable[[], float] | None = None
        self._look_at = 0.0
        self.set_exception_handler(
            lambda _, context: self.report_unhandled(str(context["message"]), context.get("exception"))
        )

    # --- used by the rest of the simulation ---

    def rng(self, name: str) -> random.Random:
        """A separate stream of random numbers, so that drawing from one never moves another."""
        return random.Random(f"{self.seed}/{name}")

    def note(self, text: str) -> None:
        """Adds a note to the trace, which ends with the run."""
        if not self.is_closed():
            self.trace.note(self._now, text)

    def report_unhandled(self, what: str, error: BaseException | None) -> None:
        """Reports an unhandled error; errors of dead nodes during their disposal are ignored."""
        if self.is_closed():
            return
        self.unhandled.append(f"{what}: {type(error).__name__}: {error}" if error else what)
        self.note(f"unhandled {type(error).__name__}")  # the text may hold an address
        if isinstance(error, SimError):
            self.fail(error)

    def held(self) -> list[SimTask[Any]]:
        """The tasks that are not done, those of dead nodes included, oldest first."""
        return [task for task in self._tasks.values() if not task.done()]

    def fail(self, error: SimError) -> None:
        """Ends the run with this error before the next callback; the first one counts."""
        self._fatal = self._fatal or error

    def release(self) -> None:
        """Releases everything the run held. Only for a closed loop."""
        self._dead_handles.clear()
        self._tasks.clear()
        self._runnable.clear()
        self._timers.clear()

    def stalls(self, stall: Callable[[], tuple[float, int]] | None) -> None:
        """Registers the function that starves the processor: it returns the seconds to lose and the picks until its
        next call.
        """
        self._stall = stall
        self._stall_at = self.picks + 1 if stall else 0

    def looks(self, look: Callable[[], float]) -> None:
        """Registers a function that is called when nothing is ready, and returns the time from which on it is called
        again. It only looks: a run with it has the same trace as one without.
        """
        self._look = look

    # --- asyncio: time, callbacks, tasks ---

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        self._check_closed()
        handle = SimHandle(callback, args, self, context, self.picks)
        self._runnable.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()
        timer = SimTimer(when, callback, args, self, context)
        timer._scheduled = True
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if not handle._scheduled:  # pyright: ignore[reportAttributeAccessIssue]
            return
        self._cancelled_timers += 1
        if self._cancelled_timers > 200 and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled and entry[2] is not handle]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self, seq=next(self._numbers))

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
        **_options: object,
    ) -> asyncio.Task[T]:
        self._check_closed()
        seq = next(self._numbers)
        where = context if context is not None else _copy_context()
        node = where.get(current_node)
        label = f"{node or '-'}/{name or coroutine_name(coro)}#{seq}"  # pyright: ignore[reportArgumentType]
        task: SimTask[T] = SimTask(coro, loop=self, seq=seq, label=label, node=node, context=where)  # pyright: ignore[reportArgumentType]
        task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]
        self._tasks[seq] = task
        if len(self._tasks) % _SWEEP_EVERY == 0:
            self._tasks = {seq: task for seq, task in self._tasks.items() if not task.done()}
        return task

    # --- the loop itself ---

    def _run_once(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._timers:
            self._wake_timers()
        while not self._runnable:
            if self._stopping:
                return
            if self._look is not None and self._now >= self._look_at:
                self._look_at = self._look()
            self._jump()
        handle = self._runnable.pop(self._choose())
        if handle._cancelled or self._is_dead(handle):
            return
        self.picks += 1
        self._now += CALLBACK_COST_S
        if self.picks == self._stall_at and self._stall is not None:
            lost_s, again = self._stall()
            self._now += lost_s
            self._stall_at = self.picks + max(1, again)
        if self.picks > self._picks_max:
            raise OutOfBounds(f"more than {self._picks_max} callbacks; the last was {handle.label}")
        self.trace.ran(handle.label, self._now)
        handle._run()

    def _choose(self) -> int:
        ready = self._runnable
        if len(ready) == 1:
            return 0
        index = 0
        if self.picks - ready[0].born <= PASSED_OVER_MAX:
            index = self.policy.pick(ready)
            self.tape.record(index)
        return index

    def _wake_timers(self) -> None:
        timers, now = self._timers, self._now
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False
            if timer._cancelled:
                self._cancelled_timers -= 1
                continue
            timer.born = self.picks
            self._runnable.append(timer)

    def _jump(self) -> None:
        """Moves the clock to the next timer of a live node."""
        while self._timers:
            when, _, timer = self._timers[0]
            if timer._cancelled or self._is_dead(timer):
                heapq.heappop(self._timers)
                self._cancelled_timers -= timer._cancelled
                continue
            if when > self._virtual_s_max:
                raise OutOfBounds(f"more than {self._virtual_s_max} s of virtual time; {self._waiting()}")
            self._now = max(self._now, when)
            self._wake_timers()
            return
        raise Deadlock(self._waiting())

    def _is_dead(self, handle: SimHandle | SimTimer) -> bool:
        node = handle._context.get(current_node)
        if node is None or node.alive:
            return False
        self._dead_handles.append(handle)
        return True

    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        self._generator_nodes[id(agen)] = current_node.get()

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        node = self._generator_nodes.pop(id(agen), None)
        if self.is_closed() or (node is not None and not node.alive):
            self._dead_handles.append(agen)
        else:
            self.call_soon(self.create_task, agen.aclose(), context=node.context() if node else None)

    def _waiting(self) -> str:
        waiting = [position_of(task) for task in self.held() if task.node is None or task.node.alive]
        return f"{len(waiting)} tasks wait: " + "; ".join(waiting[:20])


def running() -> SimLoop:
    """The loop of the current simulation. Raises NotSimulated on any other loop, uvloop above all."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimLoop):
        raise NotSimulated(f"a simulated adapter works on a SimLoop only, and this is a {type(loop).__module__} loop")
    return loop
