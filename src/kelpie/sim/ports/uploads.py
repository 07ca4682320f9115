"""The `Uploads` port in the simulation: an upload is bytes in memory, and ends with its request."""

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager

from kelpie.world.files.uploads import Upload


class SimUploads:
    """Uploads of a simulated machine."""

    @asynccontextmanager
    async def receive(self, pieces: AsyncIterable[bytes]) -> AsyncGenerator[Upload, None]:
        content = b"".join([piece async for piece in pieces])
        yield Upload(len(content), content=content)
