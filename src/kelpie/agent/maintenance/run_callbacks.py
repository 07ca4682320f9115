"""Callbacks of background runs and batches: a POST to the client's URL at their end, tried again until it is accepted.

Due callbacks are in the database, so a restart loses none: each is sent at least once, and never before its run or
batch has ended. A few are in flight at once: organizations, then their agents, take turns, and one organization has
only its share of them, so that receivers which never answer delay nobody else's. Redirects are not followed, and
nothing goes to a private network unless the operator allows it.
"""

import asyncio
from typing import Any

import httpx

from kelpie.actors.periodic import PeriodicWorker
from kelpie.core.errors import KelpieError, NotFound
from kelpie.core.ids import JobId, OrganizationId, RunId
from kelpie.core.settings.settings import Settings
from kelpie.core.time import MICROS_PER_SECOND, Micros, as_datetime
from kelpie.fairness.fair_slots import FairSlots, SlotLimits
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.observe import logs
from kelpie.storage.runs import callbacks, jobs, runs
from kelpie.storage.runs.callbacks import DueCallback
from kelpie.world.database import Tx
from kelpie.world.world import World

TIMEOUT_S = 5.0
AT_ONCE = 8
EACH, MOST = 32, 1024  # due callbacks in memory: of one organization, and of all
LIMITS = SlotLimits("callbacks_full", "callback slot", AT_ONCE, waiting_max=MOST, wait_s=24 * 3600.0)
REST = 4.0  # the next look at the database comes after so many times as long as the last one took
LOOK_S = 5.0  # longest delay for a due callback without a notification
WAITS_S = (1.0, 5.0, 30.0, 120.0, 600.0)  # after each try that failed; then it is given up
ERROR_CHARS_MAX = 500
NANOS_PER_SECOND = 1e9

_log = logs.get("callbacks")


class RunCallbacks:
    """Sender of due callbacks."""

    def __init__(self, world: World, settings: Settings, share: OrganizationShare | None = None) -> None:
        self._world = world
        self._public = not settings.callback_private
        self._worker = PeriodicWorker(self._start_due, failed=_report, retry_s=LOOK_S)
        self._slots = FairSlots(LIMITS, share)
        self._known: set[RunId | JobId] = set()  # callbacks that are being sent or wait for their turn
        self._refill_at = 0
        self._sending = asyncio.TaskGroup()

    def wake(self) -> None:
        """Looks for callbacks that are due now: a run has ended."""
        self._worker.wake()

    async def run(self) -> None:
        """Never returns."""
        self._known.clear()
        async with asyncio.TaskGroup() as sending:
            self._sending = sending
            await self._worker.run()

    async def _start_due(self) -> float:
        """Lets the callbacks whose time has come wait for their turn, as many of each organization as are in memory."""
        clock = self._world.clock
        now, began = clock.now(), clock.monotonic_ns()
        for owed in await self._world.database.read(lambda tx: callbacks.due(tx, now, EACH, MOST)):
            if owed.of not in self._known:
                self._known.add(owed.of)
                self._sending.create_task(self._send_in_turn(owed))
        self._refill_at = len(self._known) // 2
        await asyncio.sleep(REST * (clock.monotonic_ns() - began) / NANOS_PER_SECOND)
        return LOOK_S

    async def _send_in_turn(self, owed: DueCallback) -> None:
        try:
            async with self._slots.slot(owed.consumer):
                transport = self._world.http.transport(public=self._public)
                async with httpx.AsyncClient(transport=transport, timeout=TIMEOUT_S, trust_env=False) as client:
                    await self._send(client, owed)
        except KelpieError as error:
            _report(error)
            await asyncio.sleep(LOOK_S)  # it is still due, and is found again after this
        self._known.discard(owed.of)
        if len(self._known) <= self._refill_at:
            self.wake()

    async def _send(self, client: httpx.AsyncClient, owed: DueCallback) -> None:
        body = await self._world.database.read(lambda tx: _body(tx, owed))
        if body is None:
            return  # deleted in the meantime
        status, error = await _post(client, owed.url, body)
        now = self._world.clock.now()
        wait_s = WAITS_S[owed.attempts] if error is not None and owed.attempts < len(WAITS_S) else None
        again_at = None if wait_s is None else now + int(wait_s * MICROS_PER_SECOND)
        if error is not None:
            _log.warning(
                "callback_failed",
                "Callback could not be delivered",
                of=owed.of,
                url=owed.url,
                error=error,
                again=again_at is not None,
            )
        await self._world.database.transact(
            lambda tx: callbacks.record_attempt(tx, owed.of, now, status, error, again_at)
        )
        if wait_s is not None:
            asyncio.get_running_loop().call_later(wait_s, self.wake)


def _report(error: KelpieError) -> None:
    _log.error(
        "callback_lookup_failed", "Due callbacks could not be read or recorded; trying again later", error=str(error)
    )


async def _post(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> tuple[int | None, str | None]:
    """HTTP status of the response, and the error."""
    try:
        async with asyncio.timeout(TIMEOUT_S), client.stream("POST", url, json=body, follow_redirects=False) as answer:
            status = answer.status_code
    except TimeoutError:
        return None, f"no answer within {TIMEOUT_S:.0f} s"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return None, f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX]
    return status, None if 200 <= status < 300 else f"answered with status {status}"


def _body(tx: Tx, owed: DueCallback) -> dict[str, Any] | None:
    """The body of a callback; None if what it is about was deleted."""
    if isinstance(owed.of, JobId):
        try:
            job = jobs.get(tx, OrganizationId(owed.consumer.organization), owed.of)
        except NotFound:
            return None
        return {"job_id": job.id, "status": job.status.value, "completed_at": _iso(job.completed_at)}
    try:
        run = runs.get(tx, owed.of)
    except NotFound:
        return None
    return {
        "run_id": run.id,
        "status": run.status.value,
        "completed_at": _iso(run.completed_at),
        "metadata": dict(run.metadata),
    }


def _iso(at: Micros | None) -> str | None:
    return None if at is None else as_datetime(at).isoformat()
