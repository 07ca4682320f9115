"""`kelpie doctor`: a report on the settings, the server, its models and data, and the isolation and package installers
of this machine.

It must never change anything.
"""

import os
from dataclasses import asdict
from typing import Any

from kelpie.cli.commands.operations.config import described
from kelpie.cli.commands.operations.doctor_details import print_details
from kelpie.cli.commands.operations.doctor_findings import findings_of, print_findings, print_verdict, verdict
from kelpie.cli.commands.operations.doctor_isolation import isolation_report
from kelpie.cli.exit_codes import ERROR, OK
from kelpie.cli.output import print_json, waiting
from kelpie.cli.server import control
from kelpie.cli.server.address import address
from kelpie.cli.server.credential import credential
from kelpie.cli.server.discovery import network_urls, running
from kelpie.core.errors import ConfigurationError, KelpieError
from kelpie.core.settings.settings import VARIABLES, ResolvedSettings
from kelpie.core.settings.sources.unknown_variables import described_all
from kelpie.core.tools.tools import BUILTIN_NAMES
from kelpie.world import machine
from kelpie.world.http.cli_client import Client
from kelpie.world.packages.installer_report import installer_reports

# Listing models may ask several providers, each for some seconds.
PATIENCE_S = 60.0
OF_CLIENTS = frozenset({"LETTA_BASE_URL"})  # the clients of Letta read it to find a server


def doctor(
    found: ResolvedSettings, wrong: ConfigurationError | None, url: str | None, *, as_json: bool, verbose: bool
) -> int:
    """Prints the report; returns 1 when it has a problem. `wrong` is the error in the settings, if there is one."""
    with waiting("Checking the server, its providers and this machine ..."):
        told = _report(found, wrong, url)
    findings = findings_of(told)
    problems = [each for each in findings if each.problem]
    if as_json:
        print_json(told | {"findings": [asdict(each) for each in findings], "verdict": verdict(findings)})
    else:
        print_findings(told, findings)
        if verbose:
            print_details(told)
        print_verdict(findings, verbose=verbose)
    return ERROR if problems else OK


def _report(found: ResolvedSettings, wrong: ConfigurationError | None, url: str | None) -> dict[str, Any]:
    key = credential(found, url)
    try:
        where = url or address(found)
        answer = server(where, key) | _exposure(found, url)
        stored = data(where, key) if answer["error"] is None else {"error": answer["error"]}
    except KelpieError as error:
        answer, stored = _no_answer(str(error)), {"error": str(error)}
    return {
        "system": machine.system(),
        "settings": settings(found, wrong, url),
        "server": answer,
        "data": stored,
        "isolation": isolation_report(),
        "packages": [asdict(each) for each in installer_reports()],
        "letta": letta(),
    }


def settings(found: ResolvedSettings, wrong: ConfigurationError | None, url: str | None) -> dict[str, Any]:
    """The settings in use with their origin, what is wrong with them, and variables that are set and have no effect."""
    ignored = sorted(
        name for name in os.environ if name.startswith("LETTA_") and name not in VARIABLES and name not in OF_CLIENTS
    )
    chosen = [row for row in described(found) if row["source"] != "default"]
    own = running(found.settings) if url is None else None
    return {
        "file": found.file,
        "error": str(wrong) if wrong else None,
        "set": chosen,
        "unknown": described_all(os.environ),
        "ignored": ignored,
        "other_than_running": control.changed(own, found) if own and wrong is None else [],
    }


def server(url: str, shown: str | None) -> dict[str, Any]:
    """The server's report on its providers and models, or the error when it does not answer. `shown` is the key to
    send.
    """
    told = _no_answer(None) | {"url": url}
    client = Client(url, PATIENCE_S, shown)
    try:
        health = client.get("/v1/health/")
        told["version"] = health.get("kelpie_version")
        told |= client.get("/v1/kelpie/models")
        told["shadowed_tools"] = _shadowed(client)
        told["mcp_servers"] = _failing(client)
    except KelpieError as error:
        told["error"] = str(error)
    return told


def _no_answer(error: str | None) -> dict[str, Any]:
    return {
        "url": None, "version": None, "error": error, "providers": [], "absent": [], "shadowed_tools": [],
        "mcp_servers": [],
        "embedding": None, "nearby": [], "default_model": None, "network_urls": None,
    }  # fmt: skip


def _exposure(found: ResolvedSettings, url: str | None) -> dict[str, Any]:
    own = running(found.settings) if url is None else None
    urls = network_urls(own) if own else None
    return {"network_urls": None if urls is None else list(urls)}


def _shadowed(client: Client) -> list[dict[str, str]]:
    """Custom tools that have the name of a built-in one, which agents therefore do not get."""
    found = client.get("/v1/tools/", names=BUILTIN_NAMES, tool_types="custom", limit=len(BUILTIN_NAMES))
    remedy = "rename or delete it and restart the server to get the built-in tool of this name"
    return [{"name": each["name"], "id": each["id"], "remedy": remedy} for each in found]


def _failing(client: Client) -> list[dict[str, Any]]:
    """MCP servers whose last calls failed, with the state of their circuit breakers."""
    found = client.get("/v1/kelpie/mcp-servers")
    shown = ("server_name", "breaker", "failures", "retry_after_seconds", "last_error")
    return [{name: each[name] for name in shown} for each in found if each["failures"]]


def data(url: str, shown: str | None) -> dict[str, Any]:
    """The server's check of its stored data; the error when it could not be asked."""
    try:
        return {"error": None} | Client(url, PATIENCE_S, shown).get("/v1/kelpie/data")
    except KelpieError as error:
        return {"error": str(error)}


def letta() -> dict[str, Any]:
    """Reports if a package called letta is installed beside Kelpie, and if it is a server."""
    package = machine.letta()
    if package is None:
        note = "not installed (not needed)"
    elif package.is_server:
        note = "the retired Letta server, which gets no more fixes; Kelpie replaces it on the same port"
    else:
        note = "not a server: later versions of this package are a command line for another service"
    return {
        "version": package.version if package else None,
        "server": bool(package and package.is_server),
        "note": note,
    }
