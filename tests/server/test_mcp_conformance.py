"""The conformance kit of MCP and the MCP Inspector against /mcp.

The kit calls tools and reads resources of its own names, so these stand in for Kelpie's here; everything around them is
the product's. What Kelpie does not offer (logging, sampling, elicitation, subscriptions; decision 27 says why) is
listed below and must be all that fails.
"""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.core.errors import NotFound
from kelpie.server.mcp import agent_resources, methods, prompts
from kelpie.server.mcp.prompts import PromptDefinition
from kelpie.server.mcp.results import tool_error
from kelpie.server.mcp.tool_definitions import ToolDefinition
from tests.mcp.installed import CONFORMANCE, INSPECTOR, NODE, require
from tests.server.rig import open_rig
from tests.server.test_serving import serving

DEADLINE_S = 240.0
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
TEXT = {"type": "text", "text": "This is a simple text response for testing."}
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"}
EMBEDDED = {"type": "resource", "resource": {"uri": "test://x", "mimeType": "text/plain", "text": "embedded"}}
CONTENTS = {
    "test_simple_text": [TEXT],
    "test_image_content": [IMAGE],
    "test_audio_content": [AUDIO],
    "test_embedded_resource": [EMBEDDED],
    "test_multiple_content_types": [TEXT, IMAGE, EMBEDDED],
}
NOT_OFFERED = {
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
    "logging-set-level",
    "resources-subscribe",
    "resources-unsubscribe",
    "tools-call-elicitation",
    "tools-call-sampling",
    "tools-call-with-logging",
}


@pytest.fixture(autouse=True)
def kits() -> None:
    require(CONFORMANCE, INSPECTOR)


async def node(program: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        NODE, program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(DEADLINE_S):
        out, _ = await process.communicate()
    return out.decode()


async def call(peer: Any, tool: ToolDefinition, params: Any) -> AsyncGenerator[str | dict[str, Any], None]:
    if tool.name == "test_tool_with_progress":
        for word in ("begun", "half", "done"):
            yield word
    if tool.name == "test_error_handling":
        yield tool_error("This tool intentionally returns an error for testing")
        return
    yield {"content": CONTENTS.get(tool.name, [TEXT]), "isError": False}


PROMPTS = (
    PromptDefinition("test_simple_prompt", "", "A prompt", {}),
    PromptDefinition("test_prompt_with_arguments", "", "A prompt", {"arg1": "One", "arg2": "Two"}),
    PromptDefinition("test_prompt_with_embedded_resource", "", "A prompt", {"resourceUri": "An address"}),
    PromptDefinition("test_prompt_with_image", "", "A prompt", {}),
)


async def prompted(peer: Any, prompt: PromptDefinition, arguments: Any) -> list[dict[str, Any]]:
    text = {"type": "text", "text": f"Prompt with {', '.join(arguments.values())}" if arguments else "A simple prompt."}
    embedded = {"type": "resource", "resource": {"uri": arguments.get("resourceUri"), "text": "x"}}
    contents = {"test_prompt_with_image": IMAGE, "test_prompt_with_embedded_resource": embedded}
    return [{"role": "user", "content": each} for each in (contents.get(prompt.name, text), text)]


async def listed(peer: Any, cursor: str | None) -> dict[str, Any]:
    return {"resources": [{"uri": "test://static-text", "name": "text"}, {"uri": "test://static-binary", "name": "x"}]}


async def read(peer: Any, uri: str) -> dict[str, Any]:
    if uri == "test://static-binary":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PIXEL}]}
    if uri == "test://static-text":
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "text"}]}
    if uri == "test://template/123/data":
        text = json.dumps({"id": "123", "templateTest": True, "data": "Data for ID: 123"})
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}
    raise NotFound("Resource", uri)


async def test_the_conformance_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (*CONTENTS, "test_error_handling", "test_tool_with_progress")
    tools = tuple(ToolDefinition(name, name, name, {}, long="progress" in name) for name in names)
    monkeypatch.setattr(methods, "DEFINITIONS", tools)
    monkeypatch.setattr(methods, "call_tool", call)
    monkeypatch.setattr(prompts, "DEFINITIONS", PROMPTS)
    monkeypatch.setattr(prompts, "messages", prompted)
    monkeypatch.setattr(agent_resources, "listed", listed)
    monkeypatch.setattr(agent_resources, "read", read)
    async with open_rig(tmp_path, lifecycle=False) as (kelpie, _), serving(kelpie, DEADLINE_S) as (url, _):
        said = await node(CONFORMANCE, "server", "--url", f"{url}/mcp", "-o", str(tmp_path / "kit"))
    lines = [line.split(":")[0] for line in said.partition("=== SUMMARY ===")[2].splitlines() if line[:1] in "✓✗"]
    failed = {line[2:] for line in lines if line.startswith("✗")}
    passed = {line[2:] for line in lines if line.startswith("✓")}
    assert failed == NOT_OFFERED, said[-3000:]
    assert {"server-initialize", "ping", "tools-call-with-progress", "dns-rebinding-protection"} <= passed
    assert len(passed) == 22, sorted(passed)


async def test_the_inspector(tmp_path: Path) -> None:
    async with open_rig(tmp_path, lifecycle=False) as (kelpie, _), serving(kelpie, DEADLINE_S) as (url, _):
        async with httpx.AsyncClient(base_url=url) as http:
            await http.post("/v1/agents/", json={"name": "Ann"})

        async def inspected(*arguments: str) -> Any:
            return json.loads(await node(INSPECTOR, "--cli", f"{url}/mcp", "--transport", "http", *arguments))

        tools = await inspected("--method", "tools/list")
        assert "send_message" in [tool["name"] for tool in tools["tools"]]
        told = await inspected(
            "--method",
            "tools/call",
            "--tool-name",
            "send_message",
            "--tool-arg",
            "agent=Ann",
            "--tool-arg",
            "message=hi",
        )
        assert told["structuredContent"]["reply"] == "ok"
        [resource] = (await inspected("--method", "resources/list"))["resources"]
        assert resource["name"] == "Ann"
