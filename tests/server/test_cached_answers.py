"""Caches of answers: after every kind of edit, a server that has answered before says what one without caches says."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from kelpie.search.cache import SizedCache
from kelpie.storage.tools import attached_tools
from kelpie.world.database import MEMORY
from tests.server.rig import Puppet, called, client_of

EVERYTHING: Mapping[str, str] = {"user-agent": "an old client"}  # gets all relations
CODE = "def {name}(x: str) -> str:\n    '''{doc}\n\n    Args:\n        x: anything\n    '''\n    return x\n"


@pytest.fixture
async def asked(kelpie: Kelpie) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(kelpie, EVERYTHING) as client:
        yield client


async def ok(answer: httpx.Response) -> Any:
    assert answer.status_code < 300, answer.text
    return answer.json()


async def make_tool(client: httpx.AsyncClient, name: str, doc: str = "Says it.") -> str:
    made = await client.post(
        "/v1/tools/", json={"source_code": CODE.format(name=name, doc=doc), "source_type": "python"}
    )
    return (await ok(made))["id"]


async def answers(client: httpx.AsyncClient, agent_id: str) -> dict[str, Any]:
    messages = f"/v1/agents/{agent_id}/messages"
    paths = (f"/v1/agents/{agent_id}", "/v1/agents/", "/v1/blocks/", messages, f"{messages}?limit=2&order=asc")
    return {path: await ok(await client.get(path)) for path in paths}


def forget_everything(kelpie: Kelpie) -> None:
    """Empties the caches of answers and of rows, as a new process has them."""
    kelpie.runtime.encoded_tools.__init__(8 * 1024 * 1024)
    kelpie.runtime.encoded_messages.__init__(16 * 1024 * 1024)
    database: Any = kelpie.runtime.world.database
    database._writer._connection.get_execution_options()[MEMORY].clear()  # shared by all connections


async def check(kelpie: Kelpie, client: httpx.AsyncClient, agent_id: str) -> dict[str, Any]:
    """The answers; they are the same from warm caches, once more, and from none."""
    warm = await answers(client, agent_id)
    assert await answers(client, agent_id) == warm
    forget_everything(kelpie)
    assert await answers(client, agent_id) == warm
    return warm[f"/v1/agents/{agent_id}"]


async def test_answers_after_every_kind_of_edit_are_those_of_a_server_without_caches(
    kelpie: Kelpie, puppet: Puppet, asked: httpx.AsyncClient
) -> None:
    tool, other = await make_tool(asked, "say_it"), await make_tool(asked, "say_more")
    block = (await ok(await asked.post("/v1/blocks/", json={"label": "shared", "value": "first"})))["id"]
    identity = {"identifier_key": "k", "name": "Ann", "identity_type": "user"}
    identity_id = (await ok(await asked.post("/v1/identities/", json=identity)))["id"]
    made = {
        "name": "one",
        "tool_ids": [tool],
        "tools": ["memory_insert"],
        "memory_blocks": [{"label": "human", "value": "Bob"}],
    }
    agent_id = (await ok(await asked.post("/v1/agents/", json=made)))["id"]
    await ok(await asked.post("/v1/agents/", json={**made, "name": "another"}))
    path = f"/v1/agents/{agent_id}"

    seen = await check(kelpie, asked, agent_id)
    assert {each["name"] for each in seen["tools"]} >= {"say_it"} and seen["blocks"][0]["value"] == "Bob"

    await ok(await asked.patch(path, json={"name": "renamed", "description": "new", "tags": ["a", "b"]}))
    seen = await check(kelpie, asked, agent_id)
    assert (seen["name"], seen["description"], seen["tags"]) == ("renamed", "new", ["a", "b"])

    new_code = CODE.format(name="say_it", doc="Says it in another way.")
    await ok(await asked.patch(f"/v1/tools/{tool}", json={"source_code": new_code, "tags": ["changed"]}))
    seen = await check(kelpie, asked, agent_id)
    assert next(each for each in seen["tools"] if each["id"] == tool)["source_code"] == new_code

    await ok(await asked.patch(f"{path}/tools/attach/{other}"))
    assert other in {each["id"] for each in (await check(kelpie, asked, agent_id))["tools"]}
    await ok(await asked.patch(f"{path}/tools/detach/{tool}"))
    assert tool not in {each["id"] for each in (await check(kelpie, asked, agent_id))["tools"]}
    await ok(await asked.delete(f"/v1/tools/{other}"))
    assert other not in {each["id"] for each in (await check(kelpie, asked, agent_id))["tools"]}

    await ok(await asked.patch(f"{path}/core-memory/blocks/attach/{block}"))
    assert {each["label"] for each in (await check(kelpie, asked, agent_id))["blocks"]} == {"human", "shared"}
    await ok(await asked.patch(f"/v1/blocks/{block}", json={"value": "second", "tags": ["t"]}))
    seen = await check(kelpie, asked, agent_id)
    assert {each["value"] for each in seen["blocks"]} == {"Bob", "second"}
    await ok(await asked.patch(f"{path}/core-memory/blocks/detach/{block}"))
    assert {each["label"] for each in (await check(kelpie, asked, agent_id))["blocks"]} == {"human"}

    arguments = '{"label": "human", "new_string": " builds boats"}'
    puppet.script.append(called("memory_insert", arguments))
    await ok(await asked.post(f"{path}/messages", json={"messages": [{"role": "user", "content": "hi"}]}))
    seen = await check(kelpie, asked, agent_id)
    assert "builds boats" in seen["blocks"][0]["value"] and seen["last_stop_reason"] == "end_turn"

    await ok(await asked.patch(path, json={"secrets": {"KEY": "value"}}))
    assert [each["key"] for each in (await check(kelpie, asked, agent_id))["secrets"]] == ["KEY"]
    await ok(await asked.patch(path, json={"secrets": {}}))
    assert (await check(kelpie, asked, agent_id))["secrets"] == []

    await ok(await asked.patch(f"{path}/identities/attach/{identity_id}"))
    assert [each["name"] for each in (await check(kelpie, asked, agent_id))["identities"]] == ["Ann"]
    await ok(await asked.patch(f"/v1/identities/{identity_id}", json={"name": "Anna"}))
    assert [each["name"] for each in (await check(kelpie, asked, agent_id))["identities"]] == ["Anna"]
    await ok(await asked.patch(f"{path}/identities/detach/{identity_id}"))
    assert (await check(kelpie, asked, agent_id))["identities"] == []

    await ok(await asked.patch(f"{path}/reset-messages", json={}))
    await check(kelpie, asked, agent_id)
    await ok(await asked.post(f"{path}/stop"))
    assert (await check(kelpie, asked, agent_id))["kelpie_status"]["state"] == "stopped"


async def test_tools_that_do_not_fit_into_the_cache_are_shown_all_the_same(
    kelpie: Kelpie, asked: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached_tools, "CACHE_BYTES_MAX", 1)
    kelpie.runtime.encoded_tools.__init__(1)
    ids = [await make_tool(asked, f"tool_{number}") for number in range(4)]
    agent_id = (await ok(await asked.post("/v1/agents/", json={"name": "one", "tool_ids": ids})))["id"]
    seen = await check(kelpie, asked, agent_id)
    assert set(ids) <= {each["id"] for each in seen["tools"]}
    assert isinstance(kelpie.runtime.encoded_tools, SizedCache)


async def test_messages_are_listed_the_same_whichever_of_them_are_known(
    kelpie: Kelpie, puppet: Puppet, asked: httpx.AsyncClient
) -> None:
    texts = [{"role": "user", "content": f"number {number}"} for number in range(60)]
    made = {"name": "one", "initial_message_sequence": texts, "tools": ["memory_insert"]}
    agent_id = (await ok(await asked.post("/v1/agents/", json=made)))["id"]
    path = f"/v1/agents/{agent_id}/messages"
    whole = await ok(await asked.get(path))
    for query in ("limit=10", "limit=45&order=asc", "limit=30", "limit=0", f"after={whole[20]['id']}&limit=25"):
        cold_first = await ok(await asked.get(f"{path}?{query}"))
        forget_everything(kelpie)
        assert await ok(await asked.get(f"{path}?{query}")) == cold_first
        assert await ok(await asked.get(f"{path}?{query}")) == cold_first
    assert await ok(await asked.get(path)) == whole
    puppet.script.append(called("memory_insert", '{"label": "none", "new_string": "x"}'))
    await ok(await asked.post(path, json={"messages": [{"role": "user", "content": "hi"}]}))
    longer = await ok(await asked.get(f"{path}?use_assistant_message=false"))
    only = await ok(await asked.get(f"{path}?include_return_message_types=tool_return_message"))
    assert [each["message_type"] for each in only] == ["tool_return_message"]
    forget_everything(kelpie)
    assert await ok(await asked.get(f"{path}?include_return_message_types=tool_return_message")) == only
    assert await ok(await asked.get(f"{path}?use_assistant_message=false")) == longer
    await ok(await asked.post(f"/v1/agents/{agent_id}/recompile"))
    again = await ok(await asked.get(path))
    forget_everything(kelpie)
    assert await ok(await asked.get(path)) == again
