"""`kelpie open`: the dashboard in the web browser, or its address where there is no browser."""

import sys

from kelpie.cli import agent_lookup
from kelpie.cli.output import say
from kelpie.world.http.cli_client import Client
from kelpie.world.processes.web_browser import open_page


def open_dashboard(client: Client, who: str | None) -> int:
    """Opens the dashboard, at the chat with an agent if one is named.

    Raises UnknownAgent, Unreachable, ErrorResponse.
    """
    facts = client.get("/")
    if not facts.get("dashboard"):
        say("The dashboard of this server is switched off: set server.dashboard and restart it.", file=sys.stderr)
        return 1
    address = f"{client.base_url.rstrip('/')}/"
    if who is not None:
        address += f"#/chat/{agent_lookup.find(client, who)['id']}"
    say(address)
    if open_page(address):
        say("Opened the dashboard in your browser.", file=sys.stderr)
    return 0
