"""Tags over HTTP: those of agents and blocks, merged; the cursors are tags."""

from typing import Any

import httpx

from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.ids import OrganizationId
from kelpie.core.paging import Page
from tests.server.rig import make_agent


async def test_tags_follow_what_carries_them(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    async def listed(**params: Any) -> list[str]:
        answer = await client.get("/v1/tags/", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert await listed() == []
    agent = await make_agent(client, tags=["tagB", "role:subagent", "alpha"])
    block = (await client.post("/v1/blocks/", json={"label": "l", "value": "", "tags": ["tagA", "alpha"]})).json()
    assert await listed() == ["alpha", "role:subagent", "tagA", "tagB"]
    assert await listed(limit=1) == ["alpha"]
    assert await listed(after="tagA") == ["tagB"]
    assert await listed(before="tagA", limit=1) == ["role:subagent"]
    assert await listed(limit=2, order="desc") == ["tagB", "tagA"]
    assert await listed(limit=2, order="desc", after="tagB") == ["tagA", "role:subagent"]
    assert await listed(name="tagB") == ["tagB"]
    assert await listed(name="tag") == await listed(query_text="TAG") == ["tagA", "tagB"]
    assert await listed(name="100%") == []
    other = Caller(organization_id=OrganizationId("org-00000000-0000-4000-8000-000000000009"))
    assert await kelpie.api(other).tags.page(Page()) == []
    await client.delete(f"/v1/agents/{agent['id']}")
    assert await listed() == ["alpha", "tagA"]
    await client.patch(f"/v1/blocks/{block['id']}", json={"tags": ["new"]})
    assert await listed() == ["new"]
    for params in ({"limit": -1}, {"order": "up"}, {"order_by": "created_at"}, {"name": "x" * 1001}):
        assert (await client.get("/v1/tags/", params=params)).status_code == 422
