"""The address of the server that a command talks to."""

import shlex

from kelpie.cli.server.discovery import address_of, running
from kelpie.core.settings.settings import ResolvedSettings
from kelpie.core.settings.sources.precedence import Source
from kelpie.world.http.cli_client import Unreachable


def address(found: ResolvedSettings) -> str:
    """The address of the server that commands talk to. Raises Unreachable or ConfigurationError.

    A data directory that the user chose means its own server: without one, no other server is taken instead.
    """
    settings = found.settings
    server = running(settings)
    if server is not None:
        return server.url
    configured = address_of(settings.host, settings.port)
    if found.origins["data_dir"].source is Source.default:
        return configured
    raise Unreachable(
        f"no server is running in the data directory {settings.data_dir}. "
        f"`kelpie --data-dir {shlex.quote(str(settings.data_dir))} server start` starts one at {configured}; "
        "--url selects another server"
    )
