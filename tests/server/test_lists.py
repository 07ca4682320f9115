"""Every list of two organizations with a few of everything is what is stored: orders, pages, filters, fields; and a
restart changes nothing that can be read."""

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from kelpie.app import Kelpie
from kelpie.core.errors import ModelError, ModelFault
from kelpie.core.ids import DEFAULT_ORGANIZATION
from kelpie.sim.scenarios.checks.list_checks import lists_are_right
from kelpie.sim.scenarios.checks.run_checks import runs_are_right
from tests.server.rig import SDK_HEADERS, Puppet, called, client_of, open_rig, said

MOMENTS = 3  # turns of each agent
_LOADED = re.compile(rb'"state":"[a-z]+"')


async def _post(client: httpx.AsyncClient, path: str, body: Any = None, method: str = "POST") -> Any:
    answer = await client.request(method, path, json=body)
    assert answer.status_code == 200, f"{path}: {answer.text}"
    return answer.json()


async def furnish(client: httpx.AsyncClient, puppet: Puppet) -> None:
    """Agents, blocks, conversations, turns and memory, so that every filter has several values, and some have none."""
    people = [
        await _post(
            client, "/v1/identities/", {"identifier_key": f"key{n}", "name": f"Person {n}", "identity_type": kind}
        )
        for n, kind in enumerate(("user", "org", "user"))
    ]
    shared = [
        await _post(
            client, "/v1/blocks/", {"label": f"shared{n}", "value": "v", "tags": tags, "description": f"about {n}"}
        )
        for n, tags in enumerate((["red"], ["red", "blue"], []))
    ]
    await _post(client, "/v1/blocks/", {"label": "secret", "value": "v", "hidden": True})
    agents = []
    for number in range(3):
        body = {
            "name": f"agent {number}",
            "tags": ["home", "work"][:number],
            "block_ids": [one["id"] for one in shared[: number + 1]],
            "identity_ids": [one["id"] for one in people[: number + 1]],
            "memory_blocks": [{"label": "human", "value": "start"}],
            "metadata": {"n": number},
            "timezone": "Asia/Tokyo",
        }
        agents.append((await _post(client, "/v1/agents/", body))["id"])
    await _post(client, "/v1/agents/", {"name": "agent hidden", "hidden": True})
    for number, agent_id in enumerate(agents):
        await _talk(client, puppet, agent_id, number)
    await _post(client, f"/v1/blocks/{shared[0]['id']}", {"value": "later"}, "PATCH")
    await _post(client, f"/v1/agents/{agents[0]}", {"description": "changed last"}, "PATCH")


async def _talk(client: httpx.AsyncClient, puppet: Puppet, agent_id: str, number: int) -> None:
    path = f"/v1/conversations/?agent_id={agent_id}"
    lanes = [(await _post(client, path, {"summary": f"topic {n}"}))["id"] for n in range(number + 1)]
    for lane in lanes[1:]:
        body = {"agent_id": agent_id, "input": "hello", "streaming": False}
        await _post(client, f"/v1/conversations/{lane}/messages", body)
    if number:
        await _post(client, f"/v1/conversations/{lanes[0]}", {"archived": True}, "PATCH")
        await _post(client, f"/v1/conversations/{lanes[1]}/fork")
    for at in range(MOMENTS):
        if at == number:
            puppet.script.append(ModelError(ModelFault.bad_request, "no"))
        else:
            arguments = '{"label": "human", "new_string": "line"}' if at else '{"label": "nothing", "new_string": ""}'
            puppet.script.extend((called("memory_insert", arguments, f"call_{number}_{at}"), said("done")))
        await client.post(f"/v1/agents/{agent_id}/messages", json={"input": f"word {at}"})
    steps = (await client.get(f"/v1/steps/?agent_id={agent_id}")).json()
    for word, tags, step in zip(("positive", "negative"), (["good"], ["good", "odd"]), steps, strict=False):
        await _post(client, f"/v1/steps/{step['id']}/feedback", {"feedback": word, "tags": tags}, "PATCH")
    await _post(client, f"/v1/steps/{steps[0]['id']}/feedback", {"feedback": "positive", "tags": ["new"]}, "PATCH")
    for key in ("a", "b", "a"):
        await _post(client, f"/v1/agents/{agent_id}/working-memory/{key}", {"value": number}, "PUT")
    archive = await _post(client, "/v1/archives/", {"name": f"archive {number}"})
    await client.patch(f"/v1/agents/{agent_id}/archives/attach/{archive['id']}")


async def test_every_list_is_what_is_stored_before_and_after_a_restart(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as (kelpie, puppet):
        async with client_of(kelpie) as owner:
            house = await _post(owner, "/v1/admin/orgs/", {"name": "neighbour"})
            user = await _post(owner, "/v1/admin/users/", {"name": "guest", "organization_id": house["id"]})
        headers = {DEFAULT_ORGANIZATION: SDK_HEADERS, house["id"]: {**SDK_HEADERS, "user_id": user["id"]}}
        for each in headers.values():
            async with client_of(kelpie, each) as client:
                await furnish(client, puppet)
        before = {name: await _read(tmp_path, kelpie, name, each) for name, each in headers.items()}
    async with open_rig(tmp_path) as (kelpie, _):
        assert {name: await _read(tmp_path, kelpie, name, each) for name, each in headers.items()} == before


async def _read(tmp_path: Path, kelpie: Kelpie, organization: str, headers: Mapping[str, str]) -> dict[str, bytes]:
    """Checks all lists of an organization and returns what was read, by path."""
    read: dict[str, bytes] = {}
    async with client_of(kelpie, headers) as client:

        async def get(path: str) -> Any:
            answer = await client.get(path)
            assert answer.status_code == 200, f"{path}: {answer.text}"
            read[path] = _LOADED.sub(b"", answer.content)
            return answer.json()

        with closing(sqlite3.connect(tmp_path / "kelpie.db")) as disk:

            def ask(statement: str, *given: object) -> list[tuple[Any, ...]]:
                return disk.execute(statement, given).fetchall()

            await lists_are_right(get, ask, organization)
            await runs_are_right(get, ask, organization)
    return read
