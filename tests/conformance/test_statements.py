"""However many rows there are, a listing and a look-up cost the same number of SQL statements."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.world.sqlite.group_commit import driver_connection
from tests.conformance.things import SOURCE
from tests.server.rig import client_of, open_rig

MOST = 12  # statements of one request
# These read every table that memory lies in, each once.
WHOLE = {
    "/v1/agents/{agent}/memory/checkpoint": 20,
    "/v1/agents/{agent}/export": 14,
    "/v1/kelpie/agents/{agent}/prompt": 14,
    "/v1/kelpie/data": 56,
}
RELATIONS = "&".join(
    f"include=agent.{name}" for name in ("blocks", "tools", "tags", "secrets", "identities", "managed_group", "sources")
)
SEARCH = "/v1/agents/{agent}/archival-memory/search?query=rain&top_k=50"
LISTS = [
    "/v1/agents/?limit=50",
    f"/v1/agents/?limit=50&{RELATIONS}",
    "/v1/agents/count",
    "/v1/archives/?limit=50",
    "/v1/blocks/?limit=50",
    "/v1/blocks/count",
    "/v1/conversations/?limit=50",
    "/v1/groups/?limit=50",
    "/v1/identities/?limit=50",
    "/v1/jobs/?limit=50",
    "/v1/mcp-servers/",
    "/v1/messages/?limit=50",
    "/v1/providers/?limit=50",
    "/v1/runs/?limit=50",
    "/v1/steps/?limit=50",
    "/v1/tags/?limit=50",
    "/v1/templates?limit=50",
    "/v1/tools/?limit=50",
    "/v1/admin/users/",
    "/v1/admin/orgs/",
]
OF_ONE = [
    "/v1/agents/{agent}",
    f"/v1/agents/{{agent}}?{RELATIONS}",
    "/v1/agents/{agent}/context",
    "/v1/agents/{agent}/core-memory/blocks",
    "/v1/agents/{agent}/tools",
    "/v1/agents/{agent}/messages",
    "/v1/agents/{agent}/archival-memory",
    SEARCH,
    "/v1/agents/{agent}/groups",
    "/v1/archives/{archive}/agents",
    "/v1/blocks/{block}/agents",
    "/v1/identities/{identity}/agents",
    "/v1/identities/{identity}/blocks",
    "/v1/agents/?identity_id={identity}&include=agent.identities",
    "/v1/blocks/?identity_id={identity}",
]
UNKNOWN = {
    "/openai/v1/models/{model}",  # by id or name; see tests/server/test_openai_responses.py
    "/openai/v1/responses/{response}",
    "/openai/v1/responses/{response}/input_items",
    "/v1/jobs/{job}",  # a batch; see tests/batches
    "/v1/kelpie/mcp-tasks/{mcp_task}",  # these two need an MCP server that answers
    "/v1/tools/mcp/servers/{mcp_server_name}/tools",
    "/v1/agents/{agent}/messages/batch/{batch}",  # these five: see tests/batches
    "/v1/kelpie/batches/{batch}",
    "/v1/kelpie/batches/{batch}/items",
    "/v1/messages/batches/{batch}",
    "/v1/messages/batches/{batch}/messages",
}
ELSEWHERE = {
    "/v1/agents/{agent}/archival-memory/search",  # asked for above, with the query that it needs
    "/v1/kelpie/ids",  # needs a prefix
    "/v1/kelpie/logs/stream",  # has no end
    "/v1/providers/{provider}/check",  # asks the provider
    "/v1/tools/mcp/oauth/callback",  # needs a login that waits
    "/v1/mcp-servers/{mcp_server}/tools/{tool}",  # needs a tool of that server
    "/v1/mcp-servers/connect/{mcp_server}",  # starts the server
    "/v1/kelpie/encryption",  # the key of this server has no file; see tests/encryption
}


_asked: ContextVar[list[str] | None] = ContextVar("asked", default=None)


class Counting:
    """Sees the SQL that a request causes, and none of what the server does meanwhile by itself."""

    def __init__(self, patch: pytest.MonkeyPatch, database: Any) -> None:
        for name in ("read", "transact"):
            patch.setattr(database, name, self._seen(getattr(database, name)))

    @contextmanager
    def statements(self) -> Iterator[list[str]]:
        seen: list[str] = []
        token = _asked.set(seen)
        try:
            yield seen
        finally:
            _asked.reset(token)

    def _seen(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(function: Callable[[Any], Any], *arguments: Any, **named: Any) -> Any:
            seen = _asked.get()

            def noted(tx: Any) -> Any:
                driver = driver_connection(tx)
                driver.set_trace_callback(None if seen is None else partial(_note, seen))
                try:
                    return function(tx)
                finally:
                    driver.set_trace_callback(None)

            return await method(noted, *arguments, **named)

        return call


def _note(seen: list[str], statement: str) -> None:
    # A statement that writes comes again for each of its triggers.
    again = bool(seen) and seen[-1] == statement and not statement.startswith("SELECT")
    if not again and not statement.startswith(("BEGIN", "SAVEPOINT", "RELEASE")):
        seen.append(statement)


async def _call(client: httpx.AsyncClient, method: str, path: str, **fields: Any) -> Any:
    answer = await client.request(method, path, **fields)
    assert answer.status_code < 300, f"{method} {path}: {answer.text}"
    return answer.json() if answer.content else None


class Rows:
    """Many of everything, most of them hanging on one block, one identity and one archive, and on one agent."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._made = 0
        self.ids: dict[str, str] = {}

    async def start(self) -> None:
        call = self._client
        self.ids["block"] = (await _call(call, "POST", "/v1/blocks/", json={"label": "shared", "value": "v"}))["id"]
        self.ids["archive"] = (await _call(call, "POST", "/v1/archives/", json={"name": "shared"}))["id"]
        self.ids["folder"] = (await _call(call, "POST", "/v1/folders/", json={"name": "shared"}))["id"]
        self.ids["file"] = await self._file()
        self.ids |= {"source": self.ids["folder"], "folder_name": "shared", "source_name": "shared"}
        self.ids["identity"] = await self._identity()
        self.ids["agent"] = await self._agent()
        template = {"type": "agent", "agent_id": self.ids["agent"], "name": "shared"}
        await _call(call, "POST", "/v1/templates", json=template)
        self.ids["project"] = (await _call(call, "POST", "/v1/projects", json={"name": "shared"}))["id"]
        schedule = {"message": "hi", "recurrence_rule": "0 9 * * *"}
        of = f"/v1/agents/{self.ids['agent']}"
        self.ids["schedule"] = (await _call(call, "POST", f"{of}/schedule", json=schedule))["id"]
        self.ids["hook"] = (await _call(call, "POST", f"{of}/hooks", json={"name": "shared"}))["id"]

    async def look_around(self) -> None:
        """Finds what only others make: runs, steps, messages and so on."""
        call, agent = self._client, self.ids["agent"]
        self.ids |= {"label": "human", "deployment": "none", "tool_name": "shout_1", "version": "1"}
        self.ids |= {"device": "kelpie", "template_name": "shared", "template_version": "shared:1"}
        for name, path in (
            ("run", f"/v1/runs/?agent_id={agent}"), ("step", f"/v1/steps/?agent_id={agent}"),
            ("message", f"/v1/agents/{agent}/messages"), ("tool", f"/v1/agents/{agent}/tools"),
            ("group", f"/v1/agents/{agent}/groups"), ("conversation", "/v1/conversations/"),
            ("mcp_server", "/v1/mcp-servers/"), ("provider", "/v1/providers/"),
        ):  # fmt: skip
            self.ids[name] = (await _call(call, "GET", path))[0]["id"]
        self.ids["sandbox_config"] = (await _call(call, "POST", "/v1/sandbox-config/local/default"))["id"]
        self.ids["entry_key"] = "note 1"
        self.ids["key"] = (await _call(call, "POST", "/v1/kelpie/keys", json={"name": "k", "scopes": ["read"]}))["id"]

    async def grow(self, number: int) -> None:
        for _ in range(number):
            self._made += 1
            await self._one(self._made)

    async def _one(self, n: int) -> None:
        call, agent = self._client, await self._agent()
        await _call(call, "POST", "/v1/archives/", json={"name": f"a{n}"})
        await _call(call, "POST", "/v1/folders/", json={"name": f"f{n}"})
        await self._file()
        await _call(call, "POST", "/v1/templates/shared/save")
        if n % 2:  # versions of templates are checked 16 at a time, so there are fewer
            template = {"type": "agent", "agent_id": agent, "name": f"template{n}"}
            await _call(call, "POST", "/v1/templates", json=template)
        await _call(call, "PATCH", f"/v1/blocks/{self.ids['block']}", json={"value": f"v{n}"})
        await _call(call, "PATCH", f"/v1/agents/{agent}/archives/attach/{self.ids['archive']}")
        for of in (agent, self.ids["agent"]):
            await _call(call, "POST", f"/v1/agents/{of}/messages", json={"input": "hello"})
            passage = {"text": f"rain {n}", "tags": [f"p{n}"]}
            await _call(call, "POST", f"/v1/agents/{of}/archival-memory", json=passage)
            note = {"value": n, "ttl_seconds": 999}
            await _call(call, "PUT", f"/v1/agents/{of}/working-memory/note {n}", json=note)
            block = await _call(
                call, "POST", "/v1/blocks/", json={"label": f"l{n}-{of}", "value": "v", "tags": [f"b{n}"]}
            )
            await _call(call, "PATCH", f"/v1/agents/{of}/core-memory/blocks/attach/{block['id']}")
            await _call(call, "PATCH", f"/v1/blocks/{block['id']}/identities/attach/{self.ids['identity']}")
            tool = await _call(call, "POST", "/v1/tools/", json={"source_code": SOURCE.replace("shout", f"shout_{n}")})
            await _call(call, "PATCH", f"/v1/agents/{of}/tools/attach/{tool['id']}")
            await _call(call, "POST", "/v1/groups/", json={"agent_ids": [of], "description": "d"})
        await _call(call, "POST", f"/v1/projects/{self.ids['project']}/agents", json={"agent_id": agent})
        await _call(call, "POST", "/v1/projects", json={"name": f"project{n}", "tags": [f"t{n}"]})
        for of in (agent, self.ids["agent"]):
            schedule = {"message": "hi", "recurrence_rule": f"{n} 9 * * *"}
            await _call(call, "POST", f"/v1/agents/{of}/schedule", json=schedule)
            await _call(call, "POST", f"/v1/agents/{of}/hooks", json={"name": f"h{n}"})
        await _call(call, "POST", "/v1/conversations/", params={"agent_id": agent}, json={})
        server = {"server_name": f"s{n}", "config": {"mcp_server_type": "stdio", "command": "true", "args": []}}
        await _call(call, "POST", "/v1/mcp-servers/", json=server)
        provider = {"name": f"p{n}", "provider_type": "openai", "api_key": "k", "base_url": "https://models.invalid"}
        await _call(call, "POST", "/v1/providers/", json=provider)
        organization = await _call(call, "POST", "/v1/admin/orgs/", json={"name": f"o{n}"})
        self.ids["organization"] = organization["id"]
        await _call(call, "POST", "/v1/admin/users/", json={"name": f"u{n}", "organization_id": organization["id"]})

    async def _file(self) -> str:
        """A file of the shared folder, when it is processed."""
        path = f"/v1/folders/{self.ids['folder']}"
        sent = await _call(self._client, "POST", f"{path}/upload", files={"file": ("a.txt", b"rain")})
        async with asyncio.timeout(60):
            while True:
                found = await _call(self._client, "GET", f"{path}/files/{sent['id']}")
                if found["processing_status"] == "completed":
                    return sent["id"]
                await asyncio.sleep(0.02)

    async def _identity(self) -> str:
        body = {"identifier_key": f"i{self._made}", "name": "Ann", "identity_type": "user"}
        return (await _call(self._client, "POST", "/v1/identities/", json=body))["id"]

    async def _agent(self) -> str:
        body = {
            "name": f"n{self._made}",
            "block_ids": [self.ids["block"]],
            "identity_ids": [self.ids["identity"]],
            "tags": [f"t{self._made}"],
            "secrets": {"k": "v"},
            "memory_blocks": [{"label": "human", "value": "v"}],
        }
        return (await _call(self._client, "POST", "/v1/agents/", json=body))["id"]


async def test_a_request_costs_the_same_for_few_rows_and_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_rig(tmp_path) as (kelpie, _), client_of(kelpie) as client:
        counting, rows = Counting(monkeypatch, kelpie.world.database), Rows(client)
        await rows.start()
        counted: list[dict[str, int]] = []
        for more in (2, 7):
            await rows.grow(more)
            if not counted:
                await rows.look_around()
            await _call(client, "GET", SEARCH.format(**rows.ids))  # what is held of an index is read up to here
            paths = [*LISTS, *OF_ONE, *await _described(client, rows.ids)]
            counted.append({path: await _cost(counting, client, path.format(**rows.ids)) for path in paths})
    assert len(counted[0]) > len(LISTS) + len(OF_ONE) + 40
    few, many = counted
    assert few == many
    assert {path: cost for path, cost in many.items() if cost > WHOLE.get(path, MOST)} == {}


async def _described(client: httpx.AsyncClient, ids: dict[str, str]) -> list[str]:
    """Every path that can be read and names nothing but what there is."""
    document = (await client.get("/openapi.json")).json()
    found = [
        re.sub(r"{(\w+?)(_id)?}", r"{\1}", path) for path, methods in document["paths"].items() if "get" in methods
    ]
    known = [path for path in found if set(re.findall(r"{(\w+)}", path)) <= set(ids)]
    assert {path for path in found if path not in known} == UNKNOWN
    return [path for path in known if path not in ELSEWHERE]


async def _cost(counting: Counting, client: httpx.AsyncClient, path: str) -> int:
    with counting.statements() as seen:
        answer = await client.get(path)
    if answer.status_code != 200:
        pytest.fail(f"{path}: {answer.status_code} {answer.text}")
    return len(seen)
