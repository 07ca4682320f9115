"""The screenshots of docs/dashboard.md and README.md, made from a small story. To renew them:

KELPIE_TEST_SCREENSHOTS=docs/images .venv/bin/python -m pytest tests/dashboard/test_screenshots.py
"""

import re
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.acceptance.wire_model import OPENAI, WireModel
from tests.dashboard.agents import make_agent, require_approval, say
from tests.dashboard.watched import Watched

OWN_SERVER = True

PLAN = """Here is a plan for **three days in Porto**:

1. The river, then the bookshop
2. A tea house, because you like green tea
3. The sea

| Day | Cost |
|---|---|
| 1 | 40 € |
| 2 | 55 € |
"""


def test_the_pictures_of_the_documentation(
    api: httpx.Client, model: WireModel, visit: Callable[..., Watched], screenshot: Callable[[Page, str], Path]
) -> None:
    blocks = [{"label": "human", "value": "Name: Ada\nLikes green tea"}, {"label": "persona", "value": "I plan trips."}]
    agent = make_agent(api, "bea", model=OPENAI, description="Plans trips.", memory_blocks=blocks)
    for name, line in (("tutor", {"text": "Até logo!"}), ("accountant", {"error": "llm_rate_limit"})):
        say(api, make_agent(api, name), line)
    asked = {"messages": [{"role": "user", "content": "Plan three days in Porto for me, please."}]}
    model.will([("conversation_search", {"query": "Porto"})], PLAN)
    assert api.post(f"/v1/agents/{agent['id']}/messages", json=asked).status_code == 200
    require_approval(api, agent, "memory_insert")
    model.will([("memory_insert", {"label": "human", "new_string": "Plans a trip to Porto"})])
    said = {"messages": [{"role": "user", "content": "Good. Remember that."}]}
    assert api.post(f"/v1/agents/{agent['id']}/messages", json=said).status_code == 200
    block = api.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human").json()
    changed = {"value": "Name: Ada\nLikes green tea and old bookshops\nTravels by train"}
    assert api.patch(f"/v1/blocks/{block['id']}", json=changed).status_code == 200
    page = visit(viewport={"width": 1100, "height": 860}).open(f"#/chat/{agent['id']}")
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    screenshot(page, "chat")
    page.set_viewport_size({"width": 1100, "height": 700})
    places = {
        "runs": ("#/runs", "tbody tr:nth-child(4)"),
        "prompt": (f"#/prompt/{agent['id']}", "summary.part"),
        "memory": (f"#/memory/{agent['id']}/blocks/{block['id']}", ".diff-line.added"),
        "inbox": ("#/inbox", "section pre"),
        "usage": ("#/usage", "figure"),
    }
    for name, (place, content) in places.items():
        page.goto(f"{page.url.partition('#')[0]}{place}")
        expect(page.locator("nav li [aria-current=page]")).to_have_attribute("href", re.compile(f"#/{name}"))
        expect(page.locator(f"main {content}").first).to_be_visible()
        if name == "memory":
            page.locator(f"main {content}").first.scroll_into_view_if_needed()
        screenshot(page, name)
