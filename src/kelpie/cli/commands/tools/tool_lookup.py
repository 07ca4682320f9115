"""Lookup of a tool by its name, its id, or the first characters of its id."""

import difflib
from typing import Annotated, Any

import typer

from kelpie.cli.id_lookup import UnknownId, whole_id
from kelpie.cli.options import path
from kelpie.world.http.cli_client import Client

NAMES_MAX = 1000
NEAR = 0.5

Tool = Annotated[str, typer.Argument(help="Name or id of the tool.")]


def find_tool(server: Client, tool: str) -> dict[str, Any]:
    """Returns the tool with this name or id. Raises UnknownId with the nearest names, Unreachable, ErrorResponse."""
    named = by_name(server, tool)
    if named is not None:
        return named
    if tool.startswith("tool-"):
        found = whole_id(server, "tool", tool, "tool", "`kelpie tools list` lists them.")
        return server.get(path("tools", found))
    names = [each["name"] for each in server.get("/v1/kelpie/tools", limit=NAMES_MAX)]
    near = difflib.get_close_matches(tool, names, 3, NEAR)
    remedy = f"Did you mean {', '.join(near)}?" if near else "`kelpie tools list` lists them."
    raise UnknownId(f"there is no tool named '{tool[:80]}'. {remedy}")


def by_name(server: Client, name: str) -> dict[str, Any] | None:
    """The tool with exactly this name, or None. Raises Unreachable, ErrorResponse."""
    return next(iter(server.get("/v1/tools/", name=name, limit=1)), None)
