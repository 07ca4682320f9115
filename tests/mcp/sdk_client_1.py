"""What users of the Python SDK 1.x do with Kelpie, as a program: `sdk_client_1.py AGENT URL KEY`, or a command.

It runs with that version on its path, so it imports it by name only. What is not as it should be is raised.
"""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any

mcp: Any = import_module("mcp")
http: Any = import_module("mcp.client.streamable_http")
stdio: Any = import_module("mcp.client.stdio")


async def main(agent: str, *way: str) -> None:
    async with AsyncExitStack() as stack:
        if way[0].startswith("http"):
            headers = {"authorization": f"Bearer {way[1]}"}
            streams = await stack.enter_async_context(http.streamablehttp_client(way[0], headers=headers))
        else:
            command = mcp.StdioServerParameters(command=way[0], args=list(way[1:]), env=dict(os.environ))
            streams = await stack.enter_async_context(stdio.stdio_client(command))
        session = await stack.enter_async_context(mcp.ClientSession(streams[0], streams[1]))
        told = await session.initialize()
        assert told.serverInfo.name == "kelpie" and told.protocolVersion == "2025-11-25"
        assert "send_message" in [tool.name for tool in (await session.list_tools()).tools]
        steps: list[str] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            steps.append(message or "")

        said = await session.call_tool("send_message", {"agent": agent, "message": "hello"}, progress_callback=progress)
        assert not said.isError and "demo model" in said.structuredContent["reply"], said
        assert steps[-1] == "The agent has answered.", steps
        resources = (await session.list_resources()).resources
        uri = next(each.uri for each in resources if each.name == agent)
        assert agent in (await session.read_resource(uri)).contents[0].text
        prompt = await session.get_prompt("agent_memory", {"agent": agent})
        assert prompt.messages[1].content.type == "resource"
        reference = mcp.types.PromptReference(type="ref/prompt", name="ask_agent")
        found = await session.complete(reference, {"name": "agent", "value": agent[:2]})
        assert agent in found.completion.values
        wrong = await session.call_tool("send_message", {"agent": "Nobody", "message": "hi"})
        assert wrong.isError
    print("done")


asyncio.run(main(*sys.argv[1:]))
