"""Batches in the dashboard: started, followed and cancelled; and several agents created or deleted at once."""

from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Locator, Page, expect

from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent, script
from tests.dashboard.test_schedules import choose
from tests.dashboard.watched import Watched

HOSTILE = "<script>alert(1)</script>\u202egnp \x1b[31mred"
WIDTHS = (380, 1024, 1920)
HELD = {"text": "late", "wait_s": 60}  # a turn that a test ends by cancelling it


def rows(page: Page, table: str) -> Locator:
    return page.get_by_role("table", name=table).locator("tbody tr")


def test_a_batch_is_started_and_shows_the_outcome_of_each_item(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    agent = make_agent(api, "reader")
    page = watched.open("#/batches?active=true")
    expect(page.get_by_text("No batches here.")).to_be_visible()
    assert violations(page) == []
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog")
    lines = [script({"text": "a lake"}), script({"error": "llm_bad_request"}), script({"text": HOSTILE + "w" * 3000})]
    dialog.get_by_label("Messages", exact=True).fill("\n\n".join([*lines, f"{HOSTILE}\nsecond line"]))
    dialog.get_by_label("Messages have several lines").check()
    dialog.get_by_role("button", name="Start batch").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Choose an agent")
    choose(page, "reader")
    assert violations(page) == []
    dialog.get_by_role("button", name="Start batch").click()
    items = rows(page, "Items")
    expect(items).to_have_count(4)
    expect(page.get_by_text("100 % of 4 items")).to_be_visible()
    expect(page.get_by_text("3 completed, 1 failed")).to_be_visible()
    expect(items.nth(0)).to_contain_text("a lake")
    expect(items.nth(1)).to_contain_text("failed")
    expect(items.nth(2)).to_contain_text("<script>alert(1)</script>")
    expect(items.nth(3)).to_contain_text("second line")
    batch = api.get("/v1/kelpie/batches").json()[0]
    assert (batch["agent_id"], batch["completed"], batch["parallel"]) == (agent["id"], 3, False)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        screenshot(page, f"batch-{width}")
    assert violations(page) == []
    page.get_by_role("link", name="Run of item 1").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Run of reader")


def test_a_parallel_batch_is_cancelled_from_the_list(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    agent = make_agent(api, "waiter")
    page = watched.open("#/batches")
    page.get_by_role("button", name="New batch").click()
    page.get_by_role("dialog").get_by_label("Messages", exact=True).fill("\n".join([script(HELD)] * 7))
    page.get_by_role("dialog").get_by_label("In parallel").check()
    choose(page, "waiter")
    page.get_by_role("dialog").get_by_role("button", name="Start batch").click()
    expect(rows(page, "Items")).to_have_count(7)
    page.get_by_role("link", name="All batches").click()
    page.get_by_label("Show").select_option("Not ended")
    expect(rows(page, "Batches")).to_have_count(1)
    expect(rows(page, "Batches").first).to_contain_text("0 % of 7 items")
    assert violations(page) == []
    screenshot(page, "batches")
    page.get_by_role("button", name="Cancel the batch").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel batch").click()
    expect(page.get_by_role("status").filter(has_text="Cancelled the batch")).to_be_visible()
    expect(page.get_by_text("No batches here.")).to_be_visible()
    page.get_by_label("Show").select_option("All batches")
    expect(rows(page, "Batches").first).to_contain_text("7 cancelled")
    shown = api.get("/v1/kelpie/batches").json()[0]
    assert (shown["agent_id"], shown["status"], shown["parallel"]) == (agent["id"], "cancelled", True)


def test_several_agents_are_created_and_deleted_with_a_result_for_each(api: httpx.Client, watched: Watched) -> None:
    page = watched.open("#/agents?search=flock")
    page.get_by_role("button", name="Create several").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Names").fill(f"flock one\nflock {HOSTILE}\nflock three\nflock {'x' * 600}")
    dialog.get_by_label("Model").fill("kelpie/demo")
    assert violations(page) == []
    dialog.get_by_role("button", name="Create agents").click()
    results = page.get_by_role("dialog", name="Created 3 of 4 agents")
    expect(results.get_by_role("listitem")).to_have_count(4)
    expect(results.get_by_role("listitem").nth(1)).to_contain_text("failed")
    expect(results.get_by_role("listitem").nth(1)).to_contain_text("control character")
    page.keyboard.press("Escape")
    expect(rows(page, "Agents")).to_have_count(3)
    for name in ("flock one", "flock three"):
        page.get_by_role("checkbox", name=f"Select {name}").check()
    expect(page.get_by_role("group", name="Selected agents")).to_contain_text("2 agents selected")
    [gone] = api.get("/v1/agents/", params={"name": "flock three"}).json()
    assert api.delete(f"/v1/agents/{gone['id']}").status_code == 200
    assert violations(page) == []
    page.get_by_role("button", name="Delete selected").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 2 agents").click()
    results = page.get_by_role("dialog", name="Deleted 1 of 2 agents")
    expect(results.get_by_role("listitem").nth(1)).to_contain_text("failed")
    page.keyboard.press("Escape")
    expect(rows(page, "Agents")).to_have_count(1)
    assert len(api.get("/v1/agents/", params={"query_text": "flock"}).json()) == 1
