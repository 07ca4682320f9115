"""Usage, cost and budgets in the dashboard agree with what agents spent."""

from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.acceptance.wire_model import OPENAI, WireModel
from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent, say
from tests.dashboard.watched import Watched

OWN_SERVER = True


def test_cost_is_shown_by_day_model_and_agent_and_a_budget_is_set(
    api: httpx.Client, model: WireModel, visit: Callable[..., Watched], screenshot: Callable[[Page, str], Path]
) -> None:
    page = visit().open("#/usage")
    expect(page.get_by_text("Nothing was used in this period.")).to_be_visible()
    expect(page.get_by_text("No agent has a budget.")).to_be_visible()
    dear, free = make_agent(api, "dear", model=OPENAI), make_agent(api, "free")
    for _ in range(3):
        model.will("costly")
        api.post(f"/v1/agents/{dear['id']}/messages", json={"messages": [{"role": "user", "content": "x"}]})
    say(api, free, {"text": "cheap"})
    page.reload()
    models = page.get_by_role("table", name="Models").locator("tbody")
    expect(models.locator("tr")).to_have_count(2)
    expect(models.locator("tr").first).to_contain_text(OPENAI)
    agents = page.get_by_role("table", name="Agents").locator("tbody")
    expect(agents.locator("tr").first).to_contain_text("dear")
    expect(agents.locator("tr").first).to_contain_text("3 steps")
    [spent] = [each for each in api.get("/v1/kelpie/spending", params={"by": "agent"}).json() if each["usd"]]
    expect(agents.locator("tr").first).to_contain_text(f"{spent['tokens']:,} tokens")
    expect(page.get_by_role("img", name="Cost, ")).to_be_visible()
    screenshot(page, "usage")
    assert violations(page) == []
    page.get_by_label("Chart").select_option("tokens")
    expect(page.get_by_role("heading", name="Tokens per day")).to_be_visible()
    page.get_by_label("Agent", exact=True).fill("free")
    expect(agents.locator("tr")).to_have_count(1)
    page.reload()
    expect(agents.locator("tr")).to_have_count(1)

    page.get_by_role("button", name="New budget").click()
    page.get_by_role("dialog").get_by_label("Agent").select_option(label="free")
    page.get_by_role("dialog").get_by_role("button", name="Continue").click()
    dialog = page.get_by_role("dialog", name="Budget of free")
    dialog.get_by_role("button", name="Save budget").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Give a limit")
    dialog.get_by_label("At most (tokens)").fill("5")
    dialog.get_by_role("button", name="Save budget").click()
    budgets = page.get_by_role("table", name="Budgets").locator("tbody tr")
    expect(budgets.first).to_contain_text("used up")
    assert api.get(f"/v1/agents/{free['id']}").json()["kelpie_budget"] == {"usd": None, "tokens": 5, "period": "day"}
    assert violations(page) == []
    page.get_by_role("button", name="Remove the budget of free").click()
    expect(page.get_by_text("No agent has a budget.")).to_be_visible()
    page.set_viewport_size({"width": 380, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
