"""Turns with tools of MCP servers: over each transport in one conversation, with servers that fail, ask, take long."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from kelpie.mcp.connections.stdio_launcher import StdioLauncher
from tests.mcp.http_server import HttpServer
from tests.mcp.plain_sandbox import PROGRAM, PlainSandbox
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig, said

DEADLINE_S = 60.0
LIMITS = {"mcp_private": True, "mcp_read_s": 2.0, "mcp_call_s": 5.0, "mcp_answer_mb": 1.0}


class Rig:
    """A server, a client of it, the model's puppet, and an MCP server of each kind."""

    def __init__(self, kelpie: Kelpie, puppet: Puppet, client: httpx.AsyncClient, server: HttpServer) -> None:
        self.kelpie = kelpie
        self.puppet = puppet
        self.client = client
        self.server = server
        self.sandbox = PlainSandbox()
        dialer: Any = kelpie.runtime.mcp_pool._dial  # the sandbox of these tests has no walls
        object.__setattr__(dialer, "launcher", StdioLauncher(self.sandbox, None))  # pyright: ignore[reportArgumentType]

    async def register(self, name: str, config: dict[str, Any]) -> list[dict[str, Any]]:
        made = await self.client.post("/v1/mcp-servers/", json={"server_name": name, "config": config})
        assert made.status_code == 200, made.text
        return (await self.client.get(f"/v1/mcp-servers/{made.json()['id']}/tools")).json()

    async def stdio(self, name: str = "program", how: str = "ok") -> list[dict[str, Any]]:
        return await self.register(
            name, {"mcp_server_type": "stdio", "command": "python3", "args": ["-c", PROGRAM, how]}
        )

    async def http(self, name: str = "web", kind: str = "streamable_http", path: str = "/mcp") -> list[dict[str, Any]]:
        return await self.register(name, {"mcp_server_type": kind, "server_url": f"{self.server.url}{path}"})

    async def agent(self, *tools: dict[str, Any]) -> str:
        return (await make_agent(self.client, tool_ids=[tool["id"] for tool in tools]))["id"]

    async def send(self, agent: str, **body: Any) -> dict[str, Any]:
        answer = await self.client.post(f"/v1/agents/{agent}/messages", json=body or {"input": "go"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def returns(self, agent: str) -> list[tuple[str, str, str]]:
        rows = (await self.client.get(f"/v1/agents/{agent}/messages?limit=100&order=asc")).json()
        found = [each for row in rows if row["message_type"] == "tool_return_message" for each in row["tool_returns"]]
        return [(each["tool_call_id"], each["status"], each["tool_return"]) for each in found]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with (
        HttpServer("2026-07-28").serving() as server,
        open_rig(tmp_path, **LIMITS) as (kelpie, puppet),
        client_of(kelpie) as client,
    ):
        yield Rig(kelpie, puppet, client, server)


async def until(holds: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        while not (found := await holds()):  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.02)
    return found


def named(tools: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(tool for tool in tools if tool["name"] == name or tool["name"].endswith(f"__{name}"))


async def test_tools_of_all_transports_work_in_one_conversation(rig: Rig) -> None:
    program, web, old = await rig.stdio(), await rig.http(), await rig.http("old", "sse", "/sse")
    tools = [named(program, "add"), named(web, "add"), named(old, "add")]
    assert [tool["name"] for tool in tools] == ["add", "web__add", "old__add"], "names are unique"
    assert tools[0]["tool_type"] == "external_mcp" and tools[0]["tags"] == ["mcp:program"]
    agent = await rig.agent(*tools)
    rig.puppet.script += [
        called("add", '{"a": 20, "b": 22}', "c1"),
        called("web__add", "{}", "c2"),
        called("old__add", "{}", "c3"),
        said("done"),
    ]
    told = await rig.send(agent)
    assert told["stop_reason"]["stop_reason"] == "end_turn"
    assert await rig.returns(agent) == [("c1", "success", "42"), ("c2", "success", "add"), ("c3", "success", "add")]
    records = (await rig.client.get("/v1/kelpie/tools/usage")).json()
    assert {each["tool"]: each["calls"] for each in records} == {"add": 1, "web__add": 1, "old__add": 1}
    assert {each["kind"] for each in records} == {"mcp"}


@pytest.mark.parametrize(
    ("kind", "tool", "said_by_kelpie"),
    [
        ("stdio", "crash", "its program has ended: out of luck"),
        ("stdio", "hang", "did not answer within 2 s"),
        ("stdio", "garbage", "writes text instead of messages"),
        ("stdio", "big", "larger than the limit of 1 MB"),
        ("http", "status500", "answered with status 500"),
        ("http", "json500", 'answered with status 500: {"detail": "internal error"}'),
        ("http", "silent", "within 2 s"),
        ("http", "big", "larger than the limit of 1 MB"),
        ("http", "garbage", "it is not JSON"),
    ],
)
async def test_a_server_that_fails_fails_the_call_and_not_the_turn(
    rig: Rig, kind: str, tool: str, said_by_kelpie: str
) -> None:
    tools = await (rig.stdio("it") if kind == "stdio" else rig.http("it"))
    agent = await rig.agent(named(tools, tool), named(tools, "add"))
    rig.puppet.script += [called(tool, "{}", "c1"), called("add", '{"a": 1, "b": 1}', "c2"), said("done")]
    if kind == "http":
        rig.puppet.script[1] = called("add", "{}", "c2")
    told = await rig.send(agent)
    assert told["stop_reason"]["stop_reason"] == "end_turn" and told["messages"][-1]["content"] == "done"
    (_, status, words), (_, after, _) = await rig.returns(agent)
    assert status == "error" and "MCP server 'it'" in words and said_by_kelpie in words
    assert after == "success", "the next call works"


@pytest.mark.parametrize(
    ("how", "connect_s", "said_by_kelpie"),
    [("crash", 30, "cannot find my configuration"), ("slow", 0.5, "did not connect within 0.5 s")],
)
async def test_a_program_that_no_longer_starts_fails_the_call_and_not_the_turn(
    rig: Rig, how: str, connect_s: float, said_by_kelpie: str
) -> None:
    tools = await rig.stdio("it")
    agent = await rig.agent(named(tools, "add"))
    (server,) = (await rig.client.get("/v1/mcp-servers/")).json()
    config: dict[str, Any] = {"mcp_server_type": "stdio", "command": "python3", "args": ["-c", PROGRAM, how]}
    config["kelpie_options"] = {"connect_seconds": connect_s}
    changed = await rig.client.patch(f"/v1/mcp-servers/{server['id']}", json={"config": config})
    assert changed.status_code == 200, changed.text
    rig.puppet.script += [called("add", '{"a": 1, "b": 1}', "c1"), said("done")]
    told = await rig.send(agent)
    assert told["stop_reason"]["stop_reason"] == "end_turn" and told["messages"][-1]["content"] == "done"
    ((_, status, words),) = await rig.returns(agent)
    assert status == "error" and "MCP server 'it'" in words and said_by_kelpie in words


async def test_a_stream_that_keeps_breaking_fails_the_call_and_one_that_breaks_once_does_not(rig: Rig) -> None:
    tools = await rig.http("it")
    agent = await rig.agent(named(tools, "cut"))
    rig.puppet.script += [called("cut", "{}", "c1"), called("cut", "{}", "c2"), said("done")]
    rig.server.cuts = 4  # the call and its two repeats, and the next call once
    assert (await rig.send(agent))["messages"][-1]["content"] == "done"
    (_, status, words), (_, after, whole) = await rig.returns(agent)
    assert status == "error" and "its answer broke off" in words
    assert (after, whole) == ("success", "whole")


async def test_a_server_that_restarts_is_found_again(rig: Rig) -> None:
    async with HttpServer("2025-11-25").serving() as first:
        port = int(first.url.rpartition(":")[2])
        found = await rig.register("it", {"mcp_server_type": "streamable_http", "server_url": f"{first.url}/mcp"})
        agent = await rig.agent(named(found, "add"))
        rig.puppet.script += [called("add", "{}", "c1"), said("done")]
        await rig.send(agent)
    rig.puppet.script += [called("add", "{}", "c2"), said("done")]
    await rig.send(agent)
    async with HttpServer("2026-07-28").serving(port):
        rig.puppet.script += [called("add", "{}", "c3"), said("done")]
        await rig.send(agent)
    returned = await rig.returns(agent)
    assert [status for _, status, _ in returned] == ["success", "error", "success"]
    assert "cannot be reached" in returned[1][2]


async def test_a_server_that_cannot_start_delays_nothing_but_its_own_tools(rig: Rig) -> None:
    assert await rig.stdio("broken", "crash") == []
    tools = await rig.stdio("fine")
    assert named(tools, "add")
    status = {each["server_name"]: each for each in (await rig.client.get("/v1/kelpie/mcp-servers")).json()}
    assert "cannot find my configuration" in status["broken"]["last_error"]
    assert status["fine"]["connected"] and status["fine"]["protocol_version"] == "2025-11-25"
    refreshed = await rig.client.patch(f"/v1/mcp-servers/{status['broken']['id']}/refresh")
    assert refreshed.status_code == 502


async def test_tools_obey_permissions(rig: Rig) -> None:
    tools = await rig.stdio()
    agent = await make_agent(
        rig.client, tool_ids=[named(tools, "add")["id"]], kelpie_permissions={"deny": ["kind:mcp"]}
    )
    rig.puppet.script += [called("add", '{"a": 1, "b": 1}', "c1"), said("done")]
    await rig.send(agent["id"])
    ((_, status, _),) = await rig.returns(agent["id"])
    assert status == "error" and "add" not in [tool.name for tool in rig.puppet.asked[0].tools]


@pytest.mark.parametrize("kind", ["stdio", "stateless", "http"])
async def test_a_question_waits_for_a_person_and_the_call_goes_on(rig: Rig, kind: str) -> None:
    tools = await (rig.http("it") if kind == "http" else rig.stdio("it", "ok" if kind == "stdio" else kind))
    agent = await rig.agent(named(tools, "ask"))
    rig.puppet.script += [called("ask", "{}", "c1"), said("done")]
    told = await rig.send(agent)
    assert told["stop_reason"]["stop_reason"] == "requires_approval"
    request = told["messages"][-1]
    assert request["message_type"] == "approval_request_message"
    (question,) = request["tool_call"]["kelpie_questions"]
    assert question["message"] == "Your name?" and question["server_name"] == "it"
    assert "Your name?" in told["messages"][-2]["content"]
    waiting = (await rig.client.get("/v1/kelpie/approvals")).json()
    assert waiting[0]["tool_calls"][0]["kelpie_questions"] == [question]
    ruling = {"type": "approval", "tool_call_id": request["tool_call"]["tool_call_id"], "approve": True}
    lacking = await rig.client.post(f"/v1/agents/{agent}/messages", json=answer_of(ruling))
    assert lacking.status_code == 400 and "name" in lacking.json()["detail"]
    after = await rig.send(agent, **answer_of({**ruling, "arguments": {"name": "Ada"}}))
    assert after["messages"][-1]["content"] == "done"
    assert [words for _, _, words in await rig.returns(agent)][-1] == "Hello Ada"
    shown = json.dumps((await rig.client.get(f"/v1/agents/{agent}/messages?limit=100")).json())
    assert "kept" not in shown, "the server's own state is nobody's business"


async def test_a_question_that_is_denied_ends_the_call(rig: Rig) -> None:
    tools = await rig.stdio()
    agent = await rig.agent(named(tools, "ask"))
    rig.puppet.script += [called("ask", "{}", "c1"), said("fine")]
    request = (await rig.send(agent))["messages"][-1]
    ruling = {"type": "approval", "tool_call_id": request["tool_call"]["tool_call_id"], "approve": False}
    assert (await rig.send(agent, **answer_of(ruling)))["messages"][-1]["content"] == "fine"
    assert "denied" in (await rig.returns(agent))[-1][2]


async def test_a_question_survives_a_restart(tmp_path: Path) -> None:
    async with HttpServer("2026-07-28").serving() as server:
        async with open_rig(tmp_path, **LIMITS) as (kelpie, puppet), client_of(kelpie) as client:
            rig = Rig(kelpie, puppet, client, server)
            agent = await rig.agent(named(await rig.http(), "ask"))
            puppet.script += [called("ask", "{}", "c1")]
            request = (await rig.send(agent))["messages"][-1]
        async with open_rig(tmp_path, **LIMITS) as (kelpie, puppet), client_of(kelpie) as client:
            rig = Rig(kelpie, puppet, client, server)
            ruling = {"type": "approval", "tool_call_id": request["tool_call"]["tool_call_id"], "approve": True}
            await rig.send(agent, **answer_of({**ruling, "arguments": {"name": "Ada"}}))
            assert (await rig.returns(agent))[-1][2] == "Hello Ada"


async def test_a_task_comes_back_as_a_message_and_blocks_nothing(rig: Rig) -> None:
    agent = await rig.agent(named(await rig.http(), "task"))
    rig.puppet.script += [called("task", "{}", "c1"), said("it runs"), said("thank you")]
    told = await rig.send(agent)
    assert told["messages"][-1]["content"] == "it runs"
    assert "runs as a task" in (await rig.returns(agent))[0][2]

    async def answered() -> list[str]:
        rows = (await rig.client.get(f"/v1/agents/{agent}/messages?limit=100&order=asc")).json()
        told = [row["content"] for row in rows if row["message_type"] in ("user_message", "assistant_message")]
        return told if told[-1] == "thank you" else []

    history = await until(answered)
    assert "task done" in history[-2]
    (task,) = (await rig.client.get("/v1/kelpie/mcp-tasks")).json()
    assert task["status"] == "completed" and task["run_id"] is not None
    refused = await rig.client.post(f"/v1/kelpie/mcp-tasks/{task['id']}/cancel")
    assert refused.status_code == 409


async def test_a_task_that_asks_goes_on_when_a_person_has_answered(rig: Rig) -> None:
    rig.server.task_asks = True
    agent = await rig.agent(named(await rig.http(), "task"))
    rig.puppet.script += [called("task", "{}", "c1"), said("it runs"), said("somebody must answer"), said("thank you")]
    await rig.send(agent)

    async def asks() -> Any:
        (task,) = (await rig.client.get("/v1/kelpie/mcp-tasks")).json()
        return task if task["questions"] else None

    task = await until(asks)
    assert [(each["key"], each["message"]) for each in task["questions"]] == [("who", "Your name?")]
    path = f"/v1/kelpie/mcp-tasks/{task['id']}"
    for wrong in ({"who": {}}, {"who": "Ada"}, {"who": {"name": 5}}, {"who": {"name": "Ada"}, "when": {}}):
        refused = await rig.client.post(f"{path}/answers", json={"answers": wrong})
        assert refused.status_code == 400 and "answers" in refused.text, refused.text
    assert rig.server.answered == {}
    done = await rig.client.post(f"{path}/answers", json={"answers": {"who": {"name": "Ada"}}})
    assert done.status_code == 200 and done.json()["questions"] == []
    assert rig.server.answered == {"who": {"action": "accept", "content": {"name": "Ada"}}}

    async def ended() -> bool:
        return (await rig.client.get(path)).json()["status"] == "completed"

    await until(ended)
    again = await rig.client.post(f"{path}/answers", json={"answers": {}})
    assert again.status_code == 409 and "asks nothing" in again.text


async def test_a_task_survives_a_restart_and_can_be_cancelled(tmp_path: Path) -> None:
    async with HttpServer("2026-07-28").serving() as server:
        server.polls_left = 1_000_000
        async with open_rig(tmp_path, **LIMITS) as (kelpie, puppet), client_of(kelpie) as client:
            rig = Rig(kelpie, puppet, client, server)
            tools = await rig.http()
            agent = await rig.agent(named(tools, "task"))
            puppet.script += [called("task", "{}", "c1"), said("a"), called("task", "{}", "c2"), said("b")]
            await rig.send(agent)
            await rig.send(agent)
            first = (await client.get("/v1/kelpie/mcp-tasks")).json()[-1]
            cancelled = await client.post(f"/v1/kelpie/mcp-tasks/{first['id']}/cancel")
            assert cancelled.json()["status"] == "cancelled" and server.cancelled
        server.polls_left = 1
        async with open_rig(tmp_path, **LIMITS) as (kelpie, puppet), client_of(kelpie) as client:

            async def ended() -> list[str]:
                found = [task["status"] for task in (await client.get("/v1/kelpie/mcp-tasks")).json()]
                return found if "working" not in found else []

            assert await until(ended) == ["completed", "cancelled"]


async def test_progress_is_told_in_the_stream(rig: Rig) -> None:
    agent = await rig.agent(named(await rig.stdio(), "steps"))
    rig.puppet.script += [called("steps", "{}", "c1"), said("done")]
    body = {"input": "go", "streaming": True}
    async with rig.client.stream("POST", f"/v1/agents/{agent}/messages/stream", json=body) as answer:
        frames = [json.loads(line[6:]) async for line in answer.aiter_lines() if line.startswith("data: {")]
    told = [frame["kelpie_progress"] for frame in frames if frame.get("kelpie_progress")]
    assert [(each["tool_call_id"], each["progress"], each["total"], each["message"]) for each in told] == [
        ("c1", 1.0, 2.0, "step 1"),
        ("c1", 2.0, 2.0, "step 2"),
    ]


async def test_a_server_that_changes_its_tools_is_read_again(rig: Rig) -> None:
    tools = await rig.stdio()
    agent = await rig.agent(named(tools, "grow"))
    rig.puppet.script += [called("grow", "{}", "c1"), said("done")]
    await rig.send(agent)
    (server,) = (await rig.client.get("/v1/mcp-servers/")).json()

    async def grown() -> bool:
        found = (await rig.client.get(f"/v1/mcp-servers/{server['id']}/tools")).json()
        return "grown" in [tool["name"] for tool in found]

    await until(grown)


async def test_a_refresh_changes_adds_and_deletes(rig: Rig) -> None:
    tools = await rig.http()
    agent = await rig.agent(named(tools, "add"), named(tools, "fail"))
    rig.server.names = ["add", "new one"]
    (server,) = (await rig.client.get("/v1/mcp-servers/")).json()
    changed = (await rig.client.patch(f"/v1/mcp-servers/{server['id']}/refresh")).json()
    assert changed["added"] == ["new_one"] and "fail" in changed["deleted"] and changed["updated"] == []
    left = (await rig.client.get(f"/v1/agents/{agent}/tools")).json()
    assert [tool["name"] for tool in left if tool["tool_type"] == "external_mcp"] == ["add"]
    assert (await rig.client.delete(f"/v1/mcp-servers/{server['id']}")).status_code == 204
    left = (await rig.client.get(f"/v1/agents/{agent}/tools")).json()
    assert [tool for tool in left if tool["tool_type"] == "external_mcp"] == []


def answer_of(ruling: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"type": "approval", "approvals": [ruling]}]}
