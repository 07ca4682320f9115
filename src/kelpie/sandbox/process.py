"""The process sandbox: jobs in cells of this machine, one cell for each job, up to a limit at once.

A job returns its result as soon as there is one; its cell is removed in the background, and its slot is free for the
next job when nothing of the cell remains. If the cell could still write to something that outlives it, the job waits
for its removal as well. A program that stays and talks, such as an MCP server, has a cell until it is closed.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict

from kelpie.core.errors import SandboxUnavailable
from kelpie.core.tools.confinement import MEMORY_BYTES_MIN, Isolation
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.sandbox.pool import Pool
from kelpie.sandbox.port import JobEnding, JobResult, SandboxJob
from kelpie.sandbox.slots import JobSlots
from kelpie.world.cells.port import Cell, CellPlan, Cells, Channel, Order, OrderOutput
from kelpie.world.clock import Clock
from kelpie.world.egress.broker import PROXY_ENV, Broker, ServedListener

CELLS_MAX = 16
WAITING_MAX = 256
WARM_MAX = 4


class ProcessSandbox:
    def __init__(
        self,
        cells: Cells,
        clock: Clock,
        broker: Broker | None = None,
        *,
        cells_max: int = CELLS_MAX,
        waiting_max: int = WAITING_MAX,
        warm_max: int = WARM_MAX,
        memory_bytes: int | None = None,
        share: OrganizationShare | None = None,
    ) -> None:
        """`memory_bytes` bounds the sum of the memory limits of all jobs that run; None leaves it unbounded."""
        self._broker = broker
        self._cells = cells
        self._clock = clock
        self._pool = Pool(cells, warm_max)
        self.slots = JobSlots(cells_max, waiting_max, memory_bytes, share)
        self._running: dict[int, Cell] = {}
        self._staying: dict[int, CellProcess] = {}
        self._teardowns: dict[int, asyncio.Task[None]] = {}
        self._served_so_far = 0

    async def run(self, job: SandboxJob) -> JobResult:
        """Runs a job to its end; cancelling kills all its processes.

        Raises SandboxUnavailable with what is missing, and ToolError when too many jobs wait already.
        """
        _check_isolation(job)
        await self.slots.take(job.level, job.consumer, _memory(job))
        try:
            cell = await self._pool.take(CellPlan(job.runner, job.mounts, job.confinement.scratch_bytes))
        except BaseException:  # raised again; the place must not be lost
            self._give_back(job)
            raise
        self._served_so_far += 1
        number = self._served_so_far
        self._running[number] = cell
        wait = True
        try:
            ended = await self._run(cell, job)
            wait = ended.how is not JobEnding.finished or any(mount.writable for mount in job.mounts)
            return ended
        except asyncio.CancelledError:
            output = cell.output()
            job.meter.cpu_us, job.meter.memory_peak_bytes = output.cpu_us, output.memory_peak_bytes
            raise
        finally:
            teardown = self._teardowns[number] = asyncio.create_task(self._tear_down(number, cell, job))
            if wait:
                await asyncio.shield(teardown)

    async def start(self, job: SandboxJob) -> "CellProcess":
        """Starts a program that stays and talks; its caller bounds how many there are.

        Raises SandboxUnavailable with what is missing, and ToolError for a host that it may not reach.
        """
        _check_isolation(job)
        cell = await self._cells.start(CellPlan(job.runner, job.mounts, job.confinement.scratch_bytes))
        kept = AsyncExitStack()
        try:
            kept.push_async_callback(cell.kill)
            await kept.enter_async_context(self._serving(cell, job))
            channel = await cell.connect(Order(job.request, job.confinement, _env(job)))
        except BaseException:  # raised again; also for a cancelled start the cell must go
            await kept.aclose()
            raise
        self._served_so_far += 1
        number = self._served_so_far
        process = self._staying[number] = CellProcess(cell, channel, kept)
        kept.callback(self._staying.pop, number, None)
        return process

    @property
    def lacking(self) -> str | None:
        """Reason why no code can run here, as far as it was tried."""
        return self._cells.lacking

    @property
    def unbounded(self) -> str | None:
        """Reason why the limits of a call apply to each of its processes only, as far as it was tried."""
        return self._cells.unbounded

    def counts(self) -> dict[str, int]:
        """Counters of the pool, and of jobs that run, wait for a slot, or are being removed."""
        running = len(self._running) - len(self._teardowns)
        told = {
            "places": self.slots.most,
            "running": running,
            "ending": len(self._teardowns),
            "waiting": self.slots.waiting,
        }
        return asdict(self._pool.counts) | told

    async def settled(self) -> None:
        """Waits until every cell whose job is over is removed."""
        await asyncio.gather(*list(self._teardowns.values()))

    async def close(self) -> None:
        """Ends every cell."""
        await self._pool.close()
        await asyncio.gather(*(process.close() for process in list(self._staying.values())))
        await asyncio.gather(*(cell.kill() for cell in list(self._running.values())))
        await asyncio.gather(*list(self._teardowns.values()))
        await self._cells.close()

    async def _tear_down(self, number: int, cell: Cell, job: SandboxJob) -> None:
        try:
            await cell.kill()
        finally:
            del self._running[number], self._teardowns[number]
            self._give_back(job)

    def _give_back(self, job: SandboxJob) -> None:
        self.slots.give_back(job.level, job.consumer, _memory(job))

    async def _run(self, cell: Cell, job: SandboxJob) -> JobResult:
        started = self._clock.monotonic_ns()
        timed_out = False
        async with self._serving(cell, job):
            try:
                async with asyncio.timeout(job.confinement.wall_s):
                    await cell.run(Order(job.request, job.confinement, _env(job)))
            except TimeoutError:
                timed_out = True
        output = cell.output()
        return JobResult(
            how=JobEnding.timed_out if timed_out else _ending(output),
            code=output.code,
            result=output.result,
            stdout=output.stdout,
            stderr=output.stderr,
            duration_us=(self._clock.monotonic_ns() - started) // 1000,
            truncated=output.truncated,
            cpu_us=output.cpu_us,
            memory_peak_bytes=output.memory_peak_bytes,
        )

    @asynccontextmanager
    async def _serving(self, cell: Cell, job: SandboxJob) -> AsyncIterator[None]:
        """Answers the sockets that the job may use, and closes the others."""
        sockets, broker = cell.sockets, self._broker
        served: list[ServedListener] = []
        try:
            if sockets is not None and broker is not None and job.passport is not None:
                served.append(await broker.serve_api(sockets.api, job.passport))
            elif sockets is not None:
                sockets.api.close()
            if sockets is not None and broker is not None and job.confinement.egress:
                served.append(await broker.serve_proxy(sockets.egress, job.confinement.egress))
            elif sockets is not None:
                sockets.egress.close()
            yield
        finally:
            for each in served:
                await each.close()
            if sockets is not None:
                sockets.close()


class CellProcess:
    """A program in a cell that stays and talks, until it is closed."""

    def __init__(self, cell: Cell, channel: Channel, kept: AsyncExitStack) -> None:
        self._cell = cell
        self._channel = channel
        self._kept = kept
        self._closing: asyncio.Task[None] | None = None

    async def send(self, data: bytes) -> None:
        """Writes to its standard input. Raises ChannelClosed."""
        await self._channel.send(data)

    async def receive(self) -> bytes:
        """What it wrote to its standard output; nothing when it has ended."""
        return await self._channel.receive()

    def last_words(self) -> str:
        """The end of its standard error, and how it ended if it was killed."""
        output = self._cell.output()
        said = output.stderr.decode("utf-8", "replace").strip()
        return f"{said}\nIt used more memory than its limit." if output.out_of_memory else said

    async def close(self) -> None:
        """Ends every process of it; returns when nothing remains. May be called twice."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._kept.aclose())
        await asyncio.shield(self._closing)


def _check_isolation(job: SandboxJob) -> None:
    if job.confinement.isolation is not Isolation.process:
        raise SandboxUnavailable(
            f"the tool wants isolation of the class {job.confinement.isolation}, and this server has only "
            f"{Isolation.process}"
        )


def _env(job: SandboxJob) -> Mapping[str, str]:
    return {**PROXY_ENV, **job.env} if job.confinement.egress else job.env


def _memory(job: SandboxJob) -> int:
    """The memory that the job may use."""
    return max(MEMORY_BYTES_MIN, job.confinement.memory_bytes)


def _ending(output: OrderOutput) -> JobEnding:
    if output.flooded:
        return JobEnding.too_much_output
    if output.result is None and output.out_of_memory:
        return JobEnding.out_of_memory
    return JobEnding.crashed if output.result is None and output.code is None else JobEnding.finished
