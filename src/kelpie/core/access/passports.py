"""The passport: the token that code of a tool sends when it calls back into the API.

It names the agent, its turn, and the agents that wait for that turn, so that no code can message an agent that waits
for it.
"""

from dataclasses import dataclass

from kelpie.core.conversations.agent_chain import UNCHAINED, AgentChain
from kelpie.core.ids import AgentId, OrganizationId, RunId, StepId, UserId
from kelpie.core.time import Micros


@dataclass(frozen=True, slots=True)
class Passport:
    """A token for one call of one tool. It ends with the call, and nothing of it is stored."""

    agent_id: AgentId
    organization_id: OrganizationId
    user_id: UserId  # the owner of the agent
    expires_at: Micros
    chain: AgentChain = UNCHAINED  # behind whatever the code asks: the agent itself waits in it
    run_id: RunId | None = None
    step_id: StepId | None = None
    tool: str | None = None  # the name that was called
    conversation_id: str | None = None
    egress: tuple[str, ...] = ()  # the hosts that the code may reach, and to which it may refer in a message
