"""The server goes away while the page is open: the page says so, comes back, and shows the resumed turn once."""

import socket
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from tests.acceptance.served import Served, wait_for
from tests.dashboard.agents import make_agent, runs_of, script
from tests.dashboard.late_server import LateServer
from tests.dashboard.watched import Watched

AWAY = "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INTERNET_DISCONNECTED"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LateServer]:
    """A server that has the same address in each life."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    running = LateServer(tmp_path_factory.mktemp("data"), KELPIE_PORT=str(port))
    try:
        running.start()
        yield running
    finally:
        running.close()


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


def test_the_log_goes_on_after_a_restart(server: Served, api: httpx.Client, watched: Watched) -> None:
    watched.expect(AWAY)
    agent = make_agent(api, "logged")["id"]

    def fail() -> None:
        assert api.post(f"/v1/agents/{agent}/messages", json={"input": script({"error": "llm_rate_limit"})}).is_error

    page = watched.open(f"#/logs?contains={agent}")
    lines = page.get_by_role("log").locator(".log-line:not(.hint)")
    fail()
    expect(lines).to_have_count(1)
    server.kill()
    expect(page.locator(".banner")).to_be_visible()
    server.start()
    fail()
    expect(lines).to_have_count(2)
    expect(page.locator(".banner")).to_be_hidden()


def test_runs_that_were_recovered_or_have_stored_nothing_for_long_are_marked(
    server: LateServer, api: httpx.Client, watched: Watched
) -> None:
    """One turn is killed while the model works, another waits behind it; then ten minutes pass."""
    agent = make_agent(api, "held-up", memory_blocks=[{"label": "human", "value": "x"}])
    insert = {"name": "memory_insert", "arguments": {"label": "human", "new_string": "y"}}
    path = f"/v1/agents/{agent['id']}/messages/async"
    slow = script({"calls": [insert]}, {"text": "late", "wait_s": 60})
    first = api.post(path, json={"messages": [{"role": "user", "content": slow}]}).json()
    journal = f"/v1/kelpie/runs/{first['id']}"
    wait_for("its first step is stored", lambda: len(api.get(journal).json()["journal"]) > 1, 30)
    second = api.post(path, json={"messages": [{"role": "user", "content": script({"text": "next"})}]}).json()
    server.kill()
    server.ahead_s = 600
    server.start()
    wait_for("the turn is resumed", lambda: api.get(journal).json()["recoveries"] == 1, 30)
    page = watched.open("#/runs?state=stuck")
    rows = page.get_by_role("table", name="Runs").locator("tbody tr")
    expect(rows).to_have_count(2)
    for run, state in ((first, "running"), (second, "waiting")):
        row = rows.filter(has=page.locator(f"a[href$='{run['id']}']"))
        expect(row).to_contain_text(state)
        expect(row.get_by_text("stuck", exact=True)).to_be_visible()
    expect(rows.filter(has_text="recovered 1 time")).to_have_count(1)
    rows.filter(has_text="recovered 1 time").locator("a").first.click()
    expect(page.get_by_text("this run may be stuck")).to_be_visible()
    expect(page.get_by_text("Wait, or cancel the run")).to_be_visible()
    expect(page.locator("dl.facts")).to_contain_text("recovered 1 time")
    page.get_by_role("button", name="Cancel run").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
    expect(page.locator("dl.facts")).to_contain_text("cancelled")
    wait_for("the other one went on", lambda: api.get(f"/v1/runs/{second['id']}").json()["status"] == "completed", 30)
    page.get_by_role("link", name="All runs").click()
    page.get_by_label("State").select_option("stuck")
    expect(page.get_by_text("No runs match.")).to_be_visible()
