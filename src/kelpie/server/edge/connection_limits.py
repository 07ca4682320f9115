"""Limits on client connections: in total, and of one address.

The total stays below the limit on open files, so that the database, workspaces and cells can always open theirs. At a
limit, the connection that has been idle for the longest makes room for a new one: only requests under way can take all
places, not silence. A connection without a place is not closed at once: a few are kept for health checks. A connection
from a trusted proxy counts in the total only; each of its requests counts for its client.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from kelpie.core.access.client_addresses import TrustedProxies, network_of
from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import Settings
from kelpie.observe import logs
from kelpie.observe.throttle import Throttle

CONNECTIONS_MAX = 16_384  # of a server whose operator set no limit
HEALTH_CONNECTIONS_MAX = 32  # beyond the limit
FILES_RESERVED = 128  # for the database, workspaces, cells and providers, at the least
LOG_EVERY_S = 10.0

_log = logs.get("server")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request for which there is no place."""

    code: str
    detail: str
    setting: str


_FULL = Refusal(
    "connections_full", "The server has too many connections; try again in a moment.", "server.connections_max"
)
_ADDRESS_FULL = Refusal(
    "address_connections_full",
    "Your address has too many connections to this server; close some, or try again in a moment.",
    "server.address_connections_max",
)


class Connection(Protocol):
    """A connection that can be ended at once."""

    def abort(self) -> None: ...


class ConnectionLimits:
    """Places of open connections. Made once for a listener."""

    def __init__(self, connections_max: int, address_max: int, proxies: TrustedProxies) -> None:
        self._connections_max = connections_max
        self._address_max = address_max
        self._proxies = proxies
        self._placed: dict[Connection, str] = {}  # with their network; empty for a proxy
        self._of_network: dict[str, int] = {}
        self._idle: OrderedDict[Connection, None] = OrderedDict()  # the longest idle one first
        self._idle_of: dict[str, OrderedDict[Connection, None]] = {}
        self._without_place: OrderedDict[Connection, None] = OrderedDict()
        self._refusals = Throttle(LOG_EVERY_S)
        self._evictions = Throttle(LOG_EVERY_S)
        self._late_heads = Throttle(LOG_EVERY_S)

    def enter(self, connection: Connection, address: str) -> Refusal | None:
        """Takes a place for a connection, which is idle at first; `leave` returns it. A refusal takes none."""
        network = "" if address in self._proxies else network_of(address)
        share_taken = network != "" and self._of_network.get(network, 0) >= self._address_max
        if share_taken and not self._evict(self._idle_of.get(network)):
            return _ADDRESS_FULL
        if len(self._placed) >= self._connections_max and not self._evict(self._idle):
            return _FULL
        self._placed[connection] = network
        if network:
            self._count(network)
        self.set_idle(connection)
        return None

    def leave(self, connection: Connection) -> None:
        """Returns the place of a connection, if it has one."""
        self.set_busy(connection)
        if network := self._placed.pop(connection, ""):
            self._uncount(network)

    def set_idle(self, connection: Connection) -> None:
        """Notes that no request of this connection is under way: it may have to make room."""
        if (network := self._placed.get(connection)) is not None:
            self._idle[connection] = None
            self._idle_of.setdefault(network, OrderedDict())[connection] = None

    def set_busy(self, connection: Connection) -> None:
        """Notes that a request of this connection is under way."""
        if connection in self._idle:
            del self._idle[connection]
            network = self._placed[connection]
            del self._idle_of[network][connection]
            if not self._idle_of[network]:
                del self._idle_of[network]

    @contextmanager
    def request_of(self, client: str) -> Generator[Refusal | None]:
        """Counts a request that came through a trusted proxy for its client while the block runs."""
        network = "" if client in self._proxies else network_of(client)
        if network and self._of_network.get(network, 0) >= self._address_max:
            self._log_refusal(_ADDRESS_FULL, client)
            yield _ADDRESS_FULL
            return
        if network:
            self._count(network)
        try:
            yield None
        finally:
            if network:
                self._uncount(network)

    def keep_for_health(self, connection: Connection, refusal: Refusal, address: str) -> None:
        """Keeps a connection without a place, until `drop`; too many of them end the oldest."""
        self._log_refusal(refusal, address)
        self._without_place[connection] = None
        if len(self._without_place) > HEALTH_CONNECTIONS_MAX:
            self._without_place.popitem(last=False)[0].abort()

    def drop(self, connection: Connection) -> None:
        """Forgets a connection without a place, which has ended or got one."""
        self._without_place.pop(connection, None)

    def note_late_head(self, address: str) -> None:
        """Counts a connection that was closed because its request head did not arrive in time."""
        if count := self._late_heads.count(_now_s()):
            _log.info(
                "request_head_late",
                "Connections were closed because no request head arrived in time",
                address=address,
                count=count,
            )

    def _evict(self, idle: OrderedDict[Connection, None] | None) -> bool:
        """Ends the connection that has been idle for the longest. False if none is idle."""
        if not idle:
            return False
        oldest = next(iter(idle))
        self.leave(oldest)
        oldest.abort()
        if count := self._evictions.count(_now_s()):
            _log.warning(
                "idle_connections_closed",
                "Idle connections were closed to make room for new ones",
                count=count,
                open=len(self._placed),
            )
        return True

    def _count(self, network: str) -> None:
        self._of_network[network] = self._of_network.get(network, 0) + 1

    def _uncount(self, network: str) -> None:
        if self._of_network[network] > 1:
            self._of_network[network] -= 1
        else:
            del self._of_network[network]

    def _log_refusal(self, refusal: Refusal, address: str) -> None:
        if count := self._refusals.count(_now_s()):
            _log.warning(
                "connections_refused",
                "Connections were refused because a limit is reached",
                setting=refusal.setting,
                address=address,
                count=count,
                open=len(self._placed),
            )


def connection_limits(settings: Settings, open_files: int) -> ConnectionLimits:
    """The limits of a server whose process may open so many files.

    Raises ConfigurationError for more connections than the process can have.
    """
    room = max(1, open_files - HEALTH_CONNECTIONS_MAX - FILES_RESERVED)
    most = settings.connections_max or min(CONNECTIONS_MAX, max(1, open_files // 2), room)
    if most > room:
        raise ConfigurationError(
            "KELPIE_CONNECTIONS_MAX",
            f"{most} connections do not fit into the {open_files} files that this process may open; use at most "
            f"{room}, or raise the limit on open files (ulimit -n, LimitNOFILE)",
        )
    of_address = settings.address_connections_max or max(1, most // 2)
    return ConnectionLimits(most, of_address, TrustedProxies(settings.trusted_proxies))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
