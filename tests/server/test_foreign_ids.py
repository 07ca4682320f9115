"""What an organization does with its own reaches nothing of another, whichever single id of a request is foreign.

Everything else in such a request is sound, so that no other refusal hides a check that is missing.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from tests.server.neighbours import Neighbour, move_in, rows_of, seen_in
from tests.server.rig import client_of, open_rig

Street = tuple[Kelpie, httpx.AsyncClient, list[Neighbour]]
Request = tuple[str, str, dict[str, Any] | None]

_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
# Fields of a body that name rows of the organization, and what the neighbour has there.
FIELDS = {
    "agent_id": "agent_id", "agent_ids": "agent_id", "block_ids": "block_id", "tool_ids": "tool_id",
    "identity_ids": "identity_id", "folder_ids": "folder_id", "source_ids": "folder_id", "message_ids": "message_id",
    "shared_block_ids": "block_id", "project_ids": "project_id", "conversation_id": "conversation_id",
    "archive_id": "archive_id", "run_id": "run_id", "run_ids": "run_id", "user_id": "user_id",
    "organization_id": "organization_id", "previous_response_id": "run_id",
}  # fmt: skip
SOUND: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "name": "sound",
    "description": "sound",
    "summary": "sound",
    "label": "sound",
    "value": "sound",
    "text": "sound",
    "query": "sound",
    "identity_type": "user",
    "scopes": ["read"],
    "streaming": False,
}


def batched(every: list[Request], size: int) -> list[list[Request]]:
    return [every[at : at + size] for at in range(0, len(every), size)]


@pytest.fixture
async def street(tmp_path: Path) -> AsyncIterator[Street]:
    async with open_rig(tmp_path, quota_requests_per_minute=0) as (kelpie, _), client_of(kelpie) as client:
        both = [await move_in(client, f"treasure{letter}") for letter in ("one", "two")]
        for one in both:
            one.ids |= {"user_id": one.user, "organization_id": one.organization}
            for name, path, body in (
                ("folder_id", "/v1/folders/", {"name": one.treasure, "embedding": "fake/embed"}),
                ("project_id", "/v1/projects", {"name": one.treasure}),
            ):
                made = await client.post(path, json=body, headers={"user_id": one.user})
                assert made.status_code == 200, made.text
                one.ids[name] = made.json()["id"]
            one.ids["source_id"] = one.ids["folder_id"]
        yield kelpie, client, both


def known_to(document: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    """The fields that a body may have: any other is refused."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].split("/")[-1]]
    parts = (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ()))
    return set(schema.get("properties", ())).union(*(known_to(document, part) for part in parts))


def bodies(own: Neighbour, other: Neighbour, known: set[str]) -> Iterator[dict[str, Any]]:
    """Sound bodies with one field that is the other's, for new rows and for those that the organization has."""
    for name in sorted(known & FIELDS.keys()):
        value = other.ids[FIELDS[name]]
        for key in ("sound", own.treasure):
            body = {**SOUND, "identifier_key": key, name: [value] if name.endswith("_ids") else value}
            yield {field: one for field, one in body.items() if field in known}
    if "manager_config" in known:
        manager = {"manager_type": "supervisor", "manager_agent_id": other.ids["agent_id"]}
        yield {"agent_ids": [own.ids["agent_id"]], "description": "sound", "manager_config": manager}


def requests_of(document: dict[str, Any], own: Neighbour, other: Neighbour) -> Iterator[Request]:
    for path, methods in document["paths"].items():
        names = _PARAMETER.findall(path)
        if any(name not in own.ids for name in names) or path.startswith("/v1/admin/"):
            continue
        here = _PARAMETER.sub(lambda found: own.ids[found[1]], path)
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            known = set[str]() if content is None else known_to(document, content["schema"])
            for body in bodies(own, other, known):
                yield method, here, body
            some = None if content is None else {name: one for name, one in SOUND.items() if name in known}
            for foreign in names if len(names) > 1 else ():
                if "-4" not in other.ids[foreign]:
                    continue  # both may have the same label
                at = {**own.ids, foreign: other.ids[foreign]}
                filled = _PARAMETER.sub(lambda found, at=at: at[found[1]], path)  # type: ignore[misc]
                yield method, filled, some


async def test_no_single_foreign_id_reaches_across(street: Street) -> None:
    kelpie, client, (own, other) = street
    document = (await client.get("/openapi.json")).json()
    before = await rows_of(kelpie, other)
    every = sorted(requests_of(document, own, other), key=lambda one: one[0] == "delete")
    assert len(every) > 100
    for batch in batched(every, 20):
        for method, path, body in batch:
            answer = await client.request(method, path, json=body, headers={"user_id": own.user})
            told = f"{method} {path} {body}: {answer.status_code} {answer.text[:500]}"
            assert answer.status_code < 500 or answer.status_code in (501, 502), told
            assert not list(seen_in(answer.text, other, json.dumps([path, body]))), told
        after = await rows_of(kelpie, other)
        changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
        assert not changed, f"one of {batch}"
