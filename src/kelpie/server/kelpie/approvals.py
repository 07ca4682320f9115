"""Tool calls that wait for a client, in all conversations. The answers go to the routes of messages."""

from typing import Annotated, Any

from fastapi import Query

from kelpie.core.agents.agent import Include
from kelpie.core.conversations.approvals import PendingRequest
from kelpie.core.ids import DEFAULT_CONVERSATION
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp
from kelpie.server.letta.messages.shape import call_shape

router = resource("/kelpie/approvals", "approvals (Kelpie)")
agent_router = resource("/agents/{agent_id}/approvals", "approvals (Kelpie)")

LIMIT_MAX = 1000


Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Maximum number of requests.")]


@router.get("", summary="List the tool calls that wait for an approval or a client (Kelpie)", response_model=None)
async def list_approvals(api: CallerApi, limit: Limit = 50) -> JsonAnswer:
    return await listed(await api.pending_approvals.newest(None, limit), request_shape)


@agent_router.get("", summary="List the tool calls of an agent that wait (Kelpie)", response_model=None)
async def list_agent_approvals(api: CallerApi, agent_id: AgentPath, limit: Limit = 50) -> JsonAnswer:
    await api.agents.get(agent_id, Include())  # which must exist
    return await listed(await api.pending_approvals.newest(agent_id, limit), request_shape)


def request_shape(request: PendingRequest) -> dict[str, Any]:
    """A pending request; `waits_for` is `approval` or `client`, and null for a call that already has an answer."""
    calls = [
        call_shape(call) | {"waits_for": None if call.id in request.answered else call.awaits.value}
        for call in request.message.tool_calls
        if call.awaits
    ]
    return {
        "agent_id": request.message.agent_id,
        "agent_name": request.agent_name,
        "conversation_id": request.conversation or DEFAULT_CONVERSATION,
        "message_id": request.message.id,
        "run_id": request.message.run_id,
        "requested_at": timestamp(request.requested_at),
        "tool_calls": calls,
    }
