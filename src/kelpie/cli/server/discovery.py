"""Discovery of the server: the one that holds the lock of the data directory, at the address it wrote there."""

from dataclasses import dataclass

from kelpie.core.access.hosts import is_loopback
from kelpie.core.settings.settings import Settings
from kelpie.world.files import server_record
from kelpie.world.files.data_dir import DataDir, absolute_path
from kelpie.world.files.server_record import ServerRecord

LOG_FILE = "kelpie.log"  # in the data directory


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that holds its data directory and listens: its process, its address, and its settings if it recorded
    them."""

    pid: int
    url: str
    record: ServerRecord | None = None


def running(settings: Settings) -> RunningServer | None:
    """The server of this data directory, or None if none listens yet. Raises ConfigurationError."""
    holder = DataDir.holder(settings.data_dir)
    if holder is None or not holder.url:
        return None
    return RunningServer(holder.pid, holder.url, server_record.read(absolute_path(settings.data_dir), holder.pid))


def address_of(host: str, port: int) -> str:
    """The address as clients on this machine write it; a server on all addresses is reached on its loopback one."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def network_urls(server: RunningServer) -> tuple[str, ...] | None:
    """The addresses at which other machines reach a server; None if none can, or if its host is not known."""
    host = server.record.settings.get("server.host") if server.record else None
    if not isinstance(host, str) or is_loopback(host):
        return None
    from kelpie.world.network_addresses import network_addresses  # few commands need it

    port = int(server.url.rpartition(":")[2])
    return tuple(address_of(each, port) for each in network_addresses(host))


def network_line(urls: tuple[str, ...]) -> str:
    """A sentence about the addresses for other machines."""
    if not urls:
        return "Other machines can reach it, but this machine has no network address now."
    return f"Other machines reach it at {', '.join(urls)}. Connections are not encrypted."
