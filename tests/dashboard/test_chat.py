"""Chat as a person uses it: streamed answers, tool calls, approvals, images, stop, conversations, and reloads."""

import base64
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.acceptance.wire_model import OPENAI, WireModel
from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent, require_approval, runs_of, say, script
from tests.dashboard.watched import Watched

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def write(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def test_an_answer_streams_with_reasoning_tools_and_cost(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    agent = make_agent(api, "chatty", memory_blocks=[{"label": "human", "value": "Name: Ada"}])
    page = watched.open(f"#/chat/{agent['id']}")
    expect(page.get_by_role("heading", level=1)).to_have_text("chatty")
    insert = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "Likes tea"}}
    write(page, script({"reasoning": "I should note it.", "calls": [insert]}, {"text": "**Noted**, with `care`."}))
    answer = page.get_by_role("article", name="Agent")
    expect(answer.locator("strong")).to_have_text("Noted")
    expect(answer.locator("code")).to_have_text("care")
    expect(page.get_by_role("article", name="Reasoning")).to_contain_text("I should note it.")
    call = page.get_by_role("article", name="Tool call")
    call.locator("summary").click()
    expect(call).to_contain_text("memory_insert")
    expect(call).to_contain_text('"new_string": "Likes tea"')
    expect(call).to_contain_text("done")
    expect(page.locator(".usage")).to_contain_text("tokens, $0, 2 steps")
    expect(page.get_by_role("article", name="You")).to_have_count(1)
    assert violations(page) == []
    screenshot(page, "chat")
    page.reload()
    expect(page.get_by_role("article", name="Agent")).to_have_count(1)
    expect(page.get_by_role("article", name="You")).to_have_count(1)
    expect(page.get_by_role("article", name="Tool call")).to_contain_text("done")


def test_an_approval_is_answered_in_place(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    agent = make_agent(api, "careful", memory_blocks=[{"label": "human", "value": "Name: Ada"}])
    require_approval(api, agent, "memory_insert")
    insert = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "Wants Porto"}}
    page = watched.open(f"#/chat/{agent['id']}")
    write(page, script({"calls": [insert]}, {"text": "Saved."}))
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    screenshot(page, "approval")
    page.reload()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("article", name="Agent")).to_contain_text("Saved.")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    assert "Wants Porto" in api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()["value"]
    write(page, script({"calls": [insert]}, {"text": "I did not save it."}))
    page.get_by_label("Reason for a denial").fill("twice is enough")
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("article", name="Agent").last).to_contain_text("I did not save it.")
    call = page.get_by_role("article", name="Tool call").last
    expect(call).to_contain_text("failed")
    expect(call).to_contain_text("twice is enough")


def test_a_running_turn_is_stopped(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "slow")
    page = watched.open(f"#/chat/{agent['id']}")
    write(page, script({"text": "one", "wait_s": 30}))
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The turn ended: cancelled")).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    assert [run["status"] for run in runs_of(api, agent)] == ["cancelled"]


def test_a_reload_finds_the_running_turn_again_and_shows_it_once(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "patient", memory_blocks=[{"label": "human", "value": "x"}])
    page = watched.open(f"#/chat/{agent['id']}")
    insert = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "y"}}
    write(page, script({"calls": [insert]}, {"text": "slow answer", "wait_s": 4}))
    expect(page.get_by_role("article", name="Tool call")).to_contain_text("done")
    page.reload()
    expect(page.get_by_text("The agent is working")).to_be_visible()
    expect(page.get_by_role("article", name="You")).to_have_count(1)
    expect(page.get_by_role("article", name="Agent")).to_contain_text("slow answer")
    expect(page.get_by_role("article", name="Tool call")).to_have_count(1)
    expect(page.get_by_role("article", name="You")).to_have_count(1)
    expect(page.get_by_role("article", name="Agent")).to_have_count(1)


def test_images_are_sent_and_shown(api: httpx.Client, model: WireModel, watched: Watched, tmp_path: Path) -> None:
    picture = tmp_path / "pixel <b>.png"
    picture.write_bytes(PIXEL)
    model.will("Pixel!")
    agent = make_agent(api, "seeing", model=OPENAI)
    page = watched.open(f"#/chat/{agent['id']}")
    page.get_by_label("Add images").set_input_files(picture)
    expect(page.locator(".chosen")).to_contain_text("pixel <b>.png")
    write(page, "What is this?")
    mine = page.get_by_role("article", name="You")
    shown = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    expect(mine.get_by_role("img")).to_have_attribute("src", shown)
    expect(page.get_by_role("article", name="Agent")).to_contain_text("Pixel!")
    page.reload()
    expect(mine.get_by_role("img")).to_have_attribute("src", shown)


def test_a_refused_message_says_why_and_is_given_back(api: httpx.Client, watched: Watched, tmp_path: Path) -> None:
    watched.expect("status of 400")
    picture = tmp_path / "pixel.png"
    picture.write_bytes(PIXEL)
    agent = make_agent(api, "blind")
    page = watched.open(f"#/chat/{agent['id']}")
    page.get_by_label("Add images").set_input_files(picture)
    write(page, "")
    expect(page.get_by_role("alert")).to_contain_text("use a model that accepts images")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    write(page, script({"text": "fine"}))
    expect(page.get_by_role("article", name="Agent")).to_contain_text("fine")


def test_conversations_are_kept_apart(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "many-sided")
    say(api, agent, {"text": "in the default one"})
    page = watched.open(f"#/chat/{agent['id']}")
    expect(page.get_by_role("article", name="Agent")).to_contain_text("in the default one")
    page.get_by_role("button", name="New", exact=True).click()
    expect(page.get_by_text("Nothing was said here yet")).to_be_visible()
    write(page, script({"text": "in another one"}))
    expect(page.get_by_role("article", name="Agent")).to_contain_text("in another one")
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("textbox", name="Name").fill("Trip")
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary", name="Conversations").get_by_role("link", name="Trip")).to_be_visible()
    page.reload()
    expect(page.get_by_role("article", name="Agent")).to_have_count(1)
    page.get_by_role("link", name="Default").click()
    expect(page.get_by_role("article", name="Agent")).to_contain_text("in the default one")
    expect(page.get_by_role("article", name="Agent")).to_have_count(1)


def test_a_failed_turn_says_why_and_what_to_do(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "unlucky")
    page = watched.open(f"#/chat/{agent['id']}")
    write(page, script({"text": "half", "error": "llm_authentication"}))
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
