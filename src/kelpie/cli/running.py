"""Which server is meant: the one that holds the lock of the data directory, at the address it wrote down there."""

from dataclasses import dataclass

from kelpie.core.settings import Settings
from kelpie.world.client import Client, Refused, Unreachable
from kelpie.world.data_dir import DataDir

HEALTH_S = 2.0


@dataclass(frozen=True, slots=True)
class Running:
    """A server that lives: its process, where it listens, and the version it answered with, None if it did not."""

    pid: int
    url: str
    version: str | None


def running(settings: Settings) -> Running | None:
    """The server of this data directory, or None if none runs."""
    holder = DataDir.holder(settings.data_dir)
    if holder is None:
        return None
    url = holder.url or address_of(settings.host, settings.port)
    return Running(holder.pid, url, health(url))


def address(settings: Settings) -> str:
    """Where the server of this data directory listens, or where it would."""
    holder = DataDir.holder(settings.data_dir)
    return (holder and holder.url) or address_of(settings.host, settings.port)


def address_of(host: str, port: int) -> str:
    """An address that this machine can connect to; a server on all addresses is reached on the loopback one."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def health(url: str) -> str | None:
    """The version of the server that answers there, or None."""
    try:
        return str(Client(url, HEALTH_S).get("/v1/health/")["version"])
    except (Unreachable, Refused, KeyError, TypeError):
        return None
