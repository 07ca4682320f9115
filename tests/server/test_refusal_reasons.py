"""Reasons of refused requests, in sentences: in the answer and in the log, without what a body holds."""

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from kelpie.observe import logs
from kelpie.server.edge.guard import REASON_CHARS_MAX, RequestLog, refusal_facts
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.world.ids import RandomIds
from tests.server.rig import make_agent

UNKNOWN = "agent-00000000-0000-4000-8000-0000000000ff"


@pytest.fixture
def logged() -> Iterator[StringIO]:
    sink = StringIO()
    logs.configure("info", sink)
    yield sink
    logs.configure("warning")


def requests(logged: StringIO) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    return [line for line in lines if line["code"] == "http_request"]


CASES: list[tuple[str, str, Any, str]] = [
    ("POST", "/v1/agents/", {"agent_type": "foo"}, "agent_type: must be one of 'letta_v1_agent', "),
    ("POST", "/v1/agents/", {"tags": "x"}, "tags: must be a list."),
    ("POST", "/v1/agents/", {"context_window_limit": -5}, "context_window_limit: must be greater than 0."),
    ("POST", "/v1/agents/", {"hidden": "perhaps"}, "hidden: must be true or false."),
    ("POST", "/v1/agents/", {"secrets": {"KEY": {"a": "hunter2"}}}, "secrets.KEY: must be text."),
    ("POST", "/v1/agents/", [1], "Must be an object."),
    ("POST", "/v1/blocks/", {"value": "x"}, "label is missing."),
    ("POST", "/v1/tools/", {"source_code": "x", "nam": "y"}, "nam is not a known field; remove it."),
    ("GET", "/v1/agents/ada", None, "agent_id: 'ada' is not an id of the form agent-<uuid4>."),
    ("GET", "/v1/agents/?limit=many", None, "limit: must be a whole number."),
    ("GET", "/v1/agents/?limit=99999", None, "limit: must be at most 10000."),
    ("POST", f"/v1/agents/{UNKNOWN}/generate", {"prompt": ""}, "prompt: the prompt is blank; "),
]


async def test_a_request_that_does_not_validate_is_told_why_in_a_sentence(
    client: httpx.AsyncClient, logged: StringIO
) -> None:
    for method, path, body, sentence in CASES:
        answer = await client.request(method, path, json=body)
        told = answer.json()
        assert answer.status_code == 422 and told["message"].startswith(sentence), told
        assert isinstance(told["detail"], str) and told["detail"].startswith("[{'type': "), "as in Letta"
    broken = await client.post("/v1/agents/", content=b"{", headers={"content-type": "application/json"})
    assert broken.json()["message"].startswith("The body is not valid JSON: ")
    reasons = [line["reason"] for line in requests(logged)]
    assert [reason[:20] for reason in reasons[:-1]] == [sentence[:20] for *_, sentence in CASES]
    assert "hunter2" not in logged.getvalue()


async def test_only_a_few_errors_are_told_and_the_others_are_counted(client: httpx.AsyncClient) -> None:
    told = (
        await client.post("/v1/agents/", json={"tags": 1, "hidden": 2, "tools": 3, "metadata": 4, "name": 5})
    ).json()
    assert told["message"].endswith(" There are 2 more errors.") and told["message"].count("must be") == 3


async def test_every_refusal_is_logged_with_its_reason(client: httpx.AsyncClient, logged: StringIO) -> None:
    assert (await client.get(f"/v1/agents/{UNKNOWN}")).status_code == 404
    assert (await client.post("/v1/agents/", json={"tools": ["no\nsuch\x1b[31m"]})).status_code == 400
    assert (await client.get("/v1/nowhere")).status_code == 404
    assert (await client.get("/v1/agents/")).status_code == 200
    missing, tools, nowhere, fine = requests(logged)
    assert UNKNOWN in missing["reason"] and "not found" in missing["reason"]
    assert tools["reason"].startswith("tools: Tools not found by name: no") and nowhere["reason"] == "Not Found"
    assert "reason" not in fine and "\x1b" not in logged.getvalue() and len(logged.getvalue().splitlines()) == 4


def test_a_reason_is_bounded_and_found_in_every_shape() -> None:
    no = {"reason": "no"}
    assert refusal_facts(b'{"detail": "no"}') == refusal_facts(b'{"detail": "x", "message": "no"}') == no
    assert refusal_facts(b'{"detail": {"code": "PENDING", "message": "no"}}') == no
    assert refusal_facts(b'{"error": {"type": "llm_error", "message": "no"}}') == no
    assert refusal_facts(b'{"detail": "no", "code": "not_found"}') == no | {"error_code": "not_found"}
    assert len(refusal_facts(json.dumps({"detail": "x" * 9999}).encode())["reason"]) == REASON_CHARS_MAX
    assert [refusal_facts(body) for body in (b"", b"{", b"[]", b"null", b'{"detail": 1}', b"<html>")] == [{}] * 6


async def test_a_refusal_with_ignored_fields_is_logged_with_both(logged: StringIO) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await JsonAnswer({"detail": "no"}, 409, {"X-Kelpie-Ignored-Fields": "typo"})(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(RequestLog(refuse, RandomIds()))) as asking:
        assert (await asking.post("http://test/")).status_code == 409
    (line,) = requests(logged)
    assert (line["ignored_fields"], line["reason"]) == ("typo", "no")


async def test_fields_that_are_ignored_are_named(client: httpx.AsyncClient, logged: StringIO) -> None:
    made = await client.post("/v1/agents/", json={"modell": "openai/gpt-4o", "x\nü": 1, "name": "typo"})
    assert made.status_code == 200 and made.headers["X-Kelpie-Ignored-Fields"] == "modell, x\\n\\u00fc"
    assert requests(logged)[0]["ignored_fields"] == "modell, x\\n\\u00fc"
    agent = (await make_agent(client, name="right"))["id"]
    sent = await client.post(f"/v1/agents/{agent}/messages", json={"input": "hi", "streaming": False, "max_stepss": 1})
    assert sent.headers["X-Kelpie-Ignored-Fields"] == "max_stepss"
    changed = await client.patch(f"/v1/agents/{agent}", json={"descriptoin": "x", "tags": ["y"]})
    assert changed.headers["X-Kelpie-Ignored-Fields"] == "descriptoin"
    plain = await client.post(f"/v1/agents/{agent}/messages", json={"input": "hi"})
    assert plain.status_code == 200 and "X-Kelpie-Ignored-Fields" not in plain.headers
    many = await client.post("/v1/agents/", json={f"field{number}": 1 for number in range(20)})
    assert many.headers["X-Kelpie-Ignored-Fields"].endswith("field9, ...")
