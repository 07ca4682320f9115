"""Lookup of a block by AGENT/LABEL, its id, or the first characters of its id."""

from typing import Annotated

import typer

from kelpie.cli.agent_lookup import UnknownAgent, find
from kelpie.cli.id_lookup import UnknownId, part_of, whole_id
from kelpie.cli.options import complete_block, path
from kelpie.core.errors import InvalidInput
from kelpie.world.http.cli_client import Client

Block = Annotated[
    str, typer.Argument(help="Block id, or AGENT/LABEL as in `demo/human`.", autocompletion=complete_block)
]


def block_id(server: Client, block: str) -> str:
    """Returns the id of a block. Raises InvalidInput, UnknownId, Unreachable, ErrorResponse."""
    who, slash, label = block.partition("/")
    if not slash and part_of("block", block) is not None:
        return whole_id(server, "block", block, "block", "`kelpie blocks list` lists them.")
    if not who or not label:
        raise InvalidInput("BLOCK", f"expected a block id or AGENT/LABEL such as demo/human, got '{block[:80]}'")
    try:
        agent = find(server, who)
    except UnknownAgent:  # the name may have a slash of its own, and so may the label
        if "/" not in label:
            raise
        who, _, label = block.rpartition("/")
        agent = find(server, who)
    # A damaged version can only be listed, and that is when an operator wants to roll it back.
    blocks = {each["label"]: each["id"] for each in server.get(path("agents", agent["id"], "core-memory", "blocks"))}
    if label not in blocks:
        labels = f"its blocks are {', '.join(sorted(blocks))}" if blocks else "it has no blocks"
        raise UnknownId(f"agent {agent['name']} has no block '{label[:80]}'; {labels}")
    return str(blocks[label])
