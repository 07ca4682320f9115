"""Screens for those who look after a server: tools and MCP, health, access, import and export, logs."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent, say, script
from tests.dashboard.watched import Watched

OWN_SERVER = True

HUMAN = [{"label": "human", "value": "Name: Ada"}]


def test_a_tool_is_run_from_a_form_and_its_calls_are_listed(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    agent = make_agent(api, "handy", memory_blocks=HUMAN)
    page = watched.open("#/tools")
    page.get_by_label("Search tools by name").fill("memory_insert")
    page.keyboard.press("Enter")
    rows = (
        page.get_by_role("table", name="Tools")
        .locator("tbody tr")
        .filter(has=page.get_by_text("memory_insert", exact=True))
    )
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("permitted")
    assert violations(page) == []
    rows.first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Tool memory_insert")
    page.get_by_label("label string, required").fill("human")
    page.get_by_label("new_string string, required").fill("Likes maps")
    page.get_by_role("button", name="Run tool").click()
    expect(page.get_by_role("alert")).to_contain_text("Choose an agent")
    page.get_by_label("Agent", exact=True).fill("handy")
    expect(page.locator("datalist option[value='handy']")).to_have_count(1)
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Run tool").click()
    expect(page.get_by_text("done", exact=True)).to_be_visible()
    assert "Likes maps" in api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()["value"]
    screenshot(page, "tool")
    assert violations(page) == []
    insert = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "And tea"}}
    say(api, agent, {"calls": [insert]}, {"text": "Done."})
    page.get_by_role("link", name="Its calls").click()
    calls = page.get_by_role("table", name="Calls").locator("tbody tr")
    expect(calls.first).to_contain_text("memory_insert")
    expect(calls.first).to_contain_text("handy")
    expect(calls.first).to_contain_text("success")
    page.get_by_label("Outcome").select_option("refused")
    expect(page.get_by_text("No calls match.")).to_be_visible()
    assert violations(page) == []


def test_the_tool_policy_is_changed_and_shown_for_an_agent(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "ruled", memory_blocks=HUMAN)
    page = watched.open(f"#/tools/permissions?agent={agent['id']}")
    expect(page.get_by_text("memory_insert")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("button", name="Change the policy").click()
    field = page.get_by_role("dialog").get_by_label("Policy (JSON)")
    before = json.loads(field.input_value())
    field.fill(json.dumps(before | {"permissions": before["permissions"] | {"deny": ["memory_insert"]}}))
    page.get_by_role("dialog").get_by_role("button", name="Save policy").click()
    expect(page.get_by_text("refused by the organization")).to_be_visible()
    assert api.get("/v1/kelpie/policy").json()["permissions"]["deny"] == ["memory_insert"]
    api.put("/v1/kelpie/policy", json={})


def test_mcp_servers_say_what_is_wrong(watched: Watched) -> None:
    watched.expect("status of [45]")
    page = watched.open("#/tools/servers")
    expect(page.get_by_text("No MCP servers.")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("button", name="Add MCP server").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("nowhere")
    dialog.get_by_label("Address or command").fill("http://mcp.invalid/mcp")
    dialog.get_by_role("button", name="Add MCP server").click()
    expect(page.get_by_role("heading", name="nowhere")).to_be_visible()
    page.get_by_role("button", name="Refresh tools of nowhere").click()
    expect(page.get_by_role("alert")).to_contain_text("nowhere")
    expect(page.get_by_text("Last error")).to_be_visible()
    page.get_by_role("button", name="Delete nowhere").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete MCP server").click()
    expect(page.get_by_text("No MCP servers.")).to_be_visible()


def test_health_says_what_works(api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]) -> None:
    page = watched.open("#/health")
    expect(page.get_by_text("The server stores what it accepts.")).to_be_visible()
    expect(page.get_by_text("No run waits for long.")).to_be_visible()
    expect(page.get_by_text("of the disk is free")).to_be_visible()
    expect(page.get_by_role("region", name="Providers")).to_contain_text("kelpie")
    assert violations(page) == []
    screenshot(page, "health")
    page.get_by_role("button", name="Check the stored data").click()
    expect(page.get_by_text("sound", exact=True)).to_be_visible()


def test_a_key_is_shown_once_and_revoked(api: httpx.Client, watched: Watched) -> None:
    page = watched.open("#/access")
    expect(page.get_by_text("No API keys.")).to_be_visible()
    page.get_by_role("button", name="New API key").click()
    page.get_by_role("dialog").get_by_label("Name").fill("ci")
    page.get_by_role("dialog").get_by_role("button", name="Create key").click()
    shown = page.get_by_role("dialog", name="New API key").locator("code.secret")
    expect(shown).to_be_visible()
    secret = shown.inner_text()
    page.keyboard.press("Escape")
    rows = page.get_by_role("table", name="API keys").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(page.locator("body")).not_to_contain_text(secret)
    assert violations(page) == []
    [key] = api.get("/v1/kelpie/keys").json()
    assert (key["name"], key["scopes"]) == ("ci", ["write"])
    page.get_by_role("button", name="Revoke ci").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke key").click()
    expect(page.get_by_text("No API keys.")).to_be_visible()
    assert api.get("/v1/kelpie/keys").json() == []


def test_access_tokens_and_users_are_made_and_deleted(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "public")
    page = watched.open("#/access/tokens")
    page.get_by_role("button", name="New access token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Site").fill("https://app.example.com")
    dialog.get_by_label("Id of the agent").fill(agent["id"])
    dialog.get_by_role("button", name="Create access token").click()
    expect(page.locator("code.secret")).to_be_visible()
    page.keyboard.press("Escape")
    rows = page.get_by_role("table", name="Access tokens").locator("tbody tr")
    expect(rows.first).to_contain_text("app.example.com")
    assert violations(page) == []
    rows.first.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete access token").click()
    expect(page.get_by_text("No access tokens.")).to_be_visible()
    page.get_by_role("link", name="Users").click()
    page.get_by_role("button", name="New user").click()
    page.get_by_role("dialog").get_by_label("Name").fill("grace")
    page.get_by_role("dialog").get_by_role("button", name="Create user").click()
    users = page.get_by_role("table", name="Users").locator("tbody tr").filter(has_text="grace")
    expect(users).to_have_count(1)
    assert violations(page) == []
    page.get_by_role("button", name="Delete grace").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete user").click()
    expect(users).to_have_count(0)


def test_an_agent_leaves_as_a_file_and_comes_back(api: httpx.Client, watched: Watched, tmp_path: Path) -> None:
    agent = make_agent(api, "traveller", memory_blocks=HUMAN)
    page = watched.open(f"#/transfer?agent={agent['id']}")
    expect(page.get_by_label("Agent", exact=True)).to_have_value("traveller")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export agent").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name == "traveller.af" and json.loads(file.read_text())["agents"]
    page.get_by_role("button", name="Import agent").click()
    expect(page.get_by_role("alert")).to_contain_text("Choose an agent file")
    page.get_by_label("Agent file").set_input_files(file)
    page.get_by_role("textbox", name="Name").fill("returned")
    page.get_by_role("button", name="Import agent").click()
    expect(page.get_by_text("Imported: returned")).to_be_visible()
    assert violations(page) == []
    [made] = api.get("/v1/agents/", params={"name": "returned"}).json()
    assert [block["value"] for block in made["blocks"]] == ["Name: Ada"]


def test_the_log_is_live_and_filtered(api: httpx.Client, watched: Watched) -> None:
    agents = [make_agent(api, name)["id"] for name in ("unlucky", "luckless")]

    def fail(agent: str) -> None:
        assert api.post(f"/v1/agents/{agent}/messages", json={"input": script({"error": "llm_rate_limit"})}).is_error

    page = watched.open(f"#/logs?contains={agents[0]}")
    log = page.get_by_role("log")
    expect(log).to_contain_text("No lines match.")
    for agent in agents:
        fail(agent)
    lines = log.locator(".log-line:not(.hint)")
    expect(lines).to_have_count(1)
    expect(lines.first).to_contain_text("provider_failed")
    assert violations(page) == []
    page.get_by_role("button", name="Pause").click()
    fail(agents[0])
    page.get_by_label("Only lines with").fill("/messages")
    expect(page).to_have_url(re.compile("contains=%2Fmessages"))
    expect(lines).to_have_count(0)
    page.get_by_role("button", name="Continue").click()
    expect(lines).to_have_count(3)
    page.get_by_label("Level").select_option("error")
    expect(log).to_contain_text("No lines match.")
