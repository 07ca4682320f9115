"""Kelpie as an MCP server: both generations over raw JSON-RPC, the reach of keys, tasks, and broken messages."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from kelpie.core.errors import ModelError, ModelFault
from kelpie.server.mcp import methods
from tests.server.neighbours import move_in
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig, said
from tests.server.test_auth import bearer, make_key

BOTH = {"accept": "application/json, text/event-stream"}
META = "io.modelcontextprotocol/"
READING = {"list_agents", "read_memory_blocks", "search_memory"}
WRITING = {"send_message", "edit_memory_block", "insert_memory"}


class Speaker:
    """An MCP client in one of the generations."""

    def __init__(self, client: httpx.AsyncClient, version: str, *, tasks: bool = False, **headers: str) -> None:
        self.client, self.version, self.stateless = client, version, version == "2026-07-28"
        self.extensions = {META + "tasks": {}} if tasks else {}
        self.headers = {**BOTH, "mcp-protocol-version": version, **headers}
        self.progress: list[dict[str, Any]] = []
        self._number = 0

    async def raw(self, method: str, params: dict[str, Any] | None = None) -> httpx.Response:
        params, headers = dict(params or {}), dict(self.headers)
        if self.stateless:
            meta = {
                META + "protocolVersion": self.version,
                META + "clientCapabilities": {"extensions": self.extensions},
            }
            params["_meta"] = {**meta, **params.get("_meta", {})}
            headers["mcp-method"] = method
            if name := params.get("name") or params.get("uri") or params.get("taskId"):
                headers["mcp-name"] = str(name)
        self._number += 1
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        async with asyncio.timeout(60):
            return await self.client.post("/mcp", json=body, headers=headers)

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result; an error is a failure of the test."""
        answer = self.read(await self.raw(method, params))
        assert "result" in answer, answer
        result = answer["result"]
        assert ("resultType" in result) == self.stateless
        return result

    async def error(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.read(await self.raw(method, params))["error"]

    def read(self, response: httpx.Response) -> dict[str, Any]:
        if response.headers["content-type"].startswith("text/event-stream"):
            frames = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
            self.progress += frames[:-1]
            answer = frames[-1]
        else:
            answer = response.json()
        assert answer["jsonrpc"] == "2.0" and answer["id"] == self._number
        return answer

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments})

    async def done(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured result of a call that succeeds."""
        result = await self.call(tool, **arguments)
        assert not result["isError"], result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    async def failed(self, tool: str, **arguments: Any) -> str:
        result = await self.call(tool, **arguments)
        assert result["isError"], result
        return result["content"][0]["text"]


VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")


@pytest.fixture(params=("2025-06-18", "2025-11-25", "2026-07-28"))
def speaker(client: httpx.AsyncClient, request: pytest.FixtureRequest) -> Speaker:
    return Speaker(client, request.param)


@pytest.mark.parametrize("version", VERSIONS[:-1])
async def test_a_connection_begins_with_initialize(client: httpx.AsyncClient, version: str) -> None:
    old = Speaker(client, version)
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    response = await client.post(
        "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, headers=BOTH
    )
    told = response.json()["result"]
    assert told["protocolVersion"] == version and told["serverInfo"]["name"] == "kelpie"
    assert "mcp-session-id" not in response.headers
    assert ("tasks" in told["capabilities"]) == (version == "2025-11-25")
    done = await client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=BOTH)
    assert (done.status_code, done.content) == (202, b"")
    assert await old.ask("ping") == {}
    newer = await old.ask("initialize", {**hello, "protocolVersion": "2099-01-01"})
    assert newer["protocolVersion"] == "2025-11-25"


async def test_a_stateless_client_discovers(client: httpx.AsyncClient) -> None:
    new = Speaker(client, "2026-07-28")
    told = await new.ask("server/discover")
    assert told["supportedVersions"] == list(VERSIONS) and META + "tasks" in told["capabilities"]["extensions"]
    assert told["_meta"][META + "serverInfo"]["name"] == "kelpie" and told["ttlMs"] == 0
    assert (await new.error("initialize"))["code"] == -32601


async def test_tools_work_on_agents_and_memory(client: httpx.AsyncClient, puppet: Puppet, speaker: Speaker) -> None:
    agent = await make_agent(client, name="Ann", memory_blocks=[{"label": "human", "value": "likes tea"}])
    listed = await speaker.ask("tools/list")
    assert {tool["name"] for tool in listed["tools"]} == READING | WRITING
    assert listed == await speaker.ask("tools/list")
    found = await speaker.done("list_agents", query="An")
    assert [(one["id"], one["name"]) for one in found["agents"]] == [(agent["id"], "Ann")]

    puppet.script.append(said("Hello!"))
    reply = await speaker.done("send_message", agent="Ann", message="hi")
    assert reply["reply"] == "Hello!" and reply["agent_id"] == agent["id"] and reply["stop_reason"] == "end_turn"

    blocks = await speaker.done("read_memory_blocks", agent=agent["id"])
    assert [(one["label"], one["value"]) for one in blocks["blocks"]] == [("human", "likes tea")]
    for change, value in (
        ({"old_text": "tea", "new_text": "coffee"}, "likes coffee"),
        ({"append": "and cake"}, "likes coffee\nand cake"),
        ({"value": "new"}, "new"),
    ):
        edited = await speaker.done("edit_memory_block", agent="Ann", label="human", **change)
        assert edited["block"]["value"] == value
        block = await client.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human")
        assert block.json()["value"] == value
    assert "does not occur" in await speaker.failed(
        "edit_memory_block", agent="Ann", label="human", old_text="x", new_text="y"
    )
    assert "give either value" in await speaker.failed("edit_memory_block", agent="Ann", label="human")

    stored = await speaker.done("insert_memory", agent="Ann", text="The cat is called Minka.", tags=["pets"])
    results = await speaker.done("search_memory", agent="Ann", query="Minka")
    assert [(one["id"], one["tags"]) for one in results["archive"]] == [(stored["id"], ["pets"])]
    assert results["archive"][0]["matched"] == ["words"]
    messages = (await speaker.done("search_memory", agent="Ann", query="Hello", where="messages"))["messages"]
    assert [one["text"] for one in messages] == ["Hello!"]
    assert messages[0]["matched"] == ["words"]


async def test_agents_are_resources(client: httpx.AsyncClient, puppet: Puppet, speaker: Speaker) -> None:
    agent = await make_agent(client, name="Ann", memory_blocks=[{"label": "a/b", "value": "likes tea"}])
    await speaker.done("send_message", agent="Ann", message="hi")
    [listed] = (await speaker.ask("resources/list"))["resources"]
    assert listed["uri"] == f"kelpie://agents/{agent['id']}" and listed["name"] == "Ann"
    templates = (await speaker.ask("resources/templates/list"))["resourceTemplates"]
    assert "kelpie://agents/{agent_id}/blocks/{label}" in [one["uriTemplate"] for one in templates]

    async def text(uri: str) -> str:
        [content] = (await speaker.ask("resources/read", {"uri": uri}))["contents"]
        assert content["uri"] == uri
        return content["text"]

    shown = json.loads(await text(listed["uri"]))
    assert shown["name"] == "Ann" and shown["blocks"][0]["value"] == "likes tea"
    assert await text(f"{listed['uri']}/blocks/a%2Fb") == "likes tea"
    assert [one["text"] for one in json.loads(await text(f"{listed['uri']}/messages"))] == ["hi", "ok"]
    code = -32602 if speaker.stateless else -32002
    nobody = "kelpie://agents/agent-00000000-0000-4000-8000-00000000000f"
    for uri in (nobody, "kelpie://agents/x", "file:///etc/passwd", f"{listed['uri']}/secrets", f"{nobody}/messages"):
        assert (await speaker.error("resources/read", {"uri": uri}))["code"] == code


async def test_prompts_bring_agents_into_a_conversation(client: httpx.AsyncClient, speaker: Speaker) -> None:
    agent = await make_agent(client, name="Ann", memory_blocks=[{"label": "human", "value": "likes tea"}])
    listed = (await speaker.ask("prompts/list"))["prompts"]
    assert [each["name"] for each in listed] == ["agent_memory", "ask_agent"]
    memory = await speaker.ask("prompts/get", {"name": "agent_memory", "arguments": {"agent": "Ann"}})
    embedded = memory["messages"][1]["content"]["resource"]
    assert embedded["uri"] == f"kelpie://agents/{agent['id']}" and "likes tea" in embedded["text"]
    ask = {"name": "ask_agent", "arguments": {"agent": agent["id"], "message": "More tea?"}}
    [message] = (await speaker.ask("prompts/get", ask))["messages"]
    assert "'Ann'" in message["content"]["text"] and message["content"]["text"].endswith("More tea?")
    for wrong, why in (
        ({"name": "nothing"}, "Unknown prompt: nothing"),
        ({"name": "agent_memory"}, "arguments.agent"),
        ({"name": "agent_memory", "arguments": {"agent": "Nobody"}}, "no agent named 'Nobody'"),
    ):
        refused = await speaker.error("prompts/get", wrong)
        assert refused["code"] == -32602 and why in refused["message"], refused


async def test_agents_and_labels_are_completed(client: httpx.AsyncClient, speaker: Speaker) -> None:
    blocks = [{"label": "human", "value": "a"}, {"label": "hobby", "value": "b"}, {"label": "persona", "value": "c"}]
    ann = await make_agent(client, name="Ann", memory_blocks=blocks)
    await make_agent(client, name="Bob")

    async def completed(ref: dict[str, str], name: str, value: str, **context: str) -> list[str]:
        params = {"ref": ref, "argument": {"name": name, "value": value}, "context": {"arguments": context}}
        return (await speaker.ask("completion/complete", params))["completion"]["values"]

    prompt = {"type": "ref/prompt", "name": "ask_agent"}
    block = {"type": "ref/resource", "uri": "kelpie://agents/{agent_id}/blocks/{label}"}
    assert await completed(prompt, "agent", "An") == ["Ann"]
    assert await completed(prompt, "agent", ann["id"][:30]) == [ann["id"]]
    assert sorted(await completed(prompt, "agent", "")) == ["Ann", "Bob"]
    assert await completed(prompt, "message", "x") == [] == await completed(prompt, "other", "x")
    assert await completed(block, "agent_id", "An") == [ann["id"]]
    assert sorted(await completed(block, "label", "h", agent_id=ann["id"])) == ["hobby", "human"]
    assert await completed(block, "label", "h") == []
    unknown = {"ref": {"type": "ref/resource", "uri": "x"}, "argument": {"name": "a", "value": ""}}
    assert (await speaker.error("completion/complete", unknown))["code"] == -32602


async def test_pages_of_resources(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kelpie.server.mcp.agent_resources.LISTED", 2)
    made = {(await make_agent(client, name=f"a{n}"))["id"] for n in range(5)}
    speaker, cursor, seen = Speaker(client, "2026-07-28"), None, list[str]()
    while True:
        page = await speaker.ask("resources/list", {"cursor": cursor} if cursor else {})
        seen += [one["uri"].rpartition("/")[2] for one in page["resources"]]
        if (cursor := page.get("nextCursor")) is None:
            break
    assert len(seen) == 5 and set(seen) == made
    assert (await speaker.error("resources/list", {"cursor": "x"}))["code"] == -32602


async def test_progress_is_told_to_those_who_ask(client: httpx.AsyncClient, puppet: Puppet, speaker: Speaker) -> None:
    await make_agent(client, name="Ann", tools=["conversation_search"])
    puppet.script += [called("conversation_search", '{"query": "x"}'), said("Done.")]
    arguments = {"agent": "Ann", "message": "look"}
    params = {"name": "send_message", "arguments": arguments, "_meta": {"progressToken": "p1"}}
    assert (await speaker.ask("tools/call", params))["structuredContent"]["reply"] == "Done."
    told = [(one["method"], one["params"]["progressToken"], one["params"]["message"]) for one in speaker.progress]
    method = "notifications/progress"
    assert told == [
        (method, "p1", "The agent calls conversation_search."),
        (method, "p1", "The agent has answered."),
    ]


async def test_an_answer_comes_in_the_type_that_the_client_takes(client: httpx.AsyncClient, puppet: Puppet) -> None:
    await make_agent(client, name="Ann")
    for accept, kind in (("application/json", "application/json"), ("text/event-stream", "text/event-stream")):
        only = Speaker(client, "2025-06-18", accept=accept)
        answer = await only.raw("tools/call", {"name": "send_message", "arguments": {"agent": "Ann", "message": "hi"}})
        assert answer.headers["content-type"].startswith(kind)
        assert only.read(answer)["result"]["structuredContent"]["reply"] == "ok"
    assert (await Speaker(client, "2025-06-18", accept="image/png").raw("ping")).status_code == 406


async def test_a_repeated_message_is_heard_once(client: httpx.AsyncClient, puppet: Puppet, speaker: Speaker) -> None:
    agent = await make_agent(client, name="Ann")
    puppet.script += [said("One."), said("Two.")]
    say = {"agent": "Ann", "message": "hi", "message_id": "m-1"}
    first = await speaker.done("send_message", **say)
    assert await speaker.done("send_message", **say) == first and len(puppet.asked) == 1
    assert (await speaker.done("send_message", **{**say, "message_id": "m-2"}))["reply"] == "Two."
    rows = (await client.get(f"/v1/agents/{agent['id']}/messages")).json()
    assert sum(row["message_type"] == "user_message" for row in rows) == 2


async def test_conversations(client: httpx.AsyncClient, puppet: Puppet, speaker: Speaker) -> None:
    ann, ben = [await make_agent(client, name=name) for name in ("Ann", "Ben")]
    made = (await client.post(f"/v1/conversations/?agent_id={ann['id']}", json={})).json()["id"]
    say = {"message": "hi", "conversation_id": made}
    assert (await speaker.done("send_message", agent="Ann", **say))["reply"] == "ok"
    assert "another agent" in await speaker.failed("send_message", agent="Ben", **say)
    assert (await client.get(f"/v1/conversations/{made}/messages")).json()
    assert not [r for r in (await client.get(f"/v1/agents/{ben['id']}/messages")).json() if r.get("content") == "hi"]


async def test_what_goes_wrong_in_a_tool_is_its_result(
    client: httpx.AsyncClient, puppet: Puppet, speaker: Speaker
) -> None:
    agent = await make_agent(client, name="Ann")
    for name in ("Ben", "Ben"):
        await make_agent(client, name=name)
    nobody = "agent-00000000-0000-4000-8000-00000000000f"
    assert "no agent named 'Zoe'" in await speaker.failed("send_message", agent="Zoe", message="hi")
    assert "several agents" in await speaker.failed("send_message", agent="Ben", message="hi")
    assert "not found" in await speaker.failed("send_message", agent=nobody, message="hi")
    assert "message: is empty" in await speaker.failed("send_message", agent="Ann", message=" ")
    assert "message" in await speaker.failed("send_message", agent="Ann")
    assert "x" in await speaker.failed("send_message", agent="Ann", message="hi", x=1)
    assert "not found" in await speaker.failed("read_memory_blocks", agent="Ann", label="nothing")
    puppet.script.append(ModelError(ModelFault.authentication, "The key is wrong."))
    assert "The key is wrong." in await speaker.failed("send_message", agent="Ann", message="hi")
    await client.post(f"/v1/agents/{agent['id']}/stop")
    assert "is stopped" in await speaker.failed("send_message", agent="Ann", message="hi")
    for name in ("no_such_tool", None, 5):
        assert (await speaker.error("tools/call", {"name": name} if name else {}))["code"] == -32602


async def test_a_call_that_waits_for_approval_says_so(
    client: httpx.AsyncClient, puppet: Puppet, speaker: Speaker
) -> None:
    rule = {"type": "requires_approval", "tool_name": "conversation_search"}
    await make_agent(client, name="Ann", tools=["conversation_search"], tool_rules=[rule])
    puppet.script.append(called("conversation_search", '{"query": "x"}'))
    told = await speaker.done("send_message", agent="Ann", message="look")
    assert told["stop_reason"] == "requires_approval" and "approve or deny" in told["note"]
    assert "waiting for approval" in await speaker.failed("send_message", agent="Ann", message="again")


# --- tasks ------------------------------------------------------------------------------------------------------------


async def test_a_long_turn_is_a_task_that_the_client_asks_for(client: httpx.AsyncClient, puppet: Puppet) -> None:
    """2025-11-25: `task` in the call, then `tasks/get` and `tasks/result`."""
    await make_agent(client, name="Ann")
    speaker, go = Speaker(client, "2025-11-25"), asyncio.Event()
    tools = {tool["name"]: tool for tool in (await speaker.ask("tools/list"))["tools"]}
    assert tools["send_message"]["execution"] == {"taskSupport": "optional"} and "execution" not in tools["list_agents"]
    puppet.script += [go, said("At last.")]
    arguments = {"agent": "Ann", "message": "think"}
    params = {"name": "send_message", "arguments": arguments, "task": {"ttl": 60000}}
    task = (await speaker.ask("tools/call", params))["task"]
    assert task["status"] == "working" and task["pollInterval"] > 0
    named = {"taskId": task["taskId"]}
    assert (await speaker.ask("tasks/get", named))["status"] == "working"
    waiting = asyncio.create_task(speaker.raw("tasks/result", named))
    go.set()
    result = (await waiting).json()["result"]
    assert result["structuredContent"]["reply"] == "At last." and not result["isError"]
    assert result["_meta"][META + "related-task"] == named
    assert (await speaker.ask("tasks/get", named))["status"] == "completed"


async def test_a_long_turn_becomes_a_task_where_the_client_takes_tasks(
    client: httpx.AsyncClient, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2026-07-28: the server decides."""
    monkeypatch.setattr(methods, "TASK_AFTER_S", 0.05)
    await make_agent(client, name="Ann")
    speaker, go = Speaker(client, "2026-07-28", tasks=True), asyncio.Event()
    puppet.script += [go, said("At last.")]
    task = await speaker.call("send_message", agent="Ann", message="think")
    assert task["resultType"] == "task" and task["status"] == "working" and "content" not in task
    named = {"taskId": task["taskId"]}
    assert (await speaker.ask("tasks/get", named))["status"] == "working"
    go.set()
    async with asyncio.timeout(60):
        found = await speaker.ask("tasks/get", named)
        while found["status"] == "working":
            await asyncio.sleep(0.01)
            found = await speaker.ask("tasks/get", named)
    assert found["result"]["structuredContent"]["reply"] == "At last." and found["resultType"] == "complete"
    assert "ended already" in (await speaker.error("tasks/cancel", named))["message"]


async def test_a_task_can_be_cancelled(client: httpx.AsyncClient, puppet: Puppet) -> None:
    await make_agent(client, name="Ann")
    speaker = Speaker(client, "2025-11-25")
    puppet.script += [asyncio.Event()]
    params = {"name": "send_message", "arguments": {"agent": "Ann", "message": "think"}, "task": {}}
    named = {"taskId": (await speaker.ask("tools/call", params))["task"]["taskId"]}
    async with asyncio.timeout(60):
        await puppet.waiting.wait()
    assert (await speaker.ask("tasks/cancel", named))["status"] == "cancelled"
    result = await speaker.ask("tasks/result", named)
    assert result["isError"] and "cancelled" in result["content"][0]["text"]
    for wrong in ("x", "run-00000000-0000-4000-8000-00000000000f"):
        assert (await speaker.error("tasks/get", {"taskId": wrong}))["code"] == -32602


# --- keys, organizations, origins -------------------------------------------------------------------------------------


@pytest.fixture
async def protected(tmp_path: Path) -> AsyncIterator[tuple[Kelpie, httpx.AsyncClient]]:
    async with open_rig(tmp_path, password="open sesame") as (kelpie, _), client_of(kelpie) as client:
        client.headers["authorization"] = "Bearer open sesame"
        yield kelpie, client


async def test_keys_reach_what_they_may(protected: tuple[Kelpie, httpx.AsyncClient]) -> None:
    kelpie, client = protected
    ann, ben = [await make_agent(client, name=name) for name in ("Ann", "Ben")]
    read = bearer((await make_key(kelpie, scopes=["read"]))["key"])
    only_ann = bearer((await make_key(kelpie, scopes=["write"], agent_ids=[ann["id"]]))["key"])
    reader = Speaker(client, "2025-06-18", **read)
    assert {tool["name"] for tool in (await reader.ask("tools/list"))["tools"]} == READING
    for tool in WRITING:
        assert "Unknown tool" in (await reader.error("tools/call", {"name": tool}))["message"]
    assert len((await reader.done("list_agents"))["agents"]) == 2
    assert [each["name"] for each in (await reader.ask("prompts/list"))["prompts"]] == ["agent_memory"]
    assert "Unknown prompt" in (await reader.error("prompts/get", {"name": "ask_agent"}))["message"]
    limited = Speaker(client, "2026-07-28", **only_ann)
    assert [one["name"] for one in (await limited.done("list_agents"))["agents"]] == ["Ann"]
    assert [one["name"] for one in (await limited.ask("resources/list"))["resources"]] == ["Ann"]
    typed = {"ref": {"type": "ref/prompt", "name": "agent_memory"}, "argument": {"name": "agent", "value": ""}}
    assert (await limited.ask("completion/complete", typed))["completion"]["values"] == ["Ann"]
    theirs = {"name": "agent_memory", "arguments": {"agent": ben["id"]}}
    assert (await limited.error("prompts/get", theirs))["code"] == -32000
    assert (await limited.done("send_message", agent="Ann", message="hi"))["reply"] == "ok"
    for agent in ("Ben", ben["id"]):
        told = await limited.failed("send_message", agent=agent, message="hi")
        assert "limited to specific agents" in told or "no agent named" in told
    assert (await limited.error("resources/read", {"uri": f"kelpie://agents/{ben['id']}"}))["code"] == -32000
    for wrong in ({"authorization": "Bearer wrong"}, {"authorization": ""}):
        answer = await Speaker(client, "2025-06-18", **wrong).raw("tools/list")
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"


def _label_of(agent_id: str) -> dict[str, Any]:
    template = {"type": "ref/resource", "uri": "kelpie://agents/{agent_id}/blocks/{label}"}
    typed = {"name": "label", "value": ""}
    return {"ref": template, "argument": typed, "context": {"arguments": {"agent_id": agent_id}}}


async def test_nothing_of_another_organization_is_seen(kelpie: Kelpie, client: httpx.AsyncClient) -> None:
    ours, theirs = await move_in(client, "ourtreasure"), await move_in(client, "theirtreasure")
    theirs_agent, their_run = theirs.ids["agent_id"], theirs.ids["run_id"]
    speaker = Speaker(client, "2025-11-25", user_id=ours.user)
    answers: list[str] = [json.dumps(await speaker.done("list_agents"))]
    assert "ourtreasure" in answers[0]
    for tool, arguments in (
        ("send_message", {"message": "hi"}),
        ("send_message", {"message": "hi", "conversation_id": theirs.ids["conversation_id"]}),
        ("read_memory_blocks", {}),
        ("edit_memory_block", {"label": "human", "value": "x"}),
        ("search_memory", {"query": "theirtreasure"}),
        ("search_memory", {"query": "theirtreasure", "where": "messages"}),
        ("insert_memory", {"text": "x"}),
    ):
        for agent in (theirs_agent, "theirtreasure"):
            answers.append(await speaker.failed(tool, agent=agent, **arguments))
    for method, params in (
        ("resources/read", {"uri": f"kelpie://agents/{theirs_agent}"}),
        ("resources/read", {"uri": f"kelpie://agents/{theirs_agent}/messages"}),
        ("resources/read", {"uri": f"kelpie://agents/{theirs_agent}/blocks/human"}),
        ("prompts/get", {"name": "agent_memory", "arguments": {"agent": theirs_agent}}),
        ("prompts/get", {"name": "ask_agent", "arguments": {"agent": "theirtreasure", "message": "x"}}),
        ("completion/complete", _label_of(theirs_agent)),
        ("tasks/get", {"taskId": their_run}),
        ("tasks/result", {"taskId": their_run}),
        ("tasks/cancel", {"taskId": their_run}),
    ):
        answers.append(json.dumps(await speaker.error(method, params)))
    answers.append(json.dumps(await speaker.ask("resources/list")))
    typed = {"ref": {"type": "ref/prompt", "name": "ask_agent"}, "argument": {"name": "agent", "value": "their"}}
    answers.append(json.dumps(await speaker.ask("completion/complete", typed)))
    known = (
        theirs_agent,
        "theirtreasure",
        their_run,
        theirs.ids["conversation_id"],
    )  # what the client itself has sent may come back
    for answer in answers:
        for mention in theirs.mentions():
            assert mention in known or mention not in answer
    block = await client.get(f"/v1/agents/{theirs_agent}/core-memory/blocks/human", headers={"user_id": theirs.user})
    assert block.json()["value"] == "theirtreasure"


async def test_pages_of_other_sites_and_access_tokens_are_refused(
    protected: tuple[Kelpie, httpx.AsyncClient],
) -> None:
    _, client = protected
    evil = Speaker(client, "2025-06-18", origin="https://evil.example")
    assert (await evil.raw("tools/list")).status_code == 403
    assert (await Speaker(client, "2025-06-18", origin="http://localhost:6274").ask("tools/list"))["tools"]
    agent = await make_agent(client)
    policy = [{"type": "agent", "id": agent["id"], "access": ["read_agent"]}]
    body = {"policy": policy, "hostname": "https://app.example"}
    token = (await client.post("/v1/client-side-access-tokens", json=body)).json()["token"]
    refused = await Speaker(client, "2025-06-18", **bearer(token)).raw("tools/list")
    assert refused.status_code == 403 and "API key" in refused.json()["detail"]


# --- messages that are none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
        (b'"ping"', -32600),
        (b"{}", -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}', -32600),
    ],
)
async def test_what_is_no_request_gets_an_error(client: httpx.AsyncClient, body: bytes, code: int) -> None:
    answer = await client.post("/mcp", content=body, headers={**BOTH, "content-type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"]["code"] == code and answer.json()["id"] is None


async def test_bodies_are_bounded(client: httpx.AsyncClient) -> None:
    params = {"name": "insert_memory", "arguments": {"agent": "Ann", "text": "x" * (3 * 1024 * 1024)}}
    assert (await Speaker(client, "2025-06-18").raw("tools/call", params)).status_code == 413


async def test_headers_and_envelopes_must_fit(client: httpx.AsyncClient) -> None:
    new, old = Speaker(client, "2026-07-28"), Speaker(client, "2025-06-18")
    assert (await old.error("tools/unknown"))["code"] == -32601
    unknown = await new.raw("tools/unknown")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, -32601)
    assert (await new.error("ping"))["code"] == -32601 and (await old.error("server/discover"))["code"] == -32601
    body = (await new.raw("tools/list")).request
    sent = json.loads(body.content)
    for name, value in (("mcp-method", "tools/call"), ("mcp-protocol-version", "2025-11-25")):
        answer = await client.post("/mcp", json=sent, headers={**new.headers, "mcp-method": "tools/list", name: value})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)
    bare = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = await client.post("/mcp", json=bare, headers={**new.headers, "mcp-method": "tools/list"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32602)
    sent["params"]["_meta"][META + "protocolVersion"] = "2027-01-01"
    answer = await client.post("/mcp", json=sent, headers={**new.headers, "mcp-protocol-version": "2027-01-01"})
    told = answer.json()["error"]
    assert told["code"] == -32022 and told["data"]["supported"] == ["2026-07-28"]
    answer = await client.post("/mcp", json=sent, headers={**new.headers, "mcp-method": "tools/list"})
    assert answer.json()["error"]["code"] == -32020, "header and body differ, whatever the version is"
    spaced = {**sent, "params": {**sent["params"], "_meta": json.loads(body.content)["params"]["_meta"]}}
    answer = await client.post("/mcp", json=spaced, headers={**new.headers, "mcp-method": "  tools/list\t"})
    assert "result" in answer.json(), "white space around a value does not count"
    for version in ("1999-01-01", "x"):
        answer = await Speaker(client, version).raw("tools/list")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32022)


async def test_there_are_no_sessions_and_no_streams_to_open(client: httpx.AsyncClient) -> None:
    for method in ("GET", "DELETE"):
        answer = await client.request(method, "/mcp", headers={**BOTH, "mcp-session-id": "x"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
