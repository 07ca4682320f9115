"""Agents in the dashboard: found among many, created, edited, duplicated, reset and deleted."""

from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent, say
from tests.dashboard.watched import Watched


def test_an_agent_lives_through_everything_a_person_can_do_with_it(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    page = watched.open("#/agents")
    expect(page.get_by_role("heading", level=1)).to_have_text("Agents")
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="New agent")
    dialog.get_by_label("Name").fill("bea")
    dialog.get_by_label("Description").fill("plans trips")
    dialog.get_by_label("Human").fill("Name: Ada")
    dialog.get_by_label("Tags").fill("travel, demo")
    assert violations(page) == []
    dialog.get_by_role("button", name="Create agent").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("bea")
    expect(page.get_by_role("status").filter(has_text="Created agent bea")).to_be_visible()
    [made] = api.get("/v1/agents/", params={"name": "bea"}).json()
    assert (made["description"], sorted(made["tags"])) == ("plans trips", ["demo", "travel"])
    assert {block["label"]: block["value"] for block in made["blocks"]}["human"] == "Name: Ada"

    page.get_by_role("link", name="Details").click()
    expect(page.get_by_text("plans trips")).to_be_visible()
    screenshot(page, "agent")
    assert violations(page) == []
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("dialog").get_by_label("Name").fill("beatrix")
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("beatrix")
    assert api.get(f"/v1/agents/{made['id']}").json()["name"] == "beatrix"

    page.get_by_role("button", name="Duplicate").click()
    page.get_by_role("dialog").get_by_label("Name of the copy").fill("beatrix the second")
    page.get_by_role("dialog").get_by_role("button", name="Duplicate").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("beatrix the second")
    [copy] = api.get("/v1/agents/", params={"name": "beatrix the second"}).json()
    assert copy["id"] != made["id"] and copy["description"] == "plans trips"

    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete agent").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Agents")
    assert api.get(f"/v1/agents/{copy['id']}").status_code == 404

    say(api, made, {"text": "said"})
    page = watched.open(f"#/agents/{made['id']}")
    page.get_by_role("button", name="Reset messages").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete messages").click()
    expect(page.get_by_role("status").filter(has_text="Deleted the messages of beatrix")).to_be_visible()
    left = api.get(f"/v1/agents/{made['id']}/messages").json()
    assert [each["message_type"] for each in left] == ["system_message"]


def test_an_agent_is_made_from_a_template(api: httpx.Client, watched: Watched) -> None:
    source = make_agent(api, "mould", memory_blocks=[{"label": "persona", "value": "I am the mould."}])
    answer = api.post("/v1/templates", json={"type": "agent", "agent_id": source["id"], "name": "mould-template"})
    assert answer.status_code < 300, answer.text
    page = watched.open("#/agents")
    page.get_by_role("button", name="New agent").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("cast")
    dialog.get_by_label("Template").select_option("mould-template")
    dialog.get_by_role("button", name="Create agent").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("cast")
    [made] = api.get("/v1/agents/", params={"name": "cast"}).json()
    assert [block["value"] for block in made["blocks"] if block["label"] == "persona"] == ["I am the mould."]


def test_a_refused_name_stays_in_the_dialog_with_the_reason(watched: Watched) -> None:
    watched.expect("status of 4")
    page = watched.open("#/agents")
    page.get_by_role("button", name="New agent").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("x")
    dialog.get_by_label("Model").fill("nobody/nothing")
    dialog.get_by_role("button", name="Create agent").click()
    expect(dialog.get_by_role("alert")).to_contain_text("nobody")
    expect(dialog.get_by_label("Name")).to_have_value("x")


def test_agents_are_searched_and_paged_by_the_server(
    api: httpx.Client, visit: Callable[..., Watched], screenshot: Callable[[Page, str], Path]
) -> None:
    for place in range(120):
        make_agent(api, f"crowd-{place:03d}", include_base_tools=False)
    page = visit().open("#/agents?search=crowd-")
    rows = page.get_by_role("table", name="Agents").locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("crowd-119")
    page.get_by_role("button", name="Next page").click()
    expect(rows.first).to_contain_text("crowd-069")
    page.get_by_role("button", name="Next page").click()
    expect(rows).to_have_count(20)
    expect(page.get_by_role("button", name="Next page")).to_be_disabled()
    page.get_by_role("button", name="Previous page").click()
    expect(rows.first).to_contain_text("crowd-069")
    page.keyboard.press("/")
    page.get_by_label("Search agents by name").fill("crowd-007")
    expect(rows).to_have_count(1)
    assert "search=crowd-007" in page.url
    rows.first.get_by_role("link", name="crowd-007", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("crowd-007")
    page.go_back()
    expect(page.get_by_label("Search agents by name")).to_have_value("crowd-007")
    screenshot(page, "agents")
    for width in (380, 1024, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
