"""`kelpie tools add`, `show`, `attach`, `detach`, `run` and `delete`."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.commands.tools.tool_lookup import Tool, by_name, find_tool
from kelpie.cli.confirmation import confirm
from kelpie.cli.exit_codes import ERROR
from kelpie.cli.options import Agent, AsJson, Url, client, examples, path
from kelpie.cli.output import cell, print_facts, print_json, print_text, say, waiting
from kelpie.cli.typed_text import given_text, json_object
from kelpie.core.errors import CallerError, InvalidInput, KelpieError
from kelpie.world.files import json_file, text_file
from kelpie.world.http.cli_client import Client

CHANGE_S = 120.0  # the server may install packages and start a sandbox to read the schema
RUN_S = 660.0
LANGUAGES = {".py": "python", ".ts": "typescript", ".js": "javascript"}


def register(commands: typer.Typer) -> None:
    """Adds these commands to the commands of tools."""
    commands.command(epilog=examples("tools add dice.py", "tools add weather.py --pip requests==2.32.3 --approval"))(
        add
    )
    commands.command(epilog=examples("tools show conversation_search", "tools show dice --json"))(show)
    commands.command(epilog=examples("tools attach dice ada"))(attach)
    commands.command(epilog=examples("tools detach dice ada"))(detach)
    commands.command(
        epilog=examples(
            "tools run dice --args '{\"sides\": 6}'",
            'tools run conversation_search --agent ada --args \'{"query": "tea"}\'',
        )
    )(run)
    commands.command(epilog=examples("tools delete dice", "tools delete dice --yes"))(delete)


def add(
    file: Annotated[str, typer.Argument(help="Source file: Python (.py), TypeScript (.ts) or JavaScript (.js).")],
    tag: Annotated[list[str] | None, typer.Option(help="Tag (repeatable).")] = None,
    pip: Annotated[
        list[str] | None, typer.Option(metavar="NAME==VERSION", help="Python package that it needs (repeatable).")
    ] = None,
    npm: Annotated[
        list[str] | None, typer.Option(metavar="NAME==VERSION", help="npm package that it needs (repeatable).")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="FILE", help="JSON schema; by default it is read from the source.")
    ] = None,
    approval: Annotated[bool, typer.Option("--approval", help="Ask a person before each call.")] = False,
    agent: Annotated[list[str] | None, typer.Option(help="Attach it to this agent (repeatable).")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Add a tool from a source file, or replace the source of the tool with this name."""
    source = Path(file)
    language = LANGUAGES.get(source.suffix)
    if language is None:
        raise InvalidInput("FILE", f"'{file[:80]}' does not end with {', '.join(LANGUAGES)}")
    code = text_file.read(source)
    server = client(url, CHANGE_S)
    agents = [find(server, who) for who in agent or ()]
    read = json_file.read(Path(schema)) if schema else _schema(server, code, language)
    before = by_name(server, str(read.get("name")))
    body: dict[str, Any] = {"source_code": code, "source_type": language, "tags": tag}
    body |= {"json_schema": read} if schema or language != "python" else {}
    body |= {"pip_requirements": _requirements(pip), "npm_requirements": _requirements(npm)}
    body |= {"default_requires_approval": True} if approval else {}
    with waiting("Adding the tool ..."):
        made = server.post("/v1/tools/", {field: value for field, value in body.items() if value is not None})
    for each in agents:
        try:
            _attach(server, made, each, approval=approval)
        except KelpieError as error:
            raise CallerError(_not_attached(server, made, each, error, is_new=before is None)) from error
    if as_json:
        print_json(made)
        return
    say(f"{'Updated' if before else 'Added'} tool {cell(made['name'])} ({made['id']}).")
    for each in agents:
        say(f"Attached it to agent {cell(each['name'])}.")


def _attach(server: Client, tool: Mapping[str, Any], agent: Mapping[str, Any], *, approval: bool) -> None:
    server.patch(path("agents", agent["id"], "tools", "attach", tool["id"]), None)
    if approval:  # an agent that already had the tool keeps its own rule otherwise
        server.patch(path("agents", agent["id"], "tools", "approval", tool["name"]), {"requires_approval": True})


def _not_attached(
    server: Client, tool: Mapping[str, Any], agent: Mapping[str, Any], error: KelpieError, *, is_new: bool
) -> str:
    """Deletes a new tool that could not be attached, and says what happened; a replaced source stays replaced."""
    who, name = f"agent {agent['name']}: {str(error).rstrip('.')}", tool["name"]
    if not is_new:
        return f"The source of {name} was replaced, but the tool was not attached to {who}."
    try:
        server.delete(path("tools", tool["id"]))
    except KelpieError:
        again = f"`kelpie tools delete {name}` removes it"
        return f"{name} was added, but not attached to {who}. It could not be deleted again; {again}."
    return f"{name} was not added, because it could not be attached to {who}."


def show(tool: Tool, as_json: AsJson = False, url: Url = None) -> None:
    """Show a tool with its arguments and its source."""
    found = find_tool(server := client(url), tool)
    if as_json:
        print_json(server.get(path("tools", found["id"])))
        return
    arguments = found["json_schema"].get("parameters", {})
    print_facts(
        {
            "name": found["name"],
            "id": found["id"],
            "type": found["tool_type"],
            "description": found["description"],
            "arguments": [_argument(name, about, arguments) for name, about in arguments.get("properties", {}).items()],
            "needs approval": found["default_requires_approval"],
            "packages": [_package(each) for each in found["pip_requirements"] or found["npm_requirements"] or ()],
            "tags": found["tags"],
        }
    )
    if found["source_code"]:
        say()
        print_text(found["source_code"])


def attach(tool: Tool, agent: Agent, url: Url = None) -> None:
    """Attach a tool to an agent."""
    _link(client(url), tool, agent, "attach")


def detach(tool: Tool, agent: Agent, url: Url = None) -> None:
    """Detach a tool from an agent. The tool itself is kept."""
    _link(client(url), tool, agent, "detach")


def run(
    tool: Tool,
    args: Annotated[
        str, typer.Option(metavar="JSON", help="Arguments as a JSON object; `-` reads them from standard input.")
    ] = "{}",
    agent: Annotated[str | None, typer.Option(help="Run it as this agent, which must have it.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Run a tool once and print its result. Exits with 1 if the tool fails."""
    given = json_object(given_text(args, "--args"), "--args")
    server = client(url, RUN_S)
    found = find_tool(server, tool)
    with waiting(f"Running {found['name']} ..."):
        if agent is not None:
            who = find(server, agent)["id"]
            answer = server.post(path("agents", who, "tools", found["name"], "run"), {"args": given})
            result = answer["func_return"]
        elif (remote := (found["metadata_"].get("mcp") or {}).get("server_id")) is not None:
            answer = server.post(path("mcp-servers", remote, "tools", found["id"], "run"), {"args": given})
            result = answer["func_return"]
        elif found["source_code"]:
            answer = server.post("/v1/tools/run", _stored(found) | {"args": given})
            result = answer["tool_return"]
        else:
            raise InvalidInput("--agent", f"{found['name']} is a built-in tool; name the agent that runs it")
    if as_json:
        print_json(answer)
    else:
        for line in answer["stdout"] or ():
            say(line, file=sys.stderr)
        for line in answer["stderr"] or ():
            if line != result:  # the result of a failure is its error
                say(line, file=sys.stderr)
        print_text(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False))
    raise typer.Exit(0 if answer["status"] == "success" else ERROR)


def delete(
    tool: Tool,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    url: Url = None,
) -> None:
    """Delete a tool and detach it from all agents."""
    server = client(url)
    found = find_tool(server, tool)
    question = f"Delete tool {cell(found['name'])} ({found['id']}) and detach it from all agents?"
    confirm(question, "deleting the tool", yes=yes)
    server.delete(path("tools", found["id"]))
    say(f"Deleted tool {cell(found['name'])}.")


def _schema(server: Client, code: str, language: str) -> dict[str, Any]:
    if language == "javascript":
        raise InvalidInput("--schema", "a JavaScript tool needs a JSON schema, because its source declares no types")
    return server.post("/v1/tools/generate-schema", {"code": code, "source_type": language})


def _link(server: Client, tool: str, agent: str, how: str) -> None:
    found, who = find_tool(server, tool), find(server, agent)
    server.patch(path("agents", who["id"], "tools", how, found["id"]), None)
    done, preposition = ("Attached", "to") if how == "attach" else ("Detached", "from")
    say(f"{done} tool {cell(found['name'])} {preposition} agent {cell(who['name'])}.")


def _stored(tool: dict[str, Any]) -> dict[str, Any]:
    """What the server needs to run the source of a stored tool."""
    fields = ("source_code", "source_type", "json_schema", "args_json_schema", "pip_requirements", "npm_requirements")
    return {"name": tool["name"]} | {field: tool[field] for field in fields if tool[field] is not None}


def _requirements(given: list[str] | None) -> list[dict[str, str]] | None:
    if not given:
        return None
    parts = [each.partition("==") for each in given]
    return [{"name": name} | ({"version": version} if version else {}) for name, _, version in parts]


def _argument(name: str, about: dict[str, Any], schema: dict[str, Any]) -> str:
    kind = about.get("type", "any")
    return f"{name}: {kind}" if name in schema.get("required", ()) else f"{name}: {kind} (optional)"


def _package(requirement: dict[str, Any]) -> str:
    return f"{requirement['name']}=={requirement['version']}" if requirement.get("version") else requirement["name"]
