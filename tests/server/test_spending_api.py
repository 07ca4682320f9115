"""Spending of an organization by day, model and agent, and the state of budgets."""

from datetime import UTC, datetime
from typing import Any

import httpx

from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.ids import OrganizationId, UserId
from kelpie.core.permissions.spending import SpendingGroup, SpendingQuery
from tests.server.rig import make_agent

STRANGERS = Caller(
    UserId("user-11111111-0000-4000-8000-000000000001"), OrganizationId("org-11111111-0000-4000-8000-000000000001")
)


async def send(client: httpx.AsyncClient, agent: dict[str, Any]) -> None:
    answer = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
    assert answer.status_code == 200, answer.text


async def sums(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    answer = await client.get("/v1/kelpie/spending", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_sums_by_day_model_and_agent_agree_with_each_other(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    assert await sums(client) == []
    one, two = await make_agent(client), await make_agent(client, name="two")
    for agent in (one, one, two):
        await send(client, agent)
    [day] = await sums(client, by="day")
    assert day["day"] == datetime.now(UTC).date().isoformat()
    assert (day["steps"], day["tokens"]) == (3, 36)
    [model] = await sums(client, by="model")
    assert (model["steps"], model["tokens"]) == (3, 36) and model["model"]
    found = await sums(client, by="agent")
    assert {each["agent_name"]: each["steps"] for each in found} == {one["name"]: 2, "two": 1}
    assert [each["steps"] for each in await sums(client, by="day", agent_id=two["id"])] == [1]
    assert await sums(client, by="day", model="nobody/nothing") == []
    query = SpendingQuery(SpendingGroup.day, 0, 10)
    assert (await kelpie.api(STRANGERS).spending.sums(query)).sums == []
    await client.delete(f"/v1/agents/{two['id']}")
    assert [each["agent_id"] for each in await sums(client, by="agent")] == [one["id"]]


async def test_a_day_begins_in_the_zone_of_the_reader(client: httpx.AsyncClient) -> None:
    await send(client, await make_agent(client))
    minutes = 14 * 60
    days = {(await sums(client, utc_offset_minutes=offset))[0]["day"] for offset in (-minutes, minutes)}
    assert len(days) == 2
    for wrong in ({"days": 0}, {"days": 367}, {"by": "year"}, {"agent_id": "x"}, {"limit": 0}):
        assert (await client.get("/v1/kelpie/spending", params=wrong)).status_code in (400, 422), wrong


async def test_budgets_say_what_is_used_up(client: httpx.AsyncClient) -> None:
    await make_agent(client, name="free")
    tight = await make_agent(client, name="tight", kelpie_budget={"tokens": 5, "period": "day"})
    wide = await make_agent(client, name="wide", kelpie_budget={"tokens": 500})
    for agent in (tight, wide):
        await send(client, agent)
    found = {each["agent_name"]: each for each in (await client.get("/v1/kelpie/budgets")).json()}
    assert set(found) == {"tight", "wide"}
    assert found["tight"]["used_up"] and found["tight"]["spent_tokens"] == 12 and found["tight"]["frees_at"]
    assert not found["wide"]["used_up"] and found["wide"]["tokens"] == 500 and found["wide"]["frees_at"] is None
    first = (await client.get("/v1/kelpie/budgets", params={"limit": 1})).json()
    rest = (await client.get("/v1/kelpie/budgets", params={"after": first[0]["agent_id"]})).json()
    assert [*(each["agent_id"] for each in first), *(each["agent_id"] for each in rest)] == sorted(
        (tight["id"], wide["id"])
    )
