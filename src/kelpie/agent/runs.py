"""The door to runs and steps: what happened, for people and SDKs to look at."""

from kelpie.core.errors import Conflict
from kelpie.core.ids import DEFAULT_ORGANIZATION, RunId, StepId
from kelpie.core.messages import Message
from kelpie.core.paging import Page
from kelpie.core.runs import UNFINISHED, Run, RunQuery, Step, StepQuery
from kelpie.storage import messages, runs
from kelpie.world.database import Database, Tx


class Runs:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, run_id: RunId) -> Run:
        """Raises NotFound."""
        return await self._database.read(lambda tx: runs.get(tx, run_id))

    async def steps(self, query: StepQuery) -> list[Step]:
        return await self._database.read(lambda tx: runs.select_steps(tx, DEFAULT_ORGANIZATION, query))

    async def step(self, step_id: StepId) -> Step:
        """Raises NotFound."""
        return await self._database.read(lambda tx: runs.get_step(tx, step_id))

    async def messages(self, run_id: RunId, page: Page) -> list[Message]:
        """The messages of a run in the order asked for. Raises NotFound for an unknown run."""

        def read(tx: Tx) -> list[Message]:
            runs.get(tx, run_id)
            return _slice(messages.of_run(tx, run_id), page)

        return await self._database.read(read)

    async def step_messages(self, step_id: StepId, page: Page) -> list[Message]:
        return await self._database.read(lambda tx: _slice(messages.of_step(tx, step_id), page))

    async def delete(self, run_id: RunId) -> None:
        """Deletes the record of an ended run. Raises NotFound, or Conflict while it is under way."""

        def write(tx: Tx) -> None:
            if runs.get(tx, run_id).status in UNFINISHED:
                raise Conflict(f"{run_id} is still running; wait until it has ended")
            runs.remove(tx, run_id)

        await self._database.transact(write)

    # Stands last: after it, `list` in this class means the method.
    async def list(self, query: RunQuery) -> list[Run]:
        return await self._database.read(lambda tx: runs.select_runs(tx, DEFAULT_ORGANIZATION, query))


def _slice(found: list[Message], page: Page) -> list[Message]:
    """A page of a short list: the messages of one run are bounded by its steps."""
    ordered = found[::-1] if page.descending else found
    ids: list[str] = [m.id for m in ordered]
    start = ids.index(page.after) + 1 if page.after in ids else 0
    stop = ids.index(page.before) if page.before in ids else len(ids)
    window = ordered[start:stop]
    return window if page.limit is None else window[: page.limit]
