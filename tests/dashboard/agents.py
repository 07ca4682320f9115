"""Agents for the tests of the dashboard, and turns of the demo model that play a script."""

import json
from typing import Any

import httpx

DEMO = "kelpie/demo"


def make_agent(api: httpx.Client, name: str, **fields: Any) -> dict[str, Any]:
    made = api.post("/v1/agents/", json={"name": name, "model": DEMO} | fields)
    assert made.status_code == 200, made.text
    return made.json()


def script(*lines: dict[str, Any]) -> str:
    """A message that makes the demo model say these lines, one per step."""
    return "!script " + json.dumps(lines)


def say(api: httpx.Client, agent: dict[str, Any], *lines: dict[str, Any], **fields: Any) -> str:
    """A whole turn; returns its stream."""
    body = {"messages": [{"role": "user", "content": script(*lines)}], "stream_tokens": True, "background": True}
    answer = api.post(f"/v1/agents/{agent['id']}/messages/stream", json=body | fields)
    assert answer.status_code == 200, answer.text
    return answer.text


def runs_of(api: httpx.Client, agent: dict[str, Any], **query: Any) -> list[dict[str, Any]]:
    return api.get("/v1/kelpie/runs", params={"agent_id": agent["id"]} | query).json()


def require_approval(api: httpx.Client, agent: dict[str, Any], tool: str) -> None:
    answer = api.patch(f"/v1/agents/{agent['id']}/tools/approval/{tool}", json={"requires_approval": True})
    assert answer.status_code == 200, answer.text
