"""Search for model servers on their default ports of this machine.

It only looks: one connection per port, then GET requests, each port within a third of a second and all at once. The
answers decide which server it is; another program on such a port is left alone.
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
    found = await asyncio.gather(*(_probe(world, port, kinds) for port, kinds in PORTS.items()))
    first: dict[str, FoundServer] = {}
    for server in found:
        if server is not None:
            first.setdefault(server.kind, server)
    return list(first.values())


async def _probe(world: World, port: int, expected: Sequence[str]) -> FoundServer | None:
    url = f"http://{HOST}:{port}"
    channel = Channel(world, Endpoint(expected[0], url))
    try:
        async with asyncio.timeout(PROBE_S):
            if not await world.http.listens(HOST, port):
                return None
            limits = RetryLimits(attempts=1, connect_s=PROBE_S, listing_s=PROBE_S)
            kind = await identify(Asker(channel, limits), expected)
    except (TimeoutError, ModelError):
        return None
    finally:
        await channel.close()
    return None if kind is None else FoundServer(kind, url)
