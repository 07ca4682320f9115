"""Network access of pip, uv and npm in their cell: the internet, and of other networks only the hosts that the
operator's own settings for them name.

A package may name another by its address, so a user who may register a tool could otherwise have the server fetch files
from inside its network. The cell has no other way out than Kelpie's proxy, which connects to the address that it
checked. If the operator has a proxy of their own, Kelpie's asks that one, and that one decides.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kelpie.world.cells.port import CellSockets
from kelpie.world.egress.broker import socket_of
from kelpie.world.lazy_imports import lazily

if TYPE_CHECKING:
    from kelpie.world.packages.installer_settings import InstallerSettings

with lazily:
    from kelpie.world.egress import proxy as _proxy


@asynccontextmanager
async def installer_network(
    sockets: CellSockets, settings: InstallerSettings, *, private: bool = False
) -> AsyncGenerator[_proxy.EgressProxy]:
    """Answers the cell of an installer while the block runs; with `private`, addresses are not limited. Raises
    OSError."""
    sockets.api.close()
    proxy = _proxy.EgressProxy(None, private=private, inside=settings.hosts, upstream=settings.upstream)
    await proxy.serve(socket_of(sockets.egress))
    try:
        yield proxy
    finally:
        await proxy.close()
