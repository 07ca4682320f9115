"""`kelpie mcp add`, `list`, `show`, `tools`, `run`, `refresh`, `remove`, `login`, `tasks` and `cancel`."""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kelpie.cli.confirmation import confirm
from kelpie.cli.exit_codes import ERROR
from kelpie.cli.id_lookup import UnknownId
from kelpie.cli.options import AsJson, Limit, Url, client, examples, path
from kelpie.cli.output import cell, print_facts, print_json, print_list, print_rows, print_text, say, waiting
from kelpie.cli.typed_text import given_text, json_object
from kelpie.core.errors import InvalidInput
from kelpie.core.settings.settings import SECRET_VARIABLES
from kelpie.core.tools.mcp_servers import McpConfig, McpServerType
from kelpie.tools.mcp.server_file import read_servers
from kelpie.tools.mcp.tool_schemas import namespaced
from kelpie.world.files import json_file
from kelpie.world.http.cli_client import Client, ErrorResponse

CONNECT_S = 660.0  # the server may install the packages of a command first
LOGIN_S = 960.0
NEAR = 0.5

Server = Annotated[str, typer.Argument(metavar="SERVER", help="Name or id of the MCP server.")]


def register(commands: typer.Typer) -> None:
    """Adds these commands to the commands of MCP."""
    commands.command(
        epilog=examples(
            "mcp add time -- uvx mcp-server-time",
            "mcp add search --http https://mcp.example.com/mcp --token-variable SEARCH_TOKEN",
            "mcp add --file servers.json",
        )
    )(add)
    commands.command("list", epilog=examples("mcp list", "mcp list --json"))(list_servers)
    commands.command(epilog=examples("mcp show time"))(show)
    commands.command(epilog=examples("mcp tools time"))(tools)
    commands.command(epilog=examples('mcp run time get_current_time --args \'{"timezone": "Europe/Oslo"}\''))(run)
    commands.command(epilog=examples("mcp refresh time"))(refresh)
    commands.command(epilog=examples("mcp remove time", "mcp remove time --yes"))(remove)
    commands.command(epilog=examples("mcp login search", "mcp login search --client-id abc"))(login)
    commands.command(epilog=examples("mcp tasks"))(tasks)
    commands.command(epilog=examples("mcp cancel mcp_task-…"))(cancel)


def add(
    name: Annotated[str | None, typer.Argument(help="Name of the server. Not needed with --file.")] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND ARGS...]", help="Program of a stdio server.")
    ] = None,
    http: Annotated[str | None, typer.Option(metavar="URL", help="URL of a streamable HTTP server.")] = None,
    sse: Annotated[str | None, typer.Option(metavar="URL", help="URL of a server with HTTP and SSE.")] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help='File with {"mcpServers": {...}}; adds or changes all of them.')
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Variable of the program (repeatable).")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Header of every request (repeatable).")
    ] = None,
    token_variable: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable that holds the bearer token.")
    ] = None,
    egress: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="Host that the program may reach (repeatable).")
    ] = None,
    directory: Annotated[
        list[str] | None, typer.Option(metavar="PATH[:rw]", help="Directory of the server's machine (repeatable).")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Register an MCP server and read its tools."""
    server = client(url, CONNECT_S)
    if file is not None:
        _add_file(server, Path(file), as_json)
        return
    if name is None or sum(bool(given) for given in (command, http, sse)) != 1:
        raise InvalidInput("NAME", "give a name and one of: a command after --, --http URL, --sse URL; or --file FILE")
    config = _config(command, http, sse, env, header, token_variable)
    options = {"egress": egress or [], "directories": [_directory(each) for each in directory or ()]}
    if any(options.values()):
        config["kelpie_options"] = options
    _register(server, name, config, as_json)


def list_servers(as_json: AsJson = False, url: Url = None) -> None:
    """List MCP servers and the state of their connections."""
    found = client(url).get("/v1/kelpie/mcp-servers")
    if as_json:
        print_json(found)
        return
    rows = [(each["server_name"], each["mcp_server_type"], _state(each), each["last_error"]) for each in found]
    print_rows(("server", "type", "state", "last error"), rows, "No MCP servers. Add one with `kelpie mcp add`.")


def show(server: Server, as_json: AsJson = False, url: Url = None) -> None:
    """Show an MCP server, its connection and its tools."""
    api = client(url)
    found = _find(api, server)
    status = api.get(path("kelpie", "mcp-servers", found["id"]))
    if as_json:
        print_json(found | {"kelpie_status": status})
        return
    told = api.get(path("mcp-servers", found["id"], "tools"))
    options = {name: value for name, value in status["kelpie_options"].items() if value}
    print_facts(
        {
            "name": found["server_name"],
            "id": found["id"],
            "type": found["mcp_server_type"],
            "command": " ".join([found["command"], *found["args"]]) if "command" in found else None,
            "url": found.get("server_url"),
            "state": _state(status),
            "protocol": status["protocol_version"],
            "server": (status["server_info"] or {}).get("name"),
            "last error": status["last_error"],
            "granted": [f"{name}: {value}" for name, value in options.items()],
            "tools": [each["name"] for each in told],
        }
    )


def tools(server: Server, as_json: AsJson = False, url: Url = None) -> None:
    """List the tools of an MCP server."""
    api = client(url)
    found = api.get(path("mcp-servers", _find(api, server)["id"], "tools"))
    if as_json:
        print_json(found)
        return
    rows = [(each["name"], each["description"]) for each in found]
    print_rows(("tool", "description"), rows, "No tools. Read them again with `kelpie mcp refresh`.")


def run(
    server: Server,
    tool: Annotated[str, typer.Argument(help="Name of the tool.")],
    args: Annotated[
        str, typer.Option(metavar="JSON", help="Arguments as a JSON object; `-` reads them from standard input.")
    ] = "{}",
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Call a tool of an MCP server and print its result. Exits with 1 if the tool fails."""
    given = json_object(given_text(args, "--args"), "--args")
    api = client(url, CONNECT_S)
    found = _find(api, server)
    chosen = _chosen(api.get(path("mcp-servers", found["id"], "tools")), tool, found["server_name"])
    with waiting(f"Calling {tool} ..."):
        answer = api.post(path("mcp-servers", found["id"], "tools", chosen["id"], "run"), {"args": given})
    if as_json:
        print_json(answer)
    else:
        print_text(str(answer["func_return"]))
    if answer["status"] != "success":
        raise typer.Exit(ERROR)


def refresh(server: Server, as_json: AsJson = False, url: Url = None) -> None:
    """Read the tools of an MCP server again."""
    api = client(url, CONNECT_S)
    found = _find(api, server)
    with waiting("Reading the tools ..."):
        answer = api.patch(path("mcp-servers", found["id"], "refresh"), None)
    if as_json:
        print_json(answer)
        return
    for word, names in (("Added", "added"), ("Updated", "updated"), ("Deleted", "deleted")):
        if answer[names]:
            say(f"{word}: {', '.join(map(cell, answer[names]))}.")
    for name, reason in answer.get("kelpie_refused", {}).items():
        say(f"Cannot be used: {cell(name)}: {cell(reason)}")
    if not any(answer[names] for names in ("added", "updated", "deleted")):
        say("Nothing changed.")


def remove(
    server: Server,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
) -> None:
    """Delete an MCP server and its tools, also from the agents that have them."""
    api = client(url)
    found = _find(api, server)
    confirm(f"Delete MCP server {cell(found['server_name'])} and its tools?", "the deletion", yes=yes)
    api.delete(path("mcp-servers", found["id"]))
    say(f"Deleted MCP server {cell(found['server_name'])}.")


def login(
    server: Server,
    client_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Client that you registered at the authorization server.")
    ] = None,
    client_secret_variable: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable that holds the secret of that client.")
    ] = None,
    url: Url = None,
) -> None:
    """Log in to an MCP server with OAuth. Prints the address to open in a browser, and waits."""
    if client_secret_variable and not client_id:
        raise InvalidInput("--client-secret-variable", "a secret belongs to a client; give --client-id as well")
    secret = _variable(client_secret_variable, "--client-secret-variable")
    api = client(url, CONNECT_S)
    found = _find(api, server)
    if client_id:
        body = {"client_id": client_id, "client_secret": secret}
        api.put(path("kelpie", "mcp-servers", found["id"], "oauth-client"), body)
    for _, event in api.events(path("mcp-servers", "connect", found["id"]), None, LOGIN_S, method="GET"):
        if event["event"] == "authorization_url":
            say("Open this address in a browser and agree there:")
            say(event["url"])
        elif event["event"] == "error":
            say(f"kelpie: {cell(event['message'])}")
            raise typer.Exit(ERROR)
        elif event["event"] == "success":
            api.patch(path("mcp-servers", found["id"], "refresh"), None)
            say(f"Connected to {cell(found['server_name'])}, which has {len(event['tools'])} tools.")
            return


def tasks(limit: Limit = 50, as_json: AsJson = False, url: Url = None) -> None:
    """List tasks that MCP servers run for agents, newest first."""
    found = client(url).get("/v1/kelpie/mcp-tasks", limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["id"], each["tool_name"], each["status"], each["status_message"], each["created_at"]) for each in found
    ]
    print_list(("task", "tool", "status", "message", "created"), rows, "No tasks.", spare=("message",))


def cancel(
    task: Annotated[str, typer.Argument(help="Id of the task.")], as_json: AsJson = False, url: Url = None
) -> None:
    """Cancel a task of an MCP server."""
    answer = client(url, CONNECT_S).post(path("kelpie", "mcp-tasks", task, "cancel"), None)
    if as_json:
        print_json(answer)
    else:
        say(f"{answer['id']} is {answer['status']}.")


# --- parts of commands ------------------------------------------------------------------------------------------------


def _config(
    command: list[str] | None,
    http: str | None,
    sse: str | None,
    env: list[str] | None,
    header: list[str] | None,
    token_variable: str | None,
) -> dict[str, Any]:
    if command:
        first, *rest = command
        return {"mcp_server_type": "stdio", "command": first, "args": rest, "env": _pairs(env, "--env") or None}
    kind = "streamable_http" if http else "sse"
    config: dict[str, Any] = {"mcp_server_type": kind, "server_url": http or sse}
    if header:
        config["custom_headers"] = _pairs(header, "--header")
    if token_variable:
        config["auth_token"] = _variable(token_variable, "--token-variable")
    return config


def _variable(name: str | None, option: str) -> str | None:
    """The value of an environment variable; None without a name. Raises InvalidInput."""
    if name is None:
        return None
    if not os.environ.get(name):
        raise InvalidInput(option, f"the environment variable {name} is not set")
    return os.environ[name]


def _pairs(given: list[str] | None, option: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in given or ()]
    if any(not equals or not name for name, equals, _ in pairs):
        raise InvalidInput(option, "write it as NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _directory(text: str) -> dict[str, Any]:
    return {"path": text.removesuffix(":rw"), "writable": text.endswith(":rw")}


def _register(server: Client, name: str, config: Mapping[str, Any], as_json: bool) -> None:
    with waiting(f"Connecting to {name} ..."):
        made = server.post("/v1/mcp-servers/", {"server_name": name, "config": dict(config)})
    found = server.get(path("mcp-servers", made["id"], "tools"))
    if as_json:
        print_json(made)
        return
    say(f"Added MCP server {cell(name)} ({made['id']}).")
    if found:
        say(f"It has {len(found)} tools: {', '.join(cell(each['name']) for each in found)}.")
    else:
        status = server.get(path("kelpie", "mcp-servers", made["id"]))
        say(f"It has no tools yet: {cell(status['last_error'] or 'the server lists none')}.")


def _add_file(server: Client, file: Path, as_json: bool) -> None:
    wanted = read_servers(json_file.read(file), os.environ, SECRET_VARIABLES)
    there = {each["server_name"]: each["id"] for each in server.get("/v1/mcp-servers/")}
    made = []
    for name, config in wanted.items():
        body = {"server_name": name, "config": _wire(config)}
        with waiting(f"Connecting to {name} ..."):
            if name in there:
                made.append(server.patch(path("mcp-servers", there[name]), body))
                _try_refresh(server, there[name])
            else:
                made.append(server.post("/v1/mcp-servers/", body))
        if not as_json:
            say(f"{'Updated' if name in there else 'Added'} MCP server {cell(name)}.")
    if as_json:
        print_json(made)


def _try_refresh(server: Client, server_id: str) -> None:
    try:
        server.patch(path("mcp-servers", server_id, "refresh"), None)
    except ErrorResponse as error:
        say(f"Its tools could not be read: {cell(str(error))}")


def _wire(config: McpConfig) -> dict[str, Any]:
    options = config.options
    own = {
        "connect_seconds": options.connect_s,
        "read_seconds": options.read_s,
        "call_seconds": options.call_s,
        "egress": list(options.egress),
        "memory_mb": options.memory_mb,
        "directories": [{"path": each.path, "writable": each.writable} for each in options.directories],
    }
    if config.server_type is McpServerType.stdio:
        body: dict[str, Any] = {"command": config.command, "args": list(config.args), "env": config.env}
    else:
        body = {
            "server_url": config.server_url,
            "auth_token": config.token,
            "custom_headers": config.custom_headers,
        }
    return {"mcp_server_type": config.server_type.value, **body, "kelpie_options": own}


def _find(server: Client, named: str) -> dict[str, Any]:
    """The MCP server with this name or id. Raises UnknownId with the nearest names."""
    found = server.get("/v1/mcp-servers/")
    for each in found:
        if named in (each["server_name"], each["id"]):
            return each
    near = difflib.get_close_matches(named, [each["server_name"] for each in found], 3, NEAR)
    remedy = f"Did you mean {', '.join(near)}?" if near else "`kelpie mcp list` lists them."
    raise UnknownId(f"there is no MCP server named '{named[:80]}'. {remedy}")


def _chosen(found: list[dict[str, Any]], tool: str, server: str) -> dict[str, Any]:
    """The tool with this name, this id, or this name on its server. Raises UnknownId with the nearest names."""
    for each in found:
        if tool in (each["name"], each["id"]) or each["name"] == namespaced(server, tool):
            return each
    near = difflib.get_close_matches(tool, [each["name"] for each in found], 3, NEAR)
    remedy = f"Did you mean {', '.join(near)}?" if near else "`kelpie mcp tools` lists them."
    raise UnknownId(f"the server has no tool named '{tool[:80]}'. {remedy}")


def _state(status: Mapping[str, Any]) -> str:
    if status["breaker"] != "closed":
        return f"left alone for {status['retry_after_seconds']:.0f} s" if status["breaker"] == "open" else "half open"
    if status["connected"]:
        return "connected"
    return "failing" if status["failures"] else "not connected"
