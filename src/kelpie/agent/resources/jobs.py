"""Jobs API: list, cancel and delete records of long work that is not a turn."""

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.conversations.jobs import Job, JobQuery, JobStatus
from kelpie.core.errors import Conflict
from kelpie.core.ids import JobId
from kelpie.storage.runs import jobs as rows
from kelpie.world.database import Tx
from kelpie.world.world import World


class Jobs:
    """Jobs of the caller's organization."""

    def __init__(self, world: World, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._user = caller.user_id
        self._organization = caller.organization_id

    async def get(self, job_id: JobId) -> Job:
        """Raises NotFound."""
        return await self._world.database.read(lambda tx: rows.get(tx, self._organization, job_id))

    async def delete(self, job_id: JobId) -> Job:
        """Removes the record and returns it. Raises NotFound."""

        def write(tx: Tx) -> Job:
            job = rows.get(tx, self._organization, job_id)
            rows.remove(tx, job_id)
            return job

        return await self._world.database.transact(write)

    async def cancel(self, job_id: JobId) -> Job:
        """Marks a job as cancelled; its worker sees that and stops. Raises NotFound, or Conflict when over."""
        now = self._world.clock.now()

        def write(tx: Tx) -> Job:
            job = rows.get(tx, self._organization, job_id)
            if not rows.end(tx, job_id, JobStatus.cancelled, now, self._user):
                raise Conflict(f"{job_id} is already {job.status.value} and cannot be cancelled.")
            return rows.get(tx, self._organization, job_id)

        return await self._world.database.transact(write)

    async def page(self, query: JobQuery) -> list[Job]:
        return await self._world.database.read(lambda tx: rows.select_jobs(tx, self._organization, query))
