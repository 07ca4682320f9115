"""Context windows: their usage, and compaction on request."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from kelpie.agent.compaction.compactor import CompactionResult
from kelpie.core.ids import DEFAULT_CONVERSATION, ConversationId
from kelpie.server.http.json_answer import JsonAnswer, joined_json
from kelpie.server.http.limits.free_json import FreeSettings
from kelpie.server.http.path_ids import AgentPath, ThreadPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.conversations.routes import thread_of
from kelpie.server.letta.conversations.window_shape import overview_shape, stored_message

router = resource("", "context windows")


class CompactionBody(BaseModel):
    """Settings for this compaction, field by field over the agent's own settings."""

    model_config = ConfigDict(extra="ignore")

    compaction_settings: FreeSettings | None = None
    agent_id: str | None = Field(None, description="The agent, if the path says `default`.")


OfConversation = Annotated[
    str | None, Query(description="A conversation of the agent. Defaults to the default conversation.")
]


@router.get("/agents/{agent_id}/context", summary="Get a breakdown of an agent's context window", response_model=None)
async def context_of_agent(api: CallerApi, agent_id: AgentPath, conversation_id: OfConversation = None) -> JsonAnswer:
    thread = None if conversation_id in (None, DEFAULT_CONVERSATION) else ConversationId.parse(conversation_id)
    seen = await api.context_windows.overview(agent_id, thread)
    stored = await joined_json(seen.history, lambda message: (stored_message(message, seen.agent.created_by_id),))
    return JsonAnswer(overview_shape(seen) | {"messages": stored})


@router.post("/agents/{agent_id}/summarize", summary="Compact an agent's context", response_model=None)
async def compact_agent(api: CallerApi, agent_id: AgentPath, body: CompactionBody | None = None) -> JsonAnswer:
    return JsonAnswer(_shape(await api.context_windows.compact(agent_id, body.compaction_settings if body else None)))


@router.post("/conversations/{conversation_id}/compact", summary="Compact a conversation", response_model=None)
async def compact_conversation(
    api: CallerApi, conversation_id: ThreadPath, body: CompactionBody | None = None
) -> JsonAnswer:
    thread = thread_of(conversation_id, body.agent_id if body else None)
    return JsonAnswer(_shape(await api.context_windows.compact(thread, body.compaction_settings if body else None)))


def _shape(done: CompactionResult) -> dict[str, Any]:
    return {"summary": done.summary, "num_messages_before": done.before, "num_messages_after": done.after}
