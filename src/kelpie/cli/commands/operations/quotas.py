"""`kelpie quotas`: the quotas of an organization, and how much of each is used."""

from typing import Any

from kelpie.cli.options import path
from kelpie.cli.output import print_facts, print_json, print_rows, say
from kelpie.world.http.cli_client import Client

MB = 1024**2
NO_LIMIT = "no limit"


def quotas(server: Client, organization: str | None, *, as_json: bool) -> None:
    """Prints the quotas of the own or of another organization. Raises Unreachable, ErrorResponse."""
    found = server.get(path("kelpie", "usage", *([organization] if organization else [])))
    if as_json:
        print_json(found)
        return
    print_facts({"organization": found["organization_id"]})
    say()
    rows = [
        _row("requests per minute", found, "requests_per_minute", found["usage"]["requests_this_minute"]),
        _row("agents", found, "agents", found["usage"]["agents"]),
        _row("messages", found, "messages", found["usage"]["messages"]),
        _row("files in folders", found, "files", found["usage"]["files"]),
        _row("MB in the database", found, "stored_mb", _mb(found["usage"]["stored_bytes"])),
        _row("MB in workspaces", found, "disk_mb", _mb(found["usage"]["disk_bytes"])),
    ]
    print_rows(("quota", "used", "limit", "share", "set by"), rows)


def _row(label: str, found: dict[str, Any], name: str, used: float | None) -> tuple[Any, ...]:
    """One quota; 0 is no limit, and a use that is not known has no share."""
    limit = found["quotas"][name]
    share = f"{used / limit:.0%}" if limit and used is not None else None
    origin = "this organization" if name in found["own_quotas"] else "the server"
    return label, used, limit or NO_LIMIT, share, origin


def _mb(size: int | None) -> float | None:
    return None if size is None else round(size / MB, 1)
