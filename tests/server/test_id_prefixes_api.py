"""Ids by their first characters over HTTP: found in the caller's organization only, and bounded."""

import httpx

from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.ids import OrganizationId
from tests.server.rig import Puppet, make_agent, said

ELSEWHERE = Caller(organization_id=OrganizationId("org-00000000-0000-4000-8000-000000000009"))


async def found(client: httpx.AsyncClient, prefix: str, limit: int = 20) -> list[dict[str, str | None]]:
    answer = await client.get("/v1/kelpie/ids", params={"prefix": prefix, "limit": limit})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_ids_of_every_kind_are_found_by_their_first_characters(
    client: httpx.AsyncClient, kelpie: Kelpie, puppet: Puppet
) -> None:
    agent = await make_agent(client, name="ada", memory_blocks=[{"label": "human", "value": ""}])
    puppet.script.append(said("Hello"))
    await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
    conversation = (await client.post(f"/v1/conversations/?agent_id={agent['id']}", json={})).json()
    run = (await client.get("/v1/runs/")).json()[0]
    message = (await client.get(f"/v1/agents/{agent['id']}/messages")).json()[-1]
    named = {agent["id"]: "ada", agent["blocks"][0]["id"]: "human"}
    for whole in (*named, conversation["id"], run["id"], message["id"]):
        assert await found(client, whole) == [{"id": whole, "name": named.get(whole)}]
        start = whole.partition("-")[2][:12]
        kind = whole.partition("-")[0]
        assert whole in [each["id"] for each in await found(client, f"{kind}-{start}")]
        assert await kelpie.api(ELSEWHERE).id_prefixes.find([(kind, start)], 20) == [], "of another organization"
    several = await client.get("/v1/kelpie/ids", params={"prefix": list(named)})
    assert {each["id"]: each["name"] for each in several.json()} == named
    deleted = await client.delete(f"/v1/conversations/{conversation['id']}")
    assert deleted.status_code == 200 and await found(client, conversation["id"]) == []


async def test_a_prefix_finds_its_ids_in_order_and_no_more_than_asked(client: httpx.AsyncClient) -> None:
    for _ in range(20):  # sixteen first characters: two ids share one
        await make_agent(client)
    everyone = sorted([each["id"] for each in (await client.get("/v1/agents/?limit=100")).json()])
    for digit in "0123456789abcdef":
        here = [each for each in everyone if each.startswith(f"agent-{digit}")]
        assert [each["id"] for each in await found(client, f"agent-{digit}")] == here
        assert len(await found(client, f"agent-{digit}", limit=1)) == min(1, len(here))


async def test_what_is_no_prefix_is_refused_with_the_reason(client: httpx.AsyncClient) -> None:
    for prefix in ("", "agent-", "agent-xyz", "AGENT-1", "key-1", "agent-%", "1234"):
        answer = await client.get("/v1/kelpie/ids", params={"prefix": prefix})
        assert answer.status_code == 400 and "first characters of an id" in answer.text, answer.text
