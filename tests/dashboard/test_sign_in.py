"""Signing in to a server with a password, directly and behind a proxy with a path prefix."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.served import Served, served
from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent, script
from tests.dashboard.prefix_proxy import prefix_proxy
from tests.dashboard.watched import Watched

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("data"), KELPIE_SERVER_PASSWORD=PASSWORD) as running:
        yield running


@pytest.fixture(scope="module")
def api(server: Served) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {PASSWORD}"}
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60, headers=headers) as client:
        yield client


def sign_in(page: Page, credential: str) -> None:
    page.get_by_label("API key or server password").fill(credential)
    page.keyboard.press("Enter")


def test_a_person_signs_in_stays_signed_in_and_signs_out(watched: Watched) -> None:
    watched.expect("status of 401")
    page = watched.open("#/agents")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Kelpie")
    assert violations(page) == []
    sign_in(page, "wrong")
    expect(page.get_by_role("alert")).to_contain_text("neither a valid API key nor the server password")
    sign_in(page, PASSWORD)
    expect(page.get_by_role("heading", level=1)).to_have_text("Agents")
    assert page.evaluate("document.cookie") == ""
    stored = page.evaluate("JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage)])")
    assert PASSWORD not in stored and "kelpie-session" not in stored
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Agents")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Kelpie")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Kelpie")


def test_a_revoked_key_ends_the_session_in_front_of_the_person(api: httpx.Client, watched: Watched) -> None:
    watched.expect("status of 401")
    key: dict[str, Any] = api.post("/v1/kelpie/keys", json={"name": "k", "scopes": ["write"]}).json()
    page = watched.open("#/agents")
    sign_in(page, key["key"])
    expect(page.get_by_role("heading", level=1)).to_have_text("Agents")
    api.delete(f"/v1/kelpie/keys/{key['id']}")
    page.get_by_label("Search agents by name").fill("x")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Kelpie")


def test_everything_works_behind_a_prefix(server: Served, api: httpx.Client, visit: Callable[..., Watched]) -> None:
    agent = make_agent(api, "proxied")
    with prefix_proxy(server.url, "/tools/kelpie") as url:
        watched = visit(url)
        watched.expect("status of 401")
        page = watched.open(f"#/chat/{agent['id']}")
        sign_in(page, PASSWORD)
        expect(page.get_by_role("heading", level=1)).to_have_text("proxied")
        page.get_by_role("textbox", name="Message").fill(script({"text": "through the proxy"}))
        page.keyboard.press("Enter")
        expect(page.get_by_role("article", name="Agent")).to_contain_text("through the proxy")
        page.reload()
        expect(page.get_by_role("article", name="Agent")).to_contain_text("through the proxy")
        [cookie] = page.context.cookies()
        assert cookie.get("path") == "/tools/kelpie" and cookie.get("httpOnly") is True
        page.close()
