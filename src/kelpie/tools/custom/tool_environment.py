"""The view of its agent that a custom tool gets, and its environment variables."""

from dataclasses import dataclass
from typing import Any

from kelpie.core.agents.agent import Agent
from kelpie.core.errors import SecretUnreadable, ToolError
from kelpie.core.ids import OrganizationId
from kelpie.storage.agents import secrets as agent_secrets
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.tools import sandbox_configs, tools
from kelpie.world.database import Tx
from kelpie.world.keyring import Keyring

PARAMETER = "agent_state"


@dataclass(frozen=True, slots=True)
class ToolEnvironment:
    """`env` are the organization's variables, and over them the agent's secrets."""

    env: dict[str, str]
    state: dict[str, Any] | None = None


def tool_environment(tx: Tx, agent: Agent, with_state: bool, keyring: Keyring) -> ToolEnvironment:
    """The environment of a call of the agent at this moment. Raises ToolError for a secret that cannot be decrypted."""
    env = organization_variables(tx, agent.organization_id, keyring)
    for secret in agent_secrets.of_agents(tx, [agent.id], keyring).get(agent.id, ()):
        if secret.unreadable is not None:
            raise ToolError(f"{secret.key}: {secret.unreadable}")
        env[secret.key] = secret.value
    return ToolEnvironment(env, _state(tx, agent) if with_state else None)


def organization_variables(tx: Tx, organization: OrganizationId, keyring: Keyring) -> dict[str, str]:
    """Environment variables of every tool of the organization. Raises ToolError for one that cannot be decrypted."""
    try:
        return sandbox_configs.environment(tx, organization, keyring)
    except SecretUnreadable as error:
        raise ToolError(str(error)) from error


def _state(tx: Tx, agent: Agent) -> dict[str, Any]:
    """The agent by the names that Letta's clients know, as far as tools read them; its secrets are not in it."""
    blocks = [
        {
            "id": block.id,
            "label": block.label,
            "value": block.value,
            "limit": block.limit,
            "description": block.description,
            "read_only": block.read_only,
            "metadata": dict(block.metadata),
            "tags": list(block.tags),
        }
        for block in block_attachments.of_agent(tx, agent.id)
    ]
    carried = [{"id": tool.id, "name": tool.name, "tool_type": tool.tool_type} for tool in tools.of_agent(tx, agent.id)]
    return {
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "agent_type": agent.agent_type,
        "system": agent.system,
        "model": agent.model.handle,
        "embedding": agent.embedding,
        "metadata": dict(agent.metadata or {}),
        "tags": list(agent.tags),
        "timezone": agent.timezone,
        "project_id": agent.project_id,
        "memory": {"blocks": blocks},
        "blocks": blocks,
        "tools": carried,
    }
