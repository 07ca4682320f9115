"""An MCP server written with the Python SDK 2.x, as its users write one: `sdk_server_2.py TRANSPORT [PORT]`."""

import sys
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel

server = MCPServer("second", log_level="ERROR")


class Name(BaseModel):
    name: str


def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def greet(who: Annotated[Name, Resolve(ask_name)]) -> str:
    """Greets the person."""
    return f"Hello {who.name}"


@server.tool()
async def walk(steps: int, ctx: Context) -> str:
    """Walks, and tells each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return "arrived"


if len(sys.argv) > 2:
    server.run(sys.argv[1], port=int(sys.argv[2]))  # pyright: ignore[reportArgumentType, reportCallIssue]
else:
    server.run("stdio")
