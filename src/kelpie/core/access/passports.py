"""A passport: what code of a tool shows when it calls back into our API. It says for which agent it works, in which
turn, and who waits for that turn, so that no code can ask somebody who waits for it."""

from dataclasses import dataclass

from kelpie.core.conversations.agent_chain import UNCHAINED, AgentChain
from kelpie.core.ids import AgentId, OrganizationId, RunId, StepId, UserId
from kelpie.core.time import Micros


@dataclass(frozen=True, slots=True)
class Passport:
    """Good for one call of one tool. Nothing is kept of it when the call has ended."""

    agent_id: AgentId
    organization_id: OrganizationId
    user_id: UserId  # whose agent it is
    expires_at: Micros
    chain: AgentChain = UNCHAINED  # behind whatever the code asks: the agent itself waits in it
    run_id: RunId | None = None
    step_id: StepId | None = None
    tool: str | None = None  # the name that was called
    conversation_id: str | None = None
