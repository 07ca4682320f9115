"""Every list in every body may be absurdly long: it is refused, or stored and answered, in bounded time and words."""

import uuid
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
import pytest

from tests.acceptance.served import served
from tests.conformance.test_hostile import MAKERS, NOT_FAULTS, UNTRIED
from tests.conformance.things import Things
from tests.server.description import document
from tests.turns import in_turns

PARTS = 3  # of all lists
LENGTH = 33_000  # more than a statement may have parameters
ANSWER_BYTES_MAX = 100_000
REQUEST_S = 30.0
FILLED: dict[str, dict[str, Any]] = {
    "CreateBlock": {"label": "long", "value": "x"},
    "CreateTool": {"source_code": 'def long() -> str:\n    """Long."""\n    return ""\n'},
    "CreateIdentity": {"identifier_key": "long", "name": "long", "identity_type": "user"},
    "CreateGroup": {"description": "long", "agent_ids": []},
    "PassageBody": {"text": "long"},
    "MemoryBody": {"text": "long"},
}


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Things]:
    with served(tmp_path_factory.mktemp("long")) as server:
        yield Things(server.url)


@pytest.mark.parametrize("part", in_turns("long lists", {str(part): part for part in range(PARTS)}, PARTS))
def test_no_list_is_too_long_for_the_server(things: Things, part: int) -> None:
    wrong: list[str] = []
    tried = 0
    with httpx.Client(base_url=things.http.base_url, timeout=REQUEST_S, trust_env=False) as http:
        for method, path, schema, field, items in list(_lists(document()))[part::PARTS]:
            body = FILLED.get(schema, {}) | {field: _long(field, items)}
            answer = http.request(method, _named(path, things), json=body)
            tried += 1
            faulty = answer.status_code >= 500 and answer.status_code not in NOT_FAULTS
            if faulty or len(answer.content) > ANSWER_BYTES_MAX:
                wrong.append(f"{method} {path} {field}: {answer.status_code}, {len(answer.content)} bytes")
    assert tried > 40
    assert not wrong, "\n".join(wrong)


def _lists(document: dict[str, Any]) -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items() if path not in UNTRIED else ():
            content = operation.get("requestBody", {}).get("content", {})
            whole = content.get("application/json", {}).get("schema", {})
            names = {one["$ref"].rpartition("/")[2] for one in (whole, *whole.get("anyOf", ())) if "$ref" in one}
            for name in sorted(names):
                fields = document["components"]["schemas"][name].get("properties", {})
                for field, kind in fields.items():
                    arrays = [one for one in (kind, *kind.get("anyOf", ())) if one.get("type") == "array"]
                    yield from ((method, path, name, field, array.get("items", {})) for array in arrays)


def _long(field: str, items: dict[str, Any]) -> list[Any]:
    kind = items.get("$ref", "").rpartition("/")[2]
    if kind == "CreateBlock":
        return [{"label": f"label{number}", "value": ""} for number in range(LENGTH)]
    if kind:
        return [{}] * LENGTH
    if field.endswith("_ids"):
        return _ids(field.removesuffix("_ids").rpartition("_")[2])
    return [f"value{number}" for number in range(LENGTH)]


@cache
def _ids(prefix: str) -> list[str]:
    return [f"{prefix}-{uuid.UUID(int=number, version=4)}" for number in range(LENGTH)]


def _named(path: str, things: Things) -> str:
    parts = (part.strip("{}").removesuffix(":path") if part.startswith("{") else None for part in path.split("/"))
    filled = [
        text if name is None else (MAKERS[name](things) if name in MAKERS else "long")
        for text, name in zip(path.split("/"), parts, strict=True)
    ]
    return "/".join(filled)
