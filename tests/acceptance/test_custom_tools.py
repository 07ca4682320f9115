"""Custom tools as users of letta-client have them: registered, called by agents over both wires, run by hand; their
code in cells of the real sandbox, with packages from an index, and calling back into the API."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import BadRequestError

from tests.acceptance.sdk import every, got, sdk_client
from tests.acceptance.served import Served, served
from tests.acceptance.wire_model import HANDLES, OPENAI, WireModel, wires
from tests.parts import lacks

AGENTS = 10
pytestmark = pytest.mark.usefixtures("sandboxed")

NOTE = '''
import os

def note(words: str, agent_state: "AgentState") -> dict:
    """Notes it.

    Args:
        words: what to note
    """
    print("noting", words)
    block = agent_state.memory.get_block("human").value
    return {"by": agent_state.name, "was": block, "key": os.environ["KEY"], "words": words}
'''
# Calls back with what every Python has: the address and the key are in its environment.
KEEP = '''
import json, os, urllib.request

def keep(words: str) -> str:
    """Keeps it in the agent's own memory.

    Args:
        words: what to keep
    """
    {first}
    agent = os.environ["LETTA_AGENT_ID"]
    request = urllib.request.Request(
        os.environ["LETTA_BASE_URL"] + f"/v1/agents/{{agent}}/core-memory/blocks/human",
        json.dumps({{"value": words}}).encode(),
        {{"Authorization": "Bearer " + os.environ["LETTA_API_KEY"], "Content-Type": "application/json"}},
        method="PATCH",
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["value"] + " is kept"
'''


SIZE = '''
def size(text: str = "") -> int:
    """How long it is.

    Args:
        text: it
    """
    return len(text)
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: WireModel) -> Iterator[Served]:
    settings = wires(model.url) | {"KELPIE_SANDBOX_PACKAGES": "true"}
    with served(tmp_path_factory.mktemp("data"), **settings) as running:
        yield running


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where no package can be had."""
    command = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "-d",
        str(tmp_path_factory.mktemp("pip")),
        "cowsay==6.1",
    )
    found = subprocess.run(command, capture_output=True, timeout=120)
    if found.returncode:
        lacks("index", "pip download failed")


async def agent_with(client: Any, tool: Any, handle: str = OPENAI, **more: Any) -> Any:
    blocks = [{"label": "human", "value": "Ada"}]
    return await got(
        client.agents.create(model=handle, include_base_tools=False, tool_ids=[tool.id], memory_blocks=blocks, **more)
    )


def results(messages: list[Any]) -> list[tuple[str, str]]:
    return [(one.status, one.tool_return) for one in messages if one.message_type == "tool_return_message"]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("handle", HANDLES)
async def test_an_agent_calls_a_tool_that_sees_its_state_and_its_secrets(
    client: Any, model: WireModel, handle: str, streaming: bool
) -> None:
    tool = await got(client.tools.upsert(source_code=NOTE))
    agent = await agent_with(client, tool, handle, name="Noter", secrets={"KEY": "s3cret"})
    model.will([("note", {"words": "rain"})], "done")
    if streaming:
        messages = await every(await got(client.agents.messages.create(agent.id, input="go", streaming=True)))
    else:
        messages = (await got(client.agents.messages.create(agent.id, input="go"))).messages
    told = "{'by': 'Noter', 'was': 'Ada', 'key': 's3cret', 'words': 'rain'}"
    assert results(messages) == [("success", told)]
    (returned,) = [one for one in messages if one.message_type == "tool_return_message"]
    assert returned.stdout == ["noting rain\n"] and returned.stderr == []
    assert "s3cret" in str(model.asked[1]) and "s3cret" not in str(model.asked[0]), "the model is told the result"
    by_hand = await got(client.agents.tools.run("note", agent_id=agent.id, args={"words": "snow"}))
    assert by_hand.status == "success" and by_hand.func_return["words"] == "snow"


async def test_a_tool_with_a_requirement_edits_the_memory_of_its_agent_for_ten_at_once(
    server: Served, model: WireModel, index: None
) -> None:
    async with sdk_client("async", server.url) as client:
        first = 'import cowsay\n    assert cowsay.get_output_string("cow", words)'
        tool = await client.tools.upsert(
            source_code=KEEP.format(first=first), pip_requirements=[{"name": "cowsay", "version": "6.1"}]
        )
        agents = [await agent_with(client, tool, name=f"Keeper{number}") for number in range(AGENTS)]
        runs = [client.agents.tools.run("keep", agent_id=a.id, args={"words": f"of {a.name}"}) for a in agents]
        for agent, told in zip(agents, await asyncio.gather(*runs), strict=True):
            assert (told.status, told.func_return) == ("success", f"of {agent.name} is kept"), told
            block = await client.agents.blocks.retrieve("human", agent_id=agent.id)
            assert block.value == f"of {agent.name}"
        model.will([("keep", {"words": "in a turn"})], "done")
        answer = await client.agents.messages.create(agents[0].id, input="go")
        assert results(answer.messages) == [("success", "in a turn is kept")]
        assert (await client.agents.blocks.retrieve("human", agent_id=agents[0].id)).value == "in a turn"
        assert "in a turn" in str(model.asked[1]), "the next step sees the edit"


async def test_a_requirement_that_cannot_be_had_is_told_and_nothing_is_stored(client: Any, index: None) -> None:
    source = KEEP.format(first="pass").replace("keep", "keep_never")
    with pytest.raises(BadRequestError, match="no-such-package-of-kelpie"):
        await got(client.tools.create(source_code=source, pip_requirements=[{"name": "no-such-package-of-kelpie"}]))
    assert await every(client.tools.list(name="keep_never")) == []


async def test_a_hundred_calls_at_once_a_megabyte_and_nothing(server: Served) -> None:
    async with sdk_client("async", server.url) as client:
        size = await client.tools.upsert(source_code=SIZE)
        agent = await agent_with(client, size)
        run: Any = lambda args: client.agents.tools.run("size", agent_id=agent.id, args=args)  # noqa: E731
        assert (await run({"text": "x" * 1_000_000})).func_return == 1_000_000
        assert (await run({})).func_return == 0
        told = await asyncio.gather(*(run({"text": "x" * number}) for number in range(100)))
        assert [one.func_return for one in told] == list(range(100))


async def test_a_tool_that_is_replaced_or_deleted_finishes_on_its_old_code(server: Served, model: WireModel) -> None:
    """The tool says that it has begun and waits for word, both through the memory of its agent."""
    source = '''
import json, os, time, urllib.request

def slow() -> str:
    """Waits."""
    def ask(value=None):
        url = os.environ["LETTA_BASE_URL"] + "/v1/agents/" + os.environ["LETTA_AGENT_ID"] + "/core-memory/blocks/human"
        body = None if value is None else json.dumps({"value": value}).encode()
        head = {"Authorization": "Bearer " + os.environ["LETTA_API_KEY"], "Content-Type": "application/json"}
        made = urllib.request.Request(url, body, head, method="GET" if body is None else "PATCH")
        with urllib.request.urlopen(made) as answer:
            return json.load(answer)["value"]
    ask("begun")
    while ask() == "begun":
        time.sleep(0.02)
    return "old"
'''
    async with sdk_client("async", server.url) as client:
        for after in ("replaced", "deleted"):
            tool = await client.tools.upsert(source_code=source)
            agent = await agent_with(client, tool)
            model.will([("slow", {})], [("slow", {})], "done")
            turn = asyncio.create_task(client.agents.messages.create(agent.id, input="go"))
            async with asyncio.timeout(30):
                while (await client.agents.blocks.retrieve("human", agent_id=agent.id)).value != "begun":  # noqa: ASYNC110
                    await asyncio.sleep(0.02)  # until the tool says so
            if after == "replaced":
                await client.tools.upsert(source_code='def slow() -> str:\n    """It."""\n    return "new"\n')
            else:
                await client.tools.delete(tool.id)
            await client.agents.blocks.update("human", agent_id=agent.id, value="go on")
            first, second = results((await turn).messages)
            assert first == ("success", "old")
            assert second == ("success", "new") if after == "replaced" else second[0] == "error"


# --- the holes that Letta had ---


async def test_code_given_to_run_stays_in_its_cell(server: Served, tmp_path: Path) -> None:
    """CVE-2025-51482: in Letta, code that was sent to /v1/tools/run ran as the server itself."""
    mark = tmp_path / "mark"
    source = f'''
import os, subprocess
subprocess.run(["touch", {str(mark)!r}])
try:
    open({str(mark)!r}, "w").close()
except OSError:
    pass

def f() -> dict:
    """Tries."""
    seen = {{}}
    for path in ({str(server.data_dir)!r}, "/root", "/home", "/etc/shadow", "/proc/1/environ"):
        try:
            seen[path] = os.listdir(path) if os.path.isdir(path) else open(path).read()
        except OSError:
            pass
    return {{"seen": seen, "env": dict(os.environ)}}
'''
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        told = (await http.post("/v1/tools/run", json={"source_code": source, "args": {}})).json()
        assert told["status"] == "success", told
        assert not mark.exists(), "nothing was written on the host"
        assert str(server.data_dir) not in told["tool_return"] and "OPENAI_API_KEY" not in told["tool_return"]
        assert "root:" not in told["tool_return"]
        looking = await http.post("/v1/tools/generate-schema", json={"code": source})
        assert looking.status_code == 200 and not mark.exists(), "a source that is only looked at is not run"


async def test_arguments_and_names_are_never_code(server: Served, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    echo = 'def echo(x: str) -> str:\n    """E.\n\n    Args:\n        x: it\n    """\n    return x\n'
    evil = f"\"); import os; os.system('touch {mark}') #"
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        told = (await http.post("/v1/tools/run", json={"source_code": echo, "args": {"x": evil}})).json()
        assert (told["status"], told["tool_return"]) == ("success", evil)
        told = (await http.post("/v1/tools/run", json={"source_code": echo, "args": {"x) or exit(": "1"}})).json()
        assert told["status"] == "error"
        bad = {"source_code": echo, "args": {"x": "1"}, "name": "echo(); import os"}
        assert (await http.post("/v1/tools/run", json=bad)).status_code == 422
        bad = {"source_code": echo, "args": {"x": "1"}, "env_vars": {"A=B\nC": "x"}}
        assert (await http.post("/v1/tools/run", json=bad)).status_code == 422
    assert not mark.exists()


@pytest.mark.needs("node")
async def test_javascript_and_what_is_wrong_with_it(client: Any) -> None:
    schema = {
        "name": "add",
        "parameters": {"type": "object", "properties": {"b": {"type": "number"}, "a": {"type": "number"}}},
    }
    source = "export function add(b, a) { console.log('adding'); return { sum: a + b, order: [b, a] } }"
    given = {"json_schema": schema, "extra_body": {"runtime": "javascript"}}
    tool = await got(client.tools.upsert(source_code=source, **given))
    agent = await agent_with(client, tool)
    told = await got(client.agents.tools.run("add", agent_id=agent.id, args={"a": 1, "b": 2}))
    assert (told.func_return, told.stdout) == ({"sum": 3, "order": [2, 1]}, ["adding\n"])
    with pytest.raises(BadRequestError, match="line 2"):
        await got(client.tools.upsert(source_code="export function add(b, a) {\n  return b +* a }", **given))


@pytest.mark.needs("node")
async def test_typescript_and_what_is_wrong_with_it(server: Served) -> None:
    number = {"type": "number"}
    schema = {"name": "sum", "parameters": {"type": "object", "properties": {"a": number, "b": number}}}
    source = "enum By { one = 1 }\nexport async function sum(a: number, b: number) { return a + b + By.one }"
    broken = "export function sum(a: number) {\n  return a +* 1\n}"
    async with sdk_client("async", server.url) as client:
        tool = await client.tools.upsert(source_code=source, source_type="typescript", json_schema=schema)
        agent = await agent_with(client, tool)
        told = await client.agents.tools.run("sum", agent_id=agent.id, args={"a": 1, "b": 2})
        assert "has another archive" not in str(told.stderr)
        if told.status == "error" and "amaro" in str(told.stderr):
            lacks("typescript", "and no package index can be reached")
        assert told.func_return == 4, told
        with pytest.raises(BadRequestError, match="line 2"):
            await client.tools.upsert(source_code=broken, source_type="typescript", json_schema=schema)
