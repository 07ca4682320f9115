"""The memory of an agent in the dashboard: blocks with versions, working memory, passages, facts, files and search."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.served import wait_for
from tests.acceptance.test_facts import FACTS, Knower
from tests.acceptance.wire_model import OPENAI, WireModel, wire_model
from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent, say
from tests.dashboard.watched import Watched

OWN_SERVER = True

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m"


@pytest.fixture(scope="module")
def model() -> Iterator[WireModel]:
    with wire_model(Knower()) as made:
        yield made


def test_a_block_is_edited_compared_and_restored(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    agent = make_agent(api, "rememberer", memory_blocks=[{"label": "human", "value": "Name: Ada\nLikes: tea"}])
    block = api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()
    insert = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "Lives in Porto"}}
    say(api, agent, {"calls": [insert]}, {"text": "Noted."})
    page = watched.open(f"#/memory/{agent['id']}")
    expect(page.get_by_role("region", name="Block human")).to_contain_text("Lives in Porto")
    page.get_by_role("button", name="Edit block human").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Text").fill("Name: Ada\nLikes: coffee\n" + HOSTILE)
    dialog.get_by_role("button", name="Save block").click()
    expect(page.get_by_role("region", name="Block human")).to_contain_text("coffee")
    assert violations(page) == []
    page.get_by_role("link", name="human", exact=True).click()
    versions = page.get_by_role("table", name="Versions").locator("tbody tr")
    expect(versions).to_have_count(3)
    expect(versions.nth(1)).to_contain_text("memory_insert")
    difference = page.get_by_role("group", name="Difference")
    expect(difference.locator(".added").filter(has_text="coffee")).to_be_visible()
    expect(difference.locator(".removed").filter(has_text="Porto")).to_be_visible()
    screenshot(page, "memory")
    assert violations(page) == []
    page.get_by_label("From").select_option("1")
    expect(difference.locator(".removed").filter(has_text="tea")).to_be_visible()
    assert "from=1" in page.url
    page.get_by_role("button", name="Restore version 2").click()
    page.get_by_role("dialog").get_by_role("button", name="Restore version").click()
    expect(page.get_by_role("region", name="Block human")).to_contain_text("Lives in Porto")
    assert "Lives in Porto" in api.get(f"/v1/blocks/{block['id']}").json()["value"]
    page.reload()
    expect(page.get_by_role("heading", name="Block human")).to_be_visible()


def test_a_new_block_belongs_to_the_agent(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "planner", memory_blocks=[])
    page = watched.open(f"#/memory/{agent['id']}/blocks")
    expect(page.get_by_text("This agent has no memory blocks.")).to_be_visible()
    page.get_by_role("button", name="New block").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Label").fill("plans")
    dialog.get_by_label("Text").fill("Go to Porto")
    dialog.get_by_role("button", name="Create block").click()
    expect(page.get_by_role("region", name="Block plans")).to_contain_text("Go to Porto")
    [made] = api.get(f"/v1/agents/{agent['id']}/core-memory/blocks").json()
    assert (made["label"], made["value"]) == ("plans", "Go to Porto")


def test_a_block_that_changed_meanwhile_is_not_overwritten(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "raced", memory_blocks=[{"label": "human", "value": "old"}])
    block = api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()
    page = watched.open(f"#/memory/{agent['id']}")
    page.get_by_role("button", name="Edit block human").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Text").fill("mine")
    api.patch(f"/v1/blocks/{block['id']}", json={"value": "theirs"})
    dialog.get_by_role("button", name="Save block").click()
    expect(dialog.get_by_role("alert")).to_contain_text("changed while you edited")
    assert api.get(f"/v1/blocks/{block['id']}").json()["value"] == "theirs"


def test_working_memory_is_set_changed_and_deleted(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "worker")
    page = watched.open(f"#/memory/{agent['id']}/working")
    expect(page.get_by_text("The working memory is empty.")).to_be_visible()
    page.get_by_role("button", name="New entry").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key").fill("trips/porto")
    dialog.get_by_label("Value (JSON)").fill("{tea")
    dialog.get_by_role("button", name="Create entry").click()
    expect(dialog.get_by_role("alert")).to_contain_text("not JSON")
    dialog.get_by_label("Value (JSON)").fill('{"days": 3}')
    dialog.get_by_role("button", name="Create entry").click()
    rows = page.get_by_role("table", name="Working memory").locator("tbody tr")
    expect(rows).to_have_count(1)
    assert api.get(f"/v1/agents/{agent['id']}/working-memory/trips/porto").json()["value"] == {"days": 3}
    page.get_by_role("button", name="Change trips/porto").click()
    page.get_by_role("dialog").get_by_label("Value (JSON)").fill("4")
    page.get_by_role("dialog").get_by_role("button", name="Save value").click()
    expect(rows.first).to_contain_text("4")
    assert violations(page) == []
    page.get_by_role("button", name="Delete trips/porto").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete entry").click()
    expect(page.get_by_text("The working memory is empty.")).to_be_visible()
    assert api.get(f"/v1/agents/{agent['id']}/working-memory").json() == []


def test_passages_are_added_found_with_a_reason_and_deleted(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    agent = make_agent(api, "archivist")
    for place in range(35):
        api.post(f"/v1/agents/{agent['id']}/archival-memory", json={"text": f"Note {place:02d}: nothing special"})
    page = watched.open(f"#/memory/{agent['id']}/passages")
    rows = page.get_by_role("table", name="Passages").locator("tbody tr")
    expect(rows).to_have_count(30)
    page.get_by_role("button", name="Next page").click()
    expect(rows).to_have_count(5)
    page.get_by_role("button", name="New passage").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Text").fill("The boat to Berlengas leaves at nine. " + HOSTILE)
    dialog.get_by_label("Tags").fill("travel, boats")
    dialog.get_by_role("button", name="Add passage").click()
    expect(rows.first).to_contain_text("Berlengas")
    assert violations(page) == []
    say(api, agent, {"text": "The boat is called Cabo Avelar."})
    page.get_by_role("link", name="Search").click()
    page.get_by_label("Search the memory for").fill("boat")
    page.keyboard.press("Enter")
    found = page.locator("section").filter(has=page.get_by_role("heading", name="Passages", exact=True))
    expect(found.locator("li").first).to_contain_text("Berlengas")
    expect(found.locator("li").first).to_contain_text("the same words")
    said = page.locator("section").filter(has=page.get_by_role("heading", name="Messages", exact=True))
    expect(said.locator("li").filter(has_text="Cabo Avelar").first).to_contain_text("the same words")
    screenshot(page, "memory-search")
    assert violations(page) == []
    page.reload()
    expect(found.locator("li").first).to_contain_text("Berlengas")
    page.goto(f"{watched.url}/#/memory/{agent['id']}/passages?contains=Berlengas")
    expect(rows).to_have_count(1)
    rows.first.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete passage").click()
    expect(page.get_by_text("No passages here.")).to_be_visible()


def test_facts_are_shown_with_their_times(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    agent = make_agent(api, "learner", model=OPENAI, kelpie_facts={"every_turns": 1})
    base = f"/v1/agents/{agent['id']}"
    for place, text in enumerate(FACTS):
        api.post(f"{base}/messages", json={"messages": [{"role": "user", "content": text}]})
        wait_for("the fact is stored", lambda number=place + 1: len(api.get(f"{base}/facts").json()) == number, 60)
    page = watched.open(f"#/memory/{agent['id']}/facts")
    rows = page.get_by_role("table", name="Facts").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="Oslo")).to_contain_text("true now")
    expect(rows.filter(has_text="Berlin")).to_contain_text("replaced")
    screenshot(page, "memory-facts")
    assert violations(page) == []
    page.get_by_label("Only what is true now").check()
    expect(rows).to_have_count(1)
    page.get_by_role("link", name="Search").click()
    page.get_by_label("Search the memory for").fill("Oslo")
    page.keyboard.press("Enter")
    found = page.locator("section").filter(has=page.get_by_role("heading", name="Facts", exact=True))
    expect(found.locator("li").first).to_contain_text("The user moved to Oslo.")
    expect(found.locator("li").first).to_contain_text("the same words")
    page.goto(f"{watched.url}/#/memory/{agent['id']}/facts?current=true")
    rows.first.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete fact").click()
    expect(rows.filter(has_text="Oslo")).to_have_count(0)
    assert "Oslo" not in api.get(f"{base}/facts").text


def test_facts_say_how_to_enable_them(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "factless")
    page = watched.open(f"#/memory/{agent['id']}/facts")
    expect(page.get_by_text("No facts here.")).to_be_visible()
    assert violations(page) == []


def test_a_file_is_uploaded_opened_and_deleted(api: httpx.Client, watched: Watched, tmp_path: Path) -> None:
    agent = make_agent(api, "reader")
    page = watched.open(f"#/memory/{agent['id']}/files")
    page.get_by_role("button", name="Attach folder").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name of the new folder").fill("trips")
    dialog.get_by_role("button", name="Attach folder").click()
    expect(page.get_by_role("heading", name="Folder trips")).to_be_visible()
    text = tmp_path / "porto.md"
    text.write_text("# Porto\nThe bridge was built in 1886.\n")
    page.get_by_role("button", name="Upload file").click()
    page.get_by_role("dialog").get_by_label("File").set_input_files(text)
    page.get_by_role("dialog").get_by_role("button", name="Upload file").click()
    rows = page.get_by_role("table", name="Files in trips").locator("tbody tr")
    expect(rows.first).to_contain_text("porto.md")
    expect(rows.first).to_contain_text("completed")
    page.get_by_role("button", name="Open porto.md").click()
    page.locator("summary").filter(has_text="trips/porto.md").click()
    expect(page.get_by_role("region", name="trips/porto.md")).to_contain_text("1886")
    assert violations(page) == []
    page.get_by_role("button", name="Delete porto.md").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete file").click()
    expect(rows).to_have_count(0)
