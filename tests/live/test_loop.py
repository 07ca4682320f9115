"""A whole agent on each provider that is set up: it answers, edits its memory, and remembers after a restart.

Another one reads the web, where a search provider is set up.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from letta_client import Letta

from tests.cli.live import live
from tests.live.conftest import chosen, live_variables, made

pytestmark = pytest.mark.live
SEARCH_PROVIDERS = ("TAVILY_API", "EXA_API", "BRAVE_", "SEARXNG_")


async def test_an_agent_remembers(provider: str, tmp_path: Path) -> None:
    models = made()
    try:
        model = await chosen(models, provider)
    finally:
        await models.close()
    with live(tmp_path / "data", live_variables("providers.")) as place:
        started = place.kelpie("server", "start")
        assert started.returncode == 0, started.stderr
        client = Letta(base_url=place.url, timeout=600)
        agent = client.agents.create(
            name="live",
            model=model.handle,
            memory_blocks=[
                {"label": "human", "value": "Nothing is known yet."},
                {"label": "persona", "value": "Brief."},
            ],
        )
        note = "My name is Zenobia. Save this fact in your memory block 'human' now."
        reply = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": note}])
        assert reply.stop_reason.stop_reason == "end_turn"
        if model.tools:
            assert "Zenobia" in (client.agents.blocks.retrieve("human", agent_id=agent.id).value or "")
        assert place.kelpie("server", "stop").returncode == 0
        assert place.kelpie("server", "start").returncode == 0
        asked = place.kelpie("chat", "live", "-m", "What is my name? Answer with the name only.")
        assert asked.returncode == 0, asked.stderr
        assert "Zenobia" in asked.stdout


def test_an_agent_searches_the_web_and_reads_a_page(tmp_path: Path) -> None:
    settings = live_variables("web.")
    if not any(name.startswith(SEARCH_PROVIDERS) for name in settings):
        pytest.skip("Set TAVILY_API_KEY, EXA_API_KEY, BRAVE_API_KEY or SEARXNG_BASE_URL to search the web")
    with live(tmp_path / "data", settings) as place:
        started = place.kelpie("server", "start")
        assert started.returncode == 0, started.stderr
        client = Letta(base_url=place.url, timeout=600)
        tools = ["web_search", "fetch_webpage"]
        agent = client.agents.create(name="reader", model="kelpie/demo", tools=tools, include_base_tools=False)

        def result(tool: str, arguments: dict[str, Any]) -> str:
            script = [{"calls": [{"name": tool, "arguments": arguments}]}, {"text": "Done."}]
            reply = client.agents.messages.create(agent.id, input=f"!script {json.dumps(script)}")
            (told,) = [each for each in reply.messages if each.message_type == "tool_return_message"]
            assert told.status == "success", told
            return str(told.tool_return)

        found = json.loads(result("web_search", {"query": "Python programming language", "num_results": 3}))["results"]
        assert found and all(each["title"] and each["url"].startswith("http") for each in found), found
        assert "Python" in result("fetch_webpage", {"url": "https://www.python.org/"})
