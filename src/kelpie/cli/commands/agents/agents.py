"""`kelpie agents`: create, list, show, start, stop and delete agents over HTTP."""

from typing import Annotated, Any

import typer

from kelpie.cli import budget_text
from kelpie.cli.agent_lookup import find
from kelpie.cli.cancel_report import print_cancelled
from kelpie.cli.commands.agents import agent_files, checkpoints
from kelpie.cli.commands.agents import permissions as permission_commands
from kelpie.cli.commands.agents import update as update_command
from kelpie.cli.commands.agents.demo_model import DEMO, explain_demo
from kelpie.cli.commands.agents.names import check_name, confirm_name
from kelpie.cli.confirmation import confirm
from kelpie.cli.options import Agent, AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_facts, print_json, print_list, print_rows, say
from kelpie.core.errors import InvalidInput

RELATIONS = ("agent.blocks", "agent.tools", "agent.tags")

commands = group(
    "Create, list, show, change, start, stop and delete agents.", "agents create ada", "agents list", "agents show ada"
)


def _types(incomplete: str) -> list[str]:
    """Shell completion of agent types."""
    from kelpie.core.agents.agent import AgentType

    return [kind.value for kind in AgentType if kind.value.startswith(incomplete)]


@commands.command("list", epilog=examples("agents list", "agents list --tag team --json"))
def list_agents(
    limit: Limit = 50,
    name: Annotated[str | None, typer.Option(help="Show only agents with this name.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Show only agents with this tag (repeatable).")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List agents, newest first."""
    query: dict[str, Any] = {"limit": limit, "include": "agent.tags"}
    query |= {"name": name} if name else {}
    query |= {"tags": tag} if tag else {}
    found = client(url).get("/v1/agents/", **query)
    if as_json:
        print_json(found)
        return
    rows = [(each["name"], each["id"], each["model"], _state(each), each["created_at"], each["tags"]) for each in found]
    columns = ("name", "id", "model", "state", "created", "tags")
    print_list(columns, rows, "No agents. `kelpie demo` creates one.", spare=("tags", "created"))


@commands.command(epilog=examples("agents show demo", "agents show demo --json"))
def show(agent: Agent, as_json: AsJson = False, url: Url = None) -> None:
    """Show an agent with its model, state, tools and blocks."""
    server = client(url)
    found = server.get(path("agents", find(server, agent)["id"]), include=RELATIONS)
    spent = server.get(path("kelpie", "agents", found["id"], "spending"))
    if as_json:
        print_json({**found, "kelpie_spending": spent})
        return
    status = found["kelpie_status"]
    print_facts(
        {
            "name": found["name"],
            "id": found["id"],
            "type": found["agent_type"],
            "description": found["description"],
            "model": found["model"],
            "context window": found["llm_config"]["context_window"],
            "embedding": found["embedding"],
            "state": _state(found),
            "error": status["error"],
            "retry at": status["retry_at"],
            "paused until": found["paused_until"],
            "spent": budget_text.spent_line(spent),
            "budget": budget_text.budget_line(spent["budget"]),
            "created": found["created_at"],
            "tags": found["tags"],
            "tools": [tool["name"] for tool in found["tools"]],
        }
    )
    say()
    blocks = [(block["label"], f"{len(block['value'])}/{block['limit']}", block["value"]) for block in found["blocks"]]
    print_rows(("block", "characters", "value"), blocks, "No memory blocks.")


@commands.command(
    epilog=examples(
        "agents create ada", "agents create ada --model openai/gpt-4o --block human='Likes tea.' --tag team"
    )
)
def create(
    name: Annotated[str, typer.Argument(help="Name of the new agent.")],
    model: Annotated[str | None, typer.Option(help="Model handle. Defaults to the server's default model.")] = None,
    embedding: Annotated[str | None, typer.Option(help="Embedding model handle.")] = None,
    agent_type: Annotated[
        str | None, typer.Option("--type", help="Agent type, e.g. `memgpt_v2_agent`.", autocompletion=_types)
    ] = None,
    description: Annotated[str | None, typer.Option(help="What the agent is for.")] = None,
    system: Annotated[str | None, typer.Option(help="System prompt. Defaults to the prompt of the agent type.")] = None,
    block: Annotated[list[str] | None, typer.Option(metavar="LABEL=VALUE", help="Memory block (repeatable).")] = None,
    tool: Annotated[list[str] | None, typer.Option(help="Name of an additional tool (repeatable).")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag to add (repeatable).")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Use a name that another agent has without asking.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create an agent. Without `--block` it gets the blocks `human` and `persona`."""
    check_name(name, "NAME")
    if agent_type is not None and agent_type not in _types(""):
        kinds = ", ".join(_types(""))
        raise InvalidInput("--type", f"'{agent_type[:80]}' is not an agent type; use one of {kinds}")
    body = {
        "name": name,
        "model": model,
        "embedding": embedding,
        "agent_type": agent_type,
        "description": description,
        "system": system,
        "tools": tool,
        "tags": tag,
        "memory_blocks": [_block(text) for text in block or ("human=", "persona=")],
    }
    server = client(url)
    confirm_name(server, name, yes=yes)
    made = server.post("/v1/agents/", {field: value for field, value in body.items() if value is not None})
    if as_json:
        print_json(made)
        return
    chosen = "" if model else " (the default model of the server)"
    say(f"Created agent {made['name']} ({made['id']}), model {made['model']}{chosen}.")
    if model is None and made["model"] == DEMO:
        explain_demo(server)


@commands.command(epilog=examples("agents budget ada", "agents budget ada '5 usd a day'", "agents budget ada none"))
def budget(
    agent: Agent,
    amount: Annotated[
        str | None, typer.Argument(help="For example `5 usd a day` or `200000 tokens`. `none` removes the budget.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show an agent's spending and budget, or set the budget."""
    server = client(url)
    found = find(server, agent)
    if amount is not None:
        server.patch(path("agents", found["id"]), {"kelpie_budget": budget_text.parse_budget(amount)})
    spent = server.get(path("kelpie", "agents", found["id"], "spending"))
    if as_json:
        print_json(spent)
        return
    print_facts({"spent": budget_text.spent_line(spent), "budget": budget_text.budget_line(spent["budget"]) or "none"})


@commands.command(epilog=examples("agents delete ada", "agents delete ada --yes"))
def delete(
    agent: Agent,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    url: Url = None,
) -> None:
    """Delete an agent and its messages. Its memory blocks are kept."""
    server = client(url)
    found = find(server, agent)
    confirm(f"Delete agent {cell(found['name'])} ({found['id']}) and its messages?", "deleting the agent", yes=yes)
    server.delete(path("agents", found["id"]))
    say(f"Deleted agent {found['name']}.")


@commands.command(epilog=examples("agents start ada"))
def start(agent: Agent, as_json: AsJson = False, url: Url = None) -> None:
    """Start a stopped agent."""
    _switch(agent, "start", as_json, url)


@commands.command(epilog=examples("agents stop ada"))
def stop(agent: Agent, as_json: AsJson = False, url: Url = None) -> None:
    """Stop an agent. It accepts no messages until it is started again."""
    _switch(agent, "stop", as_json, url)


@commands.command(epilog=examples("agents restart ada"))
def restart(agent: Agent, as_json: AsJson = False, url: Url = None) -> None:
    """Unload an agent and load it again."""
    _switch(agent, "restart", as_json, url)


@commands.command(epilog=examples("agents cancel ada"))
def cancel(agent: Agent, as_json: AsJson = False, url: Url = None) -> None:
    """Cancel all active and waiting runs of an agent."""
    server = client(url)
    found = find(server, agent)
    print_cancelled(server.post(path("agents", found["id"], "messages", "cancel"), {}), as_json)


@commands.command(epilog=examples("agents repair ada", "agents repair --json"))
def repair(
    agent: Annotated[str | None, typer.Argument(help="Name or id of the agent. Defaults to all agents.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Repair message histories damaged by an import or an old bug.

    Tool calls that wait for an approval or a client are left alone.
    """
    server = client(url)
    body = {"agent_id": find(server, agent)["id"]} if agent else {}
    found = server.post("/v1/kelpie/agents/repair", body)
    if as_json:
        print_json(found)
        return
    for each in found:
        for done in each["done"]:
            say(f"{each['agent_id']}: {done}")
    if not any(each["done"] for each in found):
        say("Nothing to repair.")


def _switch(agent: str, how: str, as_json: bool, url: str | None) -> None:
    server = client(url)
    found = find(server, agent)
    status = server.post(path("agents", found["id"], how), None)
    if as_json:
        print_json({"id": found["id"], "name": found["name"], **status})
    else:
        say(f"{found['name']}: {status['state']}")


def _state(agent: dict[str, Any]) -> str:
    return str(agent["kelpie_status"]["state"])


def _block(text: str) -> dict[str, str]:
    label, equals, value = text.partition("=")
    if not label or not equals:
        raise InvalidInput("--block", f"expected LABEL=VALUE, got '{text[:80]}'")
    return {"label": label, "value": value}


update_command.register(commands)
checkpoints.register(commands)
agent_files.register(commands)
permission_commands.register(commands)
