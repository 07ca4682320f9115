"""Webhooks: addresses at which other programs wake an agent."""

from dataclasses import dataclass

from kelpie.core.ids import AgentId, ConversationId, HookId, OrganizationId
from kelpie.core.time import Micros

HOOKS_MAX = 100  # of one agent
INSTRUCTIONS_CHARS_MAX = 10_000
NAME_CHARS_MAX = 200
NO_HOOK = "Its address has a wrong token, or it was renewed or deleted; use the address that was shown last."


@dataclass(frozen=True, slots=True)
class Webhook:
    """Its token is shown once; only a hash of it is stored."""

    id: HookId
    organization_id: OrganizationId
    agent_id: AgentId
    name: str
    created_at: Micros
    updated_at: Micros
    conversation_id: ConversationId | None = None  # None: the agent's default conversation
    instructions: str | None = None  # stand before each body
    enabled: bool = True
    last_used_at: Micros | None = None
