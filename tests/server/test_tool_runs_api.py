"""Tools run by hand over HTTP, and what registering them checks: here without a sandbox, which is told and no error."""

from typing import Any

import httpx
import pytest
from letta_client.types import ToolReturnMessage
from letta_client.types.agents.tool_execution_result import ToolExecutionResult

from kelpie.core.errors import StorageError
from kelpie.tools.calls import manual_calls
from tests.server.rig import make_agent

UNKNOWN = "agent-00000000-0000-4000-8000-0000000000ff"
SQUARE = 'def square(x: int) -> int:\n    """Squares.\n\n    Args:\n        x: it\n    """\n    return x * x\n'
SCHEMA = {"name": "square", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}


async def test_without_a_sandbox_code_is_not_run_and_the_answer_says_so(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/tools/run", json={"source_code": SQUARE, "args": {"x": 1}})
    told = answer.json()
    ToolReturnMessage.model_validate(told)
    assert answer.status_code == 200 and told["status"] == "error" and "sandbox" in told["tool_return"]
    tool = (await client.post("/v1/tools/", json={"source_code": SQUARE})).json()
    agent = await make_agent(client, tool_ids=[tool["id"]])
    path = f"/v1/agents/{agent['id']}/tools"
    told = (await client.post(f"{path}/square/run", json={"args": {"x": 5}})).json()
    ToolExecutionResult.model_validate(told)
    assert (told["status"], told["func_return"], told["agent_state"]) == ("error", None, None)
    assert "sandbox" in told["stderr"][0] and told["stdout"] is None
    assert (await client.post(f"{path}/nope/run", json={"args": {}})).status_code == 404
    assert (await client.post(f"/v1/agents/{UNKNOWN}/tools/square/run", json={})).status_code == 404


async def test_a_built_in_tool_runs_by_hand_and_is_recorded(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, memory_blocks=[{"label": "human", "value": "Ann"}])
    path = f"/v1/agents/{agent['id']}/tools"
    given = {"label": "human", "new_string": "Bea", "old_string": "Ann"}
    told = (await client.post(f"{path}/memory_replace/run", json={"args": given})).json()
    assert told["status"] == "success", told
    block = (await client.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human")).json()
    assert block["value"] == "Bea"
    told = (await client.post(f"{path}/memory_replace/run", json={"args": {"label": "human"}})).json()
    assert told["status"] == "error" and "missing" in told["stderr"][0]
    assert told["stdout"] == [], "nothing ran that could have printed, and Letta answers with an empty list"
    assert (await client.get(f"/v1/agents/{agent['id']}/messages")).json()[-1]["message_type"] == "system_message"


async def test_what_cannot_be_recorded_is_not_done_or_not_to_be_done_again(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool of ours works in the commit that records it; one that has run outside is not to be called again."""
    tool = (await client.post("/v1/tools/", json={"source_code": SQUARE})).json()
    agent = await make_agent(client, memory_blocks=[{"label": "human", "value": "Ann"}], tool_ids=[tool["id"]])

    def record(*_: Any) -> None:
        raise StorageError("The database failed: no more room.")

    monkeypatch.setattr(manual_calls, "record", record)
    path = f"/v1/agents/{agent['id']}/tools"
    given = {"label": "human", "new_string": "Bea", "old_string": "Ann"}
    told = await client.post(f"{path}/memory_replace/run", json={"args": given})
    assert told.status_code == 503 and "x-should-retry" not in told.headers
    assert (await client.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human")).json()["value"] == "Ann"
    told = await client.post(f"{path}/square/run", json={"args": {"x": 5}})
    assert told.status_code == 503 and told.headers["x-should-retry"] == "false"
    assert "was run" in told.json()["detail"]


async def test_what_an_agent_may_not_use_it_may_not_use_by_hand_either(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, memory_blocks=[{"label": "human", "value": "Ann"}])
    changed = await client.patch(
        f"/v1/agents/{agent['id']}", json={"kelpie_permissions": {"allow": None, "deny": ["memory_*"]}}
    )
    assert changed.status_code == 200, changed.text
    given = {"label": "human", "new_string": "Bea", "old_string": "Ann"}
    path = f"/v1/agents/{agent['id']}/tools/memory_replace/run"
    told = (await client.post(path, json={"args": given})).json()
    assert told["status"] == "error" and "may not use it" in told["stderr"][0]
    assert (await client.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human")).json()["value"] == "Ann"


@pytest.mark.parametrize(("key", "value"), [("A=B", "x"), ("", "x"), ("A B", "x")])
async def test_what_no_environment_can_hold_is_refused(client: httpx.AsyncClient, key: str, value: str) -> None:
    """Every tool of the agent would fail, with words that nobody could do anything with."""
    for field in ("secrets", "tool_exec_environment_variables"):
        answer = await client.post("/v1/agents/", json={"model": "fake/model", field: {key: value}})
        assert answer.status_code in (400, 422), answer.text
    agent = await make_agent(client)
    changed = await client.patch(f"/v1/agents/{agent['id']}", json={"secrets": {key: value}})
    assert changed.status_code in (400, 422), changed.text
    body = {"source_code": SQUARE, "args": {"x": 1}, "env_vars": {key: value}}
    answer = await client.post("/v1/tools/run", json=body)
    assert answer.status_code in (400, 422), answer.text


async def test_aliases_say_the_same(client: httpx.AsyncClient) -> None:
    body = {"source_code": "function square(x) { return x * x }", "runtime": "javascript", "schema": SCHEMA}
    made = (await client.post("/v1/tools/", json={**body, "requirements": ["left-pad@1.3", "@a/b"]})).json()
    assert (made["source_type"], made["json_schema"], made["name"]) == ("javascript", SCHEMA, "square")
    wanted = [{"name": "left-pad", "version": "1.3"}, {"name": "@a/b", "version": None}]
    assert made["npm_requirements"] == wanted and made["pip_requirements"] is None
    again = {"requirements": ["six"], "runtime": "python"}
    changed = await client.patch(f"/v1/tools/{made['id']}", json=again)
    assert changed.status_code == 400, "what was JavaScript does not become Python by its name"
    wanted = [
        {"name": "requests", "version": ">=2,<3"},
        {"name": "rich", "version": "1"},
        {"name": "six", "version": None},
    ]
    body = {"source_code": SQUARE, "requirements": ["requests >=2,<3", "rich==1", {"name": "six"}]}
    assert (await client.post("/v1/tools/", json=body)).json()["pip_requirements"] == wanted
    assert (await client.patch(f"/v1/tools/{made['id']}", json={"requirements": ["six"]})).status_code == 422


@pytest.mark.parametrize(
    "twice",
    [
        {"schema": SCHEMA, "json_schema": {**SCHEMA, "name": "other"}},
        {"runtime": "python", "source_type": "typescript", "json_schema": SCHEMA},
        {"requirements": ["a"], "pip_requirements": [{"name": "b"}]},
        {"requirements": "a"},
        {"requirements": ["a b c"]},
        {"runtime": "cobol"},
        {"runtime": "javascript"},
    ],
)
async def test_what_contradicts_itself_is_422(client: httpx.AsyncClient, twice: dict[str, Any]) -> None:
    answer = await client.post("/v1/tools/", json={"source_code": SQUARE, **twice})
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def f(:\n", 1),
        ('def f():\n    """It."""\nreturn 1\n', 3),
        ('x = 1\n\ndef f():\n    """It."""\n    break\n', 5),
    ],
)
async def test_what_does_not_compile_is_told_with_its_line(client: httpx.AsyncClient, source: str, line: int) -> None:
    for extra in ({}, {"json_schema": SCHEMA}):
        answer = await client.post("/v1/tools/", json={"source_code": source, **extra})
        assert answer.status_code == 400 and f"line {line}" in answer.json()["detail"], answer.text
    answer = await client.post("/v1/tools/run", json={"source_code": source, "args": {}})
    assert answer.status_code == 400 and f"line {line}" in answer.json()["detail"]
    made = (await client.post("/v1/tools/", json={"source_code": SQUARE})).json()
    changes = {"source_code": source, "json_schema": SCHEMA}
    assert (await client.patch(f"/v1/tools/{made['id']}", json=changes)).status_code == 400
    assert (await client.get(f"/v1/tools/{made['id']}")).json()["source_code"] == SQUARE


@pytest.mark.parametrize(
    "name",
    [
        "--index-url=http://evil",
        "-r/etc/passwd",
        "x @ http://evil/x.whl",
        "../x",
        "/tmp/x",
        "git+https://e/x",
        "a;b",
        "",
    ],
)
async def test_only_names_of_packages_are_taken(client: httpx.AsyncClient, name: str) -> None:
    for field in ("pip_requirements", "npm_requirements"):
        answer = await client.post("/v1/tools/", json={"source_code": SQUARE, field: [{"name": name}]})
        assert answer.status_code == 400 and field in answer.json()["detail"], answer.text
        bad = [{"name": "a", "version": f" {name} --x"}]
        answer = await client.post("/v1/tools/", json={"source_code": SQUARE, field: bad})
        assert answer.status_code == 400


async def test_how_a_tool_is_held_is_kept_and_shown(client: httpx.AsyncClient) -> None:
    held = {"timeout_s": 5.0, "memory_mb": 64, "egress": ["api.example.com", "*", "*:8443"], "deterministic": True}
    made = (await client.post("/v1/tools/", json={"source_code": SQUARE, "kelpie_sandbox": held})).json()
    assert made["kelpie_sandbox"] == held
    changed = await client.patch(f"/v1/tools/{made['id']}", json={"kelpie_sandbox": {"timeout_s": 1}})
    assert changed.json()["kelpie_sandbox"] == {"timeout_s": 1.0}
    for bad in (
        {"timeout_s": 0},
        {"memory_mb": 1},
        {"egress": ["http://x/"]},
        {"egress": ["**"]},
        {"egress": ["*x"]},
        {"isolation": "none"},
        {"color": "red"},
    ):
        answer = await client.post("/v1/tools/", json={"source_code": SQUARE, "kelpie_sandbox": bad})
        assert answer.status_code == 422, bad
