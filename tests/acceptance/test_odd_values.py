"""Every field of every body and every query parameter gets every odd value: the server may refuse, but never break.

The routes and fields come from the server's own OpenAPI document, so what is added later is tried as well. What an odd
value did get into must still be readable: a stored value that breaks reading would be worse than a refusal.
"""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.acceptance.served import Served, served

DEEP: Any = "x"
for _ in range(50):
    DEEP = [DEEP]
ODDEST: list[Any] = [None, "x" * 5000, "a\0b", -1, 2**63, 10**30, [None], {"": ""}, DEEP]
ODD: list[Any] = [
    True, "", " ", "é\u2028\U0001f409", "%", "'; --", "../..", "{CORE_MEMORY}", "</value>", 0, 1, 2**31, 2**63 - 1,
    2**64, -(10**30), 1.5, 1e308, [], {}, [{}], [""], ["x", "x"], {"type": "x"}, {"label": "x", "value": "y"},
]  # fmt: skip
ODDEST_TEXTS = ["", "x" * 3000, "é\u2028\U0001f409", "'; --", "-1", str(2**63), str(10**30)]
ODD_TEXTS = [" ", "%", "_", "0", "1", "1.5", "true", "null", "[]", "2020-01-01T00:00:00Z"]
LONG = pytest.mark.soak
FILLED: dict[str, dict[str, Any]] = {
    "CreateAgent": {"model": "kelpie/demo"},
    "CreateBlock": {"label": "odd", "value": "x"},
    "CreateTool": {"source_code": 'def odd() -> str:\n    """Odd."""\n    return ""\n'},
    "SendBody": {"input": "hello", "max_steps": 2},
}
LISTS = ("/v1/agents/", "/v1/blocks/", "/v1/tools/", "/v1/runs/", "/v1/steps/")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: Served) -> Iterator[httpx.Client]:
    headers = {"X-Stainless-Package-Version": "1.12.1"}
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60, headers=headers) as client:
        yield client


@pytest.fixture(scope="module")
def document(http: httpx.Client) -> dict[str, Any]:
    return http.get("/openapi.json").json()


@pytest.fixture
def ids(http: httpx.Client) -> dict[str, str]:
    """One of everything that a path may name."""
    blocks = [{"label": "human", "value": "Name: Ada"}]
    agent = http.post("/v1/agents/", json={"model": "kelpie/demo", "memory_blocks": blocks}).json()
    sent = http.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hello"}).json()["messages"][0]
    tool = http.put("/v1/tools/", json=FILLED["CreateTool"]).json()
    return {
        "agent_id": agent["id"], "block_id": agent["blocks"][0]["id"], "label": "human", "tool_id": tool["id"],
        "message_id": sent["id"], "run_id": sent["run_id"], "step_id": sent["step_id"],
    }  # fmt: skip


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def body_schema(document: dict[str, Any], operation: dict[str, Any]) -> tuple[str, list[str]]:
    """The name of the body's schema and its fields; nothing for an operation without a body."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    reference = schema.get("$ref") or next((one["$ref"] for one in schema.get("anyOf", ()) if "$ref" in one), "")
    name = reference.rpartition("/")[2]
    return name, list(document["components"]["schemas"][name]["properties"]) if name else []


@pytest.mark.parametrize("values", [pytest.param(ODDEST, id="oddest"), pytest.param(ODD, id="odd", marks=LONG)])
def test_odd_values_in_bodies_never_break_the_server(
    http: httpx.Client, document: dict[str, Any], ids: dict[str, str], values: list[Any]
) -> None:
    broken: list[str] = []
    tried = 0
    for method, path, operation in operations(document):
        name, fields = body_schema(document, operation)
        for field in fields:
            for value in values:
                body = FILLED.get(name, {}) | {field: value}
                answer = http.request(method, path.format(**ids), json=body)
                tried += 1
                if answer.status_code >= 500:
                    broken.append(f"{method} {path} {field}={json.dumps(value)[:60]}: {answer.status_code}")
                elif method in ("POST", "PUT") and path.count("{") == 0 and answer.status_code == 200:
                    broken += unreadable(http, f"{path}{answer.json()['id']}", body)
        broken += unreadable(http, f"/v1/agents/{ids['agent_id']}", path)
    assert tried > 100 * len(values)
    assert not broken, f"{len(broken)}:\n" + "\n".join(broken)


def unreadable(http: httpx.Client, path: str, made_by: Any) -> list[str]:
    """What is wrong with reading this back."""
    answer = http.get(path)
    return [] if answer.status_code == 200 else [f"{path} from {str(made_by)[:80]}: {answer.status_code}"]


@pytest.mark.parametrize(
    "texts", [pytest.param(ODDEST_TEXTS, id="oddest"), pytest.param(ODD_TEXTS, id="odd", marks=LONG)]
)
def test_odd_values_in_queries_never_break_the_server(
    http: httpx.Client, document: dict[str, Any], ids: dict[str, str], texts: list[str]
) -> None:
    broken: list[str] = []
    for method, path, operation in operations(document):
        names = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
        for name in names if method == "GET" else ():
            for text in texts:
                answer = http.get(path.format(**ids), params={name: text})
                if answer.status_code >= 500:
                    broken.append(f"{path}?{name}={text[:40]}: {answer.status_code}")
    assert not broken, f"{len(broken)}:\n" + "\n".join(broken)


def test_after_all_that_everything_can_be_read_and_agents_answer(http: httpx.Client, ids: dict[str, str]) -> None:
    for path in LISTS:
        answer = http.get(path, params={"limit": 1000, "include": "agent.blocks"})
        assert answer.status_code == 200, f"{path}: {answer.text[:300]}"
    answer = http.post(f"/v1/agents/{ids['agent_id']}/messages", json={"input": "hello"})
    assert answer.json()["stop_reason"]["stop_reason"] == "end_turn"
