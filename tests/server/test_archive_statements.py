"""However many rows there are, a list or a look takes the same number of SQL statements."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from sqlalchemy import Engine, event

from tests.server.rig import make_agent

STATEMENTS_MAX = 12


@contextmanager
def counted() -> Iterator[list[str]]:
    """Every statement that any database is asked meanwhile."""
    seen: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def fill(client: httpx.AsyncClient, key: str, number: int) -> dict[str, str]:
    """An archive and an identity with so many rows around them, all reachable by the paths below."""
    archive = (await client.post("/v1/archives/", json={"name": "a", "embedding": "fake/embed"})).json()["id"]
    passages = [{"text": f"apple {n}", "tags": [f"t{n}"]} for n in range(number)]
    await client.post(f"/v1/archives/{archive}/passages/batch", json={"passages": passages})
    body = {"identifier_key": key, "name": "n", "identity_type": "user"}
    identity = (await client.post("/v1/identities/", json=body)).json()["id"]
    agents: list[str] = []
    for n in range(number):
        others = await client.post("/v1/identities/", json={**body, "identifier_key": f"{key}{n}"})
        made = await make_agent(client, identity_ids=[identity, others.json()["id"]], tags=[f"a{n}"])
        agents.append(made["id"])
        await client.patch(f"/v1/agents/{agents[-1]}/archives/attach/{archive}")
        block = await client.post("/v1/blocks/", json={"label": f"b{n}", "value": "", "tags": [f"b{n}"]})
        await client.patch(f"/v1/blocks/{block.json()['id']}/identities/attach/{identity}")
    return {"archive": archive, "identity": identity, "agent": agents[0], "key": key}


PATHS = (
    "/v1/archives/",
    "/v1/archives/{archive}",
    "/v1/archives/{archive}/agents?include=agent.identities",
    "/v1/agents/{agent}/archival-memory",
    "/v1/agents/{agent}/archival-memory?search=apple",
    "/v1/agents/{agent}/archival-memory/search?query=apple&top_k=100",
    "/v1/identities/",
    "/v1/identities/{identity}",
    "/v1/identities/{identity}/agents?include=agent.identities",
    "/v1/identities/{identity}/blocks",
    "/v1/agents/?identifier_keys={key}&include=agent.identities",
    "/v1/blocks/?identity_id={identity}",
    "/v1/tags/",
)


async def statements(client: httpx.AsyncClient, known: dict[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in PATHS:
        with counted() as seen:
            answer = await client.get(path.format(**known))
        assert answer.status_code == 200 and answer.json(), (path, answer.text)
        found[path] = len(seen)
    with counted() as seen:
        answer = await client.post("/v1/passages/search", json={"query": "apple", "limit": 100})
    found["/v1/passages/search"] = len(seen) if answer.json() else -1
    return found


async def test_the_number_of_statements_does_not_grow_with_the_rows(client: httpx.AsyncClient) -> None:
    first = await statements(client, await fill(client, "few", 1))
    assert await statements(client, await fill(client, "many", 12)) == first
    assert max(first.values()) <= STATEMENTS_MAX
