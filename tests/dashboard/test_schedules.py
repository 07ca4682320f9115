"""Schedules and webhooks in the dashboard: created, run, paused, looked at and deleted."""

from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent, runs_of, script
from tests.dashboard.watched import Watched

OWN_SERVER = True


def choose(page: Page, name: str) -> None:
    field = page.get_by_role("dialog").get_by_label("Agent")
    field.fill(name)
    expect(page.locator(f"datalist option[value='{name}']")).to_have_count(1)
    field.press("Tab")


def test_a_schedule_is_made_run_paused_and_deleted(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    agent = make_agent(api, "clerk")
    page = watched.open("#/schedules")
    expect(page.get_by_text("No schedules.")).to_be_visible()
    page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("weekly")
    dialog.get_by_label("Message").fill(script({"text": "report"}))
    dialog.get_by_label("Cron expression").fill("0 9 * * 1")
    dialog.get_by_role("button", name="Create schedule").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Choose an agent")
    choose(page, "clerk")
    assert violations(page) == []
    dialog.get_by_role("button", name="Create schedule").click()
    rows = page.get_by_role("table", name="Schedules").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("clerk")
    screenshot(page, "schedules")
    page.get_by_role("button", name="Run now: weekly").click()
    expect(page.get_by_role("status").filter(has_text="Fired the schedule")).to_be_visible()
    page.get_by_role("button", name="Pause weekly").click()
    expect(rows.first).to_contain_text("paused")
    [made] = api.get(f"/v1/agents/{agent['id']}/schedule").json()["scheduled_messages"]
    assert made["paused"] and made["recurrence_rule"] == "0 9 * * 1"
    rows.first.get_by_role("link", name="weekly").click()
    history = page.get_by_role("table", name="Firings").locator("tbody tr")
    expect(history).to_have_count(1)
    expect(history.first).to_contain_text("by hand")
    expect(history.first.get_by_role("link", name="Run")).to_be_visible()
    assert violations(page) == []
    assert len(runs_of(api, agent)) == 1
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("dialog").get_by_label("Times that were missed").select_option("skip")
    page.get_by_role("dialog").get_by_role("button", name="Save schedule").click()
    expect(page.locator("dl.facts")).to_contain_text("skip")
    assert api.get(f"/v1/kelpie/schedules/{made['id']}").json()["missed_policy"] == "skip"
    page.goto(f"{page.url.partition('#')[0]}#/schedules/firings")
    expect(history).to_have_count(1)
    expect(history.first).to_contain_text("clerk")
    assert violations(page) == []
    page.get_by_label("State").select_option("Given up")
    expect(page.get_by_text("No firings here.")).to_be_visible()
    page.go_back()
    page.get_by_role("button", name="Delete weekly").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete schedule").click()
    expect(page.get_by_text("No schedules.")).to_be_visible()


def test_a_webhook_shows_its_address_once_and_wakes_the_agent(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "doorman")
    page = watched.open("#/schedules/webhooks")
    page.get_by_role("button", name="New webhook").click()
    page.get_by_role("dialog").get_by_label("Name").fill("bell")
    choose(page, "doorman")
    page.get_by_role("dialog").get_by_role("button", name="Create webhook").click()
    address = page.get_by_role("dialog", name="Address of the webhook").locator("code").inner_text()
    page.keyboard.press("Escape")
    rows = page.get_by_role("table", name="Webhooks").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(page.locator("body")).not_to_contain_text("kelpie-hook_")
    assert violations(page) == []
    assert api.post(address, json={"rings": 2}).status_code == 202
    assert len(runs_of(api, agent)) == 1
    page.get_by_role("button", name="Switch off bell").click()
    expect(page.get_by_role("button", name="Switch on bell")).to_be_visible()
    assert api.post(address, json={}).status_code >= 400
    page.get_by_role("button", name="Delete bell").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete webhook").click()
    expect(page.get_by_text("No webhooks.")).to_be_visible()
