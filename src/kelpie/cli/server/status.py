"""`kelpie server status`: scripts call it often, so this module and all it imports stay small."""

from kelpie.cli.exit_codes import ERROR, NOT_RUNNING, OK
from kelpie.cli.output import print_json, say
from kelpie.cli.server.discovery import network_line, network_urls, running
from kelpie.cli.server.readable_settings import readable_settings
from kelpie.world.http.health_probe import version_at


def status(*, as_json: bool = False) -> int:
    """Prints the status of the server of the data directory, and returns the exit code. Raises ConfigurationError."""
    settings = readable_settings()
    server = running(settings)
    version = version_at(server.url) if server else None
    urls = network_urls(server) if server and version else None
    if as_json:
        known = {"url": server.url if server else None, "pid": server.pid if server else None, "version": version}
        known |= {"network_urls": None if urls is None else list(urls)}
        print_json({"running": version is not None, **known, "data_dir": settings.data_dir}, indent=None)
    elif server is None:
        say(f"Kelpie is not running (data directory: {settings.data_dir}).")
    elif version is None:
        say(f"Kelpie (process {server.pid}) does not answer at {server.url}.")
    else:
        say(f"Kelpie {version} is running at {server.url} (process {server.pid}).")
        if urls is not None:
            say(network_line(urls))
    if server is None:
        return NOT_RUNNING
    return ERROR if version is None else OK
