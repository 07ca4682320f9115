"""Tasks that MCP servers run for agents: a call that is answered later, by a message to the agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kelpie.core.conversations.questions import Question
from kelpie.core.ids import AgentId, ConversationId, McpServerId, McpTaskId, OrganizationId, RunId
from kelpie.core.time import Micros

ENDED = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class McpTask:
    """`task_id` is the server's own. `poll_at` is None when nothing more is asked."""

    id: McpTaskId
    organization_id: OrganizationId
    server_id: McpServerId
    agent_id: AgentId
    conversation_id: ConversationId | None
    tool_name: str
    task_id: str
    status: str
    created_at: Micros
    updated_at: Micros
    expires_at: Micros
    poll_at: Micros | None
    poll_ms: int
    status_message: str | None = None
    questions: Mapping[str, Question] = field(default_factory=dict[str, Question])
    failures: int = 0  # to ask about it, in a row
    run_id: RunId | None = None  # which told the agent the result

    @property
    def ended(self) -> bool:
        return self.status in ENDED
