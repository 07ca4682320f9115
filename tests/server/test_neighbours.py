"""Nobody sees another organisation's rows, whatever they ask, in whatever way they came in: every route of the
application is asked for everything of the other's, and tells nothing and changes nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kelpie.app import Kelpie
from kelpie.server.app import create_app
from tests.server.direct import Application, get, request
from tests.server.neighbours import (
    NOBODY,
    Neighbour,
    asked_for,
    body_for,
    move_in,
    query_for,
    routes,
    rows_of,
    seen_in,
)
from tests.server.rig import SDK_HEADERS, client_of, open_rig
from tests.turns import in_turns

WAYS = ["as the user", "a key to read", "a key to write", "a key to admin", "a key for one agent", "a token"]
REQUEST_S = 30
PARTS = 3  # of the cursors

Street = tuple[Kelpie, httpx.AsyncClient, list[Neighbour]]


@pytest.fixture
async def street(tmp_path: Path) -> AsyncIterator[Street]:
    async with open_rig(tmp_path, quota_requests_per_minute=0) as (kelpie, _), client_of(kelpie) as client:
        yield kelpie, client, [await move_in(client, f"treasure{letter}") for letter in ("one", "two")]


@pytest.fixture
def app(street: Street) -> FastAPI:
    """For requests that go straight to it: there are many, and httpx takes as long over each as the server."""
    return create_app(street[0])


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    way=st.sampled_from(WAYS),
    from_first=st.booleans(),
    fields=st.sets(st.integers(0, 99), max_size=12),
    with_query=st.booleans(),
)
@example(way="as the user", from_first=True, fields=set(), with_query=False)
@example(way="a key to admin", from_first=False, fields=set(), with_query=True)
async def test_nobody_sees_or_changes_what_is_anothers(
    street: Street, app: FastAPI, way: str, from_first: bool, fields: set[int], with_query: bool
) -> None:
    kelpie, _, both = street
    asker, other = both if from_first else reversed(both)
    await kelpie.runtime.authenticator.close()  # the last use of a key, in an example before this one, is written down
    before = await rows_of(kelpie, other)
    assert sum(map(len, before.values())) > 40, "there is something to protect"
    whole = body_for(other)
    some = {name: value for number, (name, value) in enumerate(whole.items()) if number in fields}
    for method, path in routes(app):
        for body in (whole, some) if method in ("POST", "PUT", "PATCH") else (None,):
            query = query_for(other) if with_query else {}
            await ask(app, method, asked_for(path, other), query, body, asker.credentials[way], other)
    after = await rows_of(kelpie, other)
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not changed


async def ask(
    app: Application,
    method: str,
    path: str,
    query: dict[str, str],
    body: dict[str, Any] | None,
    credential: dict[str, str],
    other: Neighbour,
) -> None:
    async with asyncio.timeout(REQUEST_S):
        status, text = await request(app, method, path, query, body, SDK_HEADERS | credential)
    told = f"{method} {path} {query} {body}: {status} {text[:500]}"
    assert status < 500 or status == 501, told
    sent = json.dumps([path, query, body])
    refused = status >= 400
    # A refusal may name the id that it was asked for; an answer may not even do that.
    assert not list(seen_in(text, other, sent if refused else "")), told


async def test_the_owner_sees_it_all(street: Street) -> None:
    """So that the walk above would find something if there were anything to be found."""
    _, client, (one, _) = street
    seen = 0
    for path in (
        "/v1/agents/{agent_id}", "/v1/blocks/{block_id}", "/v1/tools/{tool_id}", "/v1/runs/{run_id}/messages",
        "/v1/steps/{step_id}/messages", "/v1/messages/{message_id}", "/v1/archives/{archive_id}",
        "/v1/identities/{identity_id}", "/v1/conversations/{conversation_id}", "/v1/groups/{group_id}",
        "/v1/mcp-servers/{mcp_server_id}", "/v1/sandbox-config/{sandbox_config_id}/environment-variable",
        "/v1/agents/{agent_id}/archival-memory", "/v1/agents/{agent_id}/working-memory/{entry_key}",
        "/v1/agents/", "/v1/tags/", "/v1/kelpie/keys/{key_id}",
        "/v1/client-side-access-tokens", "/v1/admin/users/", "/v1/admin/orgs/",
    ):  # fmt: skip
        answer = await client.get(asked_for(path, one), headers={"user_id": one.user})
        assert answer.status_code == 200, f"{path}: {answer.text}"
        seen += any(seen_in(answer.text, one, ""))
    assert seen >= 18


@pytest.mark.parametrize("part", in_turns("cursors of neighbours", {str(part): part for part in range(PARTS)}, PARTS))
async def test_a_cursor_of_anothers_is_as_good_as_none(street: Street, app: FastAPI, part: int) -> None:
    """Otherwise the place where a list is cut would tell when the other's row was made.

    Where nobody's cursor is refused, the other's must be refused alike on either side and in either order.
    """
    _, client, both = street
    lists = await _lists(client)
    differing: list[str] = []
    asked = 0
    for asker, other in (both, both[::-1]):
        me = SDK_HEADERS | {"user_id": asker.user}
        for path, sides in lists:
            address = asked_for(path, asker)
            for cursor in _cursors(other)[part::PARTS]:
                ghost = f"{cursor[:-36]}{NOBODY}"
                nobodys = 0, ""
                for side, order in product(sides, ("asc", "desc")):
                    if nobodys[0] < 400:
                        nobodys = await get(app, address, {side: ghost, "order": order}, me)
                    status, text = await get(app, address, {side: cursor, "order": order}, me)
                    asked += 1
                    if (status, text.replace(cursor, ghost)) != nobodys:
                        differing.append(f"{path} {side} {order} {cursor}: {text[:80]}; {nobodys[1][:80]}")
    assert asked > 1000
    assert not differing, f"{len(differing)}:\n" + "\n".join(differing[:20])


def _cursors(whose: Neighbour) -> list[str]:
    """The ids of what the neighbour has, in an order that does not change from one run to the next."""
    return list(dict.fromkeys(value for _, value in sorted(whose.ids.items()) if "-4" in value))


async def _lists(client: httpx.AsyncClient) -> list[tuple[str, list[str]]]:
    """Every path whose answer is cut by a cursor, with the cursors that it takes, but those of the operator, who sees
    all organisations."""
    document = (await client.get("/openapi.json")).json()
    cursors = {
        path: [
            one["name"] for one in methods.get("get", {}).get("parameters", ()) if one["name"] in ("after", "before")
        ]
        for path, methods in document["paths"].items()
    }
    return [(path, sides) for path, sides in cursors.items() if sides]


async def test_a_background_run_of_anothers_is_not_there(street: Street) -> None:
    _, client, (asker, other) = street
    mine, theirs = {"user_id": asker.user}, {"user_id": other.user}
    agent, conversation, otid = other.ids["agent_id"], other.ids["conversation_id"], f"otid-{other.treasure}"
    body = {"messages": [{"role": "user", "content": f"hello {other.treasure}", "otid": otid}]}
    made = await client.post(f"/v1/agents/{agent}/messages/async", json=body, headers=theirs)
    run_id = made.json()["id"]
    asked: list[tuple[str, dict[str, Any]]] = [
        (f"/v1/runs/{run_id}/stream", {}),
        (f"/v1/conversations/{conversation}/stream", {}),
        (f"/v1/conversations/{conversation}/stream", {"otid": otid}),
        (f"/v1/conversations/{conversation}/stream", {"run_id": run_id}),
        (f"/v1/conversations/{asker.ids['conversation_id']}/stream", {"run_id": run_id}),
        ("/v1/conversations/default/stream", {"agent_id": agent}),
        ("/v1/conversations/default/stream", {"agent_id": agent, "otid": otid}),
        (f"/v1/agents/{agent}/messages/async", body),
        (f"/v1/agents/{agent}/messages/stream", {**body, "background": True}),
        (f"/v1/agents/{agent}/messages", body),
        (f"/v1/conversations/{conversation}/messages", {**body, "background": True}),
        (f"/v1/conversations/{conversation}/messages", body),
    ]
    for path, given_body in asked:
        answer = await client.post(path, json=given_body, headers=mine)
        assert answer.status_code == 404 and other.treasure not in answer.text, f"{path} {given_body}: {answer.text}"
    followed = await client.post(f"/v1/runs/{run_id}/stream", json={}, headers=theirs)
    assert followed.status_code == 200 and followed.text.endswith("data: [DONE]\n\n")
