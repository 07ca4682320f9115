"""The key or password that a command sends to a server; never sent to an address that only a file names."""

from kelpie.cli.server.discovery import running
from kelpie.core.access.hosts import is_loopback
from kelpie.core.settings.settings import ResolvedSettings
from kelpie.core.settings.sources.precedence import Source

LETTA_KEY = "LETTA_API_KEY"  # may be a key for another service, so the password of a server goes before it


def credential(found: ResolvedSettings, url: str | None) -> str | None:
    """The key or password to send, or None. Raises ConfigurationError.

    kelpie.toml may come with a directory that another person filled; an address in it gets no secret of the
    environment.
    """
    settings, origins = found.settings, found.origins
    elsewhere = url is None and origins["host"].source is Source.file and not is_loopback(settings.host)
    if elsewhere and running(settings) is None:
        return None
    if settings.client_api_key and (origins["client_api_key"].where != LETTA_KEY or not settings.password):
        return settings.client_api_key
    return settings.password
