"""Time of the last use of each key, to the minute: noted in memory and written in batches, so that a request writes
nothing.
"""

import asyncio
from collections import OrderedDict

from kelpie.core.errors import StorageError
from kelpie.core.ids import KeyId
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.observe import logs
from kelpie.storage.accounts import api_keys
from kelpie.world.world import World

EVERY = 60 * MICROS_PER_SECOND  # a key's use is written at most so often
GATHER_S = 1.0  # uses within this time share a commit
KEYS_MAX = 10_000

_log = logs.get("accounts")


class LastUse:
    def __init__(self, world: World) -> None:
        self._world = world
        self._written: OrderedDict[KeyId, Micros] = OrderedDict()
        self._waiting: dict[KeyId, Micros] = {}
        self._writing: asyncio.Task[None] | None = None

    def note(self, key_id: KeyId) -> None:
        """Notes that the key was used now."""
        now = self._world.clock.now()
        if key_id in self._written and abs(now - self._written[key_id]) < EVERY:
            return
        if len(self._waiting) < KEYS_MAX:
            self._waiting[key_id] = now
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_soon())

    async def close(self) -> None:
        """Writes the pending times."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait((self._writing,))
        await self._write()

    async def _write_soon(self) -> None:
        while self._waiting:
            await asyncio.sleep(GATHER_S)
            await self._write()

    async def _write(self) -> None:
        times, self._waiting = self._waiting, {}
        if not times:
            return
        try:
            await self._world.database.transact(lambda tx: api_keys.record_use(tx, times))
        except StorageError as error:
            _log.warning(
                "key_last_use_not_saved", "Last use of API keys was not saved", keys=len(times), error=str(error)
            )
            return
        for key_id, at in times.items():
            self._written[key_id] = at
            self._written.move_to_end(key_id)
            if len(self._written) > KEYS_MAX:
                self._written.popitem(last=False)
