"""Two organisations on one server: what each of them has, and the ways in which one can ask for what is the other's.

Everything that belongs to an organisation carries its treasure, a word that appears nowhere else, so that whoever sees
any of it can be told.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute

from kelpie.app import Kelpie
from kelpie.storage.tables import metadata

ACCESS = ["read_messages", "write_messages", "read_agent", "write_agent"]
SITE = "https://app.example"
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
SOURCE = 'def intruder(x: str) -> str:\n    """It.\n\n    Args:\n        x: it\n    """\n    return x\n'
NOBODY = "00000000-0000-4000-8000-00000000000f"


@dataclass
class Neighbour:
    """One organisation: a user, and one of everything that a user can have. `ids` is by parameter of a path."""

    treasure: str
    user: str
    organization: str
    ids: dict[str, str] = field(default_factory=dict)
    credentials: dict[str, dict[str, str]] = field(default_factory=dict)

    def mentions(self) -> list[str]:
        """What gives this neighbour away."""
        return [self.treasure, self.organization, self.user, *(value for value in self.ids.values() if "-4" in value)]


async def move_in(client: httpx.AsyncClient, treasure: str) -> Neighbour:
    """Makes an organisation with everything that can be made over HTTP."""
    organization = await _made(client, "/v1/admin/orgs/", {"name": treasure})
    user = await _made(client, "/v1/admin/users/", {"name": treasure, "organization_id": organization["id"]})
    one = Neighbour(treasure, user["id"], organization["id"])
    me = {"user_id": one.user}

    async def have(path: str, body: Any, *names: str) -> dict[str, Any]:
        made = await _made(client, path, body, me)
        one.ids |= dict.fromkeys(names, made["id"])
        return made

    block = await have("/v1/blocks/", {"label": treasure, "value": treasure, "tags": [treasure]}, "block_id")
    source = (
        f'def {treasure}_tool(x: str) -> str:\n    """{treasure}.\n\n    Args:\n        x: it\n    """\n    return x\n'
    )
    await have("/v1/tools/", {"source_code": source, "tags": [treasure]}, "tool_id")
    body = {
        "name": treasure,
        "tags": [treasure],
        "metadata": {"of": treasure},
        "memory_blocks": [{"label": "human", "value": treasure}],
        "block_ids": [block["id"]],
        "tool_ids": [one.ids["tool_id"]],
        "secrets": {"KEY": treasure},
    }
    agent = (await have("/v1/agents/", body, "agent_id"))["id"]
    said = await _made(client, f"/v1/agents/{agent}/messages", {"input": f"hello {treasure}"}, me)
    one.ids["message_id"] = said["messages"][-1]["id"]
    one.ids["run_id"] = (await client.get("/v1/runs/", headers=me)).json()[0]["id"]
    one.ids["step_id"] = (await client.get("/v1/steps/", headers=me)).json()[0]["id"]
    one.ids["entry_key"] = f"{treasure}/note"
    entry = await client.put(f"/v1/agents/{agent}/working-memory/{treasure}/note", json={"value": treasure}, headers=me)
    assert entry.status_code == 200, entry.text
    archive = await have("/v1/archives/", {"name": treasure, "description": treasure}, "archive_id")
    await have(f"/v1/archives/{archive['id']}/passages", {"text": treasure}, "passage_id", "memory_id")
    person = {"identifier_key": treasure, "name": treasure, "identity_type": "user"}
    await have("/v1/identities/", person, "identity_id")
    await have(f"/v1/conversations/?agent_id={agent}", {"summary": treasure}, "conversation_id")
    await have("/v1/groups/", {"agent_ids": [agent], "description": treasure}, "group_id")
    served = {"mcp_server_type": "sse", "server_url": f"https://{treasure}.example/sse"}
    await have("/v1/mcp-servers/", {"server_name": treasure, "config": served}, "mcp_server_id")
    secret = f"sk-{treasure}"
    provider = {
        "name": treasure,
        "provider_type": "openai",
        "api_key": secret,
        "base_url": f"https://{treasure}.invalid/v1",
    }
    await have("/v1/providers/", provider, "provider_id")
    sandbox = await have("/v1/sandbox-config/", {"config": {"sandbox_dir": f"/{treasure}"}}, "sandbox_config_id")
    variable = {"key": treasure, "value": treasure}
    await have(f"/v1/sandbox-config/{sandbox['id']}/environment-variable", variable, "env_var_id")
    one.ids |= {"block_label": "human", "label": "human", "tool_name": f"{treasure}_tool", "mcp_server_name": treasure}
    await _credentials(client, one, have)
    return one


async def _credentials(client: httpx.AsyncClient, one: Neighbour, have: Any) -> None:
    one.credentials["as the user"] = {"user_id": one.user}
    for scope in ("read", "write", "admin"):
        key = await have("/v1/kelpie/keys", {"name": one.treasure, "scopes": [scope]}, "key_id")
        one.credentials[f"a key to {scope}"] = {"Authorization": f"Bearer {key['key']}"}
    for_one = {"name": one.treasure, "scopes": ["write"], "agent_ids": [one.ids["agent_id"]]}
    key = await have("/v1/kelpie/keys", for_one, "key_id")
    one.credentials["a key for one agent"] = {"Authorization": f"Bearer {key['key']}"}
    policy = {"hostname": SITE, "policy": [{"type": "agent", "id": one.ids["agent_id"], "access": ACCESS}]}
    token = await _made(client, "/v1/client-side-access-tokens", policy, {"user_id": one.user})
    one.credentials["a token"] = {"Authorization": f"Bearer {token['token']}"}
    listed = await client.get("/v1/client-side-access-tokens", headers={"user_id": one.user})
    one.ids["token"] = listed.json()["tokens"][0]["token"]


async def _made(client: httpx.AsyncClient, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
    answer = await client.post(path, json=body, headers=headers)
    assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
    found = answer.json()
    return found[0] if isinstance(found, list) else found


def routes(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path that the application has."""
    return [
        (method, route.path) for route in app.routes if isinstance(route, APIRoute) for method in sorted(route.methods)
    ]


def asked_for(path: str, whose: Neighbour) -> str:
    """The path, naming what is the neighbour's."""
    return _PARAMETER.sub(lambda match: whose.ids.get(match[1], f"{match[1].removesuffix('_id')}-{NOBODY}"), path)


def query_for(whose: Neighbour) -> dict[str, str]:
    """Parameters that name what is the neighbour's, for every route that looks at any of them."""
    named = {name: value for name, value in whose.ids.items() if name.endswith("_id")}
    return {**named, "agentId": whose.ids["agent_id"], "org_id": whose.organization, "user_id": whose.user}


def body_for(whose: Neighbour) -> dict[str, Any]:
    """A body that fits most routes, and names what is the neighbour's wherever it can."""
    lists = {f"{name}s": [value] for name, value in whose.ids.items() if name.endswith("_id")}
    singles = {name: value for name, value in whose.ids.items() if name.endswith("_id")}
    return {
        **lists,
        **singles,
        "id": whose.user,
        "user_id": whose.user,
        "organization_id": whose.organization,
        "name": "intruder",
        "label": "human",
        "value": "intruded",
        "text": "intruded",
        "description": "intruded",
        "summary": "intruded",
        "content": "intruded",
        "message_type": "user_message",
        "messages": [{"role": "user", "content": "hi"}],
        "passages": [{"text": "intruded"}],
        "query": "t",
        "source_code": SOURCE,
        "identifier_key": "intruder",
        "identity_type": "user",
        "properties": [],
        "hostname": SITE,
        "policy": [{"type": "agent", "id": whose.ids["agent_id"], "access": ACCESS}],
        "scopes": ["read"],
        "server_name": "intruder",
        "config": {"mcp_server_type": "sse", "server_url": "https://intruder.example/sse"},
        "key": "INTRUDER",
        "feedback": "positive",
        "password": "x",
        "handle": "fake/model",
    }


async def rows_of(kelpie: Kelpie, whose: Neighbour) -> dict[str, list[str]]:
    """Every stored row that has to do with the neighbour, by table."""
    words = whose.mentions()

    def read(tx: Any) -> dict[str, list[str]]:
        found = {}
        for name, table in sorted(metadata.tables.items()):
            rows = (json.dumps(list(row), default=str) for row in tx.execute(table.select()))
            found[name] = sorted(row for row in rows if any(word in row for word in words))
        return found

    return await kelpie.world.database.read(read)


def seen_in(text: str, whose: Neighbour, sent: str) -> Iterator[str]:
    """What an answer gives away: anything of the neighbour's that the question did not name itself."""
    yield from (word for word in whose.mentions() if word in text and word not in sent)
