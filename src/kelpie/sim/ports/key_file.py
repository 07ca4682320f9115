"""The file with the encryption keys in the simulation: it is on the disk, and the power may fail around each write."""

import asyncio
from collections.abc import Sequence

from kelpie.sim.faults import Fault
from kelpie.sim.ports.database import SimDatabase

WRITE_S = 0.002
PLACE = "keys.write"


class SimKeyFile:
    """The `KeyStore` of one life of a node."""

    origin = "the simulated key file"
    writable = True

    def __init__(self, database: SimDatabase) -> None:
        self._database = database

    async def read(self) -> Sequence[bytes]:
        return self._database.disk.key_file

    async def write(self, keys: Sequence[bytes]) -> None:
        await asyncio.sleep(WRITE_S)
        await self._meet(Fault.crash_before_write)
        self._database.disk.key_file = tuple(keys)
        await self._meet(Fault.crash_after_write)

    async def _meet(self, fault: Fault) -> None:
        if self._database.faults.fires(fault, PLACE):
            self._database.node.crash()
            await asyncio.Event().wait()  # nothing of a dead node runs again
