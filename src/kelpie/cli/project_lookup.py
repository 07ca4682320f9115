"""Projects by their name or the beginning of their id."""

from kelpie.cli.id_lookup import UnknownId, part_of, whole_id
from kelpie.world.http.cli_client import Client

_HINT = "`kelpie projects list` shows them."


def project_id(server: Client, project: str) -> str:
    """The id of a project. Raises UnknownId, Unreachable, ErrorResponse."""
    named = server.get("/v1/projects", name=project, limit=1)
    if named:
        return str(named[0]["id"])
    if part_of("project", project) is None:
        raise UnknownId(f"there is no project '{project[:80]}'. {_HINT}")
    return whole_id(server, "project", project, "project", _HINT)
