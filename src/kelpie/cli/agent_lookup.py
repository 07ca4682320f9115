"""Lookup of an agent by its id or its name."""

from typing import Any
from urllib.parse import quote

from kelpie.core.errors import CallerError
from kelpie.world.http.cli_client import Client, ErrorResponse

NAMES_SHOWN = 20


class UnknownAgent(CallerError):
    """No agent has this name, or more than one has it."""


def find(client: Client, who: str) -> dict[str, Any]:
    """Returns the agent with this id or name. Raises UnknownAgent with the known names, Unreachable, ErrorResponse."""
    if who.startswith("agent-"):
        found = _by_id(client, who)
        if found is not None:
            return found
    same_name = client.get("/v1/agents/", name=who, limit=NAMES_SHOWN)
    if len(same_name) == 1:
        return same_name[0]
    if same_name:
        ids = ", ".join(agent["id"] for agent in same_name)
        raise UnknownAgent(f"{len(same_name)} agents are named '{who}'; use an id: {ids}")
    raise UnknownAgent(f"there is no agent named '{who}'. {_known(client)}")


def _by_id(client: Client, agent_id: str) -> dict[str, Any] | None:
    try:
        return client.get(f"/v1/agents/{quote(agent_id, safe='')}")
    except ErrorResponse as refusal:
        if refusal.status in (400, 404, 422):
            return None
        raise


def _known(client: Client) -> str:
    agents = client.get("/v1/agents/", limit=NAMES_SHOWN + 1)
    if not agents:
        return "There are no agents yet; `kelpie demo` creates one."
    names = ", ".join(sorted(agent["name"] for agent in agents[:NAMES_SHOWN]))
    return f"Existing agents: {names}{', and more' if len(agents) > NAMES_SHOWN else ''}."
