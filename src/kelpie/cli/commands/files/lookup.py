"""Lookup of a folder by its name or id, and of a file by its name in a folder or its id."""

from typing import Annotated, Any

import typer

from kelpie.cli.id_lookup import UnknownId
from kelpie.cli.options import path
from kelpie.world.http.cli_client import Client, ErrorResponse

SHOWN = 20
FILES_MAX = 1000
UNKNOWN = (400, 404, 422)

Folder = Annotated[str, typer.Argument(help="Folder (name or id).")]
File = Annotated[str, typer.Argument(help="File (name in the folder, or id).")]


def find_folder(server: Client, who: str) -> dict[str, Any]:
    """The folder with this name or id. Raises UnknownId with the known names, Unreachable, ErrorResponse."""
    if who.startswith("source-"):
        try:
            return server.get(path("folders", who))
        except ErrorResponse as refusal:
            if refusal.status not in UNKNOWN:
                raise
    found = server.get("/v1/folders/", name=who, limit=1)
    if found:
        return found[0]
    names = [each["name"] for each in server.get("/v1/folders/", limit=SHOWN)]
    known = f"Known folders: {', '.join(names)}" if names else "There are no folders"
    raise UnknownId(f"there is no folder named '{who}'. {known}.")


def find_file(server: Client, folder: dict[str, Any], who: str) -> dict[str, Any]:
    """The file of a folder with this name or id. Raises UnknownId, Unreachable, ErrorResponse."""
    found = server.get(path("folders", folder["id"], "files"), limit=FILES_MAX)
    for each in found:
        if who in (each["file_name"], each["id"]):
            return each
    raise UnknownId(f"the folder {folder['name']} has no file named '{who}'")
