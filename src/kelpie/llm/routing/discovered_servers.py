"""Model servers that Kelpie finds by itself on this machine, as providers.

It looks again after a while, so that a server that is started later is found too, and never more often than that.
"""

import asyncio
from collections.abc import Callable, Container

from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.local import discovery
from kelpie.llm.local.discovery import FoundServer
from kelpie.llm.routing.providers import ConfiguredProvider, address_to_set, how_to_have
from kelpie.observe import logs
from kelpie.world.world import World

_log = logs.get("llm")


class DiscoveredServers:
    """The search, with at most one at a time. `make` turns a server into a provider."""

    def __init__(self, world: World, make: Callable[[FoundServer], ConfiguredProvider], retry_s: float) -> None:
        self._world = world
        self._make = make
        self._retry_s = retry_s
        self._lock = asyncio.Lock()
        self._looked_at: float | None = None
        self._known: set[str] = set()

    async def new(self) -> list[ConfiguredProvider]:
        """Providers for the servers that the last search did not find; none when it was a moment ago."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if self._looked_at is not None and loop.time() - self._looked_at < self._retry_s:
                return []
            found = [each for each in await discovery.look(self._world) if each.kind not in self._known]
            self._looked_at = loop.time()
            made = [self._make(each) for each in found]
            self._known |= {each.kind for each in found}
        for each in found:
            _log.info(
                "model_server_found",
                "Found a model server on this machine; its models can be used",
                server=each.kind,
                url=each.url,
                setting=address_to_set(each.kind, each.url),
            )
        return made


async def unused_servers(
    world: World, addresses: Container[str], providers: Container[str]
) -> list[tuple[FoundServer, str]]:
    """Servers that answer but are neither at one of these addresses nor of these providers, each with the setting that
    enables it."""
    return [
        (each, address_to_set(each.kind, each.url))
        for each in await discovery.look(world)
        if each.url not in addresses and each.kind not in providers
    ]


def no_server(provider: str) -> ModelError:
    """The error for a model of such a server while none is found."""
    return ModelError(
        ModelFault.connection,
        f"No {provider} server answers on its default port of this machine.",
        hint=f"Start it. {how_to_have(provider)}, if it listens elsewhere.",
    )
