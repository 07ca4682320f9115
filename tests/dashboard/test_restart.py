"""The server goes away while the page is open: the page says so, comes back, and shows the resumed turn once."""

import socket
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from tests.acceptance.served import Served, served
from tests.dashboard.agents import make_agent, runs_of, script
from tests.dashboard.watched import Watched

AWAY = "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INTERNET_DISCONNECTED"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that has the same address in each life."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with served(tmp_path_factory.mktemp("data"), KELPIE_PORT=str(port)) as running:
        yield running


def test_a_crash_in_a_turn_is_told_and_the_resumed_turn_is_shown_once(
    server: Served, api: httpx.Client, watched: Watched
) -> None:
    watched.expect(AWAY)
    agent = make_agent(api, "survivor", memory_blocks=[{"label": "human", "value": "x"}])
    insert = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "y"}}
    page = watched.open(f"#/chat/{agent['id']}")
    page.get_by_label("Message", exact=True).fill(script({"calls": [insert]}, {"text": "after all", "wait_s": 5}))
    page.keyboard.press("Enter")
    expect(page.get_by_role("article", name="Tool call")).to_contain_text("done")
    server.kill()
    expect(page.locator(".banner")).to_be_visible()
    server.start()
    expect(page.locator(".banner")).to_be_hidden()
    expect(page.get_by_role("article", name="Agent")).to_contain_text("after all")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    for name in ("You", "Tool call", "Agent"):
        expect(page.get_by_role("article", name=name)).to_have_count(1)
    [run] = runs_of(api, agent)
    assert run["status"] == "completed" and run["recoveries"] == 1
    page.goto(f"{page.url.partition('#')[0]}#/runs?state=recovered")
    row = page.get_by_role("table", name="Runs").locator("tbody tr")
    expect(row).to_contain_text("recovered 1 time")


def test_a_message_that_may_not_have_arrived_is_sent_again_and_counted_once(
    server: Served, api: httpx.Client, watched: Watched
) -> None:
    watched.expect(AWAY)
    agent = make_agent(api, "resent")
    page = watched.open(f"#/chat/{agent['id']}")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    server.kill()
    page.get_by_label("Message", exact=True).fill(script({"text": "got it"}))
    page.keyboard.press("Enter")
    expect(page.locator(".banner")).to_be_visible()
    server.start()
    expect(page.get_by_role("article", name="Agent")).to_contain_text("got it")
    expect(page.get_by_role("article", name="You")).to_have_count(1)
    assert len(runs_of(api, agent)) == 1


def test_a_page_without_network_stays_readable_and_recovers(
    server: Served, api: httpx.Client, watched: Watched
) -> None:
    watched.expect(AWAY)
    make_agent(api, "offline-agent")
    page = watched.open("#/agents")
    expect(page.get_by_role("link", name="offline-agent", exact=True)).to_be_visible()
    page.context.set_offline(True)
    page.get_by_label("Search agents by name").fill("offline")
    expect(page.locator(".banner")).to_be_visible()
    expect(page.get_by_role("link", name="offline-agent", exact=True)).to_be_visible()
    page.context.set_offline(False)
    page.get_by_role("button", name="Try now").click()
    expect(page.locator(".banner")).to_be_hidden()
    expect(page.get_by_role("table", name="Agents").locator("tbody tr")).to_have_count(1)
