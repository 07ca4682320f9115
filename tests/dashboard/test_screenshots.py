"""The screenshots of docs/dashboard.md, made from a small story. `KELPIE_TEST_SCREENSHOTS=docs/images` renews them."""

from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.acceptance.wire_model import OPENAI, WireModel
from tests.dashboard.agents import make_agent, require_approval
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
    say = {"messages": [{"role": "user", "content": "Plan three days in Porto for me, please."}]}
    model.will([("conversation_search", {"query": "Porto"})], PLAN)
    assert api.post(f"/v1/agents/{agent['id']}/messages", json=say).status_code == 200
    require_approval(api, agent, "memory_insert")
    model.will([("memory_insert", {"label": "human", "new_string": "Plans a trip to Porto"})])
    said = {"messages": [{"role": "user", "content": "Good. Remember that."}]}
    assert api.post(f"/v1/agents/{agent['id']}/messages", json=said).status_code == 200
    page = visit(viewport={"width": 1200, "height": 760}).open(f"#/chat/{agent['id']}")
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    screenshot(page, "chat")
    page.goto(f"{page.url.partition('#')[0]}#/runs")
    expect(page.get_by_role("table", name="Runs").locator("tbody tr")).to_have_count(2)
    screenshot(page, "runs")
    page.goto(f"{page.url.partition('#')[0]}#/prompt/{agent['id']}")
    expect(page.get_by_role("heading", name="Where the tokens go")).to_be_visible()
    screenshot(page, "prompt")
