"""The inbox of the dashboard: approvals, used-up budgets and dead firings of all agents, answered in place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page, Route, expect

from tests.acceptance.served import wait_for
from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent, require_approval, runs_of, say, script
from tests.dashboard.watched import Watched

OWN_SERVER = True

HUMAN = [{"label": "human", "value": "Name: Ada"}]


def insert(text: str) -> dict[str, object]:
    return {"name": "memory_insert", "arguments": {"label": "human", "new_string": text}}


def value_of(api: httpx.Client, agent: dict[str, str]) -> str:
    return api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()["value"]


def test_nothing_waits_at_first(watched: Watched) -> None:
    page = watched.open("#/inbox")
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    assert violations(page) == []


def test_approvals_of_several_agents_are_answered_in_place(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    first, second = make_agent(api, "one", memory_blocks=HUMAN), make_agent(api, "two", memory_blocks=HUMAN)
    for agent, text in ((first, "Wants Porto <b>"), (second, "Wants Faro")):
        require_approval(api, agent, "memory_insert")
        say(api, agent, {"calls": [insert(text)]}, {"text": "Done."})
    conversation = api.post("/v1/conversations/", params={"agent_id": second["id"]}, json={}).json()
    api.post(
        f"/v1/conversations/{conversation['id']}/messages",
        json={"messages": [{"role": "user", "content": script({"calls": [insert("Elsewhere")]}, {"text": "Ok."})}]},
    )
    page = watched.open("#/inbox")
    expect(page.get_by_text("3 things wait")).to_be_visible()
    assert violations(page) == []
    screenshot(page, "inbox")
    porto = page.locator("section").filter(has_text="Wants Porto")
    porto.get_by_role("button", name="Approve memory_insert").click()
    expect(porto).to_have_count(0)
    wait_for("the call ran", lambda: "Wants Porto <b>" in value_of(api, first), 30)
    faro = page.locator("section").filter(has_text="Wants Faro")
    faro.get_by_label("Reason for a denial").fill("Faro is too far")
    faro.get_by_role("button", name="Deny memory_insert").click()
    expect(faro).to_have_count(0)
    page.locator("section").filter(has_text="Elsewhere").get_by_role("button", name="Approve").click()
    wait_for("the call of the conversation ran", lambda: "Elsewhere" in value_of(api, second), 30)
    assert "Wants Faro" not in value_of(api, second)
    messages = api.get(f"/v1/agents/{second['id']}/messages").json()
    assert any("Faro is too far" in str(each) for each in messages)
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()


def test_a_used_up_budget_is_raised_in_place(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "spender", kelpie_budget={"tokens": 1, "period": "day"})
    say(api, agent, {"text": "spent"})
    page = watched.open("#/inbox")
    card = page.locator("section").filter(has_text="Budget used up")
    expect(card).to_contain_text("spender")
    card.get_by_role("button", name="Change the budget of spender").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("At most (tokens)").fill("1000000")
    dialog.get_by_role("button", name="Save budget").click()
    expect(card).to_have_count(0)
    assert api.get(f"/v1/agents/{agent['id']}").json()["kelpie_budget"]["tokens"] == 1_000_000
    say(api, agent, {"text": "again"})
    assert runs_of(api, agent)[0]["status"] == "completed"


def test_questions_and_dead_firings_are_answered_in_place(api: httpx.Client, watched: Watched) -> None:
    """The lists are played here: a question of an MCP server and a firing that was given up take long to make."""
    agent, at = make_agent(api, "asked"), "2026-01-02T03:04:05Z"
    schema = {"type": "object", "properties": {"days": {"type": "integer"}, "hotel": {"type": "boolean"}}}
    schema["required"] = ["days"]  # pyright: ignore[reportArgumentType]
    question = {"key": "q1", "message": "How many days? <script>", "schema": schema, "url": None}
    task = {"id": "t1", "agent_id": agent["id"], "tool_name": "book", "status": "input_required", "updated_at": at}
    firing = {"id": "f1", "schedule_id": "s1", "agent_id": agent["id"], "attempts": 8, "error": "no model"}
    waiting: dict[str, list[dict[str, Any]]] = {
        "mcp-tasks": [task | {"questions": [question]}],
        "firings": [firing | {"status": "dead", "updated_at": at}],
    }
    sent: list[tuple[str, Any]] = []

    def play(route: Route) -> None:
        kind = "mcp-tasks" if "mcp-tasks" in route.request.url else "firings"
        if route.request.method == "POST":
            sent.append((route.request.url.rpartition("/v1/")[2], route.request.post_data_json))
            waiting[kind] = []
        route.fulfill(body=json.dumps(waiting[kind]), content_type="application/json")

    watched.page.route("**/v1/kelpie/mcp-tasks**", play)
    watched.page.route("**/v1/kelpie/firings**", play)
    page = watched.open("#/inbox")
    asked = page.locator("section").filter(has_text="How many days?")
    asked.get_by_role("button", name="Send answer").click()
    expect(asked.get_by_role("alert")).to_contain_text("days is required")
    asked.get_by_label("days integer, required").fill("3")
    assert violations(page) == []
    asked.get_by_role("button", name="Send answer").click()
    expect(asked).to_have_count(0)
    dead = page.locator("section").filter(has_text="Schedule given up")
    expect(dead).to_contain_text("failed 8 times: no model")
    dead.get_by_role("button", name="Try again").click()
    expect(dead).to_have_count(0)
    assert sent[0] == ("kelpie/mcp-tasks/t1/answers", {"answers": {"q1": {"days": 3}}})
    assert sent[1][0] == "kelpie/firings/f1/requeue"
