"""The `Uploads` port in the simulation: an upload is bytes in memory, and ends with its request, unless it is kept.

What is kept is on the simulated disk, and survives a power cut.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager

from kelpie.core.errors import DiskFull
from kelpie.sim.faults import Fault, Faults
from kelpie.sim.ports.disk import Disk
from kelpie.world.files.uploads import Upload

PLACE = "uploads.keep"


class SimUploads:
    """Uploads of a simulated machine."""

    def __init__(self, disk: Disk, faults: Faults) -> None:
        self._kept = disk.kept_uploads
        self._faults = faults

    @asynccontextmanager
    async def receive(self, pieces: AsyncIterable[bytes]) -> AsyncGenerator[Upload, None]:
        content = b"".join([piece async for piece in pieces])
        yield Upload(len(content), content=content)

    async def keep(self, upload: Upload, name: str) -> None:
        await asyncio.sleep(0)  # a power cut may come before it is written, or right after
        if self._faults.fires(Fault.disk_full, PLACE):
            raise DiskFull("The upload cannot be stored: the disk is full.")
        self._kept[name] = upload.content
        await asyncio.sleep(0)

    async def kept(self, name: str) -> Upload | None:
        await asyncio.sleep(0)
        content = self._kept.get(name)
        return None if content is None else Upload(len(content), content=content)

    async def discard(self, name: str) -> None:
        await asyncio.sleep(0)
        self._kept.pop(name, None)

    async def names(self) -> list[str]:
        await asyncio.sleep(0)
        return sorted(self._kept)
