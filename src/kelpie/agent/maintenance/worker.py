"""Maintenance of a running server: recovery of unfinished runs, cleanup of old rows, denial of expired approvals.

One round follows another for as long as the server runs, because a disk that fails for a while leaves runs behind just
as a crash does.
"""

from kelpie.actors.periodic import PeriodicWorker
from kelpie.agent.maintenance.approval_expiry import ApprovalExpiry
from kelpie.agent.maintenance.cleanup import Cleanup
from kelpie.agent.maintenance.memory_changes import MemoryChanges
from kelpie.agent.maintenance.recovery import Recovery
from kelpie.core.errors import KelpieError
from kelpie.observe import logs

EVERY_S = 15.0

_log = logs.get("app")


class MaintenanceWorker:
    """Loop of unfinished changes of memory, recovery, cleanup and expiry, in this order."""

    def __init__(
        self, recovery: Recovery, memory_changes: MemoryChanges, cleanup: Cleanup, expiry: ApprovalExpiry
    ) -> None:
        self._recovery = recovery
        self._memory_changes = memory_changes
        self._cleanup = cleanup
        self._expiry = expiry
        self._worker = PeriodicWorker(self._round, failed=_report, retry_s=EVERY_S)

    def wake(self) -> None:
        """Starts the next round now, or right after the round that is running."""
        self._worker.wake()

    async def run(self) -> None:
        """Never returns."""
        await self._worker.run()

    async def _round(self) -> float:
        await self._memory_changes.complete_all()
        await self._recovery.recover_all()
        await self._cleanup.clean_up()
        await self._expiry.deny_expired()
        return EVERY_S


def _report(error: KelpieError) -> None:
    _log.error("recovery_failed", "Recovery and cleanup failed; trying again later", error=str(error))
