"""A whole agent on each provider that is set up: it answers, edits its memory, and remembers after a restart."""

from pathlib import Path

import pytest
from letta_client import Letta

from tests.cli.live import live
from tests.live.conftest import chosen, live_variables, made

pytestmark = pytest.mark.live


async def test_an_agent_remembers(provider: str, tmp_path: Path) -> None:
    models = made()
    try:
        model = await chosen(models, provider)
    finally:
        await models.close()
    with live(tmp_path / "data", live_variables()) as place:
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


def test_the_web() -> None:
    pytest.skip("Kelpie has no tool that reads the web yet")
