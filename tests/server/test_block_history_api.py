"""The history of blocks over HTTP: whatever changes a block, by whichever door, is in it, with who it was and how."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from tests.server.rig import Puppet, called, make_agent, open_rig, said
from tests.server.test_auth import make_key, shown

PATCH = "*** Update Block: human\n@@\n-tea\n+milk\n"
# Every tool with which an agent changes a block that it has.
EDITS: dict[str, dict[str, Any]] = {
    "core_memory_append": {"label": "human", "content": "x"},
    "core_memory_replace": {"label": "human", "old_content": "tea", "new_content": "milk"},
    "memory_replace": {"label": "human", "old_string": "tea", "new_string": "milk"},
    "memory_insert": {"label": "human", "new_string": "x"},
    "memory_rethink": {"label": "human", "new_memory": "anew"},
    "rethink_memory": {"target_block_label": "human", "new_memory": "anew"},
    "rethink_user_memory": {"new_memory": "anew"},
    "memory": {"command": "str_replace", "path": "/memories/human", "old_string": "tea", "new_string": "milk"},
    "memory_apply_patch": {"label": "human", "patch": PATCH},
}


async def history(client: httpx.AsyncClient, block_id: str, **params: Any) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/blocks/{block_id}/history", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def newest(client: httpx.AsyncClient, block_id: str, version: int) -> dict[str, Any]:
    """The newest entry, which is this version and says what the block says."""
    found = await history(client, block_id)
    assert [each["version"] for each in found] == list(range(version, 0, -1))
    one = (await client.get(f"/v1/blocks/{block_id}/history/{version}")).json()
    block = (await client.get(f"/v1/blocks/{block_id}")).json()
    assert one == {**found[0], "value": block["value"]} and one["chars"] == len(block["value"])
    return one


async def human(client: httpx.AsyncClient, agent_id: str) -> str:
    return (await client.get(f"/v1/agents/{agent_id}/core-memory/blocks/human")).json()["id"]


def author(version: Mapping[str, Any]) -> tuple[str, bool, bool]:
    return version["author"]["type"], version["run_id"] is not None, version["step_id"] is not None


async def test_what_people_do_by_every_door(client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/blocks/", json={"label": "notes", "value": "1", "tags": ["t"]})).json()
    first = await newest(client, made["id"], 1)
    assert author(first) == ("user", False, False) and first["tool"] is None
    assert first["fields"]["label"] == "notes" and first["fields"]["tags"] == ["t"]
    await client.patch(f"/v1/blocks/{made['id']}", json={"value": "2", "limit": 7})
    assert (await newest(client, made["id"], 2))["fields"] == {"limit": 7}
    await client.patch(f"/v1/blocks/{made['id']}", json={"value": "2"})
    await newest(client, made["id"], 2)

    agent = await make_agent(client, memory_blocks=[{"label": "human", "value": "tea"}], block_ids=[made["id"]])
    block_id = await human(client, agent["id"])
    assert author(await newest(client, block_id, 1)) == ("user", False, False)
    path = f"/v1/agents/{agent['id']}/core-memory/blocks"
    await client.patch(f"{path}/human", json={"value": "milk"})
    assert author(await newest(client, block_id, 2)) == ("user", False, False)
    await client.patch(f"/v1/_internal_agents/{agent['id']}/core-memory/blocks/human", json={"value": "oat milk"})
    await newest(client, block_id, 3)
    await client.patch(f"{path}/detach/{block_id}")
    await client.patch(f"{path}/attach/{block_id}")
    await client.patch(f"/v1/agents/{agent['id']}/reset-messages", json={})
    await newest(client, block_id, 3)  # who carries it is not what it says

    batch = [{"label": "a", "value": "v"}, {"label": "b", "value": "w"}]
    template = {"base_template_id": "b", "template_id": "t", "deployment_id": "d", "entity_id": "e"}
    bodies = [each | template for each in batch]
    for each in (await client.post("/v1/_internal_templates/blocks/batch", json=bodies)).json():
        assert author(await newest(client, each["id"], 1)) == ("user", False, False)


@pytest.mark.parametrize("tool", sorted(EDITS))
async def test_what_an_agent_does_with_every_tool(client: httpx.AsyncClient, puppet: Puppet, tool: str) -> None:
    agent = await make_agent(client, tools=[tool], memory_blocks=[{"label": "human", "value": "tea"}])
    block_id = await human(client, agent["id"])
    puppet.script.extend([called(tool, json.dumps(EDITS[tool])), said("done")])
    answer = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "go"})
    results = [each for each in answer.json()["messages"] if each["message_type"] == "tool_return_message"]
    assert [each["status"] for each in results] == ["success"], results
    version = await newest(client, block_id, 2)
    assert version["author"] == {"type": "agent", "id": agent["id"], "key_id": None}
    assert (version["tool"], version["run_id"], version["step_id"]) == (
        tool,
        results[0]["run_id"],
        results[0]["step_id"],
    )


async def test_a_block_that_an_agent_makes_and_renames(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make_agent(client, tools=["memory"])
    make = {"command": "create", "path": "/memories/plans", "description": "d", "file_text": "buy tea"}
    name = {"command": "rename", "old_path": "/memories/plans", "new_path": "/memories/done"}
    puppet.script.extend([called("memory", json.dumps(make)), called("memory", json.dumps(name)), said("done")])
    await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "go"})
    found = (await client.get(f"/v1/agents/{agent['id']}/core-memory/blocks/done")).json()
    last, first = await history(client, found["id"])
    assert last["fields"] == {"label": "done"} and first["fields"]["label"] == "plans"
    assert author(last) == author(first) == ("agent", True, True)
    assert last["run_id"] == first["run_id"] and last["step_id"] != first["step_id"]


async def test_a_refused_edit_is_no_version(client: httpx.AsyncClient, puppet: Puppet) -> None:
    blocks = [{"label": "human", "value": "tea", "limit": 5}, {"label": "fixed", "value": "x", "read_only": True}]
    agent = await make_agent(client, tools=["core_memory_append"], memory_blocks=blocks)
    for label in ("human", "fixed"):
        arguments = json.dumps({"label": label, "content": "far too long"})
        puppet.script.extend([called("core_memory_append", arguments), said("done")])
        await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "go"})
    for each in agent["blocks"]:
        await newest(client, each["id"], 1)


async def test_copies_of_a_conversation_have_histories_of_their_own(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make_agent(client, tools=["core_memory_append"], memory_blocks=[{"label": "human", "value": "tea"}])
    body = {"isolated_block_labels": ["human"]}
    made = (await client.post("/v1/conversations/", params={"agent_id": agent["id"]}, json=body)).json()
    (own,) = made["isolated_block_ids"]
    assert author(await newest(client, own, 1)) == ("user", False, False)
    arguments = json.dumps(EDITS["core_memory_append"])
    puppet.script.extend([called("core_memory_append", arguments), said("done")])
    await client.post(f"/v1/conversations/{made['id']}/messages", json={"input": "go", "streaming": False})
    assert author(await newest(client, own, 2)) == ("agent", True, True)
    await newest(client, await human(client, agent["id"]), 1)
    fork = (await client.post(f"/v1/conversations/{made['id']}/fork")).json()
    assert (await newest(client, fork["isolated_block_ids"][0], 1))["value"] == "tea\nx"
    await client.delete(f"/v1/conversations/{made['id']}")
    assert (await client.get(f"/v1/blocks/{own}/history")).status_code == 404


async def test_a_companion_has_a_block_of_kelpies_own(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, enable_sleeptime=True, memory_blocks=[{"label": "human", "value": "tea"}])
    (companion,) = agent["multi_agent_group"]["agent_ids"]
    blocks = (await client.get(f"/v1/agents/{companion}/core-memory/blocks")).json()
    by = {each["label"]: author((await history(client, each["id"]))[0])[0] for each in blocks}
    assert by == {"human": "user", "memory_persona": "system"}


async def test_a_key_is_told_apart(tmp_path: Any) -> None:
    async with open_rig(tmp_path, password="open sesame") as (kelpie, _), shown(kelpie, "open sesame") as operator:
        made = (await operator.post("/v1/blocks/", json={"label": "notes", "value": "1"})).json()
        key = await make_key(kelpie)
        async with shown(kelpie, key["key"]) as client:
            await client.patch(f"/v1/blocks/{made['id']}", json={"value": "2"})
            by = (await newest(client, made["id"], 2))["author"]
            assert (by["type"], by["key_id"], by["id"]) == ("key", key["id"], key["user_id"])
        last, first = await history(operator, made["id"])
        assert last["author"]["type"] == "key" and first["author"]["type"] == "user"


async def test_pages_differences_and_the_way_back(client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/blocks/", json={"label": "notes", "value": "a\nb"})).json()
    path = f"/v1/blocks/{made['id']}"
    for value in ("a\nc", "a\nc\nd", "e"):
        await client.patch(path, json={"value": value})
    assert [each["version"] for each in await history(client, made["id"], limit=2)] == [4, 3]
    assert [each["version"] for each in await history(client, made["id"], before=3)] == [2, 1]
    found = (await client.get(f"{path}/diff", params={"from": 1, "to": 3})).json()
    assert (found["from"], found["to"]) == (1, 3)
    assert found["unified"] == (
        f"--- {made['id']} version 1\n+++ {made['id']} version 3\n@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d\n"
    )
    assert found["hunks"] == [
        {
            "from_line": 1, "from_count": 2, "to_line": 1, "to_count": 3,
            "lines": [
                {"kind": "same", "text": "a"}, {"kind": "removed", "text": "b"},
                {"kind": "added", "text": "c"}, {"kind": "added", "text": "d"},
            ],
        }
    ]  # fmt: skip
    assert (await client.get(f"{path}/diff")).json()["to"] == 4
    same = (await client.get(f"{path}/diff", params={"from": 2, "to": 2})).json()
    assert (same["unified"], same["hunks"]) == ("", [])
    back = await client.post(f"{path}/rollback", json={"version": 2, "expected_version": 4})
    assert back.status_code == 200 and (back.json()["value"], back.json()["version"]) == ("a\nc", 5)
    assert (await newest(client, made["id"], 5))["restores"] == 2
    late = await client.post(f"{path}/rollback", json={"version": 1, "expected_version": 4})
    assert late.status_code == 409 and "version 5, but you expected 4" in late.text
    assert (await client.get(path)).json()["value"] == "a\nc"


@pytest.mark.parametrize(
    ("method", "rest", "body", "status"),
    [
        ("GET", "history/9", None, 404),
        ("GET", "history/0", None, 422),
        ("GET", "history/x", None, 422),
        ("GET", "history/9007199254740993", None, 422),
        ("GET", "history?limit=0", None, 422),
        ("GET", "history?limit=1001", None, 422),
        ("GET", "diff?from=1&to=9", None, 404),
        ("GET", "diff?from=-1", None, 422),
        ("POST", "rollback", {}, 422),
        ("POST", "rollback", {"version": "one"}, 422),
        ("POST", "rollback", {"version": 0}, 422),
        ("POST", "rollback", {"version": 1, "value": "x"}, 422),
        ("POST", "rollback", {"version": 9}, 404),
    ],
)
async def test_what_cannot_be(client: httpx.AsyncClient, method: str, rest: str, body: Any, status: int) -> None:
    made = (await client.post("/v1/blocks/", json={"label": "notes", "value": "1"})).json()
    answer = await client.request(method, f"/v1/blocks/{made['id']}/{rest}", json=body)
    assert answer.status_code == status, answer.text
    unknown = "block-00000000-0000-4000-8000-0000000000ff"
    assert (await client.request(method, f"/v1/blocks/{unknown}/{rest}", json=body)).status_code in (404, 422)
    assert len(await history(client, made["id"])) == 1


async def test_of_several_who_go_back_at_once_one_does(client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/blocks/", json={"label": "notes", "value": "1"})).json()
    for value in ("2", "3"):
        await client.patch(f"/v1/blocks/{made['id']}", json={"value": value})
    bodies = [{"version": 1 + n % 2, "expected_version": 3} for n in range(8)]
    path = f"/v1/blocks/{made['id']}/rollback"
    answers = await asyncio.gather(*(client.post(path, json=body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    await newest(client, made["id"], 4)


async def test_a_prompt_has_what_was_brought_back(kelpie: Kelpie, client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make_agent(client, memory_blocks=[{"label": "human", "value": "likes tea"}])
    block_id = await human(client, agent["id"])
    await client.patch(f"/v1/blocks/{block_id}", json={"value": "likes milk"})
    await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "one"})
    await client.post(f"/v1/blocks/{block_id}/rollback", json={"version": 1})
    await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "two"})
    first, second = (request.system for request in puppet.asked[-2:])
    assert "likes milk" in first and "likes tea" in second and "likes milk" not in second
