"""An agent's model outside of a turn: preview of the payload for a message, and generation without memory."""

import orjson
from pydantic import BaseModel, ConfigDict, field_validator
from starlette.responses import Response

from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.limits.free_json import JsonSchema
from kelpie.server.http.path_ids import AgentPath, ThreadPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.conversations.routes import thread_of
from kelpie.server.letta.messages.body import SendBody, send_command
from kelpie.server.letta.messages.stream_shape import usage_shape

router = resource("", "messages")


class ThreadSend(SendBody):
    """A message for a conversation, which streams unless `streaming` is false."""

    agent_id: str | None = None
    streaming: bool = True


class Generate(BaseModel):
    model_config = ConfigDict(extra="ignore")

    prompt: str
    system_prompt: str | None = None
    override_model: str | None = None
    response_schema: JsonSchema | None = None

    @field_validator("prompt")
    @classmethod
    def _not_blank(cls, prompt: str) -> str:
        if not prompt.strip():
            raise ValueError("the prompt is blank; write what the model should answer")
        return prompt


@router.post(
    "/agents/{agent_id}/messages/preview-raw-payload",
    summary="Preview the model request for a message",
    response_model=None,
)
async def preview_payload(api: CallerApi, agent_id: AgentPath, body: SendBody) -> Response:
    command = send_command(body, streaming=body.streaming)
    payload = await api.model_previews.payload(agent_id, command.messages, deltas=command.deltas)
    return JsonAnswer(orjson.Fragment(payload))


@router.post(
    "/conversations/{conversation_id}/messages/preview-raw-payload",
    summary="Preview the model request for a message in a conversation",
    response_model=None,
)
async def preview_conversation_payload(api: CallerApi, conversation_id: ThreadPath, body: ThreadSend) -> Response:
    thread = thread_of(conversation_id, body.agent_id)
    command = send_command(body, streaming=body.streaming)
    return JsonAnswer(
        orjson.Fragment(await api.model_previews.payload(thread, command.messages, deltas=command.deltas))
    )


@router.post(
    "/agents/{agent_id}/generate", summary="Ask an agent's model without the agent's memory", response_model=None
)
async def generate(api: CallerApi, agent_id: AgentPath, body: Generate) -> JsonAnswer:
    found = await api.model_previews.generate(
        agent_id,
        body.prompt,
        system=body.system_prompt,
        model=body.override_model,
        schema=body.response_schema,
    )
    return JsonAnswer({"content": found.content, "model": found.model, "usage": usage_shape(found.usage, 0, None)})
