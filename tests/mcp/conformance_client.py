"""A client for MCP's conformance kit: Kelpie itself, with a person who agrees to everything.

Kelpie registers the kit's server, logs in if it must, reads its tools and calls each. As a command:

    conformance client --command "python tests/mcp/conformance_client.py" --scenario initialize
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from kelpie.agent.tool_calls.person_answers import with_answers
from kelpie.app import Kelpie
from kelpie.core.conversations.questions import Question, ToolQuestions
from kelpie.core.errors import McpError, McpFault, ToolError
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.mcp_servers import McpConfig, McpServer, McpServerType
from kelpie.local import open_kelpie
from kelpie.mcp.client.answers import CallResult, InputGiven, InputNeeded, elicited

EXAMPLES = {"number": 1, "integer": 1, "boolean": True}
BASE = "https://kelpie.example.com"  # where a person would be sent back to


async def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        env = {"KELPIE_DATA_DIR": directory, "KELPIE_MCP_PRIVATE": "true", "KELPIE_MCP_CONNECT_SECONDS": "10"}
        kelpie = open_kelpie(Settings.from_environment(env))
        await kelpie.start()
        try:
            await play(kelpie, url, json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"))
        finally:
            await kelpie.stop(0)


async def play(kelpie: Kelpie, url: str, context: Mapping[str, Any], name: str = "conformance") -> None:
    """Visits a server of the kit; `context` is what its scenario says beside."""
    api, runner = kelpie.api(), kelpie.runtime.mcp_tool_runner
    config = McpConfig(McpServerType.streamable_http, server_url=url)
    server, _ = await api.mcp_servers.register(name, config)
    if "client_id" in context:
        await api.mcp_logins.set_client(server, context["client_id"], context.get("client_secret"))
    try:
        for _ in range(4):
            if await attempt(api, runner, server, context):
                return
            await log_in(api, server)
    finally:
        await api.mcp_servers.delete(server.id)  # a server of the kit ends when nobody is connected to it


async def attempt(api: Any, runner: Any, server: McpServer, context: Mapping[str, Any]) -> bool:
    """Reads the tools and calls each; False if the server wants a login first."""
    try:
        await api.mcp_servers.refresh(server)
        found = {each.remote_name: each for each in await api.mcp_servers.tools(server.id)}
        for name, arguments in wanted_calls(found, context):
            print(name, await call(runner, found[name].tool, arguments))
    except McpError as error:
        if error.kind is McpFault.unauthorized:
            return False
        raise
    except ToolError as error:
        if isinstance(error.__cause__, McpError) and error.__cause__.kind is McpFault.unauthorized:
            return False
        raise
    return True


def wanted_calls(found: dict[str, Any], context: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The calls that the scenario asks for; else one of each tool, whose arguments are examples or another's schema."""
    if "toolCalls" in context:
        return [(each["name"], each["arguments"]) for each in context["toolCalls"]]
    calls: list[tuple[str, dict[str, Any]]] = []
    for name, each in found.items():
        properties = each.tool.json_schema["parameters"].get("properties", {})
        arguments: dict[str, Any] = {key: EXAMPLES.get(about.get("type"), "a") for key, about in properties.items()}
        others = [other.remote["inputSchema"] for other_name, other in found.items() if other_name != name]
        if properties.get("schema", {}).get("type") == "object" and others:
            arguments["schema"] = others[0]
        calls.append((name, arguments))
    return calls


async def call(runner: Any, tool: Any, arguments: dict[str, Any]) -> Any:
    given: InputGiven = AgreeingPerson()
    for _ in range(5):
        server, answer = await runner.answer(tool, arguments, given=given)
        if isinstance(answer, InputNeeded):
            asked = with_answers(ToolQuestions(server.server_name, answer.questions, {}, answer.state), None)
            given = InputGiven(asked.questions, asked.answers, asked.state)
            continue
        assert isinstance(answer, CallResult), answer
        return answer.content
    raise AssertionError("it asks for ever")


class AgreeingPerson(InputGiven):
    """A person who has answered every question before it is asked: the kit looks at the first answer only."""

    def to(self, question: Question) -> dict[str, Any]:
        asked = with_answers(ToolQuestions("", {"it": question}), None)
        return elicited(question, asked.answers["it"])


async def log_in(api: Any, server: McpServer) -> None:
    """A person who opens the address and agrees."""
    steps = api.mcp_logins.connect(server, BASE)
    async for step in steps:
        print(step.event, step.facts)
        if step.event == "authorization_url":
            await agree(api, step.facts["url"])


async def agree(api: Any, url: str) -> None:
    async with httpx.AsyncClient(follow_redirects=False) as browser:
        answer = await browser.get(url)
        back = {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}
    await api.mcp_logins.finish(back.get("state", ""), back.get("code"), back.get("iss"), back.get("error"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
