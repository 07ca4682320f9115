"""`kelpie blocks`: memory blocks, who changed them, and the way back to what they said before."""

from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.options import AsJson, Limit, Url, client, complete_block, examples, group, path
from kelpie.cli.output import cell, print_json, print_rows, print_text
from kelpie.core.errors import InvalidInput
from kelpie.world.http.cli_client import Client

commands = group(
    "Look at memory blocks and their history, and bring back what they said.",
    "blocks list --agent demo",
    "blocks history demo/human",
    "blocks rollback demo/human 1",
)

Block = Annotated[
    str, typer.Argument(help="Id of the block, or AGENT/LABEL as in `demo/human`.", autocompletion=complete_block)
]


@commands.command("list", epilog=examples("blocks list", "blocks list --agent demo --json"))
def list_blocks(
    agent: Annotated[str | None, typer.Option(help="Only blocks of this agent, by name or id.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List memory blocks, the newest first."""
    server = client(url)
    place = path("agents", find(server, agent)["id"], "core-memory", "blocks") if agent else "/v1/blocks/"
    found = server.get(place, limit=limit, order="desc")
    if as_json:
        print_json(found)
        return
    rows = [(each["id"], each["label"], len(each["value"]), each["limit"], each["read_only"]) for each in found]
    print_rows(("id", "label", "characters", "limit", "read-only"), rows, "There are no blocks.")


@commands.command(epilog=examples("blocks history demo/human", "blocks history block-... --limit 5 --json"))
def history(block: Block, limit: Limit = 50, as_json: AsJson = False, url: Url = None) -> None:
    """List the versions of a block, the newest first: who made them when, in which turn and with which tool."""
    server = client(url)
    found = server.get(path("blocks", _id_of(server, block), "history"), limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["version"], each["created_at"], _author(each), each["tool"], each["chars"], each["run_id"], _about(each))
        for each in found
    ]
    print_rows(("version", "when", "who", "tool", "characters", "run", "what else"), rows)


@commands.command(
    epilog=examples("blocks diff demo/human", "blocks diff demo/human 2 5", "blocks diff block-... 2 --json")
)
def diff(
    block: Block,
    from_version: Annotated[
        int | None, typer.Argument(min=1, help="The older version; without it, the one before the other.")
    ] = None,
    to_version: Annotated[int | None, typer.Argument(min=1, help="The newer version; without it, the newest.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show what changed between two versions of a block."""
    server = client(url)
    wanted = {"from": from_version, "to": to_version}
    given = {name: version for name, version in wanted.items() if version is not None}
    found = server.get(path("blocks", _id_of(server, block), "diff"), **given)
    if as_json:
        print_json(found)
    elif found["hunks"]:
        print_text(found["unified"])
    else:
        print(f"The value is the same in versions {found['from']} and {found['to']}.")


@commands.command(epilog=examples("blocks rollback demo/human 1", "blocks rollback demo/human 3 --expect 7 --json"))
def rollback(
    block: Block,
    version: Annotated[int, typer.Argument(min=1, help="The version whose value is to come back.")],
    expect: Annotated[
        int | None, typer.Option(min=1, help="Only if the block is of this version now; else nothing is changed.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Give a block the value that it had in a version; the block gets a new version by that."""
    server = client(url)
    body = {"version": version} | ({"expected_version": expect} if expect is not None else {})
    done = server.post(path("blocks", _id_of(server, block), "rollback"), body)
    if as_json:
        print_json(done)
        return
    print(
        f"The block '{cell(done['label'])}' has the value of version {version} again; it is version {done['version']}."
    )


def _id_of(server: Client, block: str) -> str:
    """The id of a block that is named by it, or by the agent that carries it and its label. Raises InvalidInput."""
    if block.startswith("block-"):
        return block
    who, slash, label = block.partition("/")
    if not slash or not label:
        raise InvalidInput("BLOCK", f"'{block[:80]}' is neither the id of a block nor AGENT/LABEL, as in demo/human")
    carried = ("agents", find(server, who)["id"], "core-memory", "blocks")
    # One that is damaged can only be listed, and that is when somebody wants to roll it back.
    listed = (each["id"] for each in server.get(path(*carried)) if each["label"] == label)
    return next(listed, None) or server.get(path(*carried, label))["id"]


def _author(version: dict[str, Any]) -> str:
    author = version["author"]
    return author["key_id"] or author["id"] or author["type"]


def _about(version: dict[str, Any]) -> str:
    """What a change was beside a new value."""
    if version["restores"] is not None:
        return f"version {version['restores']} brought back"
    return ", ".join(sorted(version["fields"])) if version["version"] > 1 else "made"
