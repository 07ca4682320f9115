"""An MCP server written with the Python SDK 1.x, as its users write one: `sdk_server_1.py TRANSPORT [PORT]`.

It runs with that version on its path, so it imports it by name only.
"""

import sys
from importlib import import_module
from typing import Any

from pydantic import BaseModel

fastmcp: Any = import_module("mcp.server.fastmcp")
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 0
server = fastmcp.FastMCP("first", port=PORT, log_level="ERROR")
Context = fastmcp.Context


class Name(BaseModel):
    name: str


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def greet(ctx: Context) -> str:  # pyright: ignore[reportInvalidTypeForm]
    """Greets the person."""
    answer = await ctx.elicit("What is your name?", Name)
    return f"Hello {answer.data.name}" if answer.action == "accept" else f"No name: {answer.action}"


@server.tool()
async def walk(steps: int, ctx: Context) -> str:  # pyright: ignore[reportInvalidTypeForm]
    """Walks, and tells each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return "arrived"


server.run(sys.argv[1])
