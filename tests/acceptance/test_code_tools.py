"""Tools that run code, as users of letta-client have them: over both wires, streamed and not, in cells of the real
sandbox, with a way back to the agent and to others."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from letta_client import BadRequestError

from tests.acceptance.sdk import every, got, sdk_client
from tests.acceptance.served import Served, served, wait_for
from tests.acceptance.wire_model import HANDLES, OPENAI, WireModel, wires
from tests.parts import lacks

pytestmark = pytest.mark.usefixtures("sandboxed")

ASK = '''
import json, os, urllib.error, urllib.request

def ask(path, body=None, method=None):
    """Calls back, with what every Python has."""
    head = {"Authorization": "Bearer " + os.environ["LETTA_API_KEY"], "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    made = urllib.request.Request(os.environ["LETTA_BASE_URL"] + path, data, head, method=method)
    try:
        with urllib.request.urlopen(made) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return {"status": error.code, "detail": json.load(error)["detail"]}

own = "/v1/agents/" + os.environ["LETTA_AGENT_ID"]
said = {"messages": [{"role": "user", "content": "hello"}]}
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: WireModel) -> Iterator[Served]:
    settings = wires(model.url) | {"KELPIE_SANDBOX_PACKAGES": "true"}
    with served(tmp_path_factory.mktemp("data"), **settings) as running:
        yield running


async def _agent(client: Any, *tools: str, handle: str = OPENAI, **more: Any) -> Any:
    blocks = [{"label": "human", "value": "nobody"}]
    return await got(
        client.agents.create(model=handle, include_base_tools=False, tools=list(tools), memory_blocks=blocks, **more)
    )


def _results(messages: list[Any]) -> list[tuple[str, Any]]:
    return [(one.status, _read(one.tool_return)) for one in messages if one.message_type == "tool_return_message"]


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("handle", HANDLES)
async def test_an_agent_runs_code_and_keeps_files(client: Any, model: WireModel, handle: str, streaming: bool) -> None:
    agent = await _agent(client, "run_code", "shell", "filesystem", handle=handle)
    model.will(
        [("run_code", {"code": "print(6 * 7)"})],
        [("shell", {"command": "echo kept > note.txt"})],
        [("filesystem", {"operation": "read", "path": "note.txt"})],
        "done",
    )
    if streaming:
        messages = await every(await got(client.agents.messages.create(agent.id, input="go", streaming=True)))
    else:
        messages = (await got(client.agents.messages.create(agent.id, input="go"))).messages
    (code, ran), (shell, _), (read, note) = _results(messages)
    assert (code, shell, read) == ("success", "success", "success")
    assert (ran["stdout"], ran["exit_code"], ran["language"]) == ("42\n", 0, "python")
    assert note == "kept\n"


async def test_none_of_them_is_given_unasked(client: Any) -> None:
    agent = await got(client.agents.create(model=OPENAI))
    names = {tool.name for tool in agent.tools}
    assert not names & {"run_code", "run_code_with_tools", "shell", "filesystem"}


async def test_code_edits_memory_asks_others_and_never_itself(server: Served, model: WireModel) -> None:
    async with sdk_client("async", server.url) as client:
        other = await _agent(client, name="other")
        agent = await _agent(client, "run_code", name="asker")
        code = f"""{ASK}
ask(own + "/core-memory/blocks/human", {{"value": "Ada"}}, "PATCH")
print(json.dumps([
    ask("/v1/agents/{other.id}/messages", said)["messages"][0]["content"],
    ask(own + "/messages", said),
    ask(own, {{"name": "mine now"}}, "PATCH")["status"],
    ask("/v1/agents/{other.id}")["status"],
]))"""
        model.will([("run_code", {"code": code})], "I am well", "done")
        answer = await client.agents.messages.create(agent.id, input="go")
        ((status, told),) = _results(answer.messages)
        assert status == "success", told
        said, cycle, changed, seen = json.loads(told["stdout"])
        assert said == "I am well"
        assert cycle["status"] == 409 and cycle["detail"].startswith("CYCLE: ")
        assert (changed, seen) == (403, 403)
        block = await client.agents.blocks.retrieve("human", agent_id=agent.id)
        assert block.value == "Ada"
        assert "Ada" in str(model.asked[-1]), "the next step sees the edit"


async def test_code_calls_the_other_tools_of_its_agent(server: Served, model: WireModel) -> None:
    async with sdk_client("async", server.url) as client:
        source = 'def double(x: int) -> int:\n    """D.\n\n    Args:\n        x: it\n    """\n    return 2 * x\n'
        tool = await client.tools.upsert(source_code=source)
        guarded = await client.tools.upsert(source_code=source.replace("double", "guarded"))
        agent = await _agent(
            client,
            "run_code_with_tools",
            "core_memory_append",
            tool_ids=[tool.id, guarded.id],
            tool_rules=[{"type": "requires_approval", "tool_name": "guarded"}],
        )
        code = """
print(sum(double(x) for x in range(3)), double(x=5))
core_memory_append("human", "likes sums")
try:
    guarded(1)
except ToolFailed as error:
    print(error)
"""
        model.will([("run_code_with_tools", {"code": code})], "done")
        answer = await client.agents.messages.create(agent.id, input="go")
        ((status, told),) = _results(answer.messages)
        assert status == "success", told
        assert told["stdout"].startswith("6 10\n") and "approval" in told["stdout"]
        assert "likes sums" in (await client.agents.blocks.retrieve("human", agent_id=agent.id)).value


async def test_a_ready_client_is_there_where_its_package_is(server: Served) -> None:
    """Skips where no package can be had."""
    async with sdk_client("async", server.url) as client:
        agent = await _agent(client, "run_code", name="Ann")
        (tool,) = agent.tools
        wanted: list[Any] = [{"name": "letta-client", "version": "1.12.1"}]
        try:
            await client.tools.update(tool.id, pip_requirements=wanted)
        except BadRequestError as error:
            lacks("index", str(error))
        code = """
import os
own = os.environ["LETTA_AGENT_ID"]
print(client.agents.retrieve(own).name)
client.agents.blocks.update("human", agent_id=own, value="Ada")
"""
        done = await client.agents.tools.run("run_code", agent_id=agent.id, args={"code": code})
        assert (done.status, done.stdout) == ("success", ["Ann\n"]), done
        assert (await client.agents.blocks.retrieve("human", agent_id=agent.id)).value == "Ada"


async def test_their_names_are_taken(client: Any) -> None:
    for name in ("run_code", "run_code_with_tools", "shell", "filesystem"):
        with pytest.raises(Exception, match="409"):
            await got(client.tools.create(source_code=f'def {name}() -> str:\n    """It."""\n    return "mine"\n'))


async def test_files_go_with_their_agent(server: Served, model: WireModel) -> None:
    async with sdk_client("async", server.url) as client:
        agent = await _agent(client, "shell")
        done = await client.agents.tools.run("shell", agent_id=agent.id, args={"command": "echo x > f"})
        assert done.status == "success", done
        place = server.data_dir / "workspaces" / agent.id
        assert place.exists()
        await client.agents.delete(agent.id)
    server.restart()  # the sweep at the start finds what is left; a running server looks every few seconds
    wait_for("the files are gone", lambda: not place.exists(), 30)
