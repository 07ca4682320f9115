"""What the tests of folders and files build on: a rig whose provider embeds, and waits for processing."""

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from kelpie.app import Kelpie
from kelpie.llm.provider.interface import EmbeddingInfo
from tests.server.rig import Puppet, client_of, open_rig

DEADLINE_S = 30.0
DONE = ("completed", "error")


class EmbeddingPuppet(Puppet):
    """A puppet that embeds: every word of a text is one of eight numbers."""

    async def embed(self, info: EmbeddingInfo, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        return [_vector(text) for text in texts]


def _vector(text: str) -> bytes:
    numbers = [0.01] * 8
    for word in text.lower().split():
        numbers[hashlib.sha256(word.encode()).digest()[0] % 8] += 1.0
    length = sum(each * each for each in numbers) ** 0.5
    return struct.pack("<8f", *(each / length for each in numbers))


@asynccontextmanager
async def open_file_rig(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[Kelpie, Puppet, httpx.AsyncClient]]:
    async with (
        open_rig(tmp_path, puppet=EmbeddingPuppet(), **settings) as (kelpie, puppet),
        client_of(kelpie) as client,
    ):
        yield kelpie, puppet, client


async def make_folder(client: httpx.AsyncClient, name: str = "docs", **fields: Any) -> dict[str, Any]:
    made = await client.post("/v1/folders/", json={"name": name, "embedding": "fake/embed", **fields})
    assert made.status_code == 200, made.text
    return made.json()


async def upload(
    client: httpx.AsyncClient,
    folder: dict[str, Any],
    file_name: str,
    content: bytes | str,
    media_type: str = "application/octet-stream",
    **query: str,
) -> httpx.Response:
    data = content.encode() if isinstance(content, str) else content
    return await client.post(
        f"/v1/folders/{folder['id']}/upload", files={"file": (file_name, data, media_type)}, params=query
    )


async def processed(client: httpx.AsyncClient, file: dict[str, Any]) -> dict[str, Any]:
    """The file when its processing is over."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = (await client.get(f"/v1/folders/{file['source_id']}/files/{file['id']}")).json()
            if found["processing_status"] in DONE:
                return found
            await asyncio.sleep(0.02)


async def stored(
    client: httpx.AsyncClient, folder: dict[str, Any], file_name: str, content: bytes | str, **query: str
) -> dict[str, Any]:
    """A file that was uploaded and processed."""
    sent = await upload(client, folder, file_name, content, **query)
    assert sent.status_code == 200, sent.text
    found = await processed(client, sent.json())
    assert found["processing_status"] == "completed", found
    return found
