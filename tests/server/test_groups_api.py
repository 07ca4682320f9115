"""Groups and jobs as records, over HTTP."""

from collections.abc import Awaitable
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.agents.groups import GroupQuery
from kelpie.core.conversations.jobs import Job, JobQuery, JobStatus
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, BlockId, GroupId, JobId, OrganizationId, UserId
from kelpie.storage.runs import jobs
from tests.server.rig import Puppet, make_agent

STRANGERS = Caller(
    UserId("user-11111111-0000-4000-8000-000000000001"), OrganizationId("org-11111111-0000-4000-8000-000000000001")
)
UNKNOWN = "agent-00000000-0000-4000-8000-0000000000ff"


async def made_group(client: httpx.AsyncClient, agent_ids: list[str], **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/groups/", json={"agent_ids": agent_ids, "description": "d", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def unseen(*attempts: Awaitable[Any]) -> None:
    for attempt in attempts:
        with pytest.raises(NotFound):
            await attempt


async def test_who_leads_a_group_shows_it(client: httpx.AsyncClient) -> None:
    boss, one = [(await make_agent(client, name=name))["id"] for name in ("boss", "one")]
    await made_group(client, [one], manager_config={"manager_type": "supervisor", "manager_agent_id": boss})
    newest = await made_group(client, [one], manager_config={"manager_type": "dynamic", "manager_agent_id": boss})
    include = {"include": ["agent.managed_group"]}
    shown = (await client.get(f"/v1/agents/{boss}", params=include)).json()
    assert shown["managed_group"] == shown["multi_agent_group"] == newest
    assert (await client.get(f"/v1/agents/{boss}")).json()["managed_group"] is None
    assert (await client.get(f"/v1/agents/{one}", params=include)).json()["managed_group"] is None
    listed = {each["id"]: each["managed_group"] for each in (await client.get("/v1/agents/", params=include)).json()}
    assert listed == {boss: newest, one: None}


async def test_a_group_from_making_to_removing(client: httpx.AsyncClient) -> None:
    one, two, boss = [(await make_agent(client, name=name))["id"] for name in ("one", "two", "boss")]
    block = (await client.post("/v1/blocks/", json={"label": "shared", "value": "v"})).json()["id"]
    config = {"manager_type": "dynamic", "manager_agent_id": boss, "termination_token": "END", "max_turns": 5}
    made = await made_group(
        client, [one, two], manager_config=config, project_id="p", shared_block_ids=[block], hidden=False
    )
    assert made["agent_ids"] == [one, two] and made["shared_block_ids"] == [block] and made["project_id"] == "p"
    assert made | config == made and made["turns_counter"] is None
    path = f"/v1/groups/{made['id']}"
    assert (await client.get(path)).json() == made
    for agent in (one, two):
        assert [b["id"] for b in (await client.get(f"/v1/agents/{agent}/core-memory/blocks")).json()] == [block]

    changed = (await client.patch(path, json={"agent_ids": [two, boss], "description": "new"})).json()
    assert changed["agent_ids"] == [two, boss] and changed["description"] == "new"
    assert changed["max_turns"] == 5 == (await client.get(path)).json()["max_turns"]
    led = (await client.patch(path, json={"manager_config": {"manager_type": "dynamic", "max_turns": 7}})).json()
    assert (led["max_turns"], led["termination_token"], led["manager_agent_id"]) == (7, "END", boss)
    assert (await client.patch(f"{path}/blocks/detach/{block}")).json() is None
    assert (await client.get(path)).json()["shared_block_ids"] == []
    assert (await client.get(f"/v1/agents/{boss}/core-memory/blocks")).json() == []
    assert (await client.patch(f"{path}/blocks/attach/{block}")).json() is None
    assert (await client.get(path)).json()["shared_block_ids"] == [block]
    assert [g["id"] for g in (await client.get(f"/v1/agents/{two}/groups")).json()] == [made["id"]]
    assert (await client.get(f"/v1/agents/{one}/groups")).json() == []

    assert made["id"] in (await client.delete(path)).json()["message"]
    assert (await client.get(path)).status_code == 404 == (await client.delete(path)).status_code
    assert (await client.get("/v1/groups/count")).json() == 0
    assert (await client.get(f"/v1/blocks/{block}")).status_code == 200


async def test_a_member_that_leaves_with_a_block_does_not_see_it_any_more(
    client: httpx.AsyncClient, puppet: Puppet
) -> None:
    stays, leaves = [(await make_agent(client, name=name))["id"] for name in ("stays", "leaves")]
    block = (await client.post("/v1/blocks/", json={"label": "plans", "value": "the old plans"})).json()["id"]
    made = await made_group(client, [stays, leaves], shared_block_ids=[block])
    said = {"messages": [{"role": "user", "content": "hi"}]}
    await client.post(f"/v1/agents/{leaves}/messages", json=said)
    assert "the old plans" in puppet.asked[-1].system
    await client.patch(f"/v1/groups/{made['id']}", json={"agent_ids": [stays], "shared_block_ids": []})
    await client.post(f"/v1/agents/{leaves}/messages", json=said)
    assert "the old plans" not in puppet.asked[-1].system


async def test_a_loaded_agent_sees_the_blocks_of_its_new_group(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = (await make_agent(client))["id"]
    said = {"messages": [{"role": "user", "content": "hi"}]}
    await client.post(f"/v1/agents/{agent}/messages", json=said)
    block = (await client.post("/v1/blocks/", json={"label": "plans", "value": "the new plans"})).json()["id"]
    await made_group(client, [agent], shared_block_ids=[block])
    await client.post(f"/v1/agents/{agent}/messages", json=said)
    assert "the new plans" in puppet.asked[-1].system


async def test_a_block_that_a_group_does_not_share_is_not_taken_from_its_members(
    client: httpx.AsyncClient, kelpie: Kelpie
) -> None:
    agent = (await make_agent(client))["id"]
    block = (await client.post("/v1/blocks/", json={"label": "own", "value": "v"})).json()["id"]
    await client.patch(f"/v1/agents/{agent}/core-memory/blocks/attach/{block}")
    group = GroupId((await made_group(client, [agent]))["id"])
    await kelpie.api().groups.detach_block(group, BlockId(block))
    kept = [one["id"] for one in (await client.get(f"/v1/agents/{agent}/core-memory/blocks")).json()]
    assert block in kept


async def test_a_group_goes_with_its_leader_and_loses_its_members(client: httpx.AsyncClient) -> None:
    one, two, boss = [(await make_agent(client, name=name))["id"] for name in ("one", "two", "boss")]
    config = {"manager_type": "supervisor", "manager_agent_id": boss}
    led = await made_group(client, [one, two], manager_config=config)
    await client.delete(f"/v1/agents/{one}")
    assert (await client.get(f"/v1/groups/{led['id']}")).json()["agent_ids"] == [two]
    await client.delete(f"/v1/agents/{boss}")
    assert (await client.get(f"/v1/groups/{led['id']}")).status_code == 404


async def test_group_lists_and_what_is_refused(client: httpx.AsyncClient) -> None:
    agent = (await make_agent(client))["id"]
    ids = [(await made_group(client, [agent], project_id=f"p{i}"))["id"] for i in range(3)]
    hidden = await made_group(client, [agent], hidden=True)

    async def found(**params: Any) -> list[str]:
        return [group["id"] for group in (await client.get("/v1/groups/", params=params)).json()]

    assert await found() == ids
    assert await found(order="desc", limit=1) == ids[2:]
    assert await found(after=ids[0], limit=1) == ids[1:2] and await found(before=ids[1]) == ids[:1]
    assert await found(project_id="p1") == ids[1:2]
    assert await found(manager_type="dynamic") == [] and await found(manager_type="round_robin") == ids
    assert hidden["id"] in await found(show_hidden_groups=True)
    assert (await client.get("/v1/groups/count")).json() == 4

    async def refused(status: int, **fields: Any) -> None:
        answer = await client.post("/v1/groups/", json={"agent_ids": [agent], "description": "d", **fields})
        assert answer.status_code == status, answer.text

    await refused(404, agent_ids=[UNKNOWN])
    await refused(400, agent_ids=["bad"])
    await refused(404, manager_config={"manager_type": "supervisor", "manager_agent_id": UNKNOWN})
    await refused(422, manager_config={"manager_type": "supervisor"})
    await refused(422, manager_config={"manager_type": "swarm"})
    await refused(422, manager_config={"manager_type": "sleeptime"})
    await refused(404, manager_config={"manager_type": "sleeptime", "manager_agent_id": UNKNOWN})
    await refused(404, shared_block_ids=["block-00000000-0000-4000-8000-0000000000ff"])
    assert (await client.get("/v1/groups/count")).json() == 4
    assert (await client.get(f"/v1/agents/{UNKNOWN}/groups")).status_code == 404


async def test_what_was_said_in_a_group(client: httpx.AsyncClient) -> None:
    agent = (await make_agent(client))["id"]
    group = await made_group(client, [agent])
    path = f"/v1/groups/{group['id']}"
    for text, of in (("inside", group["id"]), ("outside", None), ("inside again", group["id"])):
        message = {"role": "user", "content": text, "group_id": of}
        await client.post(f"/v1/agents/{agent}/messages", json={"messages": [message]})

    async def said(**params: Any) -> list[str]:
        return [m["content"] for m in (await client.get(f"{path}/messages", params=params)).json()]

    assert await said() == ["inside", "inside again"]
    first = (await client.get(f"{path}/messages")).json()[0]
    assert await said(after=first["id"]) == ["inside again"] and await said(limit=1, order="asc") == ["inside"]
    assert (await client.get(f"{path}/messages", params={"after": "bad"})).status_code == 404
    edit = await client.patch(f"{path}/messages/{first['id']}", json={"message_type": "user_message", "content": "x"})
    assert edit.status_code == 405
    assert (await client.patch(f"{path}/reset-messages")).json() is None
    assert await said() == []
    left = [m["content"] for m in (await client.get(f"/v1/agents/{agent}/messages")).json()[1:]]
    assert left == ["ok", "outside", "ok", "ok"]
    await client.post(f"/v1/agents/{agent}/messages", json={"input": "still there?"})  # the agent is not bricked
    assert (await client.post("/v1/messages/search", json={"query": "inside"})).json() == []


async def test_another_organisation_sees_no_group(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    agent = (await make_agent(client))["id"]
    group = GroupId((await made_group(client, [agent]))["id"])
    theirs = kelpie.api(STRANGERS).groups
    assert await theirs.page(GroupQuery(show_hidden=True)) == [] and await theirs.count() == 0
    await unseen(
        theirs.get(group),
        theirs.update(group, {"description": "x"}),
        theirs.delete(group),
        theirs.reset_messages(group),
        theirs.page(GroupQuery(agent_id=AgentId(agent))),
    )


# --- jobs -------------------------------------------------------------------------------------------------------------


async def stored_jobs(kelpie: Kelpie) -> list[Job]:
    """Nothing makes jobs yet, so they are put there."""
    ids, now = kelpie.world.ids, kelpie.world.clock.now()
    made = [
        Job(ids.new(JobId), now + i, now + i, status, source_id=f"source-{i}", metadata={"i": i}, created_by_id="u")
        for i, status in enumerate((JobStatus.created, JobStatus.running, JobStatus.completed))
    ]
    organization = kelpie.api(Caller()).caller.organization_id
    for job in made:
        await kelpie.world.database.transact(lambda tx, job=job: jobs.add(tx, job, organization))
    return made


async def test_jobs(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    waiting, running, done = await stored_jobs(kelpie)

    async def found(path: str = "", **params: Any) -> list[str]:
        return [job["id"] for job in (await client.get(f"/v1/jobs/{path}", params=params)).json()]

    assert await found() == [done.id, running.id, waiting.id]
    assert await found(order="asc", limit=1, after=waiting.id) == [running.id]
    assert await found(active=True) == [running.id, waiting.id] and await found(source_id="source-1") == [running.id]
    assert await found("active") == [waiting.id, running.id] == list(reversed(await found("active", ascending=False)))
    read = (await client.get(f"/v1/jobs/{done.id}")).json()
    assert (read["status"], read["job_type"], read["metadata"]) == ("completed", "job", {"i": 2})
    cancelled = (await client.patch(f"/v1/jobs/{running.id}/cancel")).json()
    assert cancelled["status"] == "cancelled" and cancelled["completed_at"] is not None
    assert cancelled == (await client.get(f"/v1/jobs/{running.id}")).json()
    assert (await client.patch(f"/v1/jobs/{running.id}/cancel")).status_code == 409
    assert (await client.delete(f"/v1/jobs/{done.id}")).json()["id"] == done.id
    assert (await client.get(f"/v1/jobs/{done.id}")).status_code == 404
    assert (await client.get("/v1/jobs/bad")).status_code == 422
    theirs = kelpie.api(STRANGERS).jobs
    assert await theirs.page(JobQuery()) == []
    await unseen(theirs.get(waiting.id), theirs.cancel(waiting.id), theirs.delete(waiting.id))
