"""Search for model servers on their default ports of this machine.

It only looks: one connection per port, then GET requests, each port within a third of a second and all at once. No
HTTP client is loaded where nothing listens. The answers decide which server it is; another program on such a port is
left alone.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kelpie.core.errors import ModelError
from kelpie.llm.local.identification import identify
from kelpie.llm.local.probing import Asker
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.retry import RetryLimits
from kelpie.llm.wire.http_channel import Channel
from kelpie.world.world import World

HOST = "127.0.0.1"
PORTS: Mapping[int, Sequence[str]] = {
    11434: ("ollama",),
    1234: ("lmstudio",),
    8000: ("vllm",),
    8080: ("llamacpp", "localai"),
}
KINDS = frozenset(kind for kinds in PORTS.values() for kind in kinds)
PROBE_S = 0.3


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A model server that answered."""

    kind: str
    url: str


async def look(world: World) -> list[FoundServer]:
    """The model servers on the default ports, one of each kind, in the order of the ports."""
    left_s = await asyncio.gather(*(_left_s(world, port) for port in PORTS))
    if not any(left_s):
        return []
    await world.http.transport().aclose()  # the first one imports what it needs, which is not the servers' time
    probes = (
        _probe(world, port, kinds, left) for (port, kinds), left in zip(PORTS.items(), left_s, strict=True) if left
    )
    first: dict[str, FoundServer] = {}
    for server in await asyncio.gather(*probes):
        if server is not None:
            first.setdefault(server.kind, server)
    return list(first.values())


async def _left_s(world: World, port: int) -> float:
    """The time that a server on this port has for its answers; 0 if none accepted a connection in time."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        async with asyncio.timeout(PROBE_S):
            listens = await world.http.listens(HOST, port)
    except TimeoutError:
        return 0.0
    return max(PROBE_S - (loop.time() - began_s), 0.0) if listens else 0.0


async def _probe(world: World, port: int, expected: Sequence[str], within_s: float) -> FoundServer | None:
    url = f"http://{HOST}:{port}"
    channel = Channel(world, Endpoint(expected[0], url))
    try:
        async with asyncio.timeout(within_s):
            limits = RetryLimits(attempts=1, connect_s=within_s, listing_s=within_s)
            kind = await identify(Asker(channel, limits), expected)
    except (TimeoutError, ModelError):
        return None
    finally:
        await channel.close()
    return None if kind is None else FoundServer(kind, url)
