"""What a newcomer's scripts share: an agent to make, words to say to it, and ways to read it back through the SDK."""

from typing import Any

from tests.acceptance.sdk import every, got

TYPES = ("letta_v1_agent", "memgpt_agent")
INCLUDES = ["agent.blocks", "agent.tools", "agent.tags", "agent.secrets"]
BLOCKS = [{"label": "human", "value": "Name: Ada"}, {"label": "persona", "value": "I am a careful helper."}]


async def new_agent(client: Any, agent_type: str) -> Any:
    return await got(
        client.agents.create(
            name="First", agent_type=agent_type, model="kelpie/demo", memory_blocks=BLOCKS,
            tags=["newcomer"], secrets={"TOKEN": "a b c"},
        )
    )  # fmt: skip


async def say(client: Any, agent: Any, text: str) -> Any:
    answer = await got(client.agents.messages.create(agent.id, messages=[{"role": "user", "content": text}]))
    assert answer.stop_reason.stop_reason == "end_turn"
    return answer


async def history(client: Any, agent: Any) -> list[Any]:
    return await every(client.agents.messages.list(agent.id, order="asc", limit=1000))


async def block(client: Any, agent: Any, label: str) -> Any:
    return await got(client.agents.blocks.retrieve(label, agent_id=agent.id))


def plain(model: Any) -> dict[str, Any]:
    """An answer without how the agent's activation is doing: a restart may change that, and nothing else."""
    return {name: value for name, value in model.model_dump(mode="json").items() if name != "kelpie_status"}


async def everything(client: Any, agent: Any) -> dict[str, Any]:
    """All that the API tells about an agent."""
    runs = await every(client.runs.list(agent_id=agent.id, order="asc"))
    return {
        "agent": plain(await got(client.agents.retrieve(agent.id, include=INCLUDES))),
        "messages": [plain(one) for one in await history(client, agent)],
        "blocks": [plain(one) for one in await every(client.agents.blocks.list(agent.id))],
        "tools": [plain(one) for one in await every(client.agents.tools.list(agent.id, limit=50))],
        "runs": [plain(one) for one in runs],
        "steps": [[plain(one) for one in await every(client.runs.steps.list(run.id))] for run in runs],
    }
