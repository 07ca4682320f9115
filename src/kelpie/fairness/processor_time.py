"""The processor time of the server, which organizations share: one process serves them all, on one event loop.

Fair queues do not help where the process itself is the bottleneck: each request of a busy organization is cheap, but
thousands of them leave no time for the others. So the time that a request takes is measured: each step on the event
loop, its database calls and its embeddings. While an organization has used more than its share, its next requests and
the next steps of its turns wait. Shares are equal parts of a fraction of one processor; what some organizations do not
use is divided among the others. The rest of the processor is kept idle: a loop that is never idle makes everyone wait.

Nothing is measured and nobody waits while only one organization is active. A request that would have to wait too long
is refused. All calls come from one event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from kelpie.core.errors import Overloaded

SECOND_NS = 1_000_000_000
ACTIVE_NS = 60 * SECOND_NS  # after its last request an organization counts as active for so long
WINDOW_NS = SECOND_NS // 4  # over which use is measured
BURST_NS = SECOND_NS // 20  # of waiting that nobody has to do: an organization may be so far ahead of its share
WAIT_NS = 30 * SECOND_NS
FIRST_COST_NS = SECOND_NS // 500
SMOOTHING = 0.1  # weight of one request in the average cost of its organization's requests

T = TypeVar("T")


class _Account:
    """The time of one organization. `free_at` is the moment at which its share will have paid for all it used."""

    __slots__ = ("active_at", "average", "free_at", "rate", "window_used")

    def __init__(self) -> None:
        self.active_at = 0
        self.average = float(FIRST_COST_NS)  # of a request
        self.free_at = 0.0
        self.rate = 1.0  # share of one processor
        self.window_used = 0

    def charge(self, used_ns: float) -> None:
        self.free_at += used_ns / self.rate

    def wait_ns(self, now: int) -> float:
        return self.free_at - BURST_NS - now

    def charge_ahead(self, now: int) -> int:
        """Charges what a request usually costs, so that those which wait do not all start at the same moment."""
        expected = int(self.average)
        self.free_at = max(self.free_at, now)
        self.charge(expected)
        return expected


class Usage:
    """What one request and the jobs that it starts use."""

    __slots__ = ("_account", "_expected", "_monotonic_ns", "_used")

    def __init__(self, account: _Account, expected: int, monotonic_ns: Callable[[], int]) -> None:
        self._account = account
        self._expected = expected  # charged ahead and not used yet
        self._monotonic_ns = monotonic_ns
        self._used = 0

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the request itself."""
        token = _current.set(self)
        try:
            return await self.measure(work)
        finally:
            _current.reset(token)
            self._account.average += SMOOTHING * (self._used - self._account.average)
            self._give_back()

    def measure(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """The same work; the time of each of its steps is added."""
        return _Measured(work, self.add, self._monotonic_ns)

    def add(self, used_ns: int) -> None:
        """Charges time; the expected part of it was charged already."""
        self._used += used_ns
        self._account.window_used += used_ns
        ahead = min(self._expected, used_ns)
        self._expected -= ahead
        self._account.charge(used_ns - ahead)

    @contextmanager
    def charged(self) -> Generator[None]:
        """Charges the whole time of its body, which waits for another thread."""
        started = self._monotonic_ns()
        try:
            yield
        finally:
            self.add(self._monotonic_ns() - started)

    async def pace(self) -> None:
        """Waits while the organization has used more than its share, at most for a bounded time."""
        now = self._monotonic_ns()
        if (wait_ns := self._account.wait_ns(now)) > 0:
            self._expected += self._account.charge_ahead(now)
            try:
                await asyncio.sleep(min(wait_ns, WAIT_NS) / SECOND_NS)
            except BaseException:  # raised again: the work is cancelled
                self._give_back()
                raise

    def _give_back(self) -> None:
        """Ends what was charged ahead. Jobs that go on are charged as they go."""
        self._account.charge(-self._expected)
        self._expected = 0


_current: ContextVar[Usage | None] = ContextVar("processor_usage", default=None)


def current_usage() -> Usage | None:
    """The usage of the request that this code runs for; None when it is not measured."""
    return _current.get()


class ProcessorTime:
    """The time of one server. `fraction` is how much of one processor the organizations may use together."""

    def __init__(self, monotonic_ns: Callable[[], int], fraction: float) -> None:
        self._monotonic_ns = monotonic_ns
        self._fraction = fraction
        self._accounts: dict[str, _Account] = {}
        self._window_at = 0

    async def admit(self, organization: str) -> Usage | None:
        """Waits until a request of an organization may run. None: it need not be measured.

        Raises Overloaded when the request would have to wait too long.
        """
        now = self._monotonic_ns()
        if (account := self._accounts.get(organization)) is None:
            account = self._accounts[organization] = _Account()
        account.active_at = now
        if now - self._window_at >= WINDOW_NS:
            self._divide(now)
        if len(self._accounts) == 1:
            return None
        if (wait_ns := account.wait_ns(now)) > WAIT_NS:
            after_s = wait_ns / SECOND_NS
            raise Overloaded(
                "processor_share_used",
                "This organization uses more than its share of the server's processor time. "
                f"Try again in {after_s:.0f} s.",
                after_s,
            )
        expected = account.charge_ahead(now)
        if wait_ns > 0:
            try:
                await asyncio.sleep(wait_ns / SECOND_NS)
            except BaseException:  # raised again: the client is gone
                account.charge(-expected)
                raise
        return Usage(account, expected, self._monotonic_ns)

    def _divide(self, now: int) -> None:
        """Sets the share by what the organizations used in the last window, and forgets those that are inactive."""
        elapsed, self._window_at = now - self._window_at, now
        for organization in [name for name, found in self._accounts.items() if now - found.active_at > ACTIVE_NS]:
            del self._accounts[organization]
        accounts = self._accounts.values()
        rate, parts = self._fraction, len(accounts)
        for used in sorted(found.window_used / elapsed for found in accounts)[:-1]:
            if used > rate / parts:
                break
            rate, parts = rate - used, parts - 1
        rate /= parts
        for found in accounts:
            owed = max(0.0, found.free_at - now) * found.rate
            found.free_at = now + owed / rate
            found.rate = rate
            found.window_used = 0


class _Measured(Generic[T]):
    """A coroutine whose steps are measured: the time from each resumption to the next wait."""

    __slots__ = ("_add", "_monotonic_ns", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, T], add: Callable[[int], None], monotonic_ns: Callable[[], int]
    ) -> None:
        self._work = work
        self._add = add
        self._monotonic_ns = monotonic_ns

    def __await__(self) -> Generator[Any, Any, T]:
        work, add, now = self._work, self._add, self._monotonic_ns
        error: BaseException | None = None
        while True:
            started = now()
            try:
                waiting_for = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                add(now() - started)
            try:
                yield waiting_for
                error = None
            except GeneratorExit:
                work.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 - the work itself receives it
                error = thrown
