"""Runs and prompts in the dashboard: filters, journal, cancelling, why an answer was given, what compaction took."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.wire_model import ANTHROPIC, OPENAI, WireModel
from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent, runs_of, say, script
from tests.dashboard.watched import Watched

OWN_SERVER = True


def rows_of(page: Page) -> list[str]:
    return page.get_by_role("table", name="Runs").locator("tbody tr").all_inner_texts()


def test_runs_are_filtered_by_state_agent_age_cost_and_error(
    api: httpx.Client, model: WireModel, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    good, bad, dear = make_agent(api, "good"), make_agent(api, "bad"), make_agent(api, "dear", model=OPENAI)
    say(api, good, {"text": "fine"})
    say(api, bad, {"error": "llm_rate_limit"})
    model.will("costly")
    api.post(f"/v1/agents/{dear['id']}/messages", json={"messages": [{"role": "user", "content": "x"}]})
    page = watched.open("#/runs")
    table = page.get_by_role("table", name="Runs").locator("tbody")
    expect(table.locator("tr")).to_have_count(3)
    screenshot(page, "runs")
    assert violations(page) == []
    page.get_by_label("State").select_option("failed")
    expect(table.locator("tr")).to_have_count(1)
    expect(table).to_contain_text("bad")
    page.get_by_label("State").select_option("")
    page.get_by_label("How it ended").select_option("llm_api_error")
    expect(table.locator("tr")).to_have_count(1)
    page.get_by_label("How it ended").select_option("")
    page.get_by_label("Cost at least").fill("0.000001")
    page.keyboard.press("Tab")
    expect(table.locator("tr")).to_have_count(1)
    expect(table).to_contain_text("dear")
    page.get_by_label("Cost at least").fill("")
    page.keyboard.press("Tab")
    expect(table.locator("tr")).to_have_count(3)
    page.get_by_label("Agent", exact=True).fill("good")
    expect(table.locator("tr")).to_have_count(1)
    page.reload()
    expect(table.locator("tr")).to_have_count(1)
    expect(table).to_contain_text("good")
    expect(page.get_by_label("Agent", exact=True)).to_have_value("good")
    page.get_by_label("Agent", exact=True).fill("")
    page.keyboard.press("Tab")
    page.get_by_label("Age", exact=True).select_option("1")
    expect(table.locator("tr")).to_have_count(3)
    page.get_by_label("State").select_option("stuck")
    expect(page.get_by_text("No runs match.")).to_be_visible()


def test_a_run_shows_its_journal_and_is_cancelled(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "busy", memory_blocks=[{"label": "human", "value": "x"}])
    insert = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "y"}}
    body = {"messages": [{"role": "user", "content": script({"calls": [insert]}, {"text": "late", "wait_s": 50})}]}
    run = api.post(f"/v1/agents/{agent['id']}/messages/async", json=body).json()
    page = watched.open(f"#/runs/{run['id']}")
    expect(page.get_by_role("region", name="Journal")).to_contain_text("step stored")
    expect(page.get_by_role("region", name="Steps")).to_contain_text("Step 1")
    expect(page.get_by_role("article", name="Tool call")).to_contain_text("memory_insert")
    assert violations(page) == []
    page.get_by_role("button", name="Cancel run").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
    expect(page.locator("dl.facts")).to_contain_text("cancelled")
    assert runs_of(api, agent)[0]["status"] == "cancelled"


@pytest.mark.parametrize("handle", [OPENAI, ANTHROPIC])
def test_the_exact_prompt_of_an_answer_is_one_click_away(
    api: httpx.Client,
    model: WireModel,
    watched: Watched,
    handle: str,
    screenshot: Callable[[Page, str], Path],
) -> None:
    blocks = [{"label": "human", "value": "Name: Ada"}]
    agent = make_agent(api, f"explained-{handle[:4]}", model=handle, memory_blocks=blocks)
    insert = ("memory_insert", {"label": "human", "new_string": "Likes tea"})
    model.will([insert], "Because you said so.")
    api.post(f"/v1/agents/{agent['id']}/messages", json={"messages": [{"role": "user", "content": "I like tea"}]})
    page = watched.open(f"#/chat/{agent['id']}")
    page.get_by_role("link", name="Why this answer?").click()
    expect(page.get_by_role("heading", name="Where the tokens go")).to_be_visible()
    for kind in ("Instructions", "Memory blocks", "Tools", "Messages of people", "Results of tools"):
        expect(page.locator("table.legend")).to_contain_text(kind)
    block = page.locator("details").filter(has_text="block human")
    block.locator("summary").click()
    expect(block.get_by_role("region")).to_contain_text("Likes tea")
    asked = page.locator("details").filter(has_text="I like tea").first
    expect(asked).to_be_visible()
    assert violations(page) == []
    screenshot(page, "prompt")
    choice = page.get_by_label("With the prompt of another step of this agent")
    choice.select_option(index=1)
    difference = page.get_by_role("group", name="Difference")
    expect(difference.locator(".added").filter(has_text="Likes tea").first).to_be_visible()
    page.reload()
    expect(difference).to_be_visible()


def test_the_next_prompt_and_what_compaction_removed(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "forgetful")
    for place in range(6):
        say(api, agent, {"text": f"answer number {place} " + "blah " * 20})
    page = watched.open(f"#/prompt/{agent['id']}")
    expect(page.get_by_text("Nothing was removed")).to_be_visible()
    compacted = api.post(f"/v1/agents/{agent['id']}/summarize", json={"compaction_settings": {"mode": "all"}})
    assert compacted.status_code == 200, compacted.text
    page.reload()
    expect(page.locator("table.legend")).to_contain_text("Summary of removed messages")
    expect(page.get_by_text("are no longer in the prompt")).to_be_visible()
    expect(page.locator(".removed")).to_contain_text("answer number 0")


def test_a_step_whose_prompt_is_not_stored_says_how_to_store_it(api: httpx.Client, watched: Watched) -> None:
    watched.expect("status of 404")
    page = watched.open("#/steps/step-00000000-0000-4000-8000-000000000001")
    expect(page.get_by_role("alert")).to_contain_text("Go back to the list")
