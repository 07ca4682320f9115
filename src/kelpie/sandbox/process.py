"""The process sandbox: jobs in cells of this machine, one cell for each job."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from kelpie.core.confinement import Isolation
from kelpie.core.errors import SandboxUnavailable
from kelpie.sandbox.port import Ended, How, Job
from kelpie.world.cells import Cell, Cells, Doors, Left, Order, Plan
from kelpie.world.clock import Clock


class Porter(Protocol):
    """Serves the doors of a cell: our API to whoever shows the job's passport, and the hosts it may reach."""

    def serve(self, job: Job, doors: Doors) -> AbstractAsyncContextManager[None]:
        """Serves them while it is entered; afterwards they are shut and no connection through them is left."""
        ...


class ProcessSandbox:
    def __init__(self, cells: Cells, clock: Clock, porter: Porter | None = None) -> None:
        self._cells = cells
        self._clock = clock
        self._porter = porter
        self._burials: set[asyncio.Task[None]] = set()

    async def run(self, job: Job) -> Ended:
        """Runs a job to its end; cancelling it kills all of it. Raises SandboxUnavailable with what is missing."""
        if job.confinement.isolation is not Isolation.process:
            raise SandboxUnavailable(
                f"the tool wants isolation of the class {job.confinement.isolation}, and this server has only "
                f"{Isolation.process}"
            )
        cell = await self._cells.start(Plan(job.runner, job.mounts, job.confinement.scratch_bytes))
        try:
            return await self._run(cell, job)
        finally:
            await cell.kill()

    async def close(self) -> None:
        """Ends every cell."""
        await self._cells.close()

    async def _run(self, cell: Cell, job: Job) -> Ended:
        started = self._clock.now()
        timed_out = False
        async with self._served(cell, job):
            try:
                async with asyncio.timeout(job.confinement.wall_s):
                    await cell.run(Order(job.request, job.confinement, job.env))
            except TimeoutError:
                timed_out = True
        left = cell.left()
        return Ended(
            how=How.timed_out if timed_out else _how(left),
            code=left.code,
            result=left.result,
            stdout=left.stdout,
            stderr=left.stderr,
            duration_us=self._clock.now() - started,
            truncated=left.truncated,
            cpu_us=left.cpu_us,
            memory_peak_bytes=left.memory_peak_bytes,
        )

    def _served(self, cell: Cell, job: Job) -> AbstractAsyncContextManager[None]:
        doors = cell.doors
        if doors is None:
            return nullcontext()
        if self._porter is not None and (job.passport is not None or job.confinement.egress):
            return self._porter.serve(job, doors)
        doors.close()
        return nullcontext()


def _how(left: Left) -> How:
    if left.flooded:
        return How.too_much_output
    if left.result is None and left.out_of_memory:
        return How.out_of_memory
    return How.crashed if left.result is None and left.code is None else How.finished
