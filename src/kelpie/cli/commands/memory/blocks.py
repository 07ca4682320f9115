"""`kelpie blocks`: memory blocks, their history, and restoring earlier versions."""

from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.commands.memory import block_changes
from kelpie.cli.commands.memory.block_lookup import Block, block_id
from kelpie.cli.options import AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_json, print_list, print_text, say

commands = group(
    "List, show, change and share memory blocks, and restore old versions.",
    "blocks list --agent demo",
    "blocks set demo/human 'Likes tea.'",
    "blocks history demo/human",
    "blocks rollback demo/human 1",
)


@commands.command("list", epilog=examples("blocks list", "blocks list --agent demo --json"))
def list_blocks(
    agent: Annotated[str | None, typer.Option(help="Show only blocks of this agent (name or id).")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List memory blocks, newest first."""
    server = client(url)
    place = path("agents", find(server, agent)["id"], "core-memory", "blocks") if agent else "/v1/blocks/"
    found = server.get(place, limit=limit, order="desc")
    if as_json:
        print_json(found)
        return
    rows = [(each["id"], each["label"], len(each["value"]), each["limit"], each["read_only"]) for each in found]
    print_list(("id", "label", "characters", "limit", "read-only"), rows, "No blocks.", spare=("read-only", "limit"))


@commands.command(epilog=examples("blocks history demo/human", "blocks history block-... --limit 5 --json"))
def history(block: Block, limit: Limit = 50, as_json: AsJson = False, url: Url = None) -> None:
    """List the versions of a block, newest first."""
    server = client(url)
    found = server.get(path("blocks", block_id(server, block), "history"), limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["version"], each["created_at"], _author(each), each["tool"], each["chars"], each["run_id"], _about(each))
        for each in found
    ]
    columns = ("version", "created", "author", "tool", "characters", "run", "change")
    print_list(columns, rows, spare=("run", "characters", "tool"))


@commands.command(
    epilog=examples("blocks diff demo/human", "blocks diff demo/human 2 5", "blocks diff block-... 2 --json")
)
def diff(
    block: Block,
    from_version: Annotated[
        int | None, typer.Argument(min=1, help="Older version. Defaults to the one before the newer version.")
    ] = None,
    to_version: Annotated[int | None, typer.Argument(min=1, help="Newer version. Defaults to the latest.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show the changes between two versions of a block."""
    server = client(url)
    wanted = {"from": from_version, "to": to_version}
    given = {name: version for name, version in wanted.items() if version is not None}
    found = server.get(path("blocks", block_id(server, block), "diff"), **given)
    if as_json:
        print_json(found)
    elif found["hunks"]:
        print_text(found["unified"])
    else:
        say(f"Versions {found['from']} and {found['to']} have the same value.")


@commands.command(epilog=examples("blocks rollback demo/human 1", "blocks rollback demo/human 3 --expect 7 --json"))
def rollback(
    block: Block,
    version: Annotated[int, typer.Argument(min=1, help="Version to restore.")],
    expect: Annotated[
        int | None, typer.Option(min=1, help="Change nothing unless the block is at this version now.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Restore an earlier version of a block. This creates a new version."""
    server = client(url)
    body = {"version": version} | ({"expected_version": expect} if expect is not None else {})
    done = server.post(path("blocks", block_id(server, block), "rollback"), body)
    if as_json:
        print_json(done)
        return
    say(f"Restored version {version} of block {cell(done['label'])}; this is now version {done['version']}.")


def _author(version: dict[str, Any]) -> str:
    author = version["author"]
    return author["key_id"] or author["id"] or author["type"]


def _about(version: dict[str, Any]) -> str:
    """Describes a change beyond its new value."""
    if version["restores"] is not None:
        return f"restored version {version['restores']}"
    return ", ".join(sorted(version["fields"])) if version["version"] > 1 else "created"


block_changes.register(commands)
