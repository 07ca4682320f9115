"""Which server is meant: the one that holds the lock of the data directory, at the address it wrote down there."""

from dataclasses import dataclass
from pathlib import Path

from kelpie.core.errors import ConfigurationError
from kelpie.core.settings import Settings
from kelpie.world.client import Client, Refused, Unreachable
from kelpie.world.data_dir import DataDir

ADDRESS = "kelpie.url"  # in the data directory, while a server listens
HEALTH_S = 2.0


@dataclass(frozen=True, slots=True)
class Running:
    """A server that holds its data directory: its process, and where it listens."""

    pid: int
    url: str


def running(settings: Settings) -> Running | None:
    """The server of this data directory, or None if none listens. Raises ConfigurationError."""
    data_dir = DataDir(Path(settings.data_dir).expanduser().absolute())
    try:
        # The address is looked at first: asking for the lock while a server takes it could get into its way.
        url = data_dir.read(ADDRESS)
        pid = data_dir.holder() if url else None
    except OSError as error:
        raise ConfigurationError(
            "KELPIE_DATA_DIR", f"{data_dir.path} cannot be read ({error.strerror}); name one you own"
        ) from error
    return Running(pid, url) if pid and url else None


def address(settings: Settings) -> str:
    """Where the server of this data directory listens, or where it would. Raises ConfigurationError."""
    server = running(settings)
    return server.url if server else address_of(settings.host, settings.port)


def address_of(host: str, port: int) -> str:
    """An address that this machine can connect to; a server on all addresses is reached on the loopback one."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def version_at(url: str) -> str | None:
    """The version of the server that answers there, or None when none does."""
    try:
        return str(Client(url, HEALTH_S).get("/v1/health/")["version"])
    except (Unreachable, Refused, KeyError, TypeError):
        return None
