"""Lookup of an agent by its name, its id, or the first characters of its id."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from kelpie.cli.id_lookup import UnknownId, ambiguous, matches, part_of
from kelpie.world.http.cli_client import Client, ErrorResponse

NAMES_SHOWN = 20
ASKED_AT_ONCE = 100
UNKNOWN = (400, 404, 422)


class UnknownAgent(UnknownId):
    """No agent has this name, or more than one has it."""


def find(client: Client, who: str) -> dict[str, Any]:
    """Returns the agent with this name or id. Raises UnknownAgent with the known names, Unreachable, ErrorResponse."""
    if who.startswith("agent-") and (found := _by_id(client, who)) is not None:
        return found
    same_name = client.get("/v1/agents/", name=who, limit=NAMES_SHOWN)
    if len(same_name) == 1:
        return same_name[0]
    if same_name:
        ids = ", ".join(agent["id"] for agent in same_name)
        raise UnknownAgent(f"{len(same_name)} agents are named '{who}'; use an id: {ids}")
    if (found := _by_first_characters(client, who)) is not None:
        return found
    raise UnknownAgent(f"there is no agent named '{who}'. {_known(client)}")


def newest(client: Client) -> dict[str, Any]:
    """Returns the newest agent. Raises UnknownAgent when there is none, Unreachable, ErrorResponse."""
    found = client.get("/v1/agents/", limit=1, order="desc")
    if not found:
        raise UnknownAgent(_known(client))
    return found[0]


def names_of(client: Client, agent_ids: Iterable[str | None]) -> dict[str, str]:
    """The names of these agents by id; an agent that is gone has none. Raises Unreachable, ErrorResponse."""
    wanted = sorted({each for each in agent_ids if each})
    names: dict[str, str] = {}
    for place in range(0, len(wanted), ASKED_AT_ONCE):
        found = client.get("/v1/kelpie/ids", prefix=wanted[place : place + ASKED_AT_ONCE], limit=1)
        names |= {each["id"]: each["name"] for each in found}
    return names


def _by_id(client: Client, agent_id: str) -> dict[str, Any] | None:
    try:
        return client.get(f"/v1/agents/{quote(agent_id, safe='')}")
    except ErrorResponse as refusal:
        if refusal.status in UNKNOWN:
            return None
        raise


def _by_first_characters(client: Client, who: str) -> dict[str, Any] | None:
    start = part_of("agent", who)
    if start is None:
        return None
    found = matches(client, "agent", start)
    if len(found) > 1:
        raise ambiguous(f"agent-{start}", found)
    return _by_id(client, found[0][0]) if found else None


def _known(client: Client) -> str:
    agents = client.get("/v1/agents/", limit=NAMES_SHOWN + 1)
    if not agents:
        return "There are no agents yet; `kelpie demo` creates one."
    names = ", ".join(sorted(agent["name"] for agent in agents[:NAMES_SHOWN]))
    return f"Existing agents: {names}{', and more' if len(agents) > NAMES_SHOWN else ''}."
