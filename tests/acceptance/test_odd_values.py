"""Every field of every body and every query parameter gets every odd value: the server may refuse, but never break.

Every field gets one half of the values in a run, and the other half in the next turn. The routes and fields come from
the server's own OpenAPI document, so what is added later is tried as well. What an odd value did get into must still be
readable: a stored value that breaks reading would be worse than a refusal.
"""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.acceptance.served import Served, served
from tests.conformance.plain_http import PlainHttp
from tests.conformance.test_hostile import MAKERS, NOT_FAULTS, UNTRIED
from tests.conformance.things import Things
from tests.turns import in_turns

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
HALVES = {"even": 0, "odd": 1}  # of the values, which every field gets in turns
PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
FILLED: dict[str, dict[str, Any]] = {
    "CreateAgent": {"model": "kelpie/demo"},
    "CreateBlock": {"label": "odd", "value": "x"},
    "CreateTool": {"source_code": 'def odd() -> str:\n    """Odd."""\n    return ""\n'},
    "CreateIdentity": {"identifier_key": "odd", "name": "odd", "identity_type": "user"},
    "CreateArchive": {"name": "odd"},
    "CreateGroup": {"agent_ids": [], "description": "odd"},
    "PassageBody": {"text": "odd"},
    "MemoryBody": {"text": "odd"},
    "SendBody": {"input": "hello", "max_steps": 2},
}
LISTS = (
    "/v1/agents/", "/v1/blocks/", "/v1/tools/", "/v1/runs/", "/v1/steps/", "/v1/archives/", "/v1/identities/",
    "/v1/conversations/", "/v1/groups/", "/v1/mcp-servers/", "/v1/tags/", "/v1/messages/", "/v1/sandbox-config/",
)  # fmt: skip
HUGE = "x" * 60_000  # about as long as an address can be
RAW_TEXTS = [HUGE, "%25" * 10_001, "%00", "a%00b", "%ed%a0%80", "%ff", "%f0%9f%90%89" * 1000, "a,b" * 10_000]
DEEP_JSON = b"[" * 10_000 + b"]" * 10_000
RAW_BODIES: list[tuple[str, bytes]] = [
    ("application/json", DEEP_JSON),
    ("application/json", b'{"x":' * 10_000 + b"1" + b"}" * 10_000),
    ("application/json", b'{"name": "\\ud800"}'),
    ("application/json", b'{"name": "\xff"}'),
    ("application/json", b'{"limit": 1e999999}'),
    ("application/json", b'{"a": 1'),
    ("text/plain", b"{}"),
    ("application/xml", b"<a/>"),
    ("application/x-www-form-urlencoded", b"name=x"),
    ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--\r\n'),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: Served) -> Iterator[PlainHttp]:
    with closing(PlainHttp(server.url, {"X-Stainless-Package-Version": "1.12.1"}, timeout=60)) as client:
        yield client


@pytest.fixture(scope="module")
def document(http: PlainHttp) -> dict[str, Any]:
    return http.get("/openapi.json").json()


@pytest.fixture
def ids(server: Served) -> dict[str, str]:
    """One of everything that a path may name."""
    things = Things(server.url)
    return {name: make(things) for name, make in MAKERS.items()}


def named(path: str, ids: dict[str, str]) -> str:
    return PARAMETER.sub(lambda found: ids.get(found[1], "odd"), path)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path not in UNTRIED:
                yield method.upper(), path, operation


def body_schema(document: dict[str, Any], operation: dict[str, Any]) -> tuple[str, list[str]]:
    """The name of the body's schema and its fields; nothing for an operation without a body."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    reference = schema.get("$ref") or next((one["$ref"] for one in schema.get("anyOf", ()) if "$ref" in one), "")
    name = reference.rpartition("/")[2]
    return name, list(document["components"]["schemas"][name]["properties"]) if name else []


@pytest.mark.parametrize("half", in_turns("odd values in bodies", HALVES, 2))
@pytest.mark.parametrize("values", [pytest.param(ODDEST, id="oddest"), pytest.param(ODD, id="odd", marks=LONG)])
def test_odd_values_in_bodies_never_break_the_server(
    http: PlainHttp, document: dict[str, Any], ids: dict[str, str], values: list[Any], half: int
) -> None:
    broken: list[str] = []
    tried = seen = 0
    for method, path, operation in operations(document):
        name, fields = body_schema(document, operation)
        readable = any(
            path == other.rpartition("{")[0] and other.endswith("}") and "get" in methods
            for other, methods in document["paths"].items()
        )
        for field in fields:
            seen += 1
            for value in half_of(values, half + seen):
                body = FILLED.get(name, {}) | {field: value}
                answer = http.request(method, named(path, ids), json=body)
                tried += 1
                if answer.status_code >= 500 and answer.status_code not in NOT_FAULTS:
                    broken.append(f"{method} {path} {field}={json.dumps(value)[:60]}: {answer.status_code}")
                elif readable and method in ("POST", "PUT") and answer.status_code == 200:
                    broken += unreadable(http, f"{path}{answer.json()['id']}", body)
        broken += unreadable(http, f"/v1/agents/{ids['agent_id']}", path)
    assert tried > 50 * len(values)
    assert not broken, f"{len(broken)}:\n" + "\n".join(broken)


def half_of(values: list[Any], half: int) -> list[Any]:
    """Every second of them: what is tried next to this gets the others."""
    return values[half % 2 :: 2]


def unreadable(http: PlainHttp, path: str, made_by: Any) -> list[str]:
    """What is wrong with reading this back."""
    answer = http.get(path)
    return [] if answer.status_code == 200 else [f"{path} from {str(made_by)[:80]}: {answer.status_code}"]


@pytest.mark.parametrize("half", in_turns("odd values in queries", HALVES, 2))
@pytest.mark.parametrize(
    "texts", [pytest.param(ODDEST_TEXTS, id="oddest"), pytest.param(ODD_TEXTS, id="odd", marks=LONG)]
)
def test_odd_values_in_queries_never_break_the_server(
    http: PlainHttp, document: dict[str, Any], ids: dict[str, str], texts: list[str], half: int
) -> None:
    broken: list[str] = []
    seen = 0
    for method, path, operation in operations(document):
        names = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
        for name in names if method == "GET" else ():
            seen += 1
            for text in half_of(texts, half + seen):
                answer = http.get(named(path, ids), params={name: text})
                if answer.status_code >= 500 and answer.status_code not in NOT_FAULTS:
                    broken.append(f"{path}?{name}={text[:40]}: {answer.status_code}")
    assert not broken, f"{len(broken)}:\n" + "\n".join(broken)


@pytest.mark.parametrize("half", in_turns("huge and broken texts", HALVES, 2))
def test_huge_and_broken_texts_in_any_query_never_break_the_server(
    http: PlainHttp, document: dict[str, Any], ids: dict[str, str], half: int
) -> None:
    broken: list[str] = []
    seen = 0
    for method, path, operation in operations(document):
        for name in (one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"):
            seen += 1
            for text in half_of(RAW_TEXTS, half + seen):
                answer = http.request(method, f"{named(path, ids)}?{name}={text}")
                status = answer.status_code
                if (status >= 500 and status not in NOT_FAULTS) or ("%00" in text and status not in (400, 501)):
                    broken.append(f"{method} {path}?{name}={text[:40]}: {status}")
    assert not broken, f"{len(broken)}:\n" + "\n".join(broken)


def test_no_list_takes_a_limit_that_cannot_be(http: PlainHttp, document: dict[str, Any], ids: dict[str, str]) -> None:
    wrong = []
    for method, path, operation in operations(document):
        names = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
        for name in ("limit", "offset", "top_k"):
            for value in (-1, 10**30, "many") if name in names else ():
                answer = http.request(method, named(path, ids), params={name: str(value)})
                invalid = 400 if path.startswith("/openai/") else 422  # as OpenAI's clients expect it
                if answer.status_code not in (invalid, 501) or (answer.status_code != 501 and name not in answer.text):
                    wrong.append(f"{method} {path}?{name}={value}: {answer.status_code} {answer.text[:100]}")
    assert not wrong, "\n".join(wrong)


def test_what_is_no_json_is_refused_by_everything_that_takes_a_body(
    http: PlainHttp, document: dict[str, Any], ids: dict[str, str]
) -> None:
    taken: list[str] = []
    tried = 0
    for method, path, operation in operations(document):
        for kind, body in RAW_BODIES if "requestBody" in operation else ():
            answer = http.request(method, named(path, ids), content=body, headers={"Content-Type": kind})
            tried += 1
            if not 400 <= answer.status_code < 500 and answer.status_code not in NOT_FAULTS:
                taken.append(f"{method} {path} {kind} {body[:30]!r}: {answer.status_code} {answer.text[:100]}")
    assert tried > 50 * len(RAW_BODIES)
    assert not taken, f"{len(taken)}:\n" + "\n".join(taken)


def test_of_a_key_given_twice_the_last_counts(http: PlainHttp) -> None:
    body = b'{"label": "first", "value": "a", "label": "second", "value": "b"}'
    made = http.post("/v1/blocks/", content=body, headers={"Content-Type": "application/json"}).json()
    assert (made["label"], made["value"]) == ("second", "b")
    assert http.get(f"/v1/blocks/{made['id']}").json() == made


def test_after_all_that_everything_can_be_read_and_agents_answer(http: PlainHttp, ids: dict[str, str]) -> None:
    for path in LISTS:
        answer = http.get(path, params={"limit": 1000, "include": "agent.blocks"})
        assert answer.status_code == 200, f"{path}: {answer.text[:300]}"
    answer = http.post(f"/v1/agents/{ids['agent_id']}/messages", json={"input": "hello"})
    assert answer.json()["stop_reason"]["stop_reason"] == "end_turn"
