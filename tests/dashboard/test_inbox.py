"""The inbox of the dashboard: approvals, used-up budgets and dead firings of all agents, answered in place."""

from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.acceptance.served import wait_for
from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent, require_approval, runs_of, say, script
from tests.dashboard.watched import Watched

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
