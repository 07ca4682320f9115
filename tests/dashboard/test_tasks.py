"""Five tasks of a new user, from the start page, with every click and key counted. docs/dashboard.md has the table."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.wire_model import OPENAI, WireModel
from tests.dashboard.agents import make_agent, require_approval
from tests.dashboard.watched import Watched

GUIDE = Path(__file__).parents[2] / "docs" / "dashboard.md"
INSERT = ("memory_insert", {"label": "human", "new_string": "Likes tea"})
# Counts what a person does, but not the words that are written.
COUNTER = """
window.acts = 0;
addEventListener("click", (event) => { if (event.isTrusted && event.detail) window.acts += 1; }, true);
addEventListener("keydown", (event) => { if (event.isTrusted && event.key.length > 1) window.acts += 1; }, true);
"""


@pytest.fixture
def agent(api: httpx.Client, model: WireModel) -> dict[str, Any]:
    """The newest agent: the start page opens it."""
    model.will()
    return make_agent(api, "newest", model=OPENAI, memory_blocks=[{"label": "human", "value": "Name: Ada"}])


def start(watched: Watched) -> Page:
    watched.page.add_init_script(COUNTER)
    page = watched.open()
    expect(page.get_by_role("heading", level=1)).to_have_text("newest")
    return page


def counted(page: Page, task: str) -> None:
    """Fails unless the guide says for this task what was counted."""
    said = re.search(rf"^\| {re.escape(task)} \| (\d+)", GUIDE.read_text(), re.MULTILINE)
    assert said is not None, f"docs/dashboard.md has no row {task!r}"
    assert page.evaluate("window.acts") == int(said[1])


def said(api: httpx.Client, agent: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "I like tea"}]}
    assert api.post(f"/v1/agents/{agent['id']}/messages", json=body).status_code == 200


def test_chat_and_see_what_it_cost(agent: dict[str, Any], model: WireModel, watched: Watched) -> None:
    page = start(watched)
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    model.will("Hello.")
    page.keyboard.insert_text("Hello")
    page.keyboard.press("Enter")
    expect(page.get_by_role("article", name="Agent")).to_contain_text("Hello.")
    counted(page, "Chat")
    page.evaluate("window.acts = 0")
    expect(page.locator(".usage")).to_contain_text(re.compile(r"12 tokens, \$0\.0000\d+, 1 step"))
    counted(page, "See what an answer cost")
    page.get_by_role("link", name="Usage and cost").click()
    row = page.get_by_role("table", name="Agents").locator("tbody tr").filter(has_text="newest")
    expect(row.first).to_contain_text("$0.0000")
    counted(page, "See what all agents cost")


def test_edit_memory(api: httpx.Client, agent: dict[str, Any], watched: Watched) -> None:
    page = start(watched)
    page.get_by_role("link", name="Memory", exact=True).click()
    page.get_by_role("button", name="Edit block human").click()
    expect(page.get_by_role("dialog").get_by_label("Text")).to_be_focused()
    page.keyboard.insert_text("Likes tea\n")
    page.get_by_role("button", name="Save block").click()
    expect(page.get_by_role("region", name="Block human")).to_contain_text("Likes tea")
    assert "Likes tea" in api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()["value"]
    counted(page, "Edit memory")


def test_approve_a_call(api: httpx.Client, agent: dict[str, Any], model: WireModel, watched: Watched) -> None:
    require_approval(api, agent, "memory_insert")
    model.will([INSERT])
    said(api, agent)
    page = start(watched)
    model.will("Saved.")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("article", name="Agent")).to_contain_text("Saved.")
    assert "Likes tea" in api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()["value"]
    counted(page, "Approve a call")


def test_find_out_why_an_answer_was_given(
    api: httpx.Client, agent: dict[str, Any], model: WireModel, watched: Watched
) -> None:
    model.will([INSERT], "Because you said so.")
    said(api, agent)
    page = start(watched)
    page.get_by_role("link", name="Why this answer?").click()
    expect(page.locator("table.legend")).to_contain_text("Results of tools")
    expect(page.locator(".parts")).to_contain_text("I like tea")
    counted(page, "Find out why an answer was given")
