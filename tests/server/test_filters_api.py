"""Filters that look for a part of a text: what they find, and how long a part may be."""

from typing import Any

import httpx
import pytest

from kelpie.server.http.limits.request_limits import LINKS_MAX, PART_CHARS_MAX
from tests.conformance.things import SOURCE
from tests.server.rig import make_agent

PARTS = [
    ("/v1/agents/", "query_text"),
    ("/v1/blocks/", "label_search"),
    ("/v1/blocks/", "description_search"),
    ("/v1/blocks/", "value_search"),
    ("/v1/tools/", "search"),
    ("/v1/tools/count", "search"),
    ("/v1/conversations/", "summary_search"),
    ("/v1/identities/", "name"),
    ("/v1/tags/", "name"),
    ("/v1/tags/", "query_text"),
]
NAMES = ["Éva Ünal", "eva", "100_", "1000"]


async def found(client: httpx.AsyncClient, path: str, name: str, part: str, shown: str) -> list[str]:
    answer = await client.get(path, params={name: part})
    assert answer.status_code == 200, answer.text
    return sorted(one[shown] for one in answer.json())


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("Éva", ["Éva Ünal"]),
        ("Ünal", ["Éva Ünal"]),
        ("VA Ü", ["Éva Ünal"]),
        ("VA", ["eva", "Éva Ünal"]),
        ("00_", ["100_"]),
        ("%", []),
        ("\\", []),
    ],
)
async def test_a_part_is_found_as_it_is_written(client: httpx.AsyncClient, part: str, expected: list[str]) -> None:
    for number, name in enumerate(NAMES):
        agent = await make_agent(client, name=name)
        block = {"label": f"l{number}", "value": name, "description": name}
        await client.post("/v1/blocks/", json=block)
        body = {"identifier_key": str(number), "name": name, "identity_type": "user"}
        await client.post("/v1/identities/", json=body)
        await client.post("/v1/conversations/", params={"agent_id": agent["id"]}, json={"summary": name})
    assert await found(client, "/v1/agents/", "query_text", part, "name") == expected
    assert (await client.get("/v1/agents/count", params={"query_text": part})).json() == len(expected)
    assert await found(client, "/v1/blocks/", "value_search", part, "value") == expected
    assert await found(client, "/v1/blocks/", "description_search", part, "description") == expected
    assert await found(client, "/v1/identities/", "name", part, "name") == expected
    assert await found(client, "/v1/conversations/", "summary_search", part, "summary") == expected


async def test_a_part_of_a_tool_s_name_is_found(client: httpx.AsyncClient) -> None:
    for name in ("shout_it", "shoutxit"):
        await client.post("/v1/tools/", json={"source_code": SOURCE.replace("shout", name)})
    assert await found(client, "/v1/tools/", "search", "OUT_I", "name") == ["shout_it"]


@pytest.mark.parametrize(("path", "name"), PARTS)
async def test_a_part_that_is_too_long_is_refused_by_name(client: httpx.AsyncClient, path: str, name: str) -> None:
    answer = await client.get(path, params={name: "x" * (PART_CHARS_MAX + 1)})
    assert (answer.status_code, name in answer.text) == (422, True)


@pytest.mark.parametrize(("path", "name"), [one for one in PARTS if one[0] not in ("/v1/identities/", "/v1/tags/")])
async def test_the_longest_part_can_be_looked_for(client: httpx.AsyncClient, path: str, name: str) -> None:
    answer = await client.get(path, params={name: "%" * PART_CHARS_MAX})
    assert (answer.status_code, answer.json()) in ((200, []), (200, 0))


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/v1/agents/", {"tags": ["t"] * (LINKS_MAX + 1)}),
        ("/v1/agents/count", {"identifier_keys": ["t"] * (LINKS_MAX + 1)}),
        ("/v1/blocks/", {"tags": ["t"] * (LINKS_MAX + 1)}),
        ("/v1/blocks/", {"connected_to_agents_count_eq": [1] * (LINKS_MAX + 1)}),
        ("/v1/tools/", {"names": ",".join(["n"] * (LINKS_MAX + 1))}),
        ("/v1/tools/", {"tool_ids": ",".join(["n"] * (LINKS_MAX + 1))}),
    ],
)
async def test_too_many_of_anything_are_refused_by_name(
    client: httpx.AsyncClient, path: str, params: dict[str, Any]
) -> None:
    answer = await client.get(path, params=params)
    assert (answer.status_code, next(iter(params)) in answer.text) == (422, True)
