"""Cancelling of runs, of an agent or of a conversation. The answer says for each run if it has ended."""

from pydantic import BaseModel, ConfigDict

from kelpie.core.ids import AgentId
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.limits.request_limits import Links
from kelpie.server.http.path_ids import AgentPath, ThreadPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.conversations.routes import OfAgent, thread_of

router = resource("", "messages")


class CancelBody(BaseModel):
    """The runs to cancel; all that have not ended when none are named."""

    model_config = ConfigDict(extra="ignore")

    run_ids: Links | None = None


@router.post("/agents/{agent_id}/messages/cancel", summary="Cancel runs of an agent", response_model=None)
async def cancel_runs(api: CallerApi, agent_id: AgentPath, body: CancelBody | None = None) -> JsonAnswer:
    return JsonAnswer(await api.cancellations.of_agent(agent_id, body.run_ids if body else None))


@router.post(
    "/conversations/{conversation_id}/cancel", summary="Cancel the runs of a conversation", response_model=None
)
async def cancel_conversation(api: CallerApi, conversation_id: ThreadPath, agent_id: OfAgent = None) -> JsonAnswer:
    thread = thread_of(conversation_id, agent_id)
    if isinstance(thread, AgentId):
        return JsonAnswer(await api.cancellations.of_default(thread))
    return JsonAnswer(await api.cancellations.of_conversation(thread))
