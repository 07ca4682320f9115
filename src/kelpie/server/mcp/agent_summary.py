"""An agent as MCP clients see it, without secrets."""

from typing import Any

from kelpie.core.agents.agent import AgentView
from kelpie.core.time import as_datetime


def agent_summary(view: AgentView) -> dict[str, Any]:
    agent = view.agent
    return {
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "model": agent.model.handle,
        "tags": list(agent.tags),
        "updated_at": as_datetime(agent.updated_at).isoformat(),
    }
