"""An agent's workspace in a cell: mounted, and watched while a job runs that can write to it.

The disk has no limit for one directory, so its size is measured now and then, and a job that fills it up is ended. A
workspace that is already over the limit may stay, be read and be reduced; it may not grow. A file that was removed and
is still open is not counted by that, so the free space of the disk is checked as well.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.core.agents.agent import Agent
from kelpie.core.errors import ToolError
from kelpie.core.ids import AgentId
from kelpie.core.permissions.organization_limits import SETTINGS
from kelpie.core.tools.confinement import MEGABYTE, Mount
from kelpie.sandbox.port import UsageMeter
from kelpie.world.files.workspaces import ENTRIES_MAX, Size, Workspaces

TARGET = "/workspace"
LOOK_S = 0.25
FREE_BYTES_MIN = 1024 * MEGABYTE  # of the disk: what writes is ended when less is left
FREE_BYTES_TAKEN = 32 * MEGABYTE  # since it began, before it is thought to be the one who takes them

T = TypeVar("T")


class Workspace:
    """The workspaces of a server; None where there is no directory for them."""

    def __init__(self, workspaces: Workspaces | None, mb_max: int, disk: DiskUsage) -> None:
        self._workspaces = workspaces
        self._disk = disk
        self._bytes_max = mb_max * MEGABYTE

    async def mount(self, agent_id: AgentId) -> Mount:
        """Raises ToolError."""
        if self._workspaces is None:
            raise ToolError("this server has no data directory, so agents have no workspaces.")
        return Mount(await self._workspaces.directory(agent_id), TARGET, writable=True)

    async def watched(self, agent: Agent, work: Awaitable[T], meter: UsageMeter) -> T:
        """The result of a job that writes to the workspace; it is ended when it fills it up. Raises ToolError, with the
        usage by the meter of its job.
        """
        assert self._workspaces is not None, "mount() comes first"
        before = await self._measured(agent)
        disk_before = self._disk.used(agent.organization_id)
        async with _task(work) as running:
            while not running.done():
                await asyncio.wait((running,), timeout=LOOK_S)
                size = await self._measured(agent)
                reason = self._excess(size, before) or self._excess_of_all(agent, disk_before, size, before)
                if reason is not None:
                    running.cancel()
                    await asyncio.wait((running,))
                    raise ToolError(reason, cpu_us=meter.cpu_us, memory_peak_bytes=meter.memory_peak_bytes)
        return running.result()

    async def _measured(self, agent: Agent) -> Size:
        assert self._workspaces is not None, "mount() comes first"
        size = await self._workspaces.size(agent.id)
        self._disk.measured(agent.organization_id, agent.id, size.bytes)
        return size

    def _excess_of_all(self, agent: Agent, disk_before: int, size: Size, before: Size) -> str | None:
        """The reason why the job must end although its own workspace is not full: the organization's quota."""
        limit, used = self._disk.limit(agent.organization_id), self._disk.used(agent.organization_id)
        if limit is None or used <= max(limit, disk_before) or size.bytes <= before.bytes:
            return None
        return (
            f"It was stopped: the workspaces of your organization are full. They may have {limit // MEGABYTE} MB "
            f"together and have {used // MEGABYTE} MB. Delete some files first, or ask the operator to raise the quota "
            f"'disk_mb' ({SETTINGS['disk_mb']})."
        )

    def _excess(self, size: Size, before: Size) -> str | None:
        """The reason why the job must end."""
        if size.bytes > max(self._bytes_max, before.bytes) or size.entries > max(ENTRIES_MAX, before.entries):
            return (
                f"It was stopped: your workspace is full. Its limits are {self._bytes_max // MEGABYTE} MB and "
                f"{ENTRIES_MAX} files and directories. Delete some files first."
            )
        if size.free_bytes is None or before.free_bytes is None or size.free_bytes >= FREE_BYTES_MIN:
            return None
        if before.free_bytes - size.free_bytes < FREE_BYTES_TAKEN:
            return None
        return f"It was stopped: the server's disk has only {size.free_bytes // MEGABYTE} MB left. Write less."


@asynccontextmanager
async def _task(work: Awaitable[T]) -> AsyncGenerator[asyncio.Future[T]]:
    """The running job; it does not outlive its caller."""
    running = asyncio.ensure_future(work)
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.wait((running,))
