"""Discovery of the server: the one that holds the lock of the data directory, at the address it wrote there."""

from dataclasses import dataclass

from kelpie.core.settings.settings import Settings
from kelpie.world.files.data_dir import DataDir

LOG_FILE = "kelpie.log"  # in the data directory


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that holds its data directory and listens: its process and its address."""

    pid: int
    url: str


def running(settings: Settings) -> RunningServer | None:
    """The server of this data directory, or None if none listens yet. Raises ConfigurationError."""
    holder = DataDir.holder(settings.data_dir)
    return RunningServer(holder.pid, holder.url) if holder and holder.url else None


def address(settings: Settings) -> str:
    """The address at which the server of this data directory listens or would listen. Raises ConfigurationError."""
    server = running(settings)
    return server.url if server else address_of(settings.host, settings.port)


def address_of(host: str, port: int) -> str:
    """The address as clients on this machine write it; a server on all addresses is reached on its loopback one."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
